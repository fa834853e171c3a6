/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-client: the verbs that talk to the daemon. The command `carrel` execs it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"

static const struct {
    const char *name;
    int (*run)(char **);
} verbs[] = {
    {"ws", client_ws},         {"exec", client_exec},     {"shell", client_shell},
    {"ps", client_ps},         {"logs", client_logs},     {"kill", client_kill},
    {"key", client_key},       {"events", client_events}, {"audit", client_audit},
    {"ls", client_ls},         {"cat", client_cat},       {"put", client_put},
    {"get", client_get},       {"edit", client_edit},     {"rm", client_rm},
    {"mv", client_mv},         {"cp", client_cp},         {"mkdir", client_mkdir},
    {"stat", client_stat},     {"grep", client_grep},     {"glob", client_glob},
    {"watch", client_watch},   {"tree", client_tree},     {"doctor", client_doctor},
    {"port", client_port},     {"plan", client_plan},     {"template", client_template},
    {"env", client_env},       {"mcp", client_mcp},       {"net", client_net},
    {"store", client_store},   {"base", client_base},     {"snapshot", client_snapshot},
    {"secret", client_secret}, {"fork", client_fork},     {"merge", client_merge},
    {"diff", client_diff},
};

/* Descriptors 0 to 2 exist from here on, so that none of ours can land there. */
static void fill_standard_files(void)
{
    int fd;

    do {
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (fd >= 0 && fd < 3);
    if (fd >= 0)
        (void)close(fd);
}

int main(int argc, char **argv)
{
    fill_standard_files();
    (void)signal(SIGPIPE, SIG_IGN); /* told by write */
    for (size_t i = 0; argc >= 2 && i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].run(argv + 1);
    }
    return cli_fail("carrel-client is a part of carrel; run 'carrel help'");
}
