/* SPDX-License-Identifier: Apache-2.0 */
/* A message with descriptors over a socket that keeps messages apart. */
#pragma once

#include <stddef.h>

enum {
    PACKET_MAX_FDS = 64
};

/* Waits for nobody; 0 or -errno. Never raises SIGPIPE. */
int packet_send(int socket, const void *bytes, size_t n, const int *fds, size_t fd_count);
