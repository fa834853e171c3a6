/* SPDX-License-Identifier: Apache-2.0 */
/* tar as POSIX has it since 2001 (pax): what does not fit into the old header, long names,
 * fractions of seconds, large sizes, goes before it as a record. Files with holes are written as
 * GNU's sparse format 1.0, which GNU tar, bsdtar and Python read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/archive/archive.h"

enum {
    BLOCK = 512,
    EXTENTS = 1 << 16,       /* most parts of one file; smaller holes are filled until it fits */
    RECORDS = 4 * PACK_NAME, /* most bytes of what goes before one header */
    MAP = 4 << 20,           /* the text of the map of a file's parts */
};

#define OCTAL_MOST      077777777777LL /* eleven digits */
#define HOLE_LEAST      4096ULL
#define HOLE_LEAST_MOST (1ULL << 30)

struct header {
    char name[100];
    char mode[8];
    char uid[8];
    char gid[8];
    char size[12];
    char mtime[12];
    char sum[8];
    char type;
    char linkname[100];
    char magic[6];
    char version[2];
    char uname[32];
    char gname[32];
    char major[8];
    char minor[8];
    char prefix[155];
    char rest[12];
};

_Static_assert(sizeof(struct header) == BLOCK, "one block");

struct extent {
    uint64_t at;
    uint64_t n;
};

static void pad(struct packer *p, uint64_t written)
{
    static const char zeros[BLOCK];

    pack_bytes(p, zeros, (BLOCK - written % BLOCK) % BLOCK);
}

/* "LENGTH key=value\n", where the length counts itself too. */
static void record(struct buf *b, const char *key, const char *value)
{
    size_t rest = strlen(key) + strlen(value) + 3;
    size_t digits = 1;

    for (size_t limit = 10; rest + digits >= limit; limit *= 10)
        digits++;
    buf_printf(b, "%zu %s=", rest + digits, key);
    buf_str(b, value);
    buf_str(b, "\n");
}

static void record_number(struct buf *b, const char *key, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    record(b, key, text);
}

static void octal(char *field, size_t size, uint64_t number)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%0*llo", (int)size - 1, (unsigned long long)number);
    memcpy(field, text, size);
}

/* As much as fits; the whole is in a record then. */
static void copy_name(char *field, size_t size, const char *name)
{
    size_t n = strlen(name);

    memcpy(field, name, n < size ? n : size);
}

static void put_header(struct packer *p, struct header *h)
{
    const unsigned char *c = (const unsigned char *)h;
    unsigned sum = 0;

    octal(h->uid, sizeof(h->uid), 0);
    octal(h->gid, sizeof(h->gid), 0);
    memcpy(h->magic, "ustar", 6);
    memcpy(h->version, "00", 2);
    memset(h->sum, ' ', sizeof(h->sum));
    for (size_t i = 0; i < sizeof(*h); i++)
        sum += c[i];
    (void)snprintf(h->sum, sizeof(h->sum), "%06o", sum);
    pack_bytes(p, h, sizeof(*h));
}

static void put_records(struct packer *p, const struct buf *records)
{
    struct header h = {.type = 'x'};

    if (records->n == 0)
        return;
    copy_name(h.name, sizeof(h.name), "PaxHeader");
    octal(h.mode, sizeof(h.mode), 0644);
    octal(h.size, sizeof(h.size), records->n);
    octal(h.mtime, sizeof(h.mtime), 0);
    put_header(p, &h);
    pack_bytes(p, records->p, records->n);
    pad(p, records->n);
}

static void record_time(struct buf *b, const struct timespec *t)
{
    char text[64];
    long long seconds = t->tv_sec;
    long nanoseconds = t->tv_nsec;

    if (seconds >= 0 && seconds <= OCTAL_MOST && nanoseconds == 0)
        return;
    /* -1.25 s is -2 s and 0.75 s: as a decimal it is written with what is missing to the next. */
    if (seconds < 0 && nanoseconds > 0) {
        seconds++;
        nanoseconds = 1000000000L - nanoseconds;
        (void)snprintf(text, sizeof(text), "-%lld.%09ld", -seconds, nanoseconds);
    } else {
        (void)snprintf(text, sizeof(text), "%lld.%09ld", seconds, nanoseconds);
    }
    record(b, "mtime", text);
}

/* The header and what goes before it; `records` may have some already. */
static void begin(struct packer *p, const struct pack_item *item, char type, uint64_t size,
                  struct buf *records)
{
    struct header h = {.type = type};
    scoped_buf struct buf name;
    long long seconds = item->st.st_mtim.tv_sec;

    buf_init(&name, PACK_NAME + 2);
    buf_str(&name, item->name);
    buf_str(&name, type == '5' ? "/" : "");
    if (buf_done(&name) < 0) {
        p->call->gone = true;
        return;
    }
    if (name.n > sizeof(h.name))
        record(records, "path", name.p);
    if (item->target && strlen(item->target) > sizeof(h.linkname))
        record(records, "linkpath", item->target);
    if (size > OCTAL_MOST)
        record_number(records, "size", size);
    record_time(records, &item->st.st_mtim);
    if (buf_done(records) < 0)
        p->call->gone = true;
    put_records(p, records);
    copy_name(h.name, sizeof(h.name), name.p);
    copy_name(h.linkname, sizeof(h.linkname), item->target ? item->target : "");
    octal(h.mode, sizeof(h.mode), item->st.st_mode & 07777U);
    octal(h.size, sizeof(h.size), size > OCTAL_MOST ? 0 : size);
    octal(h.mtime, sizeof(h.mtime), seconds < 0 || seconds > OCTAL_MOST ? 0 : (uint64_t)seconds);
    put_header(p, &h);
}

/* --- holes --- */

/* The parts that are there, 0..EXTENTS of them, or -1: there are more. Holes smaller than `least`
 * count as there. A file system that does not know has one part. */
static long parts(int fd, uint64_t size, uint64_t least, struct extent *all)
{
    uint64_t at = 0;
    long n = 0;

    while (at < size) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        if (data < 0 && errno == ENXIO)
            break;
        if (hole < 0 || (uint64_t)hole <= at) {
            data = (off_t)at;
            hole = (off_t)size;
        }
        if ((uint64_t)data >= size)
            break;
        uint64_t end = (uint64_t)hole < size ? (uint64_t)hole : size;
        if (n > 0 && (uint64_t)data - (all[n - 1].at + all[n - 1].n) < least) {
            all[n - 1].n = end - all[n - 1].at;
        } else if (n == EXTENTS) {
            return -1;
        } else {
            all[n++] = (struct extent){(uint64_t)data, end - (uint64_t)data};
        }
        at = end;
    }
    return n;
}

/* How many parts it has, in *ret (the caller's to free); -1: to be written as it is. */
static long find_parts(struct packer *p, const struct pack_item *item, struct extent **ret)
{
    uint64_t size = (uint64_t)item->st.st_size;
    struct extent *all;
    long n = -1;

    *ret = NULL;
    if ((uint64_t)item->st.st_blocks * 512 >= size)
        return -1;
    all = calloc(EXTENTS, sizeof(*all));
    for (uint64_t least = HOLE_LEAST; all && n < 0 && least <= HOLE_LEAST_MOST; least *= 16)
        n = parts(item->fd, size, least, all);
    if (n < 0) {
        p->call->gone = true; /* no memory, or holes without end: never written as it is */
        n = 0;
    }
    if (n == 1 && all && all[0].at == 0 && all[0].n == size)
        n = -1;
    *ret = all;
    return n;
}

static void file_with_holes(struct packer *p, const struct pack_item *item,
                            const struct extent *all, long n)
{
    struct pack_item shown = *item;
    uint64_t size = (uint64_t)item->st.st_size;
    bool open_end = n == 0 || all[n - 1].at + all[n - 1].n < size;
    scoped_buf struct buf records;
    scoped_buf struct buf map;
    uint64_t data = 0;

    buf_init(&records, RECORDS);
    buf_init(&map, MAP);
    buf_printf(&map, "%ld\n", n + (open_end ? 1 : 0));
    for (long i = 0; i < n; i++) {
        buf_printf(&map, "%llu\n%llu\n", (unsigned long long)all[i].at,
                   (unsigned long long)all[i].n);
        data += all[i].n;
    }
    if (open_end)
        buf_printf(&map, "%llu\n0\n", (unsigned long long)size);
    if (buf_done(&map) < 0) {
        p->call->gone = true;
        return;
    }
    record(&records, "GNU.sparse.major", "1");
    record(&records, "GNU.sparse.minor", "0");
    record(&records, "GNU.sparse.name", item->name);
    record_number(&records, "GNU.sparse.realsize", size);
    shown.name = "GNUSparseFile";
    begin(p, &shown, '0', (map.n + BLOCK - 1) / BLOCK * BLOCK + data, &records);
    pack_bytes(p, map.p, map.n);
    pad(p, map.n);
    pack_flush(p);
    for (long i = 0; i < n && !p->call->gone; i++)
        (void)answer_file(p->call, item->fd, all[i].at, all[i].n);
    pad(p, data);
}

static void file(struct packer *p, const struct pack_item *item)
{
    uint64_t size = (uint64_t)item->st.st_size;
    scoped_buf struct buf records;
    struct extent *all = NULL;
    long n = find_parts(p, item, &all);

    buf_init(&records, RECORDS);
    if (n >= 0 && !p->call->gone) {
        file_with_holes(p, item, all, n);
    } else if (!p->call->gone) {
        begin(p, item, '0', size, &records);
        pack_flush(p);
        (void)answer_file(p->call, item->fd, 0, size);
        pad(p, size);
    }
    free(all);
}

void tar_item(struct packer *p, const struct pack_item *item)
{
    scoped_buf struct buf records;

    buf_init(&records, RECORDS);
    if (item->hard)
        begin(p, item, '1', 0, &records);
    else if (S_ISREG(item->st.st_mode))
        file(p, item);
    else
        begin(p, item, S_ISDIR(item->st.st_mode) ? '5' : '2', 0, &records);
}

void tar_finish(struct packer *p)
{
    static const char zeros[2 * BLOCK];

    pack_bytes(p, zeros, sizeof(zeros));
    pack_flush(p);
}
