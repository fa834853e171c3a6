/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-sudo: the `sudo` of a system of a workspace's own. It has no rights: it asks pid 1
 * (src/init/sudo.c), which starts the command as root, and passes terminal, signals and end on.
 * Static, for what it runs beside may be any system. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    USER_GROUPS = 64
};

struct asked {
    const char *user;  /* a name, or "#" and a number */
    const char *group; /* likewise; or NULL: the user's */
    const char *cwd;   /* NULL: where we are */
    const char *keep;  /* names of variables, with commas; or NULL */
    bool keep_all;
    bool home;
    bool login;
    bool shell;
    bool background;
    bool validate;
    bool list;
    bool forget;
    bool second;    /* root's, on the way to another user: the environment is made */
    char **command; /* "NAME=value" first; ends with NULL */
};

struct user {
    uid_t uid;
    gid_t gid;
    char name[64];
    char home[256];
    char shell[256];
    gid_t groups[USER_GROUPS];
    size_t group_count;
};

_Noreturn void leave(int status);
/* Says "sudo: ..." and exits with 1. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- options.c --- */

/* Prints and exits where that is all that was asked for. */
void options_read(int argc, char **argv, struct asked *ret);

/* --- users.c --- */

/* By the system's own /etc/passwd; root is known without it. Fails where there is none. */
void user_find(const char *name, struct user *ret);
/* By number; false: it has no name. */
bool user_look_up(uid_t uid, struct user *ret);
gid_t group_find(const char *name);
/* All groups that it is in. */
void user_find_groups(struct user *user);

/* --- variables.c --- */

/* What the command has for an environment; ends with NULL. *command loses its "NAME=value". */
char **variables_make(const struct asked *asked, const struct user *from, const struct user *to,
                      char ***command);

/* --- ask.c --- */

/* Has it run as root, and ends as it ends. */
_Noreturn void ask(const char *cwd, char **argv, char **env);
