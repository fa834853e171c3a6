/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/answers.h"
#include "files/core/call.h"

enum {
    SMALL_FILE = 16384, /* copied, which is cheaper up to here than to have the kernel send it */
};

static const struct kind {
    int error;
    enum err_said said;
    const char *words;
} kinds[] = {
    {ENOENT, SAID_FILE_NOT_FOUND, "there is no such file"},
    {EACCES, SAID_PERMISSION_DENIED, "its permissions do not allow that"},
    {EPERM, SAID_PERMISSION_DENIED, "that is not allowed"},
    {EISDIR, SAID_IS_DIRECTORY, "it is a directory"},
    {ENOTDIR, SAID_NOT_A_DIRECTORY, "it, or a part of its path, is not a directory"},
    {ENAMETOOLONG, SAID_INVALID_PATH, "a name in it is longer than 255 bytes"},
    {EINVAL, SAID_INVALID_PATH, "that cannot be done with this path"},
    {ELOOP, SAID_INVALID_PATH, "its symbolic links lead nowhere"},
    {EEXIST, SAID_ALREADY_EXISTS, "it exists already"},
    {ENOTEMPTY, SAID_NOT_EMPTY, "the directory is not empty"},
    {ENXIO, SAID_NOT_A_FILE, "it is a pipe, a socket or a device"},
    {ENOSPC, SAID_DISK_FULL, "the disk is full"},
    {EDQUOT, SAID_DISK_FULL,
     "the limit on the workspace's disk, or its quota, is used up; delete something"},
    {EROFS, SAID_READ_ONLY, "it is on something that is mounted read-only"},
    {EBUSY, SAID_RESERVED, "the name is one that Carrel provides itself"},
    {EAGAIN, SAID_LOCKED, "a program inside holds a lease on it"},
    {EFBIG, SAID_TOO_LARGE, "it is larger than a file may be"},
    {ETXTBSY, SAID_BUSY, "it is a program that runs"},
    {EXDEV, SAID_CROSS_DEVICE, "the two are on different mounts"},
    {EMLINK, SAID_TOO_MANY_LINKS, "it has too many names"},
    {ENOMEM, SAID_UNAVAILABLE, "there is no memory for that"},
    {EMFILE, SAID_UNAVAILABLE, "too many files are open"},
    {EPIPE, SAID_INCOMPLETE_BODY, "the body was broken off before its end"},
    {ECANCELED, SAID_PRECONDITION_FAILED, "it is not as If-Match or If-None-Match want it"},
    {ESTALE, SAID_CHANGED, "it was moved or replaced while this went on"},
};

static const struct kind *kind_of(int error)
{
    static const struct kind other = {0, SAID_IO_ERROR, "reading or writing it failed"};

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
    return err_answer(kind->said)->code;
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
    const struct err_answer *answer = err_answer(kind->said);

    send_error(call, (unsigned)answer->status, answer->code, kind->words, path);
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
