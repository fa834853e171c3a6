/* SPDX-License-Identifier: Apache-2.0 */
/* The mark "origin" of a layer that root has mounted: a copy names the file that it was made of as
 * the kernel does, whatever path that has by now. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "plan/derive/derive.h"
#include "sys/path.h"

enum {
    HEAD = 21, /* of the mark: what it is, and the file system; then the handle */
    TYPE = 4,  /* where in the head the handle's type is */
};

void derive_origin(int root, const char *path, struct origin *ret)
{
    unsigned char mark[HEAD + ORIGIN_MOST];
    char file[40];
    scoped_fd int fd = path_open_beneath(root, path, O_PATH, 1);

    *ret = (struct origin){0};
    snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : getxattr(file, "trusted.overlay.origin", mark, sizeof(mark));
    ret->is_absent = n < 0 && fd >= 0 && errno == ENODATA;
    if (n <= HEAD)
        return;
    ret->type = mark[TYPE];
    ret->n = (size_t)n - HEAD;
    memcpy(ret->bytes, mark + HEAD, ret->n);
}

bool derive_is_origin(const struct deriving *d, const char *path, const struct origin *origin)
{
    union {
        struct file_handle handle;
        unsigned char room[sizeof(struct file_handle) + ORIGIN_MOST];
    } its = {.handle = {.handle_bytes = ORIGIN_MOST}};

    scoped_fd int fd = path_open_beneath(d->how->tree, path, O_PATH, 1);
    int mount = 0;

    if (fd < 0 || name_to_handle_at(fd, "", &its.handle, &mount, AT_EMPTY_PATH) < 0)
        return false;
    return its.handle.handle_bytes == origin->n && its.handle.handle_type == origin->type &&
           memcmp(its.handle.f_handle, origin->bytes, origin->n) == 0;
}
