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
    "       carrel doctor [--json] [--state DIR] [--package NAME] WORKSPACE[:/PATH]\n"
    "\n"
    "Asks the kernel what it offers, tries the isolation levels, and prints the command\n"
    "that installs or sets what is missing.\n"
    "\n"
    "With a workspace of the daemon: says whether it exists, is awake, can be written to\n"
    "and has room, and what is read-only in it. With a path: says why no file is or can be\n"
    "there.\n"
    "\n"
    "  --package NAME  also say whether this package is installed in the workspace\n"
    "  --json          print one JSON object\n"
    "  --state DIR     talk to the daemon of this state directory\n"
    "\n"
    "Exit status: 0 when level ns works here and all is well with the workspace, 1 when not.\n"
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
        return cli_fail("doctor takes --json, or a workspace; see 'carrel doctor --help'");
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
