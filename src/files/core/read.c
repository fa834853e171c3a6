/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a file to a client. Never mapped: a file that shrinks meanwhile would kill us. */
#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

enum {
    PROC_MOST = 1 << 20, /* of a file that says it is empty and is not */
    SHRUNK_MOST = 16,    /* times a small file may shrink while we read it */
};

bool files_is_sizeless(int fd, const struct stat *st)
{
    struct statfs fs;

    return st->st_size == 0 && fstatfs(fd, &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

int64_t files_mtime_ms(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

/* A file of /proc: made as it is read, so read first and measured then. */
static void read_sizeless(struct files_call *call, int fd, struct files_head *head)
{
    char *bytes = malloc(PROC_MOST);
    ssize_t n = bytes ? 0 : -ENOMEM;

    while (n >= 0 && head->size < PROC_MOST) {
        n = pread(fd, bytes + head->size, PROC_MOST - head->size, (off_t)head->size);
        if (n <= 0) {
            n = n < 0 ? -errno : 0;
            break;
        }
        head->size += (uint64_t)n;
    }
    if (n < 0 && head->size == 0)
        answer_errno(call, (int)n, call->m->path);
    else
        (void)answer_whole(call, head, bytes);
    free(bytes);
}

/* The part that is asked for, within what there is. False: there is no such part. */
static bool find_part(const struct files_message *m, uint64_t size, uint64_t *ret_from,
                      uint64_t *ret_to)
{
    uint64_t from = m->from;
    uint64_t to = m->to;

    if (from == FILES_MOST) { /* the last `to` */
        from = to < size ? size - to : 0;
        to = to == 0 ? from : size;
    }
    if (to > size)
        to = size;
    if (from >= to)
        return false;
    *ret_from = from;
    *ret_to = to;
    return true;
}

static void send_file(struct files_call *call, int fd, const struct stat *st)
{
    const struct files_message *m = call->m;
    bool whole = m->from == 0 && m->to == FILES_MOST;
    uint64_t size = (uint64_t)st->st_size;
    uint64_t from = 0;
    uint64_t to = size;
    struct files_head head = {
        .status = 200, .type = FILES_TYPE_BYTES, .mtime_ms = files_mtime_ms(st)};

    files_etag(st, head.etag);
    if (m->if_match[0] && !files_etag_is(m->if_match, st)) {
        answer_errno(call, ECANCELED, m->path);
        return;
    }
    if (m->if_none_match[0] && files_etag_is(m->if_none_match, st)) {
        head.status = 304;
        (void)answer_begin(call, &head);
        return;
    }
    if (whole && files_is_sizeless(fd, st)) {
        read_sizeless(call, fd, &head);
        return;
    }
    if (!whole) {
        if (!find_part(m, size, &from, &to)) {
            answer_error(call, 416, "invalid_range",
                         "the file has %llu bytes, and none of those asked for",
                         (unsigned long long)size);
            return;
        }
        head.status = 206;
        head.first = from;
        head.total = size;
    }
    head.size = to - from;
    (void)answer_whole_file(call, &head, fd, from);
}

void files_read(struct files_call *call)
{
    const struct files_message *m = call->m;
    struct stat st;
    scoped_fd int fd = files_open(m->path, true, &st);

    if (fd < 0)
        answer_errno(call, fd, m->path);
    else if (S_ISDIR(st.st_mode))
        answer_errno(call, EISDIR, m->path);
    for (int i = 0; fd >= 0 && !call->answered && !call->gone && i < SHRUNK_MOST; i++) {
        if (fstat(fd, &st) == 0)
            send_file(call, fd, &st);
    }
    if (!call->answered && !call->gone)
        answer_errno(call, ESTALE, m->path);
}
