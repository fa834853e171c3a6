/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of the record, as bytes: how one is told from anything else, and where they lie.
 *
 * A line is read as strictly as it is written. There is one way to write each record, so nobody
 * can hide a second "seq" or a second line in one that the hash covers. */
#include "audit/line.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/fd.h"

enum {
    DEPTH = 64,          /* of brackets in details */
    SEGMENTS = 1 << 20,  /* most files that are listed */
    FIRST_ROOM = 1 << 16 /* bytes read at once; grows up to a longest line */
};

/* --- JSON, as far as it must be understood --- */

struct scan {
    const char *p;
    const char *end;
};

static bool take(struct scan *s, char c)
{
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

static bool take_text(struct scan *s, const char *text)
{
    size_t n = strlen(text);

    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0)
        return false;
    s->p += n;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool take_digits(struct scan *s)
{
    const char *start = s->p;

    while (s->p != s->end && is_digit(*s->p))
        s->p++;
    return s->p != start;
}

/* The four digits of an escape; -1 when they are not. */
static int take_hex4(struct scan *s)
{
    int code = 0;

    for (int i = 0; i < 4; i++, s->p++) {
        if (s->p == s->end)
            return -1;
        char c = *s->p;
        if (is_digit(c))
            code = code * 16 + (c - '0');
        else if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'))
            code = code * 16 + ((c | 0x20) - 'a' + 10);
        else
            return -1;
    }
    return code;
}

/* Behind a backslash. Halves of a surrogate pair come in twos, or no parser takes the line. */
static bool take_escape(struct scan *s)
{
    if (s->p == s->end)
        return false;
    char c = *s->p++;
    if (c != 'u')
        return c && strchr("\"\\/bfnrt", c);
    int code = take_hex4(s);
    if (code < 0 || (code >= 0xdc00 && code < 0xe000))
        return false;
    if (code < 0xd800 || code >= 0xe000)
        return true;
    if (!take_text(s, "\\u"))
        return false;
    code = take_hex4(s);
    return code >= 0xdc00 && code < 0xe000;
}

static bool take_string(struct scan *s)
{
    uint32_t code;

    if (!take(s, '"'))
        return false;
    while (s->p != s->end) {
        if (take(s, '"'))
            return true;
        if (take(s, '\\')) {
            if (!take_escape(s))
                return false;
            continue;
        }
        size_t n = utf8_next(s->p, (size_t)(s->end - s->p), &code);
        if (!n || code < 0x20)
            return false;
        s->p += n;
    }
    return false;
}

static bool take_number(struct scan *s)
{
    take(s, '-');
    if (!take(s, '0') && !take_digits(s))
        return false;
    if (take(s, '.') && !take_digits(s))
        return false;
    if (take(s, 'e') || take(s, 'E')) {
        if (!take(s, '+'))
            take(s, '-');
        return take_digits(s);
    }
    return true;
}

static bool take_scalar(struct scan *s)
{
    if (s->p != s->end && *s->p == '"')
        return take_string(s);
    return take_text(s, "true") || take_text(s, "false") || take_text(s, "null") || take_number(s);
}

static void skip_spaces(struct scan *s)
{
    while (take(s, ' '))
        ;
}

static bool take_key(struct scan *s)
{
    skip_spaces(s);
    if (!take_string(s))
        return false;
    skip_spaces(s);
    return take(s, ':');
}

/* The brackets that are still to be closed: no recursion, however deep. */
struct nest {
    char closing[DEPTH];
    size_t depth;
};

static bool is_at_closing(const struct scan *s, const struct nest *nest)
{
    return nest->depth && s->p != s->end && *s->p == nest->closing[nest->depth - 1];
}

/* What begins here, up to where its first value begins; or, when it is empty, to its end. */
static bool take_opening(struct scan *s, struct nest *nest, bool *ret_is_empty)
{
    bool is_object = take(s, '{');

    if (!is_object && !take(s, '['))
        return false;
    if (nest->depth == DEPTH)
        return false;
    nest->closing[nest->depth++] = is_object ? '}' : ']';
    skip_spaces(s);
    *ret_is_empty = is_at_closing(s, nest);
    return !is_object || *ret_is_empty || take_key(s);
}

/* Behind a value: whatever ends with it, and up to where the next one begins. */
static bool take_closing(struct scan *s, struct nest *nest)
{
    skip_spaces(s);
    while (is_at_closing(s, nest)) {
        s->p++;
        if (--nest->depth == 0)
            return true;
        skip_spaces(s);
    }
    return take(s, ',') && (nest->closing[nest->depth - 1] == ']' || take_key(s));
}

static bool take_object(struct scan *s)
{
    struct nest nest = {.depth = 0};

    if (s->p == s->end || *s->p != '{')
        return false;
    do {
        bool is_empty = true; /* as a text or a number: nothing begins inside it */
        skip_spaces(s);
        bool is_opening = s->p != s->end && (*s->p == '{' || *s->p == '[');
        if (!(is_opening ? take_opening(s, &nest, &is_empty) : take_scalar(s)))
            return false;
        if (is_empty && !take_closing(s, &nest))
            return false;
    } while (nest.depth);
    return true;
}

bool audit_is_object(const char *p, size_t n)
{
    struct scan s = {p, p + n};

    return take_object(&s) && s.p == s.end;
}

/* --- one line --- */

static bool take_seq(struct scan *s, uint64_t *ret)
{
    const char *start = s->p;
    uint64_t seq = 0;

    while (s->p != s->end && is_digit(*s->p)) {
        if (__builtin_mul_overflow(seq, 10, &seq) ||
            __builtin_add_overflow(seq, (uint64_t)(*s->p - '0'), &seq))
            return false;
        s->p++;
    }
    *ret = seq;
    return seq && *start != '0';
}

static bool take_shape(struct scan *s, const char *shape)
{
    for (; *shape; shape++, s->p++)
        if (s->p == s->end || (*shape == '0' ? !is_digit(*s->p) : *s->p != *shape))
            return false;
    return true;
}

static bool take_hash(struct scan *s)
{
    for (int i = 0; i < AUDIT_HEX - 1; i++, s->p++)
        if (s->p == s->end || !(is_digit(*s->p) || (*s->p >= 'a' && *s->p <= 'f')))
            return false;
    return true;
}

bool audit_parse(const char *line, size_t n, struct audit_line *ret)
{
    static const char *const texts[] = {
        "\",\"actor\":", ",\"workspace\":", ",\"request\":", ",\"operation\":", ",\"result\":"};
    struct scan s = {line, line + n};

    if (!take_text(&s, "{\"seq\":") || !take_seq(&s, &ret->seq) || !take_text(&s, ",\"time\":\""))
        return false;
    ret->time = s.p;
    if (!take_shape(&s, "0000-00-00T00:00:00.000000Z"))
        return false;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (!take_text(&s, texts[i]) || !take_string(&s))
            return false;
    if (!take_text(&s, ",\"details\":") || !take_object(&s) || !take_text(&s, ",\"prev\":\""))
        return false;
    ret->prev = s.p;
    return take_hash(&s) && take_text(&s, "\"}") && s.p == s.end;
}

/* Looked up once: that takes longer than to hash a line. */
bool audit_is_brokers(const char *line, size_t n, const struct audit_line *parsed,
                      const char *operation)
{
    char wanted[128];
    const char *p = parsed->time + AUDIT_TIME - 1;

    int length = snprintf(wanted, sizeof(wanted),
                          "\",\"actor\":\"broker\",\"workspace\":\"\",\"request\":\"\","
                          "\"operation\":\"%s\"",
                          operation);
    return line + n - p > length && memcmp(p, wanted, (size_t)length) == 0;
}

int audit_hash(const char *line, size_t n, char ret_hex[AUDIT_HEX])
{
    _Static_assert((int)AUDIT_HEX == (int)DIGEST_HEX, "a hash is a SHA-256");
    return digest_hex(line, n, ret_hex) < 0 ? -1 : 0;
}

void audit_chain_init(struct audit_chain *chain)
{
    *chain = (struct audit_chain){0};
    memset(chain->head, '0', AUDIT_HEX - 1);
}

/* --- segments --- */

void audit_segment_name(uint32_t number, char ret_name[AUDIT_NAME])
{
    snprintf(ret_name, AUDIT_NAME, "%09u.jsonl", number % 1000000000);
}

/* 0 for a name that is none of ours. */
static uint32_t segment_number(const char *name)
{
    struct scan s = {name, name + strlen(name)};
    uint32_t number = 0;

    if (!take_shape(&s, "000000000.jsonl") || s.p != s.end)
        return 0;
    for (int i = 0; i < 9; i++)
        number = number * 10 + (uint32_t)(name[i] - '0');
    return number;
}

static int add_segment(struct audit_segments *segments, uint32_t number)
{
    if (segments->count == segments->room) {
        size_t room = segments->room ? segments->room * 2 : 64;
        uint32_t *numbers =
            room > SEGMENTS ? NULL : realloc(segments->numbers, room * sizeof(*numbers));
        if (!numbers)
            return -1;
        segments->numbers = numbers;
        segments->room = room;
    }
    segments->numbers[segments->count++] = number;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t one = *(const uint32_t *)a;
    uint32_t other = *(const uint32_t *)b;

    return one < other ? -1 : one > other;
}

static void scope_closedir(DIR **dir)
{
    if (*dir)
        (void)closedir(*dir);
}

int audit_list(int dir, struct audit_segments *ret, struct err *err)
{
    *ret = (struct audit_segments){0};
    scoped_fd int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    __attribute__((cleanup(scope_closedir))) DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream)
        return err_set(err, ERR_IO, errno, "list the audit record");
    (void)take_fd(&fd); /* the stream's now */
    for (;;) {
        errno = 0;
        const struct dirent *entry =
            readdir(stream); /* NOLINT(concurrency-mt-unsafe): our own stream */
        if (!entry && errno) {
            audit_segments_clear(ret);
            return err_set(err, ERR_IO, errno, "list the audit record");
        }
        if (!entry)
            break;
        uint32_t number = segment_number(entry->d_name);
        if (number && add_segment(ret, number) < 0) {
            audit_segments_clear(ret);
            return err_set(err, ERR_LIMIT, 0, "the audit record has too many files");
        }
    }
    if (ret->count)
        qsort(ret->numbers, ret->count, sizeof(*ret->numbers), by_number);
    return 0;
}

int audit_open_dir(const char *dir, struct audit_segments *ret, struct err *err)
{
    scoped_fd int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                       "open the audit record '%s'", dir);
    return audit_list(fd, ret, err) < 0 ? -1 : take_fd(&fd);
}

void audit_segments_clear(struct audit_segments *segments)
{
    free(segments->numbers);
    *segments = (struct audit_segments){0};
}

int audit_segment_open(int dir, uint32_t number)
{
    char name[AUDIT_NAME];

    audit_segment_name(number, name);
    /* Never a link, and never something that blocks: who can write here shall not lead us on. */
    return openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* --- lines of a file --- */

void audit_lines_init(struct audit_lines *lines, int *fd)
{
    *lines = (struct audit_lines){.fd = take_fd(fd)};
}

void audit_lines_clear(struct audit_lines *lines)
{
    scope_close(&lines->fd);
    free(lines->bytes);
    *lines = (struct audit_lines){.fd = -1};
}

void audit_lines_seek(struct audit_lines *lines, off_t offset)
{
    lines->start = lines->end = lines->torn = 0;
    lines->offset = offset;
}

/* 1 more bytes, 0 the end of the file, or -errno. */
static int read_more(struct audit_lines *lines)
{
    if (lines->start) {
        memmove(lines->bytes, lines->bytes + lines->start, lines->end - lines->start);
        lines->end -= lines->start;
        lines->start = 0;
    }
    if (lines->end == lines->room) {
        size_t room = lines->room ? lines->room * 2 : FIRST_ROOM;
        if (lines->room > AUDIT_LINE)
            return -EMSGSIZE;
        char *bytes = realloc(lines->bytes, room);
        if (!bytes)
            return -ENOMEM;
        lines->bytes = bytes;
        lines->room = room;
    }
    ssize_t n = pread(lines->fd, lines->bytes + lines->end, lines->room - lines->end,
                      lines->offset + (off_t)lines->end);
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    lines->end += (size_t)n;
    return n > 0;
}

int audit_lines_next(struct audit_lines *lines, const char **ret_line, size_t *ret_n)
{
    size_t seen = 0;

    for (;;) {
        size_t n = lines->end - lines->start;
        const char *line = n ? lines->bytes + lines->start : NULL;
        const char *newline = n > seen ? memchr(line + seen, '\n', n - seen) : NULL;
        if (newline) {
            *ret_line = line;
            *ret_n = (size_t)(newline - line);
            lines->start += *ret_n + 1;
            lines->offset += (off_t)*ret_n + 1;
            return 1;
        }
        seen = n;
        int rc = read_more(lines);
        if (rc == 0) {
            lines->torn = n;
            lines->end = lines->start;
        }
        if (rc <= 0)
            return rc;
    }
}
