/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    TRIES = 64 /* others take free devices, too */
};

/* Direct: pages are cached once, not in the image and in its file. Not every file system can. */
static int configure(int device, int file)
{
    struct loop_config config = {.fd = (unsigned)file};

    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    return ioctl(device, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

int loop_attach(int file, char *path, size_t size)
{
    scoped_fd int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return -errno;
    for (int i = 0; i < TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return -errno;
        snprintf(path, size, "/dev/loop%d", number);
        scoped_fd int device = open(path, O_RDWR | O_CLOEXEC);
        if (device < 0)
            return -errno;
        int r = configure(device, file);
        if (r == 0)
            return take_fd(&device);
        if (r != -EBUSY)
            return r;
    }
    return -EBUSY;
}
