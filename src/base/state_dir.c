/* SPDX-License-Identifier: Apache-2.0 */
#include "base/state_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int state_dir_default(char *path, size_t size)
{
    const char *state_home = getenv("XDG_STATE_HOME"); /* NOLINT(concurrency-mt-unsafe) */
    const char *home = getenv("HOME");                 /* NOLINT(concurrency-mt-unsafe) */
    int n;

    if (geteuid() == 0)
        n = snprintf(path, size, "/var/lib/carrel");
    else if (state_home && state_home[0] == '/') /* the specification says to ignore others */
        n = snprintf(path, size, "%s/carrel", state_home);
    else if (home && *home)
        n = snprintf(path, size, "%s/.local/state/carrel", home);
    else
        return -ENOENT;
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
