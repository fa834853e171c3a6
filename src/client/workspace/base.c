/* SPDX-License-Identifier: Apache-2.0 */
/* carrel base: systems that workspaces stand on. No daemon has a part in it; one that runs shows
 * the newest to the workspaces that are made from then on. */
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/where.h"
#include "client/workspace/provision.h"
#include "protocol/settings.h"

static const char help[] =
    "usage: carrel base build [--mirror URL | --from-tar FILE] [--config FILE] NAME\n"
    "\n"
    "Makes a system that workspaces can have as their own, with root inside and apt. NAME\n"
    "is debian-12, or any other with --from-tar, which takes the root file system in an\n"
    "archive, such as one that docker export has written. What is there under that name\n"
    "stays for the workspaces that stand on it.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel base build debian-12\n"
    "  carrel base build --mirror http://mirror.example/debian debian-12\n"
    "  docker export mine | gzip > mine.tar.gz; carrel base build --from-tar mine.tar.gz mine\n";

struct building {
    struct args_common common;
    const char *mirror;
    const char *archive;
    const char *config;
};

static int build(struct building *b, const char *name)
{
    static struct settings settings;
    static char state[WHERE_PATH];
    struct provision p;
    struct err err = {0};

    settings_init(&settings);
    if (b->config && settings_read_file(&settings, b->config, &err) < 0)
        return client_fail(&err);
    if (!b->common.state && *settings.state)
        b->common.state = settings.state;
    if (!b->mirror && !b->archive && *settings.debian_mirror)
        b->mirror = settings.debian_mirror;
    if (where_state(b->common.state, state, sizeof(state), &err) < 0)
        return client_fail(&err);
    provision_begin(&p, "base-build");
    provision_add(&p, "state", state);
    provision_add(&p, "name", name);
    provision_add(&p, "mirror", b->mirror);
    provision_add(&p, "from-tar", b->archive);
    provision_flag(&p, "json", b->common.json);
    return provision_run(&p);
}

int client_base(char **argv)
{
    struct building b = {.common = {.verb = "base build"}};
    const struct args_rule rules[] = {
        {"--mirror", "URL",
         "fetch packages from there\nelse debian_mirror of --config, else where this host's apt "
         "does",
         ARGS_TEXT, &b.mirror},
        {"--from-tar", "FILE", "take the root file system in this archive", ARGS_TEXT, &b.archive},
        {"--config", "FILE", "read the daemon's settings, as carrel serve does", ARGS_TEXT,
         &b.config},
        {0},
    };
    const char *words[2];

    if (argv[1] && strcmp(argv[1], "build") == 0)
        argv++;
    else if (!argv[1] || (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0))
        return cli_fail("what to do is missing; write carrel base build NAME");
    int status = client_begin(argv + 1, help, rules, &b.common, words, 1);
    if (status >= 0)
        return status;
    if (!words[0])
        return cli_fail("the name of a base is missing; write carrel base build debian-12");
    return build(&b, words[0]);
}
