/* SPDX-License-Identifier: Apache-2.0 */
/* Many files in one call, each with a result of its own; writes reach the disk together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/call.h"
#include "files/core/paths.h"

enum {
    PATHS = 16 << 20,    /* bytes of all paths of one call */
    ONE_FILE = 16 << 20, /* read at most ... */
    ALL_FILES = 64 << 20,
    PIECE = 1 << 15,
};

static void begin_item(struct emit *e, const char *path)
{
    emit_comma(e);
    emit_raw(e, "{");
    emit_bytes(e, "path", path, strlen(path));
}

static void put_error(struct emit *e, int error)
{
    const char *words;
    const char *code = files_error_code(error < 0 ? -error : error, &words);

    emit_comma(e);
    emit_raw(e, "\"error\":{");
    emit_bytes(e, "code", code, strlen(code));
    emit_bytes(e, "message", words, strlen(words));
    emit_raw(e, "}");
}

static void put_etag(struct emit *e, const struct stat *st)
{
    char etag[FILES_ETAG];

    files_etag(st, etag);
    emit_bytes(e, "etag", etag, strlen(etag));
}

/* --- reading --- */

/* As many bytes as there are, up to n: how many, or -errno. */
static ssize_t read_up_to(int fd, char *bytes, size_t n)
{
    size_t have = 0;

    while (have < n) {
        ssize_t got = pread(fd, bytes + have, n - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        have += (size_t)got;
    }
    return (ssize_t)have;
}

/* 0 or -errno; *left is what all together may still have. */
static int read_item(struct emit *e, const char *path, uint64_t *left)
{
    struct stat st;

    if (!files_path_is_valid(path))
        return -EINVAL;
    scoped_fd int fd = files_open(path, true, &st);
    if (fd < 0)
        return fd;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    /* One of /proc has content and says that it is empty. */
    uint64_t size = files_is_sizeless(fd, &st) ? PIECE : (uint64_t)st.st_size;
    if (size > ONE_FILE || size > *left)
        return -EFBIG;
    char *bytes = malloc(size + 1);
    ssize_t n = bytes ? read_up_to(fd, bytes, (size_t)size) : -ENOMEM;
    if (n >= 0) {
        *left -= (uint64_t)n;
        emit_bytes(e, "content", bytes, (size_t)n);
        put_etag(e, &st);
    }
    free(bytes);
    return n < 0 ? (int)n : 0;
}

/* Whole, as the answer only begins after the body: 0 or -errno. */
static int read_paths(struct files_call *call, struct buf *paths)
{
    char piece[PIECE];
    ssize_t n;

    while ((n = body_read(call, piece, sizeof(piece))) > 0)
        buf_add(paths, piece, (size_t)n);
    if (n < 0)
        return (int)n;
    if (buf_done(paths) < 0)
        return -E2BIG;
    return paths->n > 0 && paths->p[paths->n - 1] != '\0' ? -EBADMSG : 0;
}

static void answer_bad_body(struct files_call *call, int error)
{
    if (error == -EBADMSG)
        answer_error(call, 400, "invalid_request", "the list of files is malformed");
    else if (error == -E2BIG)
        answer_error(call, 413, "too_large", "more than %d files in one call, or too long paths",
                     FILES_BATCH);
    else if (error == -EPIPE)
        answer_error(call, 400, "incomplete_body", "the body ended early");
    else
        answer_errno(call, error, call->m->path);
}

void files_batch_read(struct files_call *call)
{
    scoped_buf struct buf paths;
    uint64_t left = ALL_FILES;
    struct emit e;

    buf_init(&paths, PATHS);
    int r = read_paths(call, &paths);
    if (r < 0) {
        answer_bad_body(call, r);
        return;
    }
    emit_begin(&e, call, true, FILES_TYPE_JSON);
    emit_raw(&e, "{\"results\":[");
    for (size_t at = 0; at < paths.n && emit_alive(&e);) {
        const char *path = paths.p + at;
        begin_item(&e, path);
        r = read_item(&e, path, &left);
        if (r < 0)
            put_error(&e, r);
        emit_raw(&e, "}");
        at += strlen(path) + 1;
    }
    emit_raw(&e, "]}");
    emit_finish(&e, 200);
}

/* --- writing --- */

/* The content of one, to the file or (fd < 0) to nowhere. Failing to write is the item's, in
 * *ret_item; failing to read is the call's. */
static int take_content(struct files_call *call, int fd, uint64_t n, int *ret_item)
{
    char piece[PIECE];

    while (n > 0) {
        ssize_t got = body_read(call, piece, n < sizeof(piece) ? (size_t)n : sizeof(piece));
        if (got <= 0)
            return -EPIPE;
        if (fd >= 0 && *ret_item == 0)
            *ret_item = files_write_all(fd, piece, (size_t)got);
        n -= (uint64_t)got;
    }
    return 0;
}

static int write_item(struct files_call *call, struct emit *e, const uint64_t sizes[3],
                      struct dirty *dirs)
{
    struct files_new new = {.fd = -1};
    char path[FILES_PATH];
    int item;

    if (sizes[0] == 0 || sizes[0] >= sizeof(path))
        return -EBADMSG;
    int r = body_exactly(call, path, (size_t)sizes[0]);
    if (r < 0)
        return r;
    path[sizes[0]] = '\0';
    if (strlen(path) != sizes[0] || !files_path_is_valid(path))
        item = -EINVAL;
    else
        item = files_new_begin(call, path, sizes[2], true, &new);
    bool begun = item == 0;
    r = take_content(call, begun ? new.fd : -1, sizes[1], &item);
    if (begun && (r < 0 || item < 0))
        files_new_abort(&new);
    if (r < 0)
        return r;
    if (item == 0)
        item = files_new_commit(call, &new, dirs);
    begin_item(e, path);
    if (item < 0) {
        put_error(e, item);
    } else {
        emit_comma(e);
        emit_raw(e, "\"ok\":true");
        put_etag(e, &new.st);
    }
    emit_raw(e, "}");
    return 0;
}

/* 1: there is one; 0: that was all. */
static int next_item(struct files_call *call, uint64_t sizes[3])
{
    char bytes[3 * sizeof(uint64_t)];
    ssize_t n = body_read(call, bytes, sizeof(bytes));

    if (n <= 0)
        return (int)n;
    int r = body_exactly(call, bytes + n, sizeof(bytes) - (size_t)n);
    if (r < 0)
        return r;
    memcpy(sizes, bytes, sizeof(bytes));
    return sizes[1] > FILES_MOST || sizes[2] > FILES_MOST ? -EBADMSG : 1;
}

static int write_all(struct files_call *call, struct emit *e, struct dirty *dirs)
{
    uint64_t sizes[3];
    int r;

    for (unsigned count = 0; (r = next_item(call, sizes)) > 0; count++) {
        if (count == FILES_BATCH)
            return -E2BIG;
        r = write_item(call, e, sizes, dirs);
        if (r < 0)
            return r;
        if (e->b.failed)
            return -E2BIG;
    }
    return r;
}

void files_batch_write(struct files_call *call)
{
    struct dirty *dirs = dirty_new();
    struct emit e;

    if (!dirs) {
        answer_errno(call, ENOMEM, call->m->path);
        return;
    }
    emit_begin(&e, call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{\"results\":[");
    int r = write_all(call, &e, dirs);
    /* Before a word is said: what is acknowledged is on the disk. */
    int synced = dirty_sync(dirs);
    if (r == 0)
        r = synced;
    if (r < 0) {
        buf_clear(&e.b);
        answer_bad_body(call, r);
        return;
    }
    emit_raw(&e, "]}");
    emit_finish(&e, 200);
}
