/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/network_sets.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

enum {
    FILE_BYTES = 256 << 10,
    NAME_LENGTH = 64,
};

struct list {
    struct arena *arena;
    const char **rules;
    size_t n;
    const char *dir;
    const struct network_mirror *mirrors;
};

bool network_set_is_name(const char *name)
{
    size_t n = strlen(name);

    return n > 0 && n <= NAME_LENGTH && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == n;
}

static int add(struct list *list, const char *before, const char *text, struct err *err)
{
    const char *line = arena_printf(list->arena, "%s%s", before, text);

    for (size_t i = 0; line && i < list->n; i++) {
        if (strcmp(list->rules[i], line) == 0)
            return 0;
    }
    if (!line || list->n == NETWORK_MOST)
        return err_set(err, ERR_LIMIT, 0, "more than %d rules of the network", NETWORK_MOST);
    list->rules[list->n++] = line;
    return 0;
}

/* A small file as text; NULL where there is none. */
static char *read_file(struct arena *arena, const char *path)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    char *text = fd < 0 ? NULL : arena_alloc(arena, FILE_BYTES);
    size_t n = 0;
    ssize_t got;

    while (text && n < FILE_BYTES - 1 && (got = read(fd, text + n, FILE_BYTES - 1 - n)) > 0)
        n += (size_t)got;
    return text;
}

/* --- mirrors: hosts of the addresses in configuration --- */

static const struct mirror {
    const char *name;
    const char *variables[3];
    const char *files[4]; /* "~" is the home; patterns */
    const char *words[4]; /* a line that counts begins with one, in any case */
} programs[] = {
    {"pip",
     {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX"},
     {"/etc/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf"},
     {"index-url", "extra-index-url"}},
    {"npm",
     {"npm_config_registry", "NPM_CONFIG_REGISTRY"},
     {"/etc/npmrc", "/usr/etc/npmrc", "~/.npmrc"},
     {"registry", "@"}},
    {"apt",
     {NULL},
     {"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list",
      "/etc/apt/sources.list.d/*.sources"},
     {"deb", "URIs"}},
};

bool network_sets_url(const char *url, char ret[NETWORK_RULE])
{
    bool tls = strncmp(url, "https://", 8) == 0;
    struct network_rule rule;
    struct err unused;

    if (!tls && strncmp(url, "http://", 7) != 0)
        return false;
    const char *host = strstr(url, "://") + 3;
    size_t n = strcspn(host, "/?#\"' \t\n");
    for (const char *at = memchr(host, '@', n); at; at = memchr(host, '@', n)) {
        n -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    if (n == 0 || n > NETWORK_NAME || *host == '*')
        return false;
    snprintf(ret, NETWORK_RULE, "%.*s%s", (int)n, host,
             memchr(host, ':', n) ? ""
             : tls                ? ":443"
                                  : ":80");
    return network_parse_rule(ret, &rule, &unused) == 0;
}

static int add_urls(struct list *list, const char *before, const char *line, struct err *err)
{
    const char *at = line;
    char rule[NETWORK_RULE];

    while ((at = strstr(at, "http"))) {
        if (network_sets_url(at, rule) && add(list, before, rule, err) < 0)
            return -1;
        at += 4;
    }
    return 0;
}

static bool counts(const struct mirror *mirror, const char *line)
{
    line += strspn(line, " \t");
    for (size_t i = 0; i < LENGTH(mirror->words) && mirror->words[i]; i++) {
        if (strncasecmp(line, mirror->words[i], strlen(mirror->words[i])) == 0)
            return true;
    }
    return false;
}

static int add_from_file(struct list *list, const char *before, const struct mirror *mirror,
                         const char *path, struct err *err)
{
    char *text = read_file(list->arena, path);
    char *rest;
    char *line = text ? strtok_r(text, "\n", &rest) : NULL;

    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        if (counts(mirror, line) && add_urls(list, before, line, err) < 0)
            return -1;
    }
    return 0;
}

static int add_from_files(struct list *list, const char *before, const struct mirror *mirror,
                          const char *pattern, struct err *err)
{
    const char *home = getenv("HOME"); /* at start, one thread; NOLINT(concurrency-mt-unsafe) */
    glob_t found = {0};
    int r = 0;

    if (pattern[0] == '~')
        pattern = home ? arena_printf(list->arena, "%s%s", home, pattern + 1) : NULL;
    if (!pattern || glob(pattern, 0, NULL, &found) != 0) /* NOLINT(concurrency-mt-unsafe) */
        return 0;
    for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
        r = add_from_file(list, before, mirror, found.gl_pathv[i], err);
    globfree(&found);
    return r;
}

static int add_mirrors(struct list *list, const char *before, const char *name, struct err *err)
{
    const struct mirror *mirror = NULL;

    for (size_t i = 0; i < LENGTH(programs); i++) {
        if (strcmp(programs[i].name, name) == 0)
            mirror = &programs[i];
    }
    if (!mirror)
        return err_set(err, ERR_INVALID, 0, "'mirrors %s': known are pip, npm and apt", name);
    for (size_t i = 0; i < LENGTH(mirror->variables) && mirror->variables[i]; i++) {
        const char *value = getenv(mirror->variables[i]); /* NOLINT(concurrency-mt-unsafe) */
        if (value && add_urls(list, before, value, err) < 0)
            return -1;
    }
    for (size_t i = 0; list->mirrors && list->mirrors[i].name; i++) {
        if (strcmp(list->mirrors[i].name, name) == 0 &&
            add_urls(list, before, list->mirrors[i].url, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < LENGTH(mirror->files) && mirror->files[i]; i++) {
        if (add_from_files(list, before, mirror, mirror->files[i], err) < 0)
            return -1;
    }
    return 0;
}

/* --- sets --- */

static int add_line(struct list *list, const char *before, char *line, struct err *err)
{
    struct network_rule rule;

    line[strcspn(line, "#\r")] = '\0';
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]); n--)
        line[n - 1] = '\0';
    if (!*line)
        return 0;
    if (strncmp(line, "mirrors ", 8) == 0)
        return add_mirrors(list, before, line + 8, err);
    if (network_parse_rule(line, &rule, err) < 0)
        return -1;
    if (*before && rule.deny)
        return 0;
    return add(list, before, line, err);
}

static int add_set(struct list *list, const char *before, const char *name, struct err *err)
{
    const char *path = arena_printf(list->arena, "%s/%s", list->dir, name);
    char *rest;

    if (!network_set_is_name(name))
        return err_set(err, ERR_INVALID, 0,
                       "'@%.80s' is no name of a set: small letters, digits and hyphens", name);
    char *text = path ? read_file(list->arena, path) : NULL;
    if (!text)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "there is no set '@%s' of names in '%s'; list them there, one to a line",
                       name, list->dir);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (add_line(list, before, line, err) < 0)
            return err_wrap(err, "'%s'", path);
    }
    return 0;
}

int network_sets_expand(const char *const *rules, const char *dir,
                        const struct network_mirror *mirrors, struct arena *arena,
                        const char *const **ret, struct err *err)
{
    struct list list = {.arena = arena,
                        .dir = dir,
                        .mirrors = mirrors,
                        .rules = arena_alloc(arena, (NETWORK_MOST + 1) * sizeof(char *))};

    if (!list.rules)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    for (size_t i = 0; rules && rules[i]; i++) {
        bool deny = rules[i][0] == '!';
        const char *text = rules[i] + deny;
        const char *before = deny ? "!" : "";
        int r =
            text[0] == '@' ? add_set(&list, before, text + 1, err) : add(&list, before, text, err);
        if (r < 0)
            return -1;
    }
    *ret = list.rules;
    return 0;
}
