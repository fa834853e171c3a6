/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/etc_linked.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    DEEPEST = 6,
    MOST_ENTRIES = 1000 /* more is not settings */
};

/* Settings of languages and tools, as their packages bring them. None is a place for secrets; where
 * somebody put one (a password in maven/settings.xml), its mode decides. */
static const char *const linked[] = {"R",     "java", "java-*",    "julia",
                                     "maven", "perl", "python*.*", "texmf"};

static int is_linked(const struct dirent *entry)
{
    for (size_t i = 0; i < sizeof(linked) / sizeof(linked[0]); i++) {
        if (fnmatch(linked[i], entry->d_name, 0) == 0)
            return 1;
    }
    return 0;
}

static bool everybody_may_enter(const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    snprintf(path, sizeof(path), "/etc/%s", name);
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 05) == 05;
}

size_t etc_linked_find(struct arena *arena, const char *names[ETC_LINKED_MAX])
{
    struct dirent **entries;
    size_t count = 0;
    int n = scandir("/etc", &entries, is_linked, alphasort);

    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (count < ETC_LINKED_MAX && everybody_may_enter(name) &&
            (names[count] = arena_copy(arena, name, strlen(name))))
            count++;
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return count;
}

struct look {
    int (*found)(void *context, const char *path, mode_t mode);
    void *context;
    char path[PATH_MAX]; /* of what is looked at, from / without the slash */
    size_t left;
};

/* Links lead where they lead inside, to nothing that is not shown there anyway. */
static bool is_open_to_all(mode_t mode)
{
    if (S_ISDIR(mode))
        return (mode & 05) == 05;
    return S_ISLNK(mode) || (S_ISREG(mode) && mode & 04);
}

static int look_through(struct look *look, int at, int depth);

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int look_at(struct look *look, int dir, const char *name, int depth)
{
    struct stat st;
    size_t n = strlen(look->path);

    if (look->left == 0 || n + 1 + strlen(name) >= sizeof(look->path))
        return -E2BIG;
    look->left--;
    snprintf(look->path + n, sizeof(look->path) - n, "/%s", name);
    int r = 0;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = errno == ENOENT ? 0 : -E2BIG;
    else if (!is_open_to_all(st.st_mode))
        r = look->found(look->context, look->path, st.st_mode);
    else if (S_ISDIR(st.st_mode))
        r = look_through(look, openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                         depth + 1);
    look->path[n] = '\0';
    return r;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int look_through(struct look *look, int at, int depth)
{
    DIR *dir = at < 0 ? NULL : fdopendir(at);
    const struct dirent *entry;
    int r = dir && depth < DEEPEST ? 0 : -E2BIG;

    /* A stream of its own; NOLINTNEXTLINE(concurrency-mt-unsafe) */
    while (r == 0 && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = look_at(look, at, entry->d_name, depth);
    }
    if (dir)
        (void)closedir(dir);
    return r;
}

int etc_linked_closed(const char *name, int (*found)(void *context, const char *path, mode_t mode),
                      void *context)
{
    struct look look = {.found = found, .context = context, .left = MOST_ENTRIES};

    snprintf(look.path, sizeof(look.path), "/etc/%s", name);
    int at = open(look.path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    memmove(look.path, look.path + 1, strlen(look.path));
    return look_through(&look, at, 0);
}
