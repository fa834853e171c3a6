/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that go with a message over a Unix socket; and those that come with one, from a
 * process that may have been taken over: no more of them stay open than the receiver wants. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct iovec;

enum {
    FDS_MOST = 253 /* the kernel passes no more with one message */
};

/* One message, or of a stream what is taken now, with `count` descriptors, which stay the caller's
 * (0: as sendmsg). `flags` as for sendmsg(2); never raises SIGPIPE. How many bytes, or -errno. */
ssize_t fds_send(int socket, const struct iovec *parts, size_t n, const int *fds, size_t count,
                 int flags);
/* One message, or what of a stream has come, with its descriptors: *count says for how many there
 * is room in `fds`, and then how many there are; all CLOEXEC, and the caller's. `flags` as for
 * recvmsg(2). How many bytes, 0 at the end, -errno. -EPROTO: more descriptors than there is room
 * for, or something else beside the bytes; all are closed then, and the bytes are lost. */
ssize_t fds_receive(int socket, void *bytes, size_t n, int *fds, size_t *count, int flags);
/* What has come of a stream with SO_PASSCRED, and which process sent it, as the kernel says. How
 * many bytes, 0 at the end, -errno. -EPROTO: without that, or with anything beside it. */
ssize_t fds_receive_pid(int socket, void *bytes, size_t n, pid_t *ret);
