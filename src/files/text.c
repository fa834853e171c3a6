/* SPDX-License-Identifier: Apache-2.0 */
/* A file by pages of lines, for those who read text. A line ends with LF; CRLF is told as LF; pages
 * put together are the file. What is in memory is one page, however large the file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "files/core/paths.h"

enum {
    PAGE_MOST = 500 << 10,
    BINARY_MOST = 500 << 10,
    LOOK = 8192,          /* bytes that tell whether it is text */
    COUNT_MOST = 1 << 20, /* a file up to this size is always counted to its end */
    PROC_MOST = 1 << 20,
    CHUNK = 32768,
    ASK_AFTER = 256, /* chunks: whether the client is still there */
};

struct pager {
    uint64_t offset;
    uint64_t limit;
    uint64_t line;  /* lines that have ended */
    bool in_line;   /* ... and one more has begun */
    bool held;      /* a CR, until it is known what follows */
    uint64_t taken; /* lines in the page */
    size_t whole;   /* bytes of the page that are whole lines */
    bool full;      /* nothing more goes into the page */
    bool cut;       /* its only line is longer than a page */
    bool over;      /* it is full of bytes, not of lines */
    struct buf page;
};

/* The page holds more than it may: only whole lines stay, or the beginning of the one. */
static void cut_page(struct pager *p)
{
    p->full = true;
    p->over = true;
    if (p->taken > 0) {
        p->page.n = p->whole;
        return;
    }
    size_t n = PAGE_MOST;
    for (int i = 0; i < 3 && ((unsigned char)p->page.p[n] & 0xc0) == 0x80; i++)
        n--; /* not within a character */
    p->page.n = n;
    p->cut = true;
}

/* A line, or a part of it that ends where the bytes at hand end. */
static void take_part(struct pager *p, const char *bytes, size_t n)
{
    bool ended = bytes[n - 1] == '\n';

    if (p->held && bytes[0] != '\n')
        buf_add(&p->page, "\r", 1);
    p->held = bytes[n - 1] == '\r';
    if (p->held) {
        buf_add(&p->page, bytes, n - 1);
    } else if (ended && n > 1 && bytes[n - 2] == '\r') {
        buf_add(&p->page, bytes, n - 2);
        buf_add(&p->page, "\n", 1);
    } else {
        buf_add(&p->page, bytes, n);
    }
    if (p->page.failed)
        return;
    if (p->page.n > PAGE_MOST) {
        cut_page(p);
    } else if (ended) {
        p->whole = p->page.n;
        p->full = ++p->taken == p->limit;
    }
}

static void feed(struct pager *p, const char *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *end = memchr(bytes + at, '\n', n - at);
        size_t part = end ? (size_t)(end - (bytes + at)) + 1 : n - at;
        if (p->line >= p->offset && !p->full)
            take_part(p, bytes + at, part);
        p->in_line = !end;
        p->line += end != NULL;
        at += part;
    }
}

/* The end of the file: what had begun is a line as well. */
static void feed_end(struct pager *p)
{
    if (p->in_line && p->line >= p->offset && !p->full) {
        if (p->held)
            buf_add(&p->page, "\r", 1);
        p->taken++;
    }
    p->line += p->in_line;
}

/* Whether reading further is worth anything. A page is told with the number of all lines where that
 * is cheap; a line that was cut is read to its end, to know whether there is another. */
static bool wants_more(const struct pager *p, uint64_t size)
{
    return !p->full || size <= COUNT_MOST || (p->cut && p->line == p->offset);
}

/* Past a hole, which holds no end of a line. */
static uint64_t skip_hole(struct pager *p, int fd, uint64_t at, uint64_t end)
{
    off_t data = lseek(fd, (off_t)at, SEEK_DATA);

    if (data < 0 && errno != ENXIO)
        return at;
    uint64_t to = data < 0 || (uint64_t)data > end ? end : (uint64_t)data;
    p->in_line |= to > at;
    return to;
}

/* 1: to the end, 0: before it, -errno. */
static int read_lines(struct files_call *call, struct pager *p, int fd, uint64_t end, bool sparse)
{
    char bytes[CHUNK];
    uint64_t at = 0;

    for (unsigned chunks = 1; at < end && wants_more(p, end); chunks++) {
        if (sparse && (p->full || p->line < p->offset)) {
            at = skip_hole(p, fd, at, end);
            if (at == end)
                break;
        }
        size_t most = end - at < sizeof(bytes) ? (size_t)(end - at) : sizeof(bytes);
        ssize_t n = pread(fd, bytes, most, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0) {
            at = end; /* it has become shorter */
            break;
        }
        feed(p, bytes, (size_t)n);
        at += (uint64_t)n;
        if (p->page.failed)
            return -ENOMEM;
        if (chunks % ASK_AFTER == 0 && files_client_left(call))
            return -EPIPE;
    }
    if (at < end)
        return 0;
    feed_end(p);
    return 1;
}

/* --- the answer --- */

static void number_or_null(struct emit *e, const char *key, bool known, uint64_t number)
{
    if (known) {
        emit_number(e, key, (int64_t)number);
        return;
    }
    emit_comma(e);
    emit_raw(e, "\"");
    emit_raw(e, key);
    emit_raw(e, "\":null");
}

static void begin(struct emit *e, struct files_call *call, const void *content, size_t n)
{
    const char *encoding = bytes_are_utf8(content, n) ? "utf-8" : "base64";

    emit_begin(e, call, false, FILES_TYPE_JSON);
    emit_raw(e, "{");
    emit_bytes(e, "path", call->m->path, strlen(call->m->path));
    emit_bytes(e, "content", content, n);
    emit_bytes(e, "encoding", encoding, strlen(encoding));
}

static void finish(struct emit *e, const struct stat *st, bool truncated, bool binary)
{
    char etag[FILES_ETAG];

    files_etag(st, etag);
    emit_comma(e);
    emit_raw(e, truncated ? "\"truncated\":true" : "\"truncated\":false");
    emit_bytes(e, "etag", etag, strlen(etag));
    emit_number(e, "size", st->st_size);
    emit_comma(e);
    emit_raw(e, binary ? "\"binary\":true}" : "\"binary\":false}");
    emit_finish(e, 200);
}

static void answer_page(struct files_call *call, const struct pager *p, const struct stat *st,
                        bool to_end)
{
    /* Where there is no line there is no first and last either. */
    bool some = p->taken > 0;
    uint64_t next = p->offset + p->taken;
    struct emit e;

    begin(&e, call, p->page.n ? p->page.p : "", p->page.n);
    number_or_null(&e, "total_lines", to_end, p->line);
    number_or_null(&e, "start_line", some, p->offset + 1);
    number_or_null(&e, "end_line", some, next);
    number_or_null(&e, "next_offset", some && !(to_end && next >= p->line), next);
    finish(&e, st, p->over, false);
}

static void read_page(struct files_call *call, int fd, const struct stat *st, uint64_t size)
{
    const struct files_message *m = call->m;
    struct pager p = {.offset = m->offset, .limit = m->limit, .full = m->limit == 0};
    bool sparse = (uint64_t)st->st_blocks * 512 < (uint64_t)st->st_size;

    buf_init(&p.page, PAGE_MOST + 2 * CHUNK);
    int r = read_lines(call, &p, fd, size, sparse);
    if (p.cut)
        p.taken = 1;
    if (r < 0)
        answer_errno(call, r, m->path);
    else if (r == 1 && p.offset >= p.line && p.offset > 0)
        answer_error(call, 416, "invalid_range",
                     "Line offset %llu exceeds file length (%llu lines)",
                     (unsigned long long)p.offset, (unsigned long long)p.line);
    else
        answer_page(call, &p, st, r == 1);
    buf_clear(&p.page);
}

/* What is no text goes whole, or not at all. */
static void read_binary(struct files_call *call, int fd, const struct stat *st)
{
    struct emit e;
    size_t n = 0;
    ssize_t got = 1;

    if (st->st_size > BINARY_MOST) {
        answer_error(call, 413, "too_large", "Binary file exceeds maximum preview size of %d bytes",
                     BINARY_MOST);
        return;
    }
    char *bytes = malloc(BINARY_MOST);
    while (bytes && n < BINARY_MOST && (got = pread(fd, bytes + n, BINARY_MOST - n, (off_t)n)) > 0)
        n += (size_t)got;
    if (!bytes || got < 0) {
        answer_errno(call, bytes ? errno : ENOMEM, call->m->path);
    } else {
        begin(&e, call, bytes, n);
        number_or_null(&e, "total_lines", false, 0);
        number_or_null(&e, "start_line", false, 0);
        number_or_null(&e, "end_line", false, 0);
        number_or_null(&e, "next_offset", false, 0);
        finish(&e, st, false, true);
    }
    free(bytes);
}

/* 1, 0 or -errno. */
static int looks_like_text(int fd)
{
    char bytes[LOOK];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);

    if (n < 0)
        return -errno;
    /* The last character may be cut in two by the end of the look. */
    for (ssize_t less = 0; less < 4 && less <= n; less++) {
        if (bytes_are_utf8(bytes, (size_t)(n - less)))
            return 1;
        if (n < LOOK)
            break;
    }
    return 0;
}

void files_text(struct files_call *call)
{
    const struct files_message *m = call->m;
    struct stat st;
    scoped_fd int fd = files_open(m->path, true, &st);

    if (fd >= 0 && S_ISDIR(st.st_mode)) {
        answer_errno(call, EISDIR, m->path);
        return;
    }
    int r = fd < 0 ? fd : looks_like_text(fd);
    if (r < 0)
        answer_errno(call, r, m->path);
    else if (r == 0)
        read_binary(call, fd, &st);
    else
        read_page(call, fd, &st, files_is_sizeless(fd, &st) ? PROC_MOST : (uint64_t)st.st_size);
}
