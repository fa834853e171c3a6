/* SPDX-License-Identifier: Apache-2.0 */
#include "client/workspace/provision.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <unistd.h>

#include "base/programs.h"
#include "cli/cli.h"
#include "client/core/client.h"

enum {
    PLACE = 5, /* of the program in argv */
};

void provision_begin(struct provision *p, const char *what)
{
    /* Its own files and the library's: no variable and no package of this user changes what runs,
     * and nothing is written beside them. */
    *p = (struct provision){.argv = {"python3", "-I", "-S", "-B", "-Xutf8", [PLACE] = "", what},
                            .count = PLACE + 2};
}

void provision_add(struct provision *p, const char *name, const char *value)
{
    if (!value || p->count + 2 >= PROVISION_WORDS)
        return;
    p->argv[p->count++] = name;
    p->argv[p->count++] = value;
}

void provision_flag(struct provision *p, const char *name, bool value)
{
    provision_add(p, name, value ? "yes" : NULL);
}

int provision_run(struct provision *p)
{
    char path[PATH_MAX];
    char *const *argv = (char *const *)(uintptr_t)p->argv;
    struct err err;

    /* main has opened those that were missing, for itself alone. */
    for (int fd = 0; fd < 3; fd++)
        (void)fcntl(fd, F_SETFD, 0);
    p->argv[PLACE] = program_find("provision", path, sizeof(path));
    if (!p->argv[PLACE])
        return cli_fail("a part of Carrel is missing: provision, in its directory libexec/carrel");
    execv("/usr/bin/python3", argv);
    if (errno == ENOENT)
        execvp("python3", argv);
    err_set(&err, ERR_NOT_FOUND, errno, "python3 cannot be started; install it");
    return client_fail(&err);
}
