/* SPDX-License-Identifier: Apache-2.0 */
/* What a file server before this one, that was killed, has left in the hidden directory. Its names
 * are taken before the first call, and removed beside the calls: they wait for nothing. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"

enum {
    NAMES = 1 << 20 /* bytes; what is beyond is left to the next one */
};

static void keep_names(const char *bytes, size_t n, struct buf *names)
{
    for (size_t at = 0; at < n;) {
        const struct dirent64 *entry = (const struct dirent64 *)(const void *)(bytes + at);
        size_t length = strlen(entry->d_name) + 1;
        if (strncmp(entry->d_name, FILES_TEMP, strlen(FILES_TEMP)) == 0 &&
            names->n + length <= NAMES)
            buf_add(names, entry->d_name, length);
        at += entry->d_reclen;
    }
}

void files_sweep_find(int hidden, struct buf *ret)
{
    scoped_fd int fd = hidden < 0 ? -1 : openat(hidden, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct dirent64) char bytes[8192];
    ssize_t n;

    buf_init(ret, NAMES);
    while (fd >= 0 && (n = getdents64(fd, bytes, sizeof(bytes))) > 0)
        keep_names(bytes, (size_t)n, ret);
}

void files_sweep(int hidden, struct buf *names)
{
    for (size_t at = 0; !names->failed && at < names->n; at += strlen(names->p + at) + 1)
        ignore(files_remove_tree(hidden, names->p + at)); /* then the next one tries */
    buf_clear(names);
}
