/* SPDX-License-Identifier: Apache-2.0 */
/* A place to pack and to unpack in, by absolute paths, and trees to compare. */
#pragma once

#include <dirent.h>
#include <stdarg.h>

#include "archive_scene.h"
#include "base/fd.h"
#include "unit.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

/* --- a place to work in --- */

static char base[64];
static int hidden = -1;

static const char *at(const char *format, ...)
{
    static char paths[8][FILES_PATH];
    static unsigned next;
    char *path = paths[next++ % 8];
    va_list args;
    size_t n = (size_t)snprintf(path, FILES_PATH, "%s/", base);

    va_start(args, format);
    (void)vsnprintf(path + n, FILES_PATH - n, format, args);
    va_end(args);
    return path;
}

static void leave(void)
{
    ignore(chmod(base, 0700));
    scene_remove(base);
    scope_close(&hidden);
}

static void fresh(void)
{
    static bool begun;

    if (begun)
        leave();
    else
        (void)atexit(leave);
    begun = true;
    (void)snprintf(base, sizeof(base), "%s/carrel-archive-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(base) || mkdir(at("hidden"), 0700) < 0)
        abort();
    hidden = open(at("hidden"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put(const char *path, const char *text)
{
    scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
}

static bool has(const char *path, const char *text)
{
    scoped_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char bytes[4096];
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return n >= 0 && (size_t)n == strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 ? 0 : st.st_mode;
}

static bool is_empty(const char *directory)
{
    struct dirent **names = NULL;
    int n = scandir(directory, &names, NULL, NULL);

    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return n == 2;
}

/* --- calls --- */

static void unpack_to(const char *path, const struct buf *archive, uint64_t flags, bool cut,
                      struct answer *ret)
{
    struct files_message m = {.op = FILES_UNPACK, .path = path, .flags = flags};
    struct scene_feed feed = {.body = archive->p, .n = archive->n, .cut = cut};

    scene_call(files_unpack_tree, &m, hidden, &feed, ret);
}

static bool says(const struct answer *a, unsigned status, const char *text)
{
    if (a->head.status == status && a->whole && strstr(a->b.p ? a->b.p : "", text))
        return true;
    printf("    answer %u%s: %.600s\n", a->head.status, a->whole ? "" : " (cut)",
           a->b.p ? a->b.p : "");
    return false;
}

/* Unpacks into "in", says whether the answer is like that, frees both. */
static bool unpacks(struct buf *archive, uint64_t flags, unsigned status, const char *text)
{
    struct answer a;

    unpack_to(at("in"), archive, flags, false, &a);
    bool is = says(&a, status, text);
    buf_clear(&a.b);
    buf_clear(archive);
    buf_init(archive, 1U << 30);
    return is;
}

static void pack(const char *path, uint64_t flags, struct answer *ret)
{
    struct files_message m = {.op = FILES_PACK, .path = path, .flags = flags};
    struct scene_feed feed = {.body = ""};

    scene_call(files_pack_tree, &m, hidden, &feed, ret);
}

/* --- trees --- */

struct seen {
    struct buf b;
    const char *top;
};

static enum walk_answer see(void *context, const struct tree_entry *entry)
{
    struct seen *s = context;
    char bytes[8192];
    ssize_t n = 0;

    buf_printf(&s->b, "%s\n%o %lld\n", entry->path, entry->st.st_mode,
               (long long)entry->st.st_mtim.tv_sec);
    if (S_ISLNK(entry->st.st_mode))
        n = readlinkat(entry->dir, entry->name, bytes, sizeof(bytes));
    scoped_fd int fd =
        S_ISREG(entry->st.st_mode) ? openat(entry->dir, entry->name, O_RDONLY | O_CLOEXEC) : -1;
    while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
        buf_add(&s->b, bytes, (size_t)n);
    if (fd < 0 && n > 0)
        buf_add(&s->b, bytes, (size_t)n);
    buf_str(&s->b, "\n");
    return WALK_ON;
}

static bool same_trees(const char *one, const char *two)
{
    struct seen a = {.top = one};
    struct seen b = {.top = two};

    buf_init(&a.b, 256 << 20);
    buf_init(&b.b, 256 << 20);
    bool same = files_walk(one, 1000, see, NULL, &a) == 0 &&
                files_walk(two, 1000, see, NULL, &b) == 0 && a.b.n == b.b.n && a.b.n > 0 &&
                memcmp(a.b.p, b.b.p, a.b.n) == 0;
    if (!same)
        printf("    %.*s\n    -----\n    %.*s\n", (int)(a.b.n < 900 ? a.b.n : 900), a.b.p,
               (int)(b.b.n < 900 ? b.b.n : 900), b.b.p);
    buf_clear(&a.b);
    buf_clear(&b.b);
    return same;
}

static void make_tree(void)
{
    char name[256];
    struct timespec times[2] = {{1, 0}, {1234567890, 123456789}};

    ignore(mkdir(at("tree"), 0755));
    ignore(mkdir(at("tree/a"), 0750));
    ignore(mkdir(at("tree/a/empty"), 0700));
    put(at("tree/a/one"), "one\n");
    put(at("tree/a/empty file"), "");
    put(at("tree/\xff\xfe no text"), "bytes");
    put(at("tree/e\xcc\x81 and \xc3\xa9"), "two ways to write one letter");
    put(at("tree/new\nline"), "x");
    put(at("tree/-rf"), "x");
    put(at("tree/trailing "), "x");
    memset(name, 'n', 255);
    name[255] = '\0';
    put(at("tree/%s", name), "long");
    ignore(mkdir(at("tree/%.200s", name), 0755));
    ignore(mkdir(at("tree/%.200s/%.200s", name, name), 0755));
    put(at("tree/%.200s/%.200s/deep", name, name), "deep");
    ignore(symlink("../outside/of it", at("tree/link")));
    ignore(symlink(at("tree/%.200s/%.200s/deep", name, name), at("tree/long link")));
    put(at("tree/program"), "#!/bin/sh\n");
    ignore(chmod(at("tree/program"), 0755));
    scoped_fd int fd = open(at("tree/large"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (unsigned i = 0; i < 300000; i++)
        ignore(write(fd, &i, sizeof(i)));
    ignore(utimensat(AT_FDCWD, at("tree/a/one"), times, 0));
    ignore(utimensat(AT_FDCWD, at("tree/link"), times, AT_SYMLINK_NOFOLLOW));
    ignore(utimensat(AT_FDCWD, at("tree/a"), times, 0));
}

#pragma GCC diagnostic pop
