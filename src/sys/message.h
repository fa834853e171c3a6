/* SPDX-License-Identifier: Apache-2.0 */
/* Framed messages with descriptors over a stream socket pair. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    MESSAGE_MAX_FDS = 200
};

#define MESSAGE_MAX_BYTES (4U << 20)

struct message_head {
    uint32_t kind;
    uint32_t length; /* of the bytes that follow */
    uint32_t fd_count;
};

/* 0 or -errno. Never raises SIGPIPE. */
int message_send(int socket, uint32_t kind, const void *bytes, size_t length, const int *fds,
                 size_t fd_count);
/* Reads a head and its descriptors (all CLOEXEC; the caller's). 1, 0 at end of file, -errno;
 * -EPROTO when the head's numbers do not agree with what came. */
int message_receive_head(int socket, struct message_head *head, int fds[MESSAGE_MAX_FDS]);
/* Exactly n bytes; 0 or -errno (-EPIPE at end of file). */
int message_read_exactly(int fd, void *bytes, size_t n);
