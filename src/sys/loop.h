/* SPDX-License-Identifier: Apache-2.0 */
/* Loop devices: a file as a disk. */
#pragma once

#include <stddef.h>

/* Makes the file (open for writing) the disk of a free loop device and gives the device's path. It
 * goes with its last user, however that one ends; so does the open file, with any lock on it. The
 * device's descriptor or -errno. */
int loop_attach(int file, char *path, size_t size);
