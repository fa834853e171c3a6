/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    TAKE_AT_MOST = 1 << 20,
    TERMINAL_CHUNK = 16384,
    TURNS_AT_MOST = 1 << 20, /* a command that alternates byte by byte must not fill the disk */
    PAGE = 4096,
};

#define PUNCH (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)

struct turn {
    uint64_t offset;
    uint64_t stream;
};

static int open_file(struct spool *s, const char *suffix, int flags)
{
    char name[48];

    snprintf(name, sizeof(name), "%s.%s", s->id, suffix);
    int fd = openat(s->spools, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
    return fd < 0 ? -errno : fd;
}

static int begin(struct spool *s, int spools, const char *id, uint64_t bound, int flags)
{
    *s = (struct spool){.spools = spools, .out = -1, .turns = -1, .bound = bound, .turn_count = 1};
    if (strlen(id) >= sizeof(s->id))
        return -EINVAL;
    memcpy(s->id, id, strlen(id) + 1);
    s->out = open_file(s, "out", flags);
    return s->out < 0 ? s->out : 0;
}

int spool_create(struct spool *s, int spools, const char *id, uint64_t bound)
{
    return begin(s, spools, id, bound, O_CREAT | O_EXCL);
}

static off_t place_of(uint64_t index)
{
    return (off_t)((index - 1) * sizeof(struct turn));
}

static int read_turn(const struct spool *s, uint64_t index, struct turn *ret)
{
    if (index == 0) {
        *ret = (struct turn){.stream = SPOOL_OUT};
        return 0;
    }
    ssize_t n = pread(s->turns, ret, sizeof(*ret), place_of(index));
    if (n < 0)
        return -errno;
    if (n != (ssize_t)sizeof(*ret) || ret->stream >= SPOOL_STREAM_COUNT_)
        return -EIO;
    return 0;
}

/* The last turn that begins at or before `at`. */
static int find_turn(const struct spool *s, uint64_t at, uint64_t *ret)
{
    uint64_t low = s->first_turn;
    uint64_t high = s->turn_count;
    struct turn turn;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        int r = read_turn(s, middle, &turn);
        if (r < 0)
            return r;
        if (turn.offset <= at)
            low = middle;
        else
            high = middle;
    }
    *ret = low;
    return 0;
}

/* Where the holes end: what was given back before this process began. */
static void find_first(struct spool *s)
{
    off_t data = lseek(s->out, 0, SEEK_DATA);

    s->first = data < 0 ? s->end : (uint64_t)data;
    data = s->turns < 0 ? 0 : lseek(s->turns, 0, SEEK_DATA);
    if (data > 0)
        s->first_turn = ((uint64_t)data + sizeof(struct turn) - 1) / sizeof(struct turn) + 1;
    if (s->first_turn >= s->turn_count)
        s->first_turn = s->turn_count - 1;
}

int spool_open(struct spool *s, int spools, const char *id, uint64_t bound)
{
    struct stat st;
    struct turn last;

    int r = begin(s, spools, id, bound, 0);
    if (r < 0)
        return r;
    s->turns = open_file(s, "turns", 0); /* there may be none */
    if (fstat(s->out, &st) < 0) {
        r = -errno;
        spool_close(s);
        return r;
    }
    s->end = (uint64_t)st.st_size;
    if (s->turns >= 0 && fstat(s->turns, &st) == 0) /* a torn one is overwritten */
        s->turn_count += (uint64_t)st.st_size / sizeof(struct turn);
    find_first(s);
    if (read_turn(s, s->turn_count - 1, &last) == 0)
        s->stream = (enum spool_stream)last.stream;
    return 0;
}

void spool_close(struct spool *s)
{
    scope_close(&s->out);
    scope_close(&s->turns);
}

int spool_remove(int spools, const char *id)
{
    static const char *const suffixes[] = {"out", "turns"};
    char name[48];
    int r = 0;

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(name, sizeof(name), "%.27s.%s", id, suffixes[i]);
        if (unlinkat(spools, name, 0) < 0 && errno != ENOENT)
            r = -errno;
    }
    return r;
}

int spool_empty(int spools, const char *id)
{
    char name[48];
    struct stat st;

    snprintf(name, sizeof(name), "%.27s.out", id);
    scoped_fd int fd = openat(spools, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    off_t whole = (st.st_size + PAGE - 1) / PAGE * PAGE; /* of a part of one zeroes would be kept */
    if (whole > 0 && fallocate(fd, PUNCH, 0, whole) < 0)
        return -errno;
    snprintf(name, sizeof(name), "%.27s.turns", id);
    return unlinkat(spools, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

bool spool_keeps(const struct spool *s, uint64_t at)
{
    off_t data = lseek(s->out, 0, SEEK_DATA);

    return data >= 0 && (uint64_t)data <= at;
}

uint64_t spool_size(int spools, const char *id)
{
    static const char *const suffixes[] = {"out", "turns"};
    char name[48];
    uint64_t sum = 0;
    struct stat st;

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(name, sizeof(name), "%.27s.%s", id, suffixes[i]);
        if (fstatat(spools, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            sum += (uint64_t)st.st_blocks * 512;
    }
    return sum;
}

/* Whole pages from this byte to that. */
static uint64_t pages(uint64_t first, uint64_t end)
{
    return (end + PAGE - 1) / PAGE * PAGE - first / PAGE * PAGE;
}

uint64_t spool_kept(const struct spool *s)
{
    uint64_t kept = s->first < s->end ? pages(s->first, s->end) : 0;

    if (s->turn_count > 1)
        kept += pages(s->first_turn * sizeof(struct turn), s->turn_count * sizeof(struct turn));
    return kept;
}

/* How far back somebody has yet to read; the end when nobody does. */
static void slowest(const struct spool *s, uint64_t *ret_at, uint64_t *ret_turn)
{
    *ret_at = s->end;
    *ret_turn = s->turn_count;
    for (const struct spool_reader *r = s->readers; r; r = r->next) {
        if (!r->holds)
            continue;
        if (r->at < *ret_at)
            *ret_at = r->at;
        if (r->turn < *ret_turn)
            *ret_turn = r->turn;
    }
}

/* Gives whole pages back; the file keeps its size and its offsets. */
static void give_back(int fd, uint64_t end)
{
    (void)fallocate(fd, PUNCH, 0, (off_t)(end / PAGE * PAGE));
}

/* Forgets the oldest, half of the bound at a time: a hole a page would cost more than the page. */
static void make_room(struct spool *s)
{
    if (s->end - s->first > s->bound) {
        s->first = s->end - s->bound / 2;
        give_back(s->out, s->first);
    }
    if (s->turn_count - s->first_turn > TURNS_AT_MOST) {
        struct turn turn;
        uint64_t keep = s->turn_count - TURNS_AT_MOST / 2;
        if (read_turn(s, keep, &turn) == 0) {
            s->first_turn = keep;
            if (s->first < turn.offset) {
                s->first = turn.offset;
                give_back(s->out, s->first);
            }
        }
        give_back(s->turns, (uint64_t)place_of(s->first_turn));
    }
}

void spool_tighten(struct spool *s, uint64_t bound)
{
    uint64_t seen;
    uint64_t seen_turn;

    slowest(s, &seen, &seen_turn);
    if (bound < 2 * (s->end - seen)) /* half of it is what make_room leaves */
        bound = 2 * (s->end - seen);
    if (bound >= s->bound)
        return;
    s->bound = bound;
    make_room(s);
}

/* Says whose bytes come next, before they come. */
static int begin_turn(struct spool *s, enum spool_stream stream)
{
    struct turn turn = {.offset = s->end, .stream = stream};

    if (s->stream == stream)
        return 0;
    if (s->turns < 0)
        s->turns = open_file(s, "turns", O_CREAT);
    if (s->turns < 0)
        return s->turns;
    ssize_t n = pwrite(s->turns, &turn, sizeof(turn), place_of(s->turn_count));
    if (n != (ssize_t)sizeof(turn))
        return n < 0 ? -errno : -ENOSPC;
    s->turn_count++;
    s->stream = stream;
    return 0;
}

/* A terminal cannot be spliced into a file: what was read and not yet written dies with us. */
static ssize_t copy_terminal(struct spool *s, int from, size_t most)
{
    char bytes[TERMINAL_CHUNK];
    ssize_t n = read(from, bytes, most < sizeof(bytes) ? most : sizeof(bytes));

    if (n < 0)
        return errno == EIO ? 0 : -errno; /* the last user of the terminal has gone */
    if (n == 0)
        return 0;
    ssize_t written = pwrite(s->out, bytes, (size_t)n, (off_t)s->end);
    return written < 0 ? -errno : written < n ? -ENOSPC : n;
}

ssize_t spool_take(struct spool *s, int from, enum spool_stream stream)
{
    uint64_t seen;
    uint64_t seen_turn;

    slowest(s, &seen, &seen_turn);
    uint64_t ahead = s->end - seen;
    /* Half: the other half is what make_room keeps of what has been seen. */
    if (ahead >= s->bound / 2 || s->turn_count - seen_turn >= TURNS_AT_MOST / 2)
        return -ENOBUFS;
    uint64_t room = s->bound / 2 - ahead;
    int r = begin_turn(s, stream);
    if (r < 0)
        return r;
    loff_t at = (loff_t)s->end;
    size_t most = room < TAKE_AT_MOST ? (size_t)room : TAKE_AT_MOST;
    ssize_t n = stream == SPOOL_TERMINAL
                    ? copy_terminal(s, from, most)
                    : splice(from, NULL, s->out, &at, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0)
        return stream == SPOOL_TERMINAL ? n : -errno;
    s->end += (uint64_t)n;
    make_room(s);
    return n;
}

int spool_reader_add(struct spool *s, struct spool_reader *r, uint64_t at, bool holds)
{
    if (at > s->end)
        return -EINVAL;
    if (at < s->first)
        return -ESPIPE;
    *r = (struct spool_reader){.at = at, .turn = s->first_turn, .holds = holds};
    int found = find_turn(s, at, &r->turn);
    if (found < 0)
        return found;
    r->next = s->readers;
    s->readers = r;
    return 0;
}

void spool_reader_drop(struct spool *s, struct spool_reader *r)
{
    for (struct spool_reader **at = &s->readers; *at; at = &(*at)->next) {
        if (*at == r) {
            *at = r->next;
            return;
        }
    }
}

ssize_t spool_read(struct spool *s, struct spool_reader *r, char *bytes, size_t size,
                   enum spool_stream *ret_stream)
{
    struct turn turn;
    struct turn next = {.offset = s->end};

    if (r->at < s->first)
        return -ESPIPE;
    /* Turns without bytes are passed over: a front that died there began one for nothing. */
    for (; r->turn + 1 < s->turn_count; r->turn++) {
        int found = read_turn(s, r->turn + 1, &next);
        if (found < 0)
            return found;
        if (next.offset > r->at)
            break;
        next.offset = s->end;
    }
    if (r->at >= s->end)
        return 0;
    int found = read_turn(s, r->turn, &turn);
    if (found < 0)
        return found;
    uint64_t most = next.offset - r->at;
    ssize_t n = pread(s->out, bytes, most < size ? (size_t)most : size, (off_t)r->at);
    if (n < 0)
        return -errno;
    r->at += (uint64_t)n;
    *ret_stream = (enum spool_stream)turn.stream;
    return n == 0 ? -EIO : n;
}
