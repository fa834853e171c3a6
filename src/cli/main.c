/* SPDX-License-Identifier: Apache-2.0 */
/* carrel: finds the verb and runs it, or the program that has it. Small and static: what it loads
 * decides what a run costs. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/near.h"
#include "base/programs.h"
#include "cli/cli.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

static int cli_help(int argc, char **argv);
static int cli_version(int argc, char **argv);
static int doctor_of(int argc, char **argv);

/* A verb is done here, or by the program that is named. */
static const struct {
    const char *name;
    int (*run)(int, char **);
    const char *program;
    const char *summary;
} verbs[] = {
    {"run", cli_run, NULL, "run one command in a sandbox"},
    {"doctor", doctor_of, NULL,
     "check this host, or a workspace, and say how to fix what is wrong"},
    {"serve", NULL, "carrel-serve", "run the daemon: workspaces and commands over HTTP"},
    {"ws", NULL, "carrel-client", "manage workspaces: create, ls, show, policy, rm, ..."},
    {"exec", NULL, "carrel-client", "run a command in a workspace"},
    {"shell", NULL, "carrel-client", "open a shell in a workspace"},
    {"ps", NULL, "carrel-client", "list running commands"},
    {"logs", NULL, "carrel-client", "print the output of a command"},
    {"kill", NULL, "carrel-client", "end a command and all it started, or send it a signal"},
    {"ls", NULL, "carrel-client", "list a directory of a workspace or of this host"},
    {"cat", NULL, "carrel-client", "print files"},
    {"put", NULL, "carrel-client", "copy files to a workspace"},
    {"get", NULL, "carrel-client", "copy files from a workspace"},
    {"edit", NULL, "carrel-client", "replace a text in a file"},
    {"rm", NULL, "carrel-client", "remove files"},
    {"mv", NULL, "carrel-client", "move files"},
    {"cp", NULL, "carrel-client", "copy files"},
    {"mkdir", NULL, "carrel-client", "make directories"},
    {"stat", NULL, "carrel-client", "print type, size, mode and time of files"},
    {"grep", NULL, "carrel-client", "find lines that contain a text"},
    {"glob", NULL, "carrel-client", "find files whose path matches a pattern"},
    {"watch", NULL, "carrel-client", "print changes to files as they happen"},
    {"tree", NULL, "carrel-client", "draw a directory and everything below it"},
    {"env", NULL, "carrel-client", "set up Python and Node in a workspace"},
    {"port", NULL, "carrel-client", "get the address of a server that listens in a workspace"},
    {"net", NULL, "carrel-client", "show what a workspace reaches by name: log, try"},
    {"secret", NULL, "carrel-client", "manage values for requests: set, ls, rm"},
    {"store", NULL, "carrel-client", "manage object stores: add, ls, check, rm"},
    {"plan", NULL, "carrel-client",
     "review changes before they are made: run, show, approve, apply, undo, ..."},
    {"snapshot", NULL, "carrel-client",
     "keep versions of a workspace: create, ls, diff, restore, ..."},
    {"fork", NULL, "carrel-client", "make a workspace that starts from a version of another"},
    {"diff", NULL, "carrel-client", "list what a fork has changed, or two have different"},
    {"merge", NULL, "carrel-client", "bring what a fork has changed into a workspace, as a plan"},
    {"template", NULL, "carrel-client", "prepare bases for workspaces: build, list, show, rm"},
    {"base", NULL, "carrel-client", "make systems that workspaces have as their own: build"},
    {"mcp", NULL, "carrel-client", "serve a client of the Model Context Protocol"},
    {"key", NULL, "carrel-client", "manage keys of the daemon: create, ls, revoke"},
    {"events", NULL, "carrel-client", "print events of workspaces and commands as they happen"},
    {"audit", NULL, "carrel-client", "read, verify and export the audit record"},
    {"help", cli_help, NULL, "print this text"},
    {"version", cli_version, NULL, "print the version"},
};

/* Replaces this program by a part of it, with the same arguments. */
static int exec_part(const char *part, char **argv)
{
    char path[4096];
    char message[128];

    if (program_find(part, path, sizeof(path)))
        execv(path, argv);
    snprintf(message, sizeof(message),
             "%s, a part of Carrel, is missing or cannot be executed; reinstall Carrel", part);
    return cli_fail(message);
}

/* Of this host, or of the workspace that is named. */
static int doctor_of(int argc, char **argv)
{
    bool of_host = true;

    for (int i = 1; i < argc; i++)
        of_host = of_host && argv[i][0] == '-';
    return exec_part(of_host ? "carrel-full" : "carrel-client", argv - 1);
}

int cli_run_full(struct run_options *options, char **argv)
{
    (void)options;
    return exec_part("carrel-full", argv - 1);
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
         "'carrel VERB --help' describes one verb.");
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
    char hint[NEAR_HINT];

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
        if (strcmp(name, verbs[i].name) != 0)
            continue;
        return verbs[i].run ? verbs[i].run(argc - 1, argv + 1) : exec_part(verbs[i].program, argv);
    }
    (void)near_hint(hint, name, strlen(name), verbs, sizeof(verbs) / sizeof(verbs[0]),
                    sizeof(verbs[0]));
    snprintf(message, sizeof(message), "there is no verb '%.40s'%s", name,
             *hint ? hint : "; see 'carrel help'");
    return cli_fail(message);
}
