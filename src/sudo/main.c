/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/setup.h"
#include "sudo/sudo.h"

enum {
    LONGEST_LINE = 1 << 20,
    SECOND_WORDS = 12
};

_Noreturn void leave(int status)
{
    exit(status); /* NOLINT(concurrency-mt-unsafe): there is one thread */
}

_Noreturn void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)fputs("sudo: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
    va_end(arguments);
    leave(1);
}

/* The words as one line for a shell. */
static char *join(char **words)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-$";
    char *line = malloc(LONGEST_LINE);
    size_t n = 0;

    for (size_t i = 0; line && words[i]; i++) {
        if (n + 2 * strlen(words[i]) + 2 > LONGEST_LINE)
            fail("the command is too long");
        for (const char *at = words[i]; *at; at++) {
            if (!strchr(plain, *at))
                line[n++] = '\\';
            line[n++] = *at;
        }
        line[n++] = words[i + 1] ? ' ' : '\0';
    }
    if (!line)
        fail("out of memory");
    return line;
}

/* -s and -i: the command is for a shell. */
static char **in_shell(const struct asked *asked, const struct user *to, char **command)
{
    static char *words[5];
    const char *own = getenv("SHELL"); /* NOLINT(concurrency-mt-unsafe) */
    size_t n = 0;

    if (!asked->login && !asked->shell)
        return command;
    words[n++] = (char *)(uintptr_t)(!asked->login && own && *own ? own : to->shell);
    if (asked->login)
        words[n++] = (char *)(uintptr_t) "-l";
    if (command[0]) {
        words[n++] = (char *)(uintptr_t) "-c";
        words[n++] = join(command);
    }
    words[n] = NULL;
    return words;
}

/* We have what it takes: root's rights already, or the same user. */
static _Noreturn void run(const struct user *to, const char *cwd, char **argv, char **env)
{
    extern char **environ;

    if (!argv[0])
        fail("the command is missing");
    if (geteuid() == 0 &&
        (setgroups(to->group_count, to->groups) < 0 || setresgid(to->gid, to->gid, to->gid) < 0 ||
         setresuid(to->uid, to->uid, to->uid) < 0))
        fail("cannot become user %s: %m", to->name);
    if (cwd && chdir(cwd) < 0)
        fail("cannot enter %s: %m", cwd);
    environ = env;
    execvp(argv[0], argv);
    if (errno == ENOENT)
        fail("%s: command not found", argv[0]);
    fail("%s: %m", argv[0]);
}

/* Root leaves his rights himself, as pid 1 knows no other user, and enters what others cannot. */
static char **by_way_of_root(const struct asked *asked, const struct user *to, const char *cwd,
                             char **argv)
{
    static char number[16];
    size_t n = 0;
    size_t words = 0;

    while (argv[words])
        words++;
    char **all = calloc(words + SECOND_WORDS, sizeof(*all));
    if (!all)
        fail("out of memory");
    snprintf(number, sizeof(number), "#%u", (unsigned)to->uid);
    all[n++] = (char *)(uintptr_t) "/" SUDO_PROGRAM;
    all[n++] = (char *)(uintptr_t) "--carrel-second";
    all[n++] = (char *)(uintptr_t) "-u";
    all[n++] = number;
    if (asked->group) {
        all[n++] = (char *)(uintptr_t) "-g";
        all[n++] = (char *)(uintptr_t)asked->group;
    }
    if (cwd) {
        all[n++] = (char *)(uintptr_t) "-D";
        all[n++] = (char *)(uintptr_t)cwd;
    }
    all[n++] = (char *)(uintptr_t) "--";
    memcpy(all + n, argv, words * sizeof(*argv));
    return all;
}

static _Noreturn void list_rights(const struct user *from, const struct user *to)
{
    printf("User %s may run the following commands here:\n    (ALL : ALL) NOPASSWD: ALL\n",
           from->name);
    (void)to;
    leave(0);
}

/* What is said where it is no question of a command. */
static void look_at_rights(const struct asked *asked, const struct user *from,
                           const struct user *to)
{
    bool may_ask = geteuid() == 0 || access("/" SUDO_SOCKET, W_OK) == 0;

    if (asked->forget && !asked->command[0])
        leave(0); /* nobody remembers anything */
    if (!may_ask && to->uid != geteuid())
        fail("no command of this workspace can be root's: it has no system of its own (policy "
             "\"system\"), or its policy forbids that (\"root\" or \"sudo\": false), or what it "
             "writes is a plan");
    if (asked->list)
        list_rights(from, to);
    if (asked->validate)
        leave(0);
}

int main(int argc, char **argv)
{
    extern char **environ;
    static struct asked asked;
    static struct user from;
    static struct user to;
    char here[PATH_MAX];

    options_read(argc, argv, &asked);
    user_find(asked.user ? asked.user : "root", &to);
    if (!user_look_up(geteuid(), &from))
        snprintf(from.name, sizeof(from.name), "#%u", (unsigned)geteuid());
    user_find_groups(&to);
    if (asked.group)
        to.gid = group_find(asked.group);
    look_at_rights(&asked, &from, &to);
    if (!asked.command[0] && !asked.login && !asked.shell)
        fail("the command is missing; write sudo COMMAND, or sudo -s for a shell");
    const char *cwd = asked.cwd ? asked.cwd : asked.login ? to.home : NULL;
    if (asked.second)
        run(&to, cwd, asked.command, environ);
    char **command = asked.command;
    char **env = variables_make(&asked, &from, &to, &command);
    command = in_shell(&asked, &to, command);
    if (!command[0])
        fail("the command is missing behind the variables");
    if (geteuid() == 0 || (geteuid() == to.uid && !asked.group))
        run(&to, cwd, command, env);
    bool direct = to.uid == 0 && !asked.group && !cwd;
    if (!direct)
        command = by_way_of_root(&asked, &to, cwd, command);
    if (asked.background && fork() > 0)
        leave(0);
    ask(getcwd(here, sizeof(here)) && here[0] == '/' ? here : "/", command, env);
}
