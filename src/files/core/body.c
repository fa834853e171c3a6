/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request: pieces, of which the last is empty. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "files/core/call.h"

/* What the socket has: >0, 0 at its end, -errno. */
static ssize_t receive(struct files_call *call, void *bytes, size_t size)
{
    ssize_t n;

    do {
        n = read(call->stream, bytes, size);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* The length of the next piece. */
static int next_piece(struct files_call *call)
{
    uint32_t length = 0;
    size_t have = 0;

    while (have < sizeof(length)) {
        ssize_t n = receive(call, (char *)&length + have, sizeof(length) - have);
        if (n <= 0)
            return -EPIPE;
        have += (size_t)n;
    }
    if (length > FILES_PIECE)
        return -EPIPE;
    call->body_left = length;
    call->body_ended = length == 0;
    return 0;
}

ssize_t body_read(struct files_call *call, void *bytes, size_t size)
{
    if (call->body_left == 0 && !call->body_ended) {
        int r = next_piece(call);
        if (r < 0)
            return r;
    }
    if (call->body_ended || size == 0)
        return 0;
    ssize_t n = receive(call, bytes, size < call->body_left ? size : call->body_left);
    if (n <= 0)
        return -EPIPE;
    call->body_left -= (uint32_t)n;
    return n;
}

int body_exactly(struct files_call *call, void *bytes, size_t n)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = body_read(call, at, n);
        if (got <= 0)
            return got < 0 ? (int)got : -EPIPE;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

bool files_client_left(struct files_call *call)
{
    /* Both directions closed; one alone only says that there is no more of a body. */
    struct pollfd stream = {.fd = call->stream};

    if (poll(&stream, 1, 0) > 0 && (stream.revents & (POLLHUP | POLLERR)))
        call->gone = true;
    return call->gone;
}
