/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "files/core/call.h"

enum {
    SMALL_FILE = 16384, /* copied, which is cheaper up to here than to have the kernel send it */
};

static const struct kind {
    int error;
    unsigned status;
    const char *code;
    const char *words;
} kinds[] = {
    {ENOENT, 404, "file_not_found", "there is no such file"},
    {EACCES, 403, "permission_denied", "its permissions do not allow that"},
    {EPERM, 403, "permission_denied", "that is not allowed"},
    {EISDIR, 409, "is_directory", "it is a directory"},
    {ENOTDIR, 409, "not_a_directory", "it, or a part of its path, is not a directory"},
    {ENAMETOOLONG, 400, "invalid_path", "a name in it is longer than 255 bytes"},
    {EINVAL, 400, "invalid_path", "that cannot be done with this path"},
    {ELOOP, 400, "invalid_path", "its symbolic links lead nowhere"},
    {EEXIST, 409, "already_exists", "there is one already"},
    {ENOTEMPTY, 409, "not_empty", "the directory is not empty"},
    {ENXIO, 409, "not_a_file", "it is a pipe, a socket or a device"},
    {ENOSPC, 507, "disk_full", "the disk is full"},
    {EDQUOT, 507, "disk_full",
     "the limit on the workspace's disk, or its quota, is used up; delete something"},
    {EROFS, 403, "read_only", "it is on something that is mounted read-only"},
    {EBUSY, 409, "reserved", "the name is one that Carrel provides itself"},
    {EAGAIN, 423, "locked", "a program inside holds a lease on it"},
    {EFBIG, 413, "too_large", "it is larger than a file may be"},
    {ETXTBSY, 409, "busy", "it is a program that runs"},
    {EXDEV, 409, "cross_device", "the two are on different mounts"},
    {EMLINK, 409, "too_many_links", "it has too many names"},
    {ENOMEM, 503, "unavailable", "there is no memory for that"},
    {EMFILE, 503, "unavailable", "too many files are open"},
    {EPIPE, 400, "incomplete_body", "the body was broken off before its end"},
    {ECANCELED, 412, "precondition_failed", "it is not as If-Match or If-None-Match want it"},
    {ESTALE, 409, "changed", "it was moved or replaced while this went on"},
};

static const struct kind *kind_of(int error)
{
    static const struct kind other = {0, 500, "io_error", "reading or writing it failed"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].error == error)
            return &kinds[i];
    }
    return &other;
}

const char *files_error_code(int error, const char **ret_words)
{
    const struct kind *kind = kind_of(error);

    if (ret_words)
        *ret_words = kind->words;
    return kind->code;
}

/* --- the stream --- */

static bool send_all(struct files_call *call, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0 && !call->gone) {
        ssize_t sent = send(call->stream, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0) {
            call->gone = true;
            break;
        }
        at += sent;
        n -= (size_t)sent;
    }
    return !call->gone;
}

bool answer_begin(struct files_call *call, const struct files_head *head)
{
    call->answered = true;
    call->pieces = head->size == FILES_MOST;
    return send_all(call, head, sizeof(*head));
}

/* In one call: each by itself would wake the front, the first to find nothing behind it. */
bool answer_whole(struct files_call *call, const struct files_head *head, const void *bytes)
{
    struct iovec parts[] = {{(void *)(uintptr_t)head, sizeof(*head)},
                            {(void *)(uintptr_t)bytes, (size_t)head->size}};
    struct msghdr msg = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;

    call->answered = true;
    call->pieces = false;
    do {
        sent = sendmsg(call->stream, &msg, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) {
        call->gone = true;
        return false;
    }
    size_t of_head = (size_t)sent < sizeof(*head) ? (size_t)sent : sizeof(*head);
    size_t of_body = (size_t)sent - of_head;
    return send_all(call, (const char *)head + of_head, sizeof(*head) - of_head) &&
           send_all(call, (const char *)bytes + of_body, (size_t)head->size - of_body);
}

bool answer_bytes(struct files_call *call, const void *bytes, size_t n)
{
    const char *at = bytes;

    if (!call->pieces)
        return send_all(call, bytes, n);
    while (n > 0 && !call->gone) {
        uint32_t piece = n < FILES_PIECE ? (uint32_t)n : FILES_PIECE;
        (void)(send_all(call, &piece, sizeof(piece)) && send_all(call, at, piece));
        at += piece;
        n -= piece;
    }
    return !call->gone;
}

/* With a buffer, where the kernel cannot do it alone, and for pieces. */
static bool copy_file(struct files_call *call, int fd, uint64_t from, uint64_t n)
{
    char bytes[FILES_PIECE / 2];

    while (n > 0 && !call->gone) {
        size_t most = n < sizeof(bytes) ? (size_t)n : sizeof(bytes);
        ssize_t got = pread(fd, bytes, most, (off_t)from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            call->gone = true; /* less than was promised: the client must see that */
            break;
        }
        (void)answer_bytes(call, bytes, (size_t)got);
        from += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return !call->gone;
}

bool answer_file(struct files_call *call, int fd, uint64_t from, uint64_t n)
{
    off_t at = (off_t)from;

    while (!call->pieces && n > 0 && !call->gone) {
        ssize_t sent = sendfile(call->stream, fd, &at, n < (1U << 20) ? (size_t)n : 1U << 20);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EINVAL || errno == ENOSYS))
            break;
        if (sent <= 0)
            call->gone = true;
        else
            n -= (uint64_t)sent;
    }
    return copy_file(call, fd, (uint64_t)at, n);
}

bool answer_whole_file(struct files_call *call, const struct files_head *head, int fd,
                       uint64_t from)
{
    char bytes[SMALL_FILE];

    if (head->size > sizeof(bytes))
        return answer_begin(call, head) && answer_file(call, fd, from, head->size);
    ssize_t got = pread(fd, bytes, (size_t)head->size, (off_t)from);
    if (got < 0)
        answer_errno(call, errno, call->m->path);
    return got >= 0 && (uint64_t)got == head->size && answer_whole(call, head, bytes);
}

void answer_end(struct files_call *call)
{
    uint32_t end = 0;

    if (call->pieces)
        (void)send_all(call, &end, sizeof(end));
}

void answer_empty(struct files_call *call)
{
    struct files_head head = {.status = 204};

    (void)answer_begin(call, &head);
}

static void send_error(struct files_call *call, unsigned status, const char *code,
                       const char *message, const char *path)
{
    struct emit e;

    if (call->answered) {
        call->gone = true; /* too late for words: the answer is cut off */
        return;
    }
    if (call->asleep) {
        (void)answer_begin(call, &(struct files_head){.status = FILES_ELSEWHERE});
        return;
    }
    emit_begin(&e, call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{\"error\":{");
    emit_bytes(&e, "code", code, strlen(code));
    emit_bytes(&e, "message", message, strlen(message));
    if (path) {
        emit_comma(&e);
        emit_raw(&e, "\"details\":{");
        emit_bytes(&e, "path", path, strlen(path));
        emit_raw(&e, "}");
    }
    emit_raw(&e, "}}");
    emit_finish(&e, status);
}

void answer_errno(struct files_call *call, int error, const char *path)
{
    const struct kind *kind = kind_of(error < 0 ? -error : error);

    send_error(call, kind->status, kind->code, kind->words, path);
}

void answer_error(struct files_call *call, unsigned status, const char *code, const char *format,
                  ...)
{
    char message[1024];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    send_error(call, status, code, message, call->m->path);
}
