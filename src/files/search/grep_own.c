/* SPDX-License-Identifier: Apache-2.0 */
/* The search without ripgrep: block by block, literally or by the C library's extended regular
 * expressions, one file after the other. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/search.h"
#include "files/search/grep.h"

enum {
    BLOCK = 1 << 20,
    MOST_LINE = 64 << 20, /* what is behind that in a line is not searched, and that is told */
    MOST_REGEX = 4096,
    MOST_NODES = 10000, /* of it, with all its repetitions */
    MOST_NESTED = 100,
};

struct own {
    struct grep *g;
    bool is_regex;
    bool fold;
    bool compiled;
    regex_t regex;
    char *needle;
    size_t needle_size;
    char *bytes; /* of the file */
    char *lower; /* the same without upper case, if that is asked for */
    size_t cap;
    uint64_t number; /* of the line at hand */
    bool enough;
};

/* --- the pattern --- */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Behind a bracket expression, where a backslash is nothing special. */
static const char *pass_bracket(const char *c)
{
    c += c[1] == '^' ? 2 : 1;
    c += *c == ']';
    while (*c && *c != ']') {
        const char *named = *c == '[' && c[1] && strchr(":.=", c[1]) ? c + 1 : NULL;
        const char *end = named ? strchr(named + 1, *named) : NULL;
        c = end && end[1] == ']' ? end + 2 : c + 1;
    }
    return *c ? c + 1 : c;
}

/* Behind an interval; the largest of its numbers is how often. */
static const char *pass_interval(const char *c, unsigned long *ret)
{
    *ret = 1;
    for (c++; *c == ',' || (*c >= '0' && *c <= '9'); c++) {
        unsigned long n = strtoul(c, NULL, 10);
        *ret = *ret > n ? *ret : n;
    }
    *ret += *ret < ULONG_MAX; /* "{n,}" has one more */
    return c + (*c == '}');
}

/* What an expression comes to when it is written out. */
struct price {
    unsigned long outer[MOST_NESTED]; /* what the groups around this one have come to */
    unsigned depth;
    unsigned long all;
    unsigned long last; /* the thing that a repetition would repeat */
};

static bool repeat(struct price *p, unsigned long times)
{
    if (p->last > 0 && times > MOST_NODES / p->last)
        return false;
    p->all += p->last * times - p->last;
    p->last *= times;
    return true;
}

/* Behind the next part of it; NULL: it is too much. */
static const char *pass_part(struct price *p, const char *c)
{
    unsigned long times = 2; /* of a "+" */

    switch (*c) {
    case '(':
        if (p->depth == MOST_NESTED)
            return NULL;
        p->outer[p->depth++] = p->all;
        p->all = p->last = 0;
        return c + 1;
    case ')':
        if (p->depth > 0) {
            p->last = p->all + 1;
            p->all = p->outer[--p->depth] + p->last;
        }
        return c + 1;
    case '{':
        c = pass_interval(c, &times);
        return repeat(p, times) ? c : NULL;
    case '+':
        return repeat(p, times) ? c + 1 : NULL;
    case '*':
    case '?':
        p->last++;
        p->all++;
        return c + 1;
    default:
        p->last = 1;
        p->all++;
        return *c == '[' ? pass_bracket(c) : c + (*c == '\\' && c[1] ? 2 : 1);
    }
}

/* The C library writes repetitions out, nested ones within each other, a "+" as the thing twice; it
 * tries every way there is for a back-reference, and calls itself for each parenthesis. None of
 * these has a bound of its own. */
static const char *too_hard(const char *pattern)
{
    struct price price = {.depth = 0};

    if (strlen(pattern) > MOST_REGEX)
        return "the regular expression is too long";
    for (const char *c = pattern; *c;) {
        if (*c == '\\' && c[1] >= '1' && c[1] <= '9')
            return "there are no back-references";
        c = pass_part(&price, c);
        if (!c || price.all > MOST_NODES)
            return "the regular expression repeats too much, or is nested too deeply";
    }
    return NULL;
}

/* 0, 1: answered, or -errno. */
static int read_pattern(struct own *o)
{
    const struct files_message *m = o->g->call->m;
    char words[256];

    if (o->is_regex) {
        const char *no = too_hard(m->pattern);
        int r = no ? 0
                   : regcomp(&o->regex, m->pattern,
                             REG_EXTENDED | REG_NOSUB | (o->fold ? REG_ICASE : 0));
        o->compiled = !no && r == 0;
        if (o->compiled)
            return 0;
        if (!no)
            (void)regerror(r, NULL, words, sizeof(words));
        answer_error(o->g->call, 400, "invalid_pattern", "%s", no ? no : words);
        return 1;
    }
    o->needle_size = strlen(m->pattern);
    o->needle = strdup(m->pattern);
    for (size_t i = 0; o->needle && o->fold && i < o->needle_size; i++)
        o->needle[i] = lower(o->needle[i]);
    return o->needle ? 0 : -ENOMEM;
}

/* --- a block of whole lines --- */

static const char *line_end(const char *from, const char *end)
{
    const char *found = from < end ? memchr(from, '\n', (size_t)(end - from)) : NULL;

    return found ? found : end;
}

/* Something in the next line that matches. */
static const char *next_hit(struct own *o, const char *from, const char *end)
{
    if (!o->is_regex) {
        const char *in = o->fold ? o->lower + (from - o->bytes) : from;
        const char *hit = memmem(in, (size_t)(end - from), o->needle, o->needle_size);
        return hit ? from + (hit - in) : NULL;
    }
    while (from < end) {
        const char *to = line_end(from, end);
        regmatch_t part = {.rm_so = 0, .rm_eo = (regoff_t)(to - from)};
        if (regexec(&o->regex, from, 0, &part, REG_STARTEND) == 0)
            return from;
        from = to + 1;
    }
    return NULL;
}

static void feed(struct own *o, const char *from, const char *to, bool is_match)
{
    struct grep_line line = {
        .number = o->number, .text = from, .n = (size_t)(to - from), .is_match = is_match};

    if (!o->enough)
        o->enough = !grep_line(o->g, &line);
}

static size_t count_lines(const char *from, const char *to)
{
    size_t n = 0;

    for (; from < to; from = line_end(from, to) + 1)
        n++;
    return n;
}

/* Lines without a match: those that may be near one are handed on. */
static void feed_others(struct own *o, const char *from, const char *to)
{
    size_t n = count_lines(from, to);
    uint64_t near = o->g->context;

    for (size_t i = 0; near > 0 && i < n; i++, o->number++) {
        const char *end = line_end(from, to);
        if (i < near || i + near >= n)
            feed(o, from, end, false);
        from = end + 1;
    }
    if (near == 0)
        o->number += n;
}

static void search_lines(struct own *o, const char *from, const char *end)
{
    for (size_t i = 0; o->fold && !o->is_regex && from + i < end; i++)
        o->lower[(size_t)(from - o->bytes) + i] = lower(from[i]);
    while (from < end && !o->enough) {
        const char *hit = next_hit(o, from, end);
        if (!hit)
            break;
        const char *above = hit > from ? memrchr(from, '\n', (size_t)(hit - from)) : NULL;
        const char *line = above ? above + 1 : from;
        const char *to = line_end(hit, end);
        feed_others(o, from, line);
        feed(o, line, to, true);
        o->number++;
        from = to + 1;
    }
    if (from < end && !o->enough)
        feed_others(o, from, end);
}

/* --- a file --- */

static bool grow(struct own *o)
{
    size_t cap = o->cap ? 2 * o->cap : BLOCK;
    char *bytes = realloc(o->bytes, cap);

    if (!bytes)
        return false;
    o->bytes = bytes;
    if (o->fold) {
        char *copy = realloc(o->lower, cap);
        if (!copy)
            return false;
        o->lower = copy;
    }
    o->cap = cap;
    return true;
}

/* The line is longer than anything: the rest of it is passed over. n: how much is kept. */
static bool pass_line(struct own *o, int fd, size_t *n)
{
    char rest[16384];
    ssize_t got;

    o->g->truncated = true;
    while ((got = read(fd, rest, sizeof(rest))) > 0) {
        const char *end = memchr(rest, '\n', (size_t)got);
        if (!end)
            continue;
        search_lines(o, o->bytes, o->bytes + *n);
        *n = (size_t)(rest + got - end - 1);
        memcpy(o->bytes, end + 1, *n);
        return true;
    }
    return false;
}

/* What is at hand, n bytes: searches its whole lines, and moves the rest to the front. */
static size_t search_block(struct own *o, size_t n)
{
    const char *last = memrchr(o->bytes, '\n', n);
    size_t whole = last ? (size_t)(last - o->bytes) + 1 : 0;

    if (whole > 0)
        search_lines(o, o->bytes, o->bytes + whole);
    memmove(o->bytes, o->bytes + whole, n - whole);
    return n - whole;
}

static void search_file(struct own *o, int fd, const char *path)
{
    size_t n = 0;
    bool first = true;
    ssize_t got;

    if (!grep_begin_file(o->g, path)) {
        o->enough = true;
        return;
    }
    o->number = 1;
    while (!o->enough && (got = read(fd, o->bytes + n, o->cap - n)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        n += (size_t)got;
        if (first && memchr(o->bytes, '\0', n < GREP_BINARY ? n : GREP_BINARY)) {
            n = 0;
            break;
        }
        first = false;
        n = search_block(o, n);
        if (n == o->cap && (n < MOST_LINE ? !grow(o) : !pass_line(o, fd, &n)))
            break;
        o->enough = o->enough || files_client_left(o->g->call);
    }
    if (n > 0 && !o->enough)
        search_lines(o, o->bytes, o->bytes + n);
    grep_end_file(o->g);
}

static enum walk_answer see(void *context, const struct tree_entry *entry)
{
    struct own *o = context;
    bool is_dir = S_ISDIR(entry->st.st_mode);
    struct stat st;

    if (files_client_left(o->g->call))
        return WALK_STOP;
    if (is_dir && search_passes(o->g->call->m->path, entry))
        return WALK_PAST;
    if (!is_dir && !S_ISREG(entry->st.st_mode))
        return WALK_ON;
    if (!grep_wants(o->g, entry->path, is_dir))
        return WALK_PAST;
    if (is_dir || entry->st.st_size == 0)
        return WALK_ON;
    scoped_fd int fd =
        openat(entry->dir, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        search_file(o, fd, entry->path);
    return o->enough ? WALK_STOP : WALK_ON;
}

int grep_by_ourselves(struct grep *g)
{
    const struct files_message *m = g->call->m;
    struct own o = {
        .g = g, .is_regex = m->flags & FILES_REGEX, .fold = m->flags & FILES_IGNORE_CASE};
    int r = read_pattern(&o);

    if (r == 0 && !grow(&o))
        r = -ENOMEM;
    if (r == 0 && g->single)
        search_file(&o, g->file, "");
    else if (r == 0)
        r = files_walk(m->path, UINT32_MAX, see, NULL, &o);
    if (o.compiled)
        regfree(&o.regex);
    free(o.needle);
    free(o.bytes);
    free(o.lower);
    if (r == 1 && !g->call->answered)
        r = 0; /* the walk was stopped: enough has been found */
    return r;
}
