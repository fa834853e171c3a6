/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/derive/staged.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/core/plan.h"
#include "sys/path.h"

int staged_open(int dir)
{
    if (mkdirat(dir, "upper", 0700) < 0 && errno != EEXIST)
        return -errno;
    return path_open_beneath(dir, "upper", O_RDONLY | O_DIRECTORY, 1);
}

/* Most are there: from below upwards to the first that is, and down again. */
static int make_parents(int upper, const char *path)
{
    char parent[PLAN_MAX_PATH + 1];
    const char *end = strrchr(path, '/');
    size_t length = end ? (size_t)(end - path) : 0;

    if (!end)
        return 0;
    memcpy(parent, path, length);
    parent[length] = '\0';
    while (mkdirat(upper, parent, 0700) < 0 && errno != EEXIST) {
        char *slash = errno == ENOENT ? strrchr(parent, '/') : NULL;
        if (!slash)
            return -errno;
        *slash = '\0';
    }
    for (size_t n = strlen(parent); n < length; n = strlen(parent)) {
        parent[n] = '/'; /* the next of those that were cut off */
        if (mkdirat(upper, parent, 0700) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

int staged_make(int upper, const char *path)
{
    int r = make_parents(upper, path);

    if (r < 0)
        return r;
    int fd = openat(upper, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}
