/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/retain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "audit/head.h"
#include "base/fd.h"

#define BEFORE_CHECKPOINT                                                                          \
    "\",\"actor\":\"broker\",\"workspace\":\"\",\"request\":\"\",\"operation\":\"" AUDIT_RETENTION \
    "\",\"result\":\"ok\",\"details\":{\"through\":"

bool audit_checkpoint_parse(const char *line, size_t n, struct audit_checkpoint *ret)
{
    static const char before[] = BEFORE_CHECKPOINT;
    static const char between[] = ",\"hash\":\"";
    struct audit_line parsed;
    char *end;

    if (!audit_parse(line, n, &parsed))
        return false;
    /* All of it is there, and ends with its own `prev`: nothing below runs off the line. */
    const char *p = parsed.time + AUDIT_TIME - 1;
    if ((size_t)(line + n - p) < sizeof(before) + sizeof(between) + AUDIT_HEX ||
        memcmp(p, before, sizeof(before) - 1) != 0)
        return false;
    p += sizeof(before) - 1;
    if (*p < '1' || *p > '9')
        return false;
    errno = 0;
    ret->through = strtoull(p, &end, 10); /* ends at what is not a digit, before the end */
    if (errno || (size_t)(line + n - end) < sizeof(between) + AUDIT_HEX ||
        memcmp(end, between, sizeof(between) - 1) != 0)
        return false;
    end += sizeof(between) - 1;
    memcpy(ret->hash, end, AUDIT_HEX - 1);
    ret->hash[AUDIT_HEX - 1] = '\0';
    return strspn(ret->hash, "0123456789abcdef") == AUDIT_HEX - 1 && end[AUDIT_HEX - 1] == '"';
}

void audit_checkpoint_encode(struct buf *b, const struct audit_drop *drop, uint64_t unexported,
                             const char *head)
{
    buf_printf(b, "{\"through\":%ju,\"hash\":\"%s\",\"segments\":%u,\"bytes\":%ju",
               (uintmax_t)drop->checkpoint.through, drop->checkpoint.hash, drop->segments,
               (uintmax_t)drop->bytes);
    if (unexported)
        buf_printf(b, ",\"unexported\":%ju", (uintmax_t)unexported);
    if (head && *head)
        buf_printf(b, ",\"head\":%s", head);
    buf_str(b, "}");
}

bool audit_first(int dir, uint32_t number, struct audit_first *ret)
{
    struct audit_lines lines;
    struct audit_line line;
    const char *bytes;
    size_t n;

    scoped_fd int fd = audit_segment_open(dir, number);
    if (fd < 0)
        return false;
    audit_lines_init(&lines, &fd);
    bool is_record = audit_lines_next(&lines, &bytes, &n) == 1 && audit_parse(bytes, n, &line);
    if (is_record) {
        *ret = (struct audit_first){.seq = line.seq};
        memcpy(ret->time, line.time, AUDIT_TIME - 1);
        memcpy(ret->prev, line.prev, AUDIT_HEX - 1);
    }
    audit_lines_clear(&lines);
    return is_record;
}

static uint64_t size_of(int dir, uint32_t number)
{
    char name[AUDIT_NAME];
    struct stat st;

    audit_segment_name(number, name);
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size > 0
               ? (uint64_t)st.st_size
               : 0;
}

static void choose(int dir, const struct audit_segments *all, const struct audit_keep *keep,
                   uint64_t through, struct audit_drop *ret)
{
    struct audit_first next;

    for (size_t i = 0; i + 1 < all->count; i++) {
        bool too_many = keep->most_bytes && ret->left > keep->most_bytes;
        if (!audit_first(dir, all->numbers[i + 1], &next) || next.seq - 1 > through)
            return;
        /* The next one begins at that time: all before is as old. */
        if (!too_many && strcmp(next.time, keep->before) >= 0)
            return;
        uint64_t bytes = size_of(dir, all->numbers[i]);
        ret->last = all->numbers[i];
        ret->segments++;
        ret->bytes += bytes;
        ret->left -= bytes < ret->left ? bytes : ret->left;
        ret->checkpoint.through = next.seq - 1;
        memcpy(ret->checkpoint.hash, next.prev, AUDIT_HEX);
    }
}

int audit_retain_plan(int dir, const struct audit_keep *keep, uint64_t through,
                      struct audit_drop *ret, struct err *err)
{
    struct audit_segments all;

    *ret = (struct audit_drop){0};
    if (audit_list(dir, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.count; i++)
        ret->left += size_of(dir, all.numbers[i]);
    choose(dir, &all, keep, through, ret);
    audit_segments_clear(&all);
    return 0;
}

int audit_retain_drop(int dir, uint32_t last, struct err *err)
{
    struct audit_segments all;
    char name[AUDIT_NAME];
    int rc = 0;

    if (audit_list(dir, &all, err) < 0)
        return -1;
    /* The oldest first, each on disk before the next: a crash leaves no hole. */
    for (size_t i = 0; rc == 0 && i + 1 < all.count && all.numbers[i] <= last; i++) {
        audit_segment_name(all.numbers[i], name);
        if (unlinkat(dir, name, 0) < 0 || fsync(dir) < 0)
            rc = err_set(err, ERR_IO, errno, "remove '%s' of the audit record", name);
    }
    audit_segments_clear(&all);
    return rc;
}

uint64_t audit_seq_before(const char *path, const char *time)
{
    struct audit_segments all;
    struct audit_first first;
    struct err err;
    uint64_t seq = 0;

    scoped_fd int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || audit_list(dir, &all, &err) < 0)
        return 0;
    size_t low = 0;
    size_t high = all.count;
    while (low < high) { /* the first segment that begins at or after the time, or cannot be read */
        size_t middle = low + (high - low) / 2;
        if (audit_first(dir, all.numbers[middle], &first) && strcmp(first.time, time) < 0) {
            seq = first.seq - 1;
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    audit_segments_clear(&all);
    return seq;
}

bool audit_time_parse(const char *text, char ret[AUDIT_TIME])
{
    static const char shape[] = "0000-00-00T00:00:00.000000Z";
    static const char least[] = "0000-00-00T00:00:00.000000Z";
    size_t n = strlen(text);
    size_t digits = n && text[n - 1] == 'Z' ? n - 1 : n;

    if (digits != 10 && digits != 16 && digits != 19 && (digits < 21 || digits > 26))
        return false;
    if (digits == 10 && n > digits)
        return false;
    memcpy(ret, least, AUDIT_TIME);
    for (size_t i = 0; i < digits; i++) {
        bool fits = shape[i] == '0' ? text[i] >= '0' && text[i] <= '9' : text[i] == shape[i];
        if (!fits)
            return false;
        ret[i] = text[i];
    }
    return true;
}

void audit_time_ago(uint64_t ms, char ret[AUDIT_TIME])
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    time_t then = now.tv_sec - (time_t)(ms / 1000);
    gmtime_r(&then, &tm);
    snprintf(ret, AUDIT_TIME, "%04u-%02u-%02uT%02u:%02u:%02u.000000Z",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100);
}
