/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/programs.h"
#include "cli/cli.h"

static const char help[] =
    "usage: carrel doctor [--json]\n"
    "       carrel doctor [--json] [--state DIR] WORKSPACE[:/PATH]\n"
    "\n"
    "Asks the kernel what it offers, tries the isolation levels, and prints the\n"
    "one command that mends what is missing. Exit status 0 when level ns works\n"
    "here, 1 when it does not.\n"
    "\n"
    "With a workspace of the daemon: whether it is there, awake, can be written to and\n"
    "has room, and what is read-only in it; with a path, why no file is or can be there.\n"
    "\n"
    "examples:\n"
    "  carrel doctor --json\n"
    "  carrel doctor desk:/src/new.txt\n";

int cli_doctor(int argc, char **argv)
{
    struct carrel_error error = {0};
    char init_path[4096];
    char *text = NULL;
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return cli_put(help);
    if (argc > 1 && !json)
        return cli_fail("doctor takes no argument but --json, or a workspace");
    const char *init = program_find("carrel-init", init_path, sizeof(init_path));
    /* As in run: a chroot stands in the way of root only until it is made a root of its own. */
    int works = carrel_doctor(json ? CARREL_JSON : CARREL_TEXT, init, &text, &error);
    if (works == 1 && geteuid() == 0 && carrel_leave_chroot() == 0) {
        free(text);
        text = NULL;
        works = carrel_doctor(json ? CARREL_JSON : CARREL_TEXT, init, &text, &error);
    }
    if (works < 0)
        return cli_fail(error.message);
    int written = cli_put(text);
    free(text);
    return written ? written : works;
}
