/* SPDX-License-Identifier: Apache-2.0 */
/* Following the record from a sequence number on, also while it is being written. */
#include "audit/line.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    NEAR_ENOUGH = 1 << 15 /* bytes that are read through rather than halved once more */
};

struct audit_reader {
    int dir;
    uint64_t after;
    uint32_t number; /* of the segment; 0: there was none yet */
    struct audit_lines lines;
    int next; /* the segment after it, when it is there */
};

/* The number of the first record of a segment; 0: none can be read. */
static uint64_t first_seq(int dir, uint32_t number)
{
    struct audit_lines lines;
    struct audit_line line;
    const char *bytes;
    size_t n;

    scoped_fd int fd = audit_segment_open(dir, number);
    if (fd < 0)
        return 0;
    audit_lines_init(&lines, &fd);
    bool is_record = audit_lines_next(&lines, &bytes, &n) == 1 && audit_parse(bytes, n, &line);
    audit_lines_clear(&lines);
    return is_record ? line.seq : 0;
}

/* The last segment that begins at or before the wanted record. One that cannot be read counts as
 * beginning late: then the search ends before it, and reading comes to it. */
static uint32_t choose_segment(int dir, const struct audit_segments *segments, uint64_t after)
{
    size_t low = 0;
    size_t high = segments->count;

    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        uint64_t seq = first_seq(dir, segments->numbers[middle]);
        if (seq && seq - 1 <= after)
            low = middle;
        else
            high = middle;
    }
    return segments->count ? segments->numbers[low] : 0;
}

/* The number of the first record that begins behind `from`, and where it begins; 0: none. */
static uint64_t seq_behind(struct audit_lines *lines, off_t from, off_t *ret_at)
{
    struct audit_line line;
    const char *bytes;
    size_t n;

    audit_lines_seek(lines, from);
    if (audit_lines_next(lines, &bytes, &n) != 1) /* the rest of the line that `from` is in */
        return 0;
    *ret_at = lines->offset;
    if (audit_lines_next(lines, &bytes, &n) != 1 || !audit_parse(bytes, n, &line))
        return 0;
    return line.seq;
}

/* Goes near the wanted record by halving: a page of answers must not cost a whole segment. */
static void skip_lines(struct audit_lines *lines, uint64_t after)
{
    struct stat st;
    off_t low = 0;

    off_t high = fstat(lines->fd, &st) == 0 ? st.st_size : 0;
    while (high - low > NEAR_ENOUGH) {
        off_t middle = low + (high - low) / 2;
        off_t at = 0;
        uint64_t seq = seq_behind(lines, middle, &at);
        if (seq && seq <= after && at < high)
            low = at;
        else
            high = middle;
    }
    audit_lines_seek(lines, low);
}

int audit_reader_open(struct audit_reader **ret, const char *dir, uint64_t after, struct err *err)
{
    struct audit_segments segments;

    scoped_fd int fd = audit_open_dir(dir, &segments, err);
    if (fd < 0)
        return -1;
    uint32_t number = choose_segment(fd, &segments, after);
    audit_segments_clear(&segments);
    scoped_fd int segment = number ? audit_segment_open(fd, number) : -1;
    if (number && segment < 0)
        return err_set(err, ERR_IO, errno, "open segment %u of the audit record", number);
    struct audit_reader *reader = malloc(sizeof(*reader));
    if (!reader)
        return err_set(err, ERR_LIMIT, ENOMEM, "open the audit record");
    *reader =
        (struct audit_reader){.dir = take_fd(&fd), .after = after, .number = number, .next = -1};
    audit_lines_init(&reader->lines, &segment);
    if (number)
        skip_lines(&reader->lines, after);
    *ret = reader;
    return 0;
}

/* At the end of a segment. True: there may be more now. The end is looked at once more after the
 * next segment was seen: only from then on is it certain that nothing is added to this one. */
static bool go_on(struct audit_reader *reader)
{
    if (reader->next < 0) {
        reader->next = audit_segment_open(reader->dir, reader->number + 1);
        if (reader->next < 0)
            return false;
        if (reader->number)
            return true;
    }
    audit_lines_clear(&reader->lines);
    audit_lines_init(&reader->lines, &reader->next);
    reader->number++;
    return true;
}

static int damaged(const struct audit_reader *reader, off_t at, int os_errno, struct err *err)
{
    return err_set(err, ERR_IO, os_errno,
                   "segment %u of the audit record is damaged at byte %jd ('carrel audit verify' "
                   "says more)",
                   reader->number, (intmax_t)at);
}

int audit_reader_next(struct audit_reader *reader, const char **ret_line, size_t *ret_n,
                      struct err *err)
{
    struct audit_line line;

    for (;;) {
        off_t at = reader->lines.offset;
        int rc = reader->lines.fd < 0 ? 0 : audit_lines_next(&reader->lines, ret_line, ret_n);
        if (rc == -EMSGSIZE) /* the rest of it is no record either */
            audit_lines_seek(&reader->lines, at + (off_t)reader->lines.end);
        if (rc < 0)
            return damaged(reader, at, -rc, err);
        if (rc == 0 && !go_on(reader))
            return 0;
        if (rc == 0)
            continue;
        /* What is handed out goes into answers as it is, so it is never anything but a record. */
        if (!audit_parse(*ret_line, *ret_n, &line))
            return damaged(reader, at, 0, err);
        if (line.seq > reader->after) {
            reader->after = line.seq;
            return 1;
        }
    }
}

/* A file system that has nothing to write, as one that is read-only, says that in its own way. */
int audit_reader_sync(const struct audit_reader *reader, struct err *err)
{
    if (reader->lines.fd < 0 || fdatasync(reader->lines.fd) == 0 || errno == EINVAL ||
        errno == EROFS)
        return 0;
    return err_set(err, ERR_IO, errno, "sync segment %u of the audit record", reader->number);
}

void audit_reader_close(struct audit_reader *reader)
{
    if (!reader)
        return;
    audit_lines_clear(&reader->lines);
    scope_close(&reader->next);
    scope_close(&reader->dir);
    free(reader);
}

uint32_t audit_reader_segment(const struct audit_reader *reader)
{
    return reader->number;
}
