/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines at the end of a file. The file says itself what it has: after a kill nothing is in it
 * twice. One that was moved away (logrotate) is opened anew. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/export/export.h"
#include "base/fd.h"

#define TAIL_BYTES (2L << 20) /* the last line is in it */

/* What a document begins with (ecs.c). */
static const char beginning[] = "{\"@timestamp\":\"";

/* The number of the record of a line; 0: the line is not one of ours. */
static uint64_t seq_of(const char *line, size_t n)
{
    json_t *doc = json_loadb(line, n, 0, NULL);
    const json_t *event = json_object_get(doc, "event");
    const char *module = json_string_value(json_object_get(event, "module"));
    json_int_t seq = json_integer_value(json_object_get(event, "sequence"));
    bool is_ours = module && strcmp(module, "carrel") == 0 && seq > 0;

    json_decref(doc);
    return is_ours ? (uint64_t)seq : 0;
}

/* Where whole lines end in the last bytes of a file, and the number of the last; -1: they are not
 * ours. `is_all`: there is nothing before them. */
static ssize_t judge_end(const char *bytes, ssize_t n, bool is_all, uint64_t *ret_seq)
{
    ssize_t end = n;

    while (end > 0 && bytes[end - 1] != '\n')
        end--;
    *ret_seq = 0;
    if (end == 0) { /* nothing, or the first line, torn */
        size_t most = sizeof(beginning) - 1;
        size_t same = (size_t)n < most ? (size_t)n : most;
        return is_all && memcmp(bytes, beginning, same) == 0 ? 0 : -1;
    }
    ssize_t start = end - 1;
    while (start > 0 && bytes[start - 1] != '\n')
        start--;
    *ret_seq = seq_of(bytes + start, (size_t)(end - start));
    return *ret_seq ? end : -1;
}

/* Cuts off a line that was torn, and gives the number of the last whole one. A file of somebody
 * else's is left as it is. */
static int look_at_end(const struct sender *s, int fd, uint64_t *ret_seq, struct err *err)
{
    struct stat st;
    char *bytes = malloc(TAIL_BYTES);

    if (!bytes || fstat(fd, &st) < 0) {
        free(bytes);
        return err_set(err, ERR_IO, errno, "look at '%s'", s->target.path);
    }
    off_t from = st.st_size > TAIL_BYTES ? st.st_size - TAIL_BYTES : 0;
    ssize_t n = pread(fd, bytes, TAIL_BYTES, from);
    int saved = errno;
    ssize_t end = n < 0 ? -1 : judge_end(bytes, n, from == 0, ret_seq);
    free(bytes);
    if (n < 0)
        return err_set(err, ERR_IO, saved, "read '%s'", s->target.path);
    if (end < 0)
        return err_set(err, ERR_CONFLICT, 0,
                       "the end of '%s' is not a record that was exported: the file belongs to "
                       "another program (name another file, or remove it)",
                       s->target.path);
    if (end < n && ftruncate(fd, from + end) < 0)
        return err_set(err, ERR_IO, errno, "cut a torn line off '%s'", s->target.path);
    return 0;
}

static int open_file(struct sender *s, uint64_t *ret_seq, struct err *err)
{
    scoped_fd int fd = open(
        s->target.path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '%s'", s->target.path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "'%s' is not a file", s->target.path);
    if (look_at_end(s, fd, ret_seq, err) < 0)
        return -1;
    scope_close(&s->fd);
    s->fd = take_fd(&fd);
    return 0;
}

static int open_lines(struct sender *s, struct err *err)
{
    uint64_t seq = 0;

    if (open_file(s, &seq, err) < 0)
        return -1;
    if (seq > s->cursor->seq)
        s->cursor->seq = seq;
    return 0;
}

static bool was_moved(const struct sender *s)
{
    struct stat named;
    struct stat ours;

    return s->fd < 0 || fstat(s->fd, &ours) < 0 || stat(s->target.path, &named) < 0 ||
           named.st_ino != ours.st_ino || named.st_dev != ours.st_dev;
}

static int write_docs(int fd, const struct buf *docs)
{
    for (size_t at = 0; at < docs->n;) {
        ssize_t n = write(fd, docs->p + at, docs->n - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        at += (size_t)n;
    }
    return fdatasync(fd);
}

static int send_lines(struct sender *s, struct batch *b, struct err *err)
{
    uint64_t seq = 0; /* no matter: whatever took its place, these were not acknowledged yet */
    struct stat st;

    if (was_moved(s) && open_file(s, &seq, err) < 0)
        return -1;
    if (fstat(s->fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "look at '%s'", s->target.path);
    if (write_docs(s->fd, &b->docs) < 0) {
        int saved = errno;
        ignore(ftruncate(s->fd, st.st_size) == 0); /* else what is there is there twice */
        return err_set(err, ERR_IO, saved, "write '%s'", s->target.path);
    }
    for (size_t i = 0; i < b->count; i++)
        b->items[i].verdict = BULK_DONE;
    return 0;
}

const struct sender_calls lines_calls = {open_lines, send_lines};
