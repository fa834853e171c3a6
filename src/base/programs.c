/* SPDX-License-Identifier: Apache-2.0 */
#include "base/programs.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char *program_find(const char *part, char *path, size_t size)
{
    static const char *const places[] = {"", "../libexec/carrel/"};
    ssize_t n = readlink("/proc/self/exe", path, size - 128);

    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s%s", places[i], part);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}

const char *program_share(const char *name, char *path, size_t size)
{
    static const char *const places[] = {"../packaging/", "../../packaging/", "../share/carrel/",
                                         "../../share/carrel/"};
    ssize_t n = readlink("/proc/self/exe", path, size - 128);
    size_t i = 0;

    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash)
        return name;
    do
        snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s%s", places[i], name);
    while (access(path, R_OK | X_OK) < 0 && ++i < sizeof(places) / sizeof(places[0]));
    return path;
}
