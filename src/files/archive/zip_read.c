/* SPDX-License-Identifier: Apache-2.0 */
/* zip, read in one go as it comes. Each file has a header before it; its mode, and whether it is a
 * symbolic link at all, stand only in the directory at the end of the archive: links are files that
 * hold their target until then. Names are the bytes that are there.
 *
 *   local header, bytes, [sizes] ... --> directory entries ... --> end */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zlib.h>

#include "files/archive/archive.h"
#include "files/archive/landing.h"

enum {
    READ = 1 << 16,
    LOCAL = 0x04034b50, /* what begins with which bytes */
    CENTRAL = 0x02014b50,
    SIZES = 0x08074b50,
    LARGE_END = 0x06064b50,
    LARGE_WHERE = 0x07064b50,
    END = 0x06054b50,
    LOCAL_BYTES = 26, /* the rest of each */
    CENTRAL_BYTES = 42,
    FLAG_SECRET = 1 | 1 << 6 | 1 << 13,
    FLAG_SIZES_BEHIND = 1 << 3,
    STORED = 0,
    DEFLATED = 8,
    EXTRA_LARGE = 1,
    EXTRA_TIME = 0x5455,
    UNIX = 3,
    MAC = 19,
};

struct zip {
    struct landing *p;
    uint64_t in;  /* bytes read, and */
    uint64_t out; /* unpacked */
    size_t at;
    size_t n;
    z_stream z;
    unsigned char bytes[READ];
    unsigned char unpacked[READ];
    char name[UINT16_MAX + 1];
    unsigned char extra[UINT16_MAX + 1];
};

struct entry {
    unsigned flags;
    unsigned method;
    uint32_t crc;
    uint64_t packed;
    uint64_t size;
    size_t name_length;
    size_t extra_length;
    bool large; /* sizes behind it have eight bytes */
    bool write; /* there is a file for it */
    uint64_t got;
    uint32_t sum;
    struct landing_stamp stamp;
};

static uint64_t number(const unsigned char *c, size_t n)
{
    uint64_t value = 0;

    for (size_t i = n; i > 0; i--)
        value = value << 8 | c[i - 1];
    return value;
}

static int bad(struct zip *z, const char *words)
{
    return landing_fail(z->p, -EBADMSG, words);
}

/* There is at least one byte after it. */
static int fill(struct zip *z)
{
    if (z->at < z->n)
        return 0;
    ssize_t n = body_read(z->p->call, z->bytes, sizeof(z->bytes));
    if (n < 0)
        return (int)n;
    if (n == 0)
        return bad(z, "it ends early");
    z->at = 0;
    z->n = (size_t)n;
    z->in += (uint64_t)n;
    return 0;
}

/* To nowhere when `to` is NULL. */
static int take(struct zip *z, void *to, uint64_t n)
{
    unsigned char *at = to;

    while (n > 0) {
        int r = fill(z);
        if (r < 0)
            return r;
        size_t part = z->n - z->at < n ? z->n - z->at : (size_t)n;
        if (at) {
            memcpy(at, z->bytes + z->at, part);
            at += part;
        }
        z->at += part;
        n -= part;
    }
    return 0;
}

/* --- headers --- */

static time_t from_dos(uint32_t t)
{
    struct tm parts = {
        .tm_year = (int)(t >> 25) + 80,
        .tm_mon = (int)(t >> 21 & 15) - 1,
        .tm_mday = (int)(t >> 16 & 31),
        .tm_hour = (int)(t >> 11 & 31),
        .tm_min = (int)(t >> 5 & 63),
        .tm_sec = (int)(t & 31) * 2,
    };

    return timegm(&parts); /* the zone is not told */
}

static void read_extra(struct zip *z, struct entry *e)
{
    const unsigned char *c = z->extra;
    size_t left = e->extra_length;

    while (left >= 4) {
        uint64_t id = number(c, 2);
        size_t n = (size_t)number(c + 2, 2);
        if (n > left - 4)
            return;
        if (id == EXTRA_TIME && n >= 5 && (c[4] & 1))
            e->stamp.mtime.tv_sec = (int32_t)number(c + 5, 4);
        if (id == EXTRA_LARGE) {
            bool has_size = e->size == UINT32_MAX && n >= 8;
            size_t at = has_size ? 12 : 4;
            e->large = true;
            if (has_size)
                e->size = number(c + 4, 8);
            if (e->packed == UINT32_MAX && n + 4 >= at + 8)
                e->packed = number(c + at, 8);
        }
        c += 4 + n;
        left -= 4 + n;
    }
}

static int read_local(struct zip *z, struct entry *e)
{
    unsigned char h[LOCAL_BYTES];
    int r = take(z, h, sizeof(h));

    if (r < 0)
        return r;
    *e = (struct entry){
        .flags = (unsigned)number(h + 2, 2),
        .method = (unsigned)number(h + 4, 2),
        .crc = (uint32_t)number(h + 10, 4),
        .packed = number(h + 14, 4),
        .size = number(h + 18, 4),
        .name_length = (size_t)number(h + 22, 2),
        .extra_length = (size_t)number(h + 24, 2),
        .stamp = {.mode = 0644, .timed = true},
    };
    e->stamp.mtime.tv_sec = from_dos((uint32_t)number(h + 6, 4));
    r = take(z, z->name, e->name_length);
    if (r == 0)
        r = take(z, z->extra, e->extra_length);
    if (r == 0)
        read_extra(z, e);
    return r;
}

/* --- bytes of an entry --- */

static int give(struct zip *z, struct entry *e, const unsigned char *bytes, size_t n)
{
    bool told = !(e->flags & FLAG_SIZES_BEHIND);
    int r = 0;

    if (told && n > e->size - e->got)
        return bad(z, "an entry has more bytes than it says");
    e->sum = (uint32_t)crc32(e->sum, bytes, (uInt)n);
    z->out += n;
    r = landing_ratio(z->p, z->in, z->out);
    if (r == 0 && e->write && n > 0)
        r = landing_write(z->p, bytes, n, e->got);
    e->got += n;
    return r;
}

static int take_stored(struct zip *z, struct entry *e)
{
    uint64_t left = e->packed;

    while (left > 0) {
        int r = fill(z);
        size_t part = z->n - z->at < left ? z->n - z->at : (size_t)left;
        if (r == 0)
            r = give(z, e, z->bytes + z->at, part);
        if (r < 0)
            return r;
        z->at += part;
        left -= part;
    }
    return 0;
}

/* As much as one buffer of input gives: 1 at the end of the entry. */
static int inflate_piece(struct zip *z, struct entry *e, size_t most)
{
    int how = Z_OK;

    z->z.next_in = z->bytes + z->at;
    z->z.avail_in = (uInt)most;
    do {
        z->z.next_out = z->unpacked;
        z->z.avail_out = sizeof(z->unpacked);
        how = inflate(&z->z, Z_NO_FLUSH);
        if (how != Z_OK && how != Z_STREAM_END && how != Z_BUF_ERROR)
            return bad(z, "an entry is damaged");
        int r = give(z, e, z->unpacked, sizeof(z->unpacked) - z->z.avail_out);
        if (r < 0)
            return r;
    } while (how == Z_OK && (z->z.avail_in > 0 || z->z.avail_out == 0));
    z->at += most - z->z.avail_in;
    return how == Z_STREAM_END;
}

static int take_deflated(struct zip *z, struct entry *e)
{
    bool told = !(e->flags & FLAG_SIZES_BEHIND);
    uint64_t left = told ? e->packed : UINT64_MAX;
    int r = 0;

    if (inflateReset(&z->z) != Z_OK)
        return -ENOMEM;
    while (r == 0) {
        if (left == 0)
            return bad(z, "an entry is longer than it says");
        r = fill(z);
        if (r < 0)
            return r;
        size_t before = z->at;
        r = inflate_piece(z, e, z->n - z->at < left ? z->n - z->at : (size_t)left);
        left -= z->at - before;
    }
    if (r > 0 && told && left > 0)
        return bad(z, "an entry is shorter than it says");
    return r < 0 ? r : 0;
}

/* Sizes and sum behind the bytes; what they begin with may be missing. */
static int take_sizes(struct zip *z, struct entry *e)
{
    unsigned char h[20];
    size_t size = e->large ? 8 : 4;
    int r = take(z, h, 4);

    if (r == 0 && number(h, 4) == SIZES)
        r = take(z, h, 4);
    if (r == 0)
        r = take(z, h + 4, 2 * size);
    if (r < 0)
        return r;
    e->crc = (uint32_t)number(h, 4);
    e->size = number(h + 4 + size, size);
    return 0;
}

static int take_bytes(struct zip *z, struct entry *e)
{
    bool behind = e->flags & FLAG_SIZES_BEHIND;
    int r;

    /* Unreadable, but its end is known. */
    if ((e->flags & FLAG_SECRET) || (e->method != STORED && e->method != DEFLATED)) {
        if (behind)
            return bad(z, "it has entries whose method is unknown and that do not say their size");
        return take(z, NULL, e->packed);
    }
    if (e->method == DEFLATED) {
        r = take_deflated(z, e);
    } else {
        if (behind && e->packed == 0 && z->name[e->name_length - 1] != '/')
            return bad(z, "it has stored entries that do not say their size; write it to a file "
                          "first, not to a pipe");
        if (!behind && e->packed != e->size)
            return bad(z, "a stored entry has two sizes");
        r = take_stored(z, e);
    }
    if (r == 0 && behind)
        r = take_sizes(z, e);
    if (r == 0 && (e->got != e->size || e->sum != e->crc))
        return bad(z, "an entry is damaged: its size or sum is another");
    return r;
}

static const char *refuse(struct zip *z, const struct entry *e, char clean[FILES_PATH])
{
    if (e->flags & FLAG_SECRET)
        return "it is encrypted";
    if (e->method != STORED && e->method != DEFLATED)
        return "its method of compression is unknown";
    return landing_name(z->p, z->name, e->name_length, clean);
}

static int take_entry(struct zip *z)
{
    char clean[FILES_PATH] = "";
    struct entry e = {.flags = 0};
    int r = landing_entry(z->p);

    if (r == 0)
        r = read_local(z, &e);
    if (r < 0)
        return r;
    if (e.name_length == 0)
        return bad(z, "an entry has no name");
    const char *why = refuse(z, &e, clean);
    bool directory = z->name[e.name_length - 1] == '/' || clean[0] == '\0';
    if (why) {
        landing_skip(z->p, z->name, e.name_length, why);
    } else if (directory) {
        e.stamp.mode = LANDING_ANY_MODE;
        r = landing_directory(z->p, clean, &e.stamp);
    } else {
        r = landing_file(z->p, clean, e.flags & FLAG_SIZES_BEHIND ? 0 : e.size);
        e.write = r == 0;
    }
    if (r >= 0)
        r = take_bytes(z, &e);
    if (r < 0)
        landing_file_drop(z->p);
    else if (e.write)
        r = landing_file_end(z->p, e.got, &e.stamp);
    return r;
}

/* --- the directory at the end --- */

static int take_central(struct zip *z)
{
    unsigned char h[CENTRAL_BYTES];
    char clean[FILES_PATH];
    int r = take(z, h, sizeof(h));

    if (r < 0)
        return r;
    unsigned host = h[1];
    mode_t mode = (mode_t)number(h + 36, 2);
    size_t n = (size_t)number(h + 24, 2);
    r = take(z, z->name, n);
    if (r == 0) /* extra fields, a comment */
        r = take(z, NULL, number(h + 26, 2) + number(h + 28, 2));
    if (r < 0 || n == 0 || (host != UNIX && host != MAC) || mode == 0)
        return r;
    if (landing_name(z->p, z->name, n, clean) || clean[0] == '\0')
        return 0;
    if (S_ISLNK(mode))
        return landing_turn_to_link(z->p, clean);
    return z->name[n - 1] == '/' ? landing_directory_mode(z->p, clean, mode)
                                 : landing_mode(z->p, clean, mode);
}

static int take_end(struct zip *z, uint64_t kind)
{
    unsigned char h[18];
    int r = 0;

    if (kind == LARGE_WHERE)
        return take(z, NULL, 16);
    if (kind == LARGE_END) {
        r = take(z, h, 8);
        return r < 0 ? r : take(z, NULL, number(h, 8) < READ ? number(h, 8) : READ);
    }
    return take(z, h, sizeof(h));
}

static int take_all(struct zip *z)
{
    bool ending = false;
    uint64_t told = 0;
    unsigned char h[4];

    for (;;) {
        int r = take(z, h, sizeof(h));
        if (r < 0)
            return r;
        uint64_t kind = number(h, sizeof(h));
        if (kind == LOCAL && !ending) {
            r = take_entry(z);
        } else if (kind == CENTRAL && told++ < z->p->entries) {
            r = ending ? 0 : landing_flush(z->p);
            ending = true;
            if (r == 0)
                r = take_central(z);
        } else if (kind == END || kind == LARGE_END || kind == LARGE_WHERE) {
            r = take_end(z, kind);
            if (r == 0 && kind == END)
                return 0;
            ending = true;
        } else {
            return bad(z, "it is no zip, or it is damaged");
        }
        if (r < 0)
            return r;
    }
}

int unpack_zip(struct landing *p)
{
    struct zip *z = calloc(1, sizeof(*z));
    int r = -ENOMEM;

    if (z && inflateInit2(&z->z, -MAX_WBITS) == Z_OK) {
        z->p = p;
        r = take_all(z);
        (void)inflateEnd(&z->z);
    }
    free(z);
    return r;
}
