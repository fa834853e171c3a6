/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: their heads are written anew, their bodies searched for secrets. One whose end is the
 * end of the connection goes in as chunks. */
#include "egress/inner.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "http/head.h"

enum {
    PIECE = 16384,
    STATUS_LINE = 12, /* "HTTP/1.1 200" */
};

struct fields {
    bool has_length;
    bool chunked;
    bool is_encoded;
    bool close;
    uint64_t length;
};

static int refuse(struct inner *r, const char *why)
{
    r->up = INNER_OVER;
    r->why = why;
    r->fix = "";
    r->is_servers = true;
    return -1;
}

void inner_expect(struct inner *r)
{
    r->down = INNER_STATUS;
    r->has_answer = false;
    r->is_done = false;
    buf_clear(&r->answer);
}

void inner_advance(struct inner *r)
{
    if (r->up != INNER_WAIT || !r->has_answer)
        return;
    r->up = r->is_closing ? INNER_OVER : INNER_HEAD;
    r->has_answer = false;
    r->why = NULL;
    mask_clear(&r->mask);
}

static void end_answer(struct inner *r)
{
    r->down = INNER_IDLE;
    r->has_answer = true;
    r->is_done = true;
    /* A server that answers before it has all does not want the rest. */
    if (r->up == INNER_BODY)
        r->up = INNER_OVER;
    inner_advance(r);
}

/* --- the body --- */

/* What may go in, as the client was told that it comes. */
static int put_data(struct inner *r, const char *bytes, size_t n, bool last, struct buf *out)
{
    bool chunks = r->down == INNER_CHUNKS || r->down == INNER_TO_END;
    scoped_buf struct buf found;

    buf_init(&found, MASK_WORD + (128UL << 10));
    if (r->masks)
        mask_bytes(&r->mask, bytes, n, last, &found);
    else
        buf_add(&found, bytes, n);
    if (chunks && found.n > 0)
        buf_printf(out, "%zx\r\n", found.n);
    buf_add(out, found.p, found.n);
    if (chunks && found.n > 0)
        buf_str(out, "\r\n");
    if (chunks && last)
        buf_str(out, "0\r\n\r\n");
    return found.failed || out->failed ? refuse(r, "there is no memory for its answer") : 0;
}

static ssize_t take_chunks(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    char piece[PIECE];
    size_t data = 0;
    bool done = false;

    n = n < sizeof(piece) ? n : sizeof(piece);
    memcpy(piece, bytes, n);
    ssize_t taken = http_chunks_decode(&r->down_chunks, piece, n, &data, &done);
    if (taken < 0)
        return refuse(r, "the chunks of the server's answer are malformed");
    if (put_data(r, piece, data, done, out) < 0)
        return -1;
    if (done)
        end_answer(r);
    return taken;
}

static ssize_t take_body(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    if (r->down == INNER_CHUNKS)
        return take_chunks(r, bytes, n, out);
    if (r->down == INNER_LENGTH && n > r->down_left)
        n = (size_t)r->down_left;
    if (r->down == INNER_LENGTH)
        r->down_left -= n;
    bool last = r->down == INNER_LENGTH && r->down_left == 0;
    if (put_data(r, bytes, n, last, out) < 0)
        return -1;
    if (last)
        end_answer(r);
    return (ssize_t)n;
}

/* --- the head --- */

static bool is_dropped(const char *name)
{
    static const char *const known[] = {"connection",        "keep-alive",    "proxy-connection",
                                        "transfer-encoding", "alt-svc",       "upgrade",
                                        "trailer",           "content-length"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(name, known[i]) == 0)
            return true;
    }
    return false;
}

static int read_field(struct inner *r, const struct http_header *h, struct fields *f)
{
    const char *why = NULL;

    if (strcmp(h->name, "content-length") == 0) {
        if (f->has_length || http_read_length(h->value, &f->length, &why) != 0)
            return refuse(r, "the server's answer has no length that is certain");
        f->has_length = true;
    } else if (strcmp(h->name, "transfer-encoding") == 0) {
        if (f->chunked || strcasecmp(h->value, "chunked") != 0)
            return refuse(r, "the server's answer comes in a coding that is not known");
        f->chunked = true;
    } else if (strcmp(h->name, "content-encoding") == 0) {
        f->is_encoded = strcasecmp(h->value, "identity") != 0;
    } else if (strcmp(h->name, "connection") == 0) {
        f->close = f->close || strcasestr(h->value, "close");
    }
    return 0;
}

static int put_fields(struct inner *r, char *line, const char *end, struct fields *f,
                      struct buf *out)
{
    while (line < end) {
        struct http_header h;
        char written[INNER_NAME];
        const char *why = NULL;
        size_t n = strlen(line);
        snprintf(written, sizeof(written), "%s", line);
        if (strcspn(line, ":") >= sizeof(written) || http_read_field(line, n, &h, &why) != 0)
            return refuse(r, "the head of the server's answer is malformed");
        if (read_field(r, &h, f) < 0)
            return -1;
        if (!is_dropped(h.name)) {
            buf_add(out, written, strlen(h.name)); /* as it came */
            buf_str(out, ": ");
            buf_str(out, h.value);
            buf_str(out, "\r\n");
        }
        line += n + 2;
    }
    return 0;
}

/* Of what kind the body is, and the fields that say so. */
static int choose_body(struct inner *r, const struct fields *f, struct buf *out)
{
    bool none = r->is_head || r->status == 204 || r->status == 304;

    if (f->chunked && f->has_length)
        return refuse(r, "the server's answer has no length that is certain");
    if (r->masks && f->is_encoded && !none)
        return refuse(r, "the server compresses its answer, which was asked for as it is, so that "
                         "it cannot be searched for the secret");
    r->is_closing = r->is_closing || f->close || (!f->chunked && !f->has_length && !none);
    if (f->has_length)
        buf_printf(out, "content-length: %llu\r\n", (unsigned long long)f->length);
    else if (!none)
        buf_str(out, "transfer-encoding: chunked\r\n");
    if (r->is_closing)
        buf_str(out, "connection: close\r\n");
    buf_str(out, "\r\n");
    r->down_chunks = (struct http_chunks){.left = 0};
    r->down_left = f->length;
    if (none || (f->has_length && f->length == 0))
        end_answer(r);
    else
        r->down = f->chunked ? INNER_CHUNKS : f->has_length ? INNER_LENGTH : INNER_TO_END;
    return out->failed ? refuse(r, "there is no memory for its answer") : 0;
}

static bool is_status_line(const char *line, size_t n)
{
    return n >= STATUS_LINE && memcmp(line, "HTTP/1.", 7) == 0 &&
           (line[7] == '0' || line[7] == '1') && line[8] == ' ' && line[9] >= '1' &&
           line[9] <= '5' && line[10] >= '0' && line[10] <= '9' && line[11] >= '0' &&
           line[11] <= '9' && (n == STATUS_LINE || line[STATUS_LINE] == ' ');
}

static unsigned digit(char c)
{
    return (unsigned)(c - '0');
}

static int check_head(struct inner *r, struct buf *out)
{
    struct fields f = {.length = 0};
    char *head = r->answer.p;
    char *end = head + r->answer.n - 2;

    if (r->masks)
        mask_whole(&r->mask, head, r->answer.n);
    for (const char *p = head; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if ((c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 0x7f ||
            (c == '\r' && p[1] != '\n') || (c == '\n' && (p == head || p[-1] != '\r')))
            return refuse(r, "the head of the server's answer is malformed");
    }
    for (char *p = head; (p = memchr(p, '\r', (size_t)(end - p)));)
        *p = '\0';
    size_t n = strlen(head);
    if (!is_status_line(head, n))
        return refuse(r, "what the server answers is not HTTP/1.1");
    unsigned status = 100 * digit(head[9]) + 10 * digit(head[10]) + digit(head[11]);
    if (status == 101)
        return refuse(r, "the server speaks another protocol from here on");
    if (status == 100)
        buf_str(out, "HTTP/1.1 100 Continue\r\n\r\n");
    if (status < 200) {
        buf_clear(&r->answer);
        return out->failed ? refuse(r, "there is no memory for its answer") : 0;
    }
    size_t before = out->n;
    r->status = status;
    r->is_closing = r->is_closing || head[7] == '0';
    buf_printf(out, "HTTP/1.1%s\r\n", head + 8);
    int result = put_fields(r, head + n + 2, end, &f, out);
    if (result == 0)
        result = choose_body(r, &f, out);
    if (result < 0) { /* nothing of it goes in */
        out->n = before;
        r->status = 0;
    }
    buf_clear(&r->answer);
    return result;
}

static ssize_t take_head(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    const char *feed = memchr(bytes, '\n', n);

    if (feed)
        n = (size_t)(feed - bytes) + 1;
    buf_add(&r->answer, bytes, n);
    if (buf_done(&r->answer) < 0)
        return refuse(r, "the head of the server's answer is larger than 64 KiB");
    if (feed && r->answer.n >= 4 && memcmp(r->answer.p + r->answer.n - 4, "\r\n\r\n", 4) == 0 &&
        check_head(r, out) < 0)
        return -1;
    return (ssize_t)n;
}

ssize_t inner_down(struct inner *r, const char *bytes, size_t n, struct buf *out)
{
    size_t at = 0;

    while (at < n) {
        if (r->down == INNER_IDLE)
            return refuse(r, "the server says something that it was not asked");
        ssize_t taken = r->down == INNER_STATUS ? take_head(r, bytes + at, n - at, out)
                                                : take_body(r, bytes + at, n - at, out);
        if (taken < 0)
            return -1;
        at += (size_t)taken;
        if (r->up == INNER_OVER) /* it was the last */
            return (ssize_t)n;
    }
    return (ssize_t)at;
}

int inner_down_end(struct inner *r, struct buf *out)
{
    if (r->down == INNER_IDLE)
        return 0;
    if (r->down != INNER_TO_END)
        return refuse(r, "the server has ended its answer in the middle");
    if (put_data(r, "", 0, true, out) < 0)
        return -1;
    end_answer(r);
    return 0;
}
