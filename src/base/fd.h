/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptor ownership: a plain `int fd` parameter is borrowed, an `int *fd` is consumed. */
#pragma once

#include <errno.h>
#include <unistd.h>

static inline void scope_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd); /* Linux closes even on EINTR: never retried */
        errno = saved;
        *fd = -1;
    }
}

#define scoped_fd __attribute__((cleanup(scope_close)))

static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}

/* All of it, to what takes it at once or blocks. 0 or -errno. */
static inline int fd_write_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* A result that is left unused on purpose; say why beside it. */
#define ignore(call) ((void)!(call))
