/* SPDX-License-Identifier: Apache-2.0 */
/* zip, written in one go: sizes and sums stand behind each file, and once more at the end with its
 * mode. Names that are UTF-8 say so; others go as they are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#include "base/bytes.h"
#include "files/archive/archive.h"

enum {
    FLAG_SIZES_BEHIND = 1 << 3,
    FLAG_UTF8 = 1 << 11,
    STORED = 0,
    DEFLATED = 8,
    UNIX = 3 << 8,
    OLD = 20, /* which version is needed to read it: 2.0, or 4.5 for large ones */
    LARGE = 45,
    EXTRA_TIME = 0x5455,
    EXTRA_LARGE = 1,
    ENTRY_END = 46 + 9 + 28, /* bytes of one at the end, without its name */
};

#define NOT_HERE       UINT32_MAX /* see the extra field */
#define NOT_HERE_16    UINT16_MAX
#define TREAT_AS_LARGE 0xf0000000ULL /* deflated it could become a little larger than it was */

/* Numbers are little-endian. */
struct fields {
    unsigned char bytes[128];
    size_t n;
};

static void number(struct fields *f, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        f->bytes[f->n++] = (unsigned char)(value >> (8 * i));
}

struct entry {
    const struct pack_item *item;
    const char *name;
    uint64_t at; /* where it begins */
    uint64_t size;
    uint64_t packed;
    uint32_t crc;
    unsigned method;
    unsigned flags;
    bool large;
};

/* As MS-DOS counts: two seconds, since 1980. */
static uint32_t dos_time(time_t t)
{
    struct tm parts;

    if (!gmtime_r(&t, &parts) || parts.tm_year < 80)
        return 1U << 21 | 1U << 16;
    if (parts.tm_year > 207)
        parts.tm_year = 207;
    return (uint32_t)(parts.tm_year - 80) << 25 | (uint32_t)(parts.tm_mon + 1) << 21 |
           (uint32_t)parts.tm_mday << 16 | (uint32_t)parts.tm_hour << 11 |
           (uint32_t)parts.tm_min << 5 | (uint32_t)parts.tm_sec / 2;
}

/* What both places say alike. */
static void common(struct fields *f, const struct entry *e, bool at_end)
{
    bool later = !at_end && (e->flags & FLAG_SIZES_BEHIND);

    number(f, e->large ? LARGE : OLD, 2);
    number(f, e->flags, 2);
    number(f, e->method, 2);
    number(f, dos_time(e->item->st.st_mtim.tv_sec), 4);
    number(f, later ? 0 : e->crc, 4);
    number(f, e->large ? NOT_HERE : later ? 0 : e->packed, 4);
    number(f, e->large ? NOT_HERE : later ? 0 : e->size, 4);
    number(f, strlen(e->name), 2);
}

static void put_time(struct fields *f, const struct entry *e)
{
    number(f, EXTRA_TIME, 2);
    number(f, 5, 2);
    number(f, 1, 1);
    number(f, (uint64_t)e->item->st.st_mtim.tv_sec, 4);
}

static void put_beginning(struct packer *p, const struct entry *e)
{
    struct fields f = {.n = 0};

    number(&f, 0x04034b50, 4);
    common(&f, e, false);
    number(&f, 9 + (e->large ? 20 : 0), 2);
    pack_bytes(p, f.bytes, f.n);
    pack_bytes(p, e->name, strlen(e->name));
    f.n = 0;
    put_time(&f, e);
    if (e->large) {
        number(&f, EXTRA_LARGE, 2);
        number(&f, 16, 2);
        number(&f, 0, 8);
        number(&f, 0, 8);
    }
    pack_bytes(p, f.bytes, f.n);
}

static void put_sizes(struct packer *p, const struct entry *e)
{
    struct fields f = {.n = 0};

    number(&f, 0x08074b50, 4);
    number(&f, e->crc, 4);
    number(&f, e->packed, e->large ? 8 : 4);
    number(&f, e->size, e->large ? 8 : 4);
    pack_bytes(p, f.bytes, f.n);
}

/* Kept until the end of the archive. */
static void keep(struct packer *p, const struct entry *e)
{
    bool far = e->at >= NOT_HERE;
    unsigned extra = (e->large ? 16U : 0U) + (far ? 8U : 0U);
    struct fields f = {.n = 0};

    number(&f, 0x02014b50, 4);
    number(&f, UNIX | LARGE, 2);
    common(&f, e, true);
    number(&f, 9 + (extra ? 4 + extra : 0), 2);
    number(&f, 0, 6); /* no comment, on the first disk, no attributes of its inside */
    number(&f, (uint64_t)e->item->st.st_mode << 16 | (S_ISDIR(e->item->st.st_mode) ? 0x10 : 0), 4);
    number(&f, far ? NOT_HERE : e->at, 4);
    buf_add(&p->central, f.bytes, f.n);
    buf_str(&p->central, e->name);
    f.n = 0;
    put_time(&f, e);
    if (extra) {
        number(&f, EXTRA_LARGE, 2);
        number(&f, extra, 2);
    }
    if (e->large) {
        number(&f, e->size, 8);
        number(&f, e->packed, 8);
    }
    if (far)
        number(&f, e->at, 8);
    buf_add(&p->central, f.bytes, f.n);
    if (p->central.failed)
        p->call->gone = true;
    p->entries++;
}

size_t zip_central_size(size_t name_length)
{
    return ENTRY_END + name_length + 1;
}

struct squeeze {
    z_stream z;
    unsigned char in[FILES_PIECE / 2];
    unsigned char out[FILES_PIECE / 2];
};

static void deflate_piece(struct packer *p, struct squeeze *s, struct entry *e, int how)
{
    do {
        s->z.next_out = s->out;
        s->z.avail_out = sizeof(s->out);
        (void)deflate(&s->z, how); /* fails only for states that cannot be here */
        size_t n = sizeof(s->out) - s->z.avail_out;
        pack_bytes(p, s->out, n);
        e->packed += n;
    } while (s->z.avail_out == 0 && !p->call->gone);
}

/* Its first `size` bytes; fewer cut the answer off. */
static void deflate_file(struct packer *p, struct squeeze *s, struct entry *e)
{
    uint64_t size = (uint64_t)e->item->st.st_size;

    while (e->size < size && !p->call->gone) {
        size_t most = size - e->size < sizeof(s->in) ? (size_t)(size - e->size) : sizeof(s->in);
        ssize_t n = pread(e->item->fd, s->in, most, (off_t)e->size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            p->call->gone = true;
            return;
        }
        e->crc = (uint32_t)crc32(e->crc, s->in, (uInt)n);
        e->size += (uint64_t)n;
        s->z.next_in = s->in;
        s->z.avail_in = (uInt)n;
        deflate_piece(p, s, e, Z_NO_FLUSH);
    }
    if (!p->call->gone)
        deflate_piece(p, s, e, Z_FINISH);
}

/* One for the whole archive: to make it takes longer than to pack a small file. */
static struct squeeze *begin_squeeze(struct packer *p)
{
    if (p->squeeze)
        return deflateReset(&p->squeeze->z) == Z_OK ? p->squeeze : NULL;
    p->squeeze = calloc(1, sizeof(*p->squeeze));
    if (p->squeeze && deflateInit2(&p->squeeze->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                                   Z_DEFAULT_STRATEGY) != Z_OK) {
        free(p->squeeze);
        p->squeeze = NULL;
    }
    return p->squeeze;
}

void zip_clear(struct packer *p)
{
    if (p->squeeze)
        (void)deflateEnd(&p->squeeze->z);
    free(p->squeeze);
}

static void file(struct packer *p, struct entry *e)
{
    struct squeeze *s = begin_squeeze(p);

    if (!s) {
        p->call->gone = true;
        return;
    }
    e->method = DEFLATED;
    e->flags |= FLAG_SIZES_BEHIND;
    e->large = (uint64_t)e->item->st.st_size >= TREAT_AS_LARGE;
    put_beginning(p, e);
    deflate_file(p, s, e);
    put_sizes(p, e);
}

void zip_item(struct packer *p, const struct pack_item *item)
{
    struct entry e = {.item = item, .at = p->written};
    scoped_buf struct buf name;

    buf_init(&name, PACK_NAME + 2);
    buf_str(&name, item->name);
    buf_str(&name, S_ISDIR(item->st.st_mode) ? "/" : "");
    if (buf_done(&name) < 0) {
        p->call->gone = true;
        return;
    }
    e.name = name.p;
    e.flags = bytes_are_utf8(name.p, name.n) ? FLAG_UTF8 : 0;
    if (S_ISREG(item->st.st_mode)) {
        file(p, &e);
    } else if (S_ISLNK(item->st.st_mode)) {
        e.size = e.packed = strlen(item->target);
        e.crc = (uint32_t)crc32(0, (const Bytef *)item->target, (uInt)e.size);
        put_beginning(p, &e);
        pack_bytes(p, item->target, (size_t)e.size);
    } else {
        put_beginning(p, &e);
    }
    keep(p, &e);
}

void zip_finish(struct packer *p)
{
    uint64_t at = p->written;
    uint64_t size = p->central.n;
    struct fields f = {.n = 0};

    pack_bytes(p, p->central.p, p->central.n);
    if (p->entries >= NOT_HERE_16 || at >= NOT_HERE) {
        number(&f, 0x06064b50, 4);
        number(&f, 44, 8);
        number(&f, UNIX | LARGE, 2);
        number(&f, LARGE, 2);
        number(&f, 0, 8); /* this disk, the first disk */
        number(&f, p->entries, 8);
        number(&f, p->entries, 8);
        number(&f, size, 8);
        number(&f, at, 8);
        number(&f, 0x07064b50, 4);
        number(&f, 0, 4);
        number(&f, at + size, 8);
        number(&f, 1, 4);
    }
    number(&f, 0x06054b50, 4);
    number(&f, 0, 4);
    number(&f, p->entries < NOT_HERE_16 ? p->entries : NOT_HERE_16, 2);
    number(&f, p->entries < NOT_HERE_16 ? p->entries : NOT_HERE_16, 2);
    number(&f, size, 4);
    number(&f, at < NOT_HERE ? at : NOT_HERE, 4);
    number(&f, 0, 2);
    pack_bytes(p, f.bytes, f.n);
    pack_flush(p);
}
