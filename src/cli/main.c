/* SPDX-License-Identifier: Apache-2.0 */
/* carrel: finds the verb and runs it, or the program that has it. Small and static: what it loads
 * decides what a run costs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

static int cli_help(int argc, char **argv);
static int cli_version(int argc, char **argv);

static const struct {
    const char *name;
    int (*run)(int, char **);
    const char *summary;
} verbs[] = {
    {"run", cli_run, "run a command with a directory as its whole world"},
    {"doctor", cli_doctor, "what this host offers, which levels work, how to fix the rest"},
    {"help", cli_help, "this text"},
    {"version", cli_version, "print the version"},
};

/* Replaces this program by carrel-full, with the same arguments. */
static int exec_full(char **argv)
{
    char path[4096];

    if (!cli_find("carrel-full", path, sizeof(path)))
        return cli_fail("carrel-full, a part of Carrel, is missing; reinstall Carrel");
    execv(path, argv);
    return cli_fail("carrel-full, a part of Carrel, cannot be executed; reinstall Carrel");
}

int cli_run_full(struct run_options *options, char **argv)
{
    (void)options;
    return exec_full(argv - 1);
}

int cli_doctor(int argc, char **argv)
{
    (void)argc;
    return exec_full(argv - 1);
}

static int flushed(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return cli_fail("standard output cannot be written");
}

static int cli_help(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("usage: carrel VERB [options]\n\nPrivate, persistent desks for AI agents.\n");
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        printf("  %-9s %s\n", verbs[i].name, verbs[i].summary);
    puts("\nexample: carrel run --workspace desk --create -- python3 -c 'print(1)'\n"
         "'carrel VERB --help' tells more.");
    return flushed();
}

static int cli_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("carrel " CARREL_VERSION);
    return flushed();
}

int main(int argc, char **argv)
{
    char message[128];

    if (argc < 2) {
        fputs("carrel: no verb given; see 'carrel help'\n", stderr);
        return CLI_FAILED;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(name, verbs[i].name) == 0)
            return verbs[i].run(argc - 1, argv + 1);
    }
    snprintf(message, sizeof(message), "unknown verb '%.40s'; see 'carrel help'", name);
    return cli_fail(message);
}
