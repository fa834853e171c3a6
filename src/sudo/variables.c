/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of the command: as sudo has it on Debian, which keeps little; and what the
 * network of a sandbox and unattended installs need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sudo/sudo.h"

#define SECURE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
    MOST = 4096,
    LONGEST_COMMAND = 4096
};

static const char *const kept[] = {
    "TERM",
    "COLORTERM",
    "COLORS",
    "LS_COLORS",
    "DISPLAY",
    "XAUTHORITY",
    "HOSTNAME",
    "TZ",
    "LANG",
    "LANGUAGE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "DEBIAN_FRONTEND",
    "NODE_EXTRA_CA_CERTS",
};

struct variables {
    char **list;
    size_t count;
};

static size_t name_length(const char *variable)
{
    return strcspn(variable, "=");
}

/* In the place of the one of that name. */
static void set(struct variables *v, char *variable)
{
    size_t n = name_length(variable);

    for (size_t i = 0; i < v->count; i++) {
        if (name_length(v->list[i]) == n && strncmp(v->list[i], variable, n) == 0) {
            v->list[i] = variable;
            return;
        }
    }
    if (v->count == MOST)
        fail("more than %d variables", MOST);
    v->list[v->count++] = variable;
}

static void put(struct variables *v, const char *name, const char *value)
{
    size_t n = strlen(name) + strlen(value) + 2;
    char *variable = malloc(n);

    if (!variable)
        fail("out of memory");
    snprintf(variable, n, "%s=%s", name, value);
    set(v, variable);
}

static bool is_listed(const char *names, const char *name, size_t n)
{
    for (const char *at = names; at && *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        if (length == n && strncmp(at, name, n) == 0)
            return true;
        at += length;
    }
    return false;
}

static bool is_kept(const struct asked *asked, const char *variable)
{
    size_t n = name_length(variable);

    if (asked->keep_all || strncmp(variable, "LC_", 3) == 0 || is_listed(asked->keep, variable, n))
        return true;
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (strlen(kept[i]) == n && strncmp(kept[i], variable, n) == 0)
            return true;
    }
    return false;
}

static void put_command(struct variables *v, char **command)
{
    char text[LONGEST_COMMAND];
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; command[i] && n < sizeof(text) - 1; i++) {
        int one = snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "", command[i]);
        n += one > 0 ? (size_t)one : 0;
    }
    put(v, "SUDO_COMMAND", text);
}

static void put_user(struct variables *v, const struct asked *asked, const struct user *to)
{
    if (asked->home || asked->login || !asked->keep_all)
        put(v, "HOME", to->home);
    put(v, "USER", to->name);
    put(v, "LOGNAME", to->name);
    put(v, "SHELL", to->shell);
    put(v, "PATH", SECURE_PATH);
}

static void put_asker(struct variables *v, const struct user *from)
{
    char number[16];

    put(v, "SUDO_USER", from->name);
    snprintf(number, sizeof(number), "%u", (unsigned)geteuid());
    put(v, "SUDO_UID", number);
    snprintf(number, sizeof(number), "%u", (unsigned)getegid());
    put(v, "SUDO_GID", number);
}

char **variables_make(const struct asked *asked, const struct user *from, const struct user *to,
                      char ***command)
{
    extern char **environ;
    struct variables v = {.list = calloc(MOST + 1, sizeof(char *))};

    if (!v.list)
        fail("out of memory");
    for (size_t i = 0; environ[i]; i++) {
        if (is_kept(asked, environ[i]))
            set(&v, environ[i]);
    }
    put_user(&v, asked, to);
    put_asker(&v, from);
    for (; **command && strchr(**command, '=') > **command; (*command)++)
        set(&v, **command);
    put_command(&v, *command);
    return v.list;
}
