/* SPDX-License-Identifier: Apache-2.0 */
/* Forms with files: the value of Content-Type, a NUL, and the body. The parts of one that is taken
 * lie in the body, one behind the other, without its boundary; written out in the plainest way,
 * they are read as the same ones. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "http/multipart.h"

enum {
    PARTS = 64,
    MOST = 1 << 20
};

static void put_text(struct buf *b, const char *text)
{
    buf_str(b, "\"");
    for (; *text; text++) {
        if (*text == '"')
            buf_str(b, "\\");
        buf_add(b, text, 1);
    }
    buf_str(b, "\"");
}

static void put_part(struct buf *b, const struct http_part *part, const char *boundary)
{
    buf_printf(b, "--%s\r\nContent-Disposition: form-data; name=", boundary);
    put_text(b, part->name);
    if (part->filename) {
        buf_str(b, "; filename=");
        put_text(b, part->filename);
    }
    buf_str(b, "\r\n\r\n");
    buf_add(b, part->bytes, part->n);
    buf_str(b, "\r\n");
}

static bool is_same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* Copies of its texts, as the parser keeps only one part's. */
static void keep(struct http_part *p)
{
    p->name = strdup(p->name);
    p->filename = p->filename ? strdup(p->filename) : NULL;
}

static void must_lie_behind(const char *last, const struct http_multipart *m,
                            const struct http_part *p)
{
    MUST(p->name && p->bytes >= last && p->bytes + p->n <= m->end);
    MUST(!memmem(p->bytes, p->n, m->delimiter, m->delimiter_n));
}

/* Returns how many there are; below 0: it is refused, behind so many and one. */
static int read_all(const char *type, const char *bytes, size_t n, struct http_part *parts,
                    char *boundary)
{
    static struct http_multipart m;
    const char *why = "";
    const char *last = bytes;
    int count = 0;
    int r = http_multipart_begin(&m, type, bytes, n, &why);

    MUST(r == 0 || *why);
    if (r < 0)
        return -1;
    memcpy(boundary, m.delimiter + 4, m.delimiter_n - 4);
    boundary[m.delimiter_n - 4] = '\0';
    while (count < PARTS && (r = http_multipart_next(&m, &parts[count], &why)) == 1) {
        struct http_part *p = &parts[count++];
        must_lie_behind(last, &m, p);
        last = p->bytes + p->n;
        keep(p);
    }
    MUST(r >= 0 || *why);
    return r < 0 ? -1 - count : count;
}

static void drop(struct http_part *parts, int count)
{
    for (int i = 0; i < (count < 0 ? -1 - count : count); i++) {
        free((char *)(uintptr_t)parts[i].name);
        free((char *)(uintptr_t)parts[i].filename);
    }
}

static void must_be_read_again(const struct http_part *parts, int count, const char *boundary)
{
    static struct http_part again[PARTS];
    char unused[HTTP_BOUNDARY + 1];
    char type[128];
    struct buf b;

    buf_init(&b, MOST);
    for (int i = 0; i < count; i++)
        put_part(&b, &parts[i], boundary);
    buf_printf(&b, "--%s--", boundary);
    snprintf(type, sizeof(type), "multipart/form-data; boundary=\"%s\"", boundary);
    if (buf_done(&b) == 0) {
        int n = read_all(type, b.p, b.n, again, unused);
        MUST(n == count);
        for (int i = 0; i < n; i++)
            MUST(is_same(again[i].name, parts[i].name) &&
                 is_same(again[i].filename, parts[i].filename) && again[i].n == parts[i].n &&
                 memcmp(again[i].bytes, parts[i].bytes, parts[i].n) == 0);
        drop(again, n);
    }
    buf_clear(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct http_part parts[PARTS];
    char boundary[HTTP_BOUNDARY + 1];
    const uint8_t *nul = size ? memchr(data, '\0', size) : NULL;

    if (!nul)
        return 0;
    size_t n = size - (size_t)(nul + 1 - data);
    char *body = malloc(n + 1);
    if (!body)
        return 0;
    memcpy(body, nul + 1, n);
    int count = read_all((const char *)data, body, n, parts, boundary);
    if (count >= 0 && count < PARTS)
        must_be_read_again(parts, count, boundary);
    drop(parts, count);
    free(body);
    return 0;
}
