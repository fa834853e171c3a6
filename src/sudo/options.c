/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sudo/sudo.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

enum {
    ONLY_LONG = 256,
    SECOND = ONLY_LONG
};

static const char help[] =
    "usage: sudo [-EHbn] [-u USER] [-g GROUP] [-D DIR] [NAME=VALUE ...] [-i | -s] [COMMAND ...]\n"
    "       sudo -v | -l | -k\n"
    "\n"
    "Runs a command as root, or as another user, of this workspace's own system. Carrel asks\n"
    "for no password, and writes it in its record.\n"
    "\n"
    "  -u USER    as that user, or #NUMBER        -E         keep the environment\n"
    "  -g GROUP   as that group                   -H         HOME is the user's (it is anyway)\n"
    "  -D DIR     in that directory               -s, -i     in a shell; as if newly come\n"
    "  -b         in the background               -v, -l     whether that can be had here\n"
    "  -n -S -A -k -K -p TEXT -P -B -N -C N       have no meaning here, and are taken\n";

static const struct option long_ones[] = {
    {"user", required_argument, NULL, 'u'},
    {"group", required_argument, NULL, 'g'},
    {"chdir", required_argument, NULL, 'D'},
    {"preserve-env", optional_argument, NULL, 'E'},
    {"set-home", no_argument, NULL, 'H'},
    {"login", no_argument, NULL, 'i'},
    {"shell", no_argument, NULL, 's'},
    {"background", no_argument, NULL, 'b'},
    {"validate", no_argument, NULL, 'v'},
    {"list", no_argument, NULL, 'l'},
    {"reset-timestamp", no_argument, NULL, 'k'},
    {"remove-timestamp", no_argument, NULL, 'K'},
    {"non-interactive", no_argument, NULL, 'n'},
    {"stdin", no_argument, NULL, 'S'},
    {"askpass", no_argument, NULL, 'A'},
    {"prompt", required_argument, NULL, 'p'},
    {"close-from", required_argument, NULL, 'C'},
    {"bell", no_argument, NULL, 'B'},
    {"preserve-groups", no_argument, NULL, 'P'},
    {"no-update", no_argument, NULL, 'N'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'V'},
    {"carrel-second", no_argument, NULL, SECOND},
    {0},
};

static _Noreturn void say(const char *text)
{
    (void)fputs(text, stdout);
    leave(0);
}

static void keep(struct asked *asked, const char *names)
{
    asked->keep = names;
    asked->keep_all = asked->keep_all || !names;
}

/* False: it is none. */
static bool take_text(struct asked *asked, int option)
{
    switch (option) {
    case 'u':
        asked->user = optarg;
        return true;
    case 'g':
        asked->group = optarg;
        return true;
    case 'D':
        asked->cwd = optarg;
        return true;
    case 'E':
        keep(asked, optarg);
        return true;
    default:
        return false;
    }
}

static void take(struct asked *asked, int option)
{
    const struct {
        int option;
        bool *field;
    } fields[] = {{'H', &asked->home},       {'i', &asked->login},    {'s', &asked->shell},
                  {'b', &asked->background}, {'v', &asked->validate}, {'l', &asked->list},
                  {'k', &asked->forget},     {'K', &asked->forget},   {SECOND, &asked->second}};

    if (option == 'h')
        say(help);
    if (option == 'V')
        say("Carrel's sudo " CARREL_VERSION "\n");
    if (option == '?' || option == ':')
        fail("see sudo --help");
    if (take_text(asked, option))
        return;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].option == option)
            *fields[i].field = true;
    }
}

void options_read(int argc, char **argv, struct asked *ret)
{
    int option;

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread */
    while ((option = getopt_long(argc, argv, "+u:g:D:EHisbvlkKnSAp:C:BPNhV", long_ones, NULL)) >= 0)
        take(ret, option);
    ret->command = argv + optind;
}
