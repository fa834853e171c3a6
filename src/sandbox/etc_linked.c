/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/etc_linked.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

enum {
    DEEPEST = 6,
    MOST_ENTRIES = 1000,      /* more is not settings */
    MOST_LOOKED_AT = 1000000, /* where it need not be fast */
    ARENA_BYTES = 1 << 16,
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

int etc_linked_find(struct arena *arena, const char *names[ETC_LINKED_MAX])
{
    struct dirent **entries;
    int count = 0;
    int n = scandir("/etc", &entries, is_linked, alphasort);

    if (n < 0)
        return errno == ENOENT ? 0 : -errno;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        if (count < ETC_LINKED_MAX && everybody_may_enter(name) &&
            (names[count] = arena_copy(arena, name, strlen(name))))
            count++;
        free(entries[i]);
    }
    free(entries);
    return count;
}

/* getdents64: the C library's struct is the kernel's, its call is not everywhere; its stream takes
 * six calls more for each directory, at every start. */
_Static_assert(offsetof(struct dirent, d_name) == 19 && sizeof(off_t) == 8, "as the kernel has it");

struct look {
    etc_linked_found *found;
    void *context;
    char path[PATH_MAX]; /* of what is looked at, from / without the slash */
    size_t left;
    bool modes_hold; /* also for whoever is inside: files and directories need no look */
};

/* Links lead where they lead inside, to nothing that is not shown there anyway. */
static bool is_open_to_all(mode_t mode)
{
    if (S_ISDIR(mode))
        return (mode & 05) == 05;
    return S_ISLNK(mode) || (S_ISREG(mode) && mode & 04);
}

static int look_through(struct look *look, int dir, int depth);

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int look_into(struct look *look, int dir, const char *name, int depth)
{
    scoped_fd int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return look_through(look, fd, depth + 1);
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int judge(struct look *look, int dir, const struct dirent *entry, int depth)
{
    struct stat st;

    if (entry->d_type == DT_LNK || (entry->d_type == DT_REG && look->modes_hold))
        return 0;
    if (entry->d_type == DT_DIR && look->modes_hold)
        return look_into(look, dir, entry->d_name, depth);
    if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -E2BIG;
    if (!is_open_to_all(st.st_mode) && !(look->modes_hold && S_ISREG(st.st_mode)))
        return look->found(look->context, look->path, &st);
    return S_ISDIR(st.st_mode) ? look_into(look, dir, entry->d_name, depth) : 0;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int look_at(struct look *look, int dir, const struct dirent *entry, int depth)
{
    const char *name = entry->d_name;
    size_t n = strlen(look->path);

    if (path_is_dots(name))
        return 0;
    if (look->left == 0 || n + 1 + strlen(name) >= sizeof(look->path))
        return -E2BIG;
    look->left--;
    snprintf(look->path + n, sizeof(look->path) - n, "/%s", name);
    int r = judge(look, dir, entry, depth);
    look->path[n] = '\0';
    return r;
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by DEEPEST
static int look_through(struct look *look, int dir, int depth)
{
    _Alignas(struct dirent) char entries[2048];
    long n = dir < 0 || depth >= DEEPEST ? -1 : 0;
    int r = 0;

    while (n == 0 && r == 0 && (n = syscall(SYS_getdents64, dir, entries, sizeof(entries))) > 0) {
        for (long at = 0; at < n && r == 0;) {
            const struct dirent *entry = (const struct dirent *)(const void *)(entries + at);
            r = look_at(look, dir, entry, depth);
            at += entry->d_reclen;
        }
        n = 0;
    }
    return n < 0 ? -E2BIG : r;
}

static int look_below(struct look *look, const char *name)
{
    snprintf(look->path, sizeof(look->path), "/etc/%s", name);
    scoped_fd int dir = open(look->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    memmove(look->path, look->path + 1, strlen(look->path));
    return look_through(look, dir, 0);
}

int etc_linked_closed(const char *name, bool modes_hold, etc_linked_found *found, void *context)
{
    struct look look = {
        .found = found, .context = context, .left = MOST_ENTRIES, .modes_hold = modes_hold};

    return look_below(&look, name);
}

/* --- for one who is somebody on the host --- */

struct somebody {
    uid_t uid;
    gid_t gid;
    char *path;
    size_t size;
};

static int note_if_theirs(void *context, const char *path, const struct stat *st)
{
    const struct somebody *s = context;

    snprintf(s->path, s->size, "/%s", path);
    if (st->st_uid == s->uid || st->st_gid == s->gid)
        return 1;
    /* What a list names more of is within the bits of the group. */
    return st->st_mode & 070 && lgetxattr(s->path, "system.posix_acl_access", NULL, 0) >= 0;
}

int etc_linked_show_to(uid_t uid, gid_t gid, char *path, size_t size)
{
    struct somebody somebody = {uid, gid, path, size};
    struct arena arena;
    const char *names[ETC_LINKED_MAX] = {NULL};

    arena_init(&arena, ARENA_BYTES);
    snprintf(path, size, "/etc");
    int count = etc_linked_find(&arena, names);
    int r = count < 0 ? count : 0;
    for (int i = 0; r == 0 && i < count; i++) {
        struct look look = {.found = note_if_theirs, .context = &somebody, .left = MOST_LOOKED_AT};
        snprintf(path, size, "/etc/%s", names[i]); /* where it cannot be said */
        r = look_below(&look, names[i]);
    }
    arena_clear(&arena);
    return r;
}
