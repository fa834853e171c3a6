/* SPDX-License-Identifier: Apache-2.0 */
/* carrel: finds the verb and runs it. */
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

int cli_fail(const char *message)
{
    fprintf(stderr, "carrel: %s\n", message);
    return CLI_FAILED;
}

const char *cli_init_path(char *path, size_t size)
{
    static const char *const places[] = {"/carrel-init", "/../libexec/carrel/carrel-init"};
    ssize_t n = readlink("/proc/self/exe", path, size - 64);

    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(slash, size - (size_t)(slash - path), "%s", places[i]);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
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
    return 0;
}

static int cli_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    puts("carrel " CARREL_VERSION);
    return 0;
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
