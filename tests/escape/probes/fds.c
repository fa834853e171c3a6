/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack with descriptors that were left open: each is a way to a file that the sandbox has no name
 * for (CVE-2024-21626).
 */
#include "probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define HIGHEST 65535

int main(void)
{
    char path[64];
    char target[4096];

    for (int fd = 3; fd <= HIGHEST; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof(target) - 1);
        target[length < 0 ? 0 : length] = '\0';
        escaped("descriptor %d is open: %s", fd, target);
    }
    for (int fd = 0; fd <= 2; fd++) {
        struct stat info;
        if (fstat(fd, &info) == 0 && !S_ISFIFO(info.st_mode) && info.st_rdev != makedev(1, 3))
            escaped("descriptor %d is no pipe but the caller's own file (mode %o)", fd,
                    info.st_mode);
    }
    return verdict();
}
