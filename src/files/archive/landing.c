/* SPDX-License-Identifier: Apache-2.0 */
#include "files/archive/landing.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "files/core/paths.h"
#include "files/core/search.h"

enum {
    ENTRIES = 1000000,
    DEPTH = 256, /* parts of a name: each is opened anew for each other directory */
    RATIO = 1000,
    SKIPPED_TOLD = 100,
    WAITING_MOST = 4096,     /* files that get their names together ... */
    WAITING_NAMES = 4 << 20, /* ... and the bytes of these */
    LATER_MOST = 64 << 20,   /* links and directories, until the end */
    KNOWN_FIRST = 1024,
    DIR_FLAGS = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

#define BYTES_MOST         (64ULL << 30)
#define RATIO_FREE         (64ULL << 20)
#define WAITING_BYTES_MOST (256ULL << 20)

struct landing_file {
    struct landing_file *next;
    bool hidden; /* in the hidden directory; else in its own, under another name */
    char name[48];
    char path[];
};

struct landing_link {
    struct landing_link *next;
    bool hard;
    struct landing_stamp stamp;
    const char *target;
    char path[];
};

struct landing_directory {
    struct landing_directory *next;
    struct landing_stamp stamp;
    char path[];
};

/* --- small things --- */

int landing_fail(struct landing *p, int error, const char *words)
{
    (void)snprintf(p->words, sizeof(p->words), "%s", words);
    return error;
}

static int fail_at(struct landing *p, int error, const char *path)
{
    const char *base = strcmp(p->call->m->path, "/") == 0 ? "" : p->call->m->path;
    size_t n = strlen(base);
    size_t more = strlen(path);

    if (p->failed_path[0])
        return error; /* the first is the one that is told */
    if (n + more + 2 > sizeof(p->failed_path))
        more = 0;
    memcpy(p->failed_path, base, n);
    p->failed_path[n] = '/';
    memcpy(p->failed_path + n + 1, path, more);
    p->failed_path[n + 1 + more] = '\0';
    return error;
}

int landing_ratio(struct landing *p, uint64_t in, uint64_t out)
{
    if (out > RATIO_FREE && (out - RATIO_FREE) / RATIO > in)
        return landing_fail(p, -E2BIG, "it grows a thousandfold when it is unpacked");
    return 0;
}

int landing_entry(struct landing *p)
{
    if (++p->entries > ENTRIES)
        return landing_fail(p, -E2BIG, "it has more than 1,000,000 entries");
    return 0;
}

void landing_skip(struct landing *p, const char *name, size_t n, const char *why)
{
    p->n_skipped++;
    if (p->n_skipped > SKIPPED_TOLD)
        return;
    emit_comma(&p->skipped);
    emit_raw(&p->skipped, "{");
    emit_bytes(&p->skipped, "path", name, n < FILES_PATH ? n : FILES_PATH);
    emit_bytes(&p->skipped, "why", why, strlen(why));
    emit_raw(&p->skipped, "}");
}

/* What Carrel provides, and what is in those parts of it that nobody can write to. */
static bool is_reserved(const struct landing *p, const char *path)
{
    size_t n = strcspn(path, "/");
    char top[256];

    if (strcmp(p->call->m->path, "/") != 0)
        return false;
    memcpy(top, path, n);
    top[n] = '\0';
    return path[n] ? search_is_passed(top) : files_is_reserved_name(top);
}

const char *landing_name(struct landing *p, const char *name, size_t n, char clean[FILES_PATH])
{
    unsigned depth = 0;
    size_t at = 0;
    size_t part;

    if (n == 0 || memchr(name, '\0', n))
        return "its name is none";
    if (name[0] == '/')
        return "its name is absolute";
    for (size_t i = 0; i < n; i += part + 1) {
        const char *slash = memchr(name + i, '/', n - i);
        part = slash ? (size_t)(slash - name) - i : n - i;
        if (part == 0 || (part == 1 && name[i] == '.'))
            continue;
        if (part == 2 && memcmp(name + i, "..", 2) == 0)
            return "its name climbs out with \"..\"";
        if (part > 255 || at + part + 2 > FILES_PATH || ++depth > DEPTH)
            return "its name is too long or too deep";
        if (at > 0)
            clean[at++] = '/';
        memcpy(clean + at, name + i, part);
        at += part;
    }
    clean[at] = '\0';
    if (at > 0 && is_reserved(p, clean))
        return "the name is one that Carrel provides itself";
    return NULL;
}

/* --- names of files that were unpacked --- */

/* 0: a free place. */
static uint64_t hash(const char *path)
{
    uint64_t h = hash_text(path);

    return h ? h : 1;
}

static bool know(struct landing *p, uint64_t h, bool add)
{
    for (size_t i = 0; i < p->known_size; i++) {
        uint64_t *slot = &p->known[(h + i) % p->known_size];
        if (*slot == h)
            return true;
        if (*slot == 0) {
            if (add) {
                *slot = h;
                p->known_count++;
            }
            return false;
        }
    }
    return false;
}

static int remember(struct landing *p, const char *path)
{
    if (2 * p->known_count >= p->known_size) {
        uint64_t *old = p->known;
        size_t n = p->known_size;
        uint64_t *bigger = calloc(n ? 2 * n : KNOWN_FIRST, sizeof(*bigger));
        if (!bigger)
            return -ENOMEM;
        p->known = bigger;
        p->known_size = n ? 2 * n : KNOWN_FIRST;
        p->known_count = 0;
        for (size_t i = 0; i < n; i++) {
            if (old[i])
                (void)know(p, old[i], true);
        }
        free(old);
    }
    (void)know(p, hash(path), true);
    return 0;
}

/* --- directories --- */

/* Each file system that is written to, once: syncing them is syncing all. */
static int note_system(struct landing *p, int dir)
{
    struct stat st;

    if (fstat(dir, &st) < 0)
        return -errno;
    for (size_t i = 0; i < p->n_systems; i++) {
        if (p->systems[i].dev == st.st_dev)
            return 0;
    }
    if (p->n_systems == LANDING_SYSTEMS)
        return -EXDEV;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    p->systems[p->n_systems++] = (struct landing_system){st.st_dev, fd};
    return 0;
}

static int sync_all(struct landing *p)
{
    for (size_t i = 0; i < p->n_systems; i++) {
        if (syncfs(p->systems[i].fd) < 0)
            return -errno;
    }
    return 0;
}

static void drop_parent(struct landing *p)
{
    if (p->parent != p->dest)
        scope_close(&p->parent);
    p->parent = -1;
}

/* Opens one that is in `dir`, and makes it if it is missing and wanted. */
static int open_directory(int dir, const char *name, bool make)
{
    int fd = openat(dir, name, DIR_FLAGS);

    if (fd < 0 && errno == ENOENT && make &&
        (files_mkdirat(dir, name, 0755) == 0 || errno == EEXIST))
        fd = openat(dir, name, DIR_FLAGS);
    return fd < 0 ? -errno : fd;
}

static int descend(struct landing *p, const char *path, size_t n, bool make)
{
    scoped_fd int fd = -1;
    char name[256];

    for (size_t at = 0, part; at < n; at += part + 1) {
        part = strcspn(path + at, "/");
        if (at + part > n)
            part = n - at;
        if (part >= sizeof(name))
            return -ENAMETOOLONG;
        memcpy(name, path + at, part);
        name[part] = '\0';
        int next = open_directory(fd < 0 ? p->dest : fd, name, make);
        if (next < 0)
            return next;
        scope_close(&fd);
        fd = next;
    }
    return take_fd(&fd);
}

/* The directory a path is in, borrowed; its last part is in *ret_name. */
static int parent_of(struct landing *p, const char *path, bool make, const char **ret_name)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    *ret_name = slash ? slash + 1 : path;
    if (p->parent >= 0 && strlen(p->parent_path) == n && memcmp(p->parent_path, path, n) == 0)
        return p->parent;
    drop_parent(p);
    int fd = n == 0 ? p->dest : descend(p, path, n, make);
    if (fd < 0)
        return fd;
    p->parent = fd;
    memcpy(p->parent_path, path, n);
    p->parent_path[n] = '\0';
    p->parent_hides = files_temp_dir(p->call, fd) != fd;
    int r = make ? note_system(p, fd) : 0;
    if (r < 0) {
        drop_parent(p);
        return r;
    }
    return fd;
}

/* For what is made: 1, it was skipped because a link stands in its way. */
static int way_to(struct landing *p, const char *path, const char **ret_name)
{
    struct stat st;
    int dir = parent_of(p, path, true, ret_name);

    if (dir == -ENOTDIR || dir == -ELOOP) {
        char part[FILES_PATH];
        size_t n = strlen(path);
        memcpy(part, path, n + 1);
        /* Which part it is: only a link is passed over, a file in the way is an error. */
        for (char *at = strchr(part, '/'); at; at = strchr(at + 1, '/')) {
            *at = '\0';
            if (fstatat(p->dest, part, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode)) {
                landing_skip(p, path, n, "a directory of its path is a symbolic link");
                return -ELOOP;
            }
            *at = '/';
        }
        dir = -ENOTDIR;
    }
    return dir;
}

/* --- beginning --- */

static int make_destination(const char *path)
{
    char part[FILES_PATH];
    size_t n = strlen(path);

    memcpy(part, path, n + 1);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != '\0')
            continue;
        part[i] = '\0';
        if (n > 1 && mkdir(part, 0755) < 0 && errno != EEXIST && access(part, F_OK) < 0)
            return -errno;
        part[i] = path[i];
    }
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int landing_begin(struct landing *p, struct files_call *call)
{
    struct statvfs room;

    *p = (struct landing){.call = call, .dest = -1, .parent = -1, .fd = -1};
    p->links_end = &p->links;
    arena_init(&p->waiting, WAITING_NAMES);
    arena_init(&p->later, LATER_MOST);
    emit_begin(&p->skipped, call, false, FILES_TYPE_JSON);
    emit_raw(&p->skipped, "[");
    p->dest = make_destination(call->m->path);
    if (p->dest < 0 || fstatvfs(p->dest, &room) < 0)
        return fail_at(p, p->dest < 0 ? p->dest : -errno, "");
    /* A file system that counts no blocks has no bound to tell. */
    p->room = room.f_blocks ? (uint64_t)room.f_bavail * room.f_frsize : UINT64_MAX;
    return note_system(p, p->dest);
}

/* --- files --- */

/* The name may be of any file by now: it is only removed from where it was made. */
static void drop_waiting(struct landing *p)
{
    for (struct landing_file *file = p->files; file; file = file->next) {
        const char *name;
        int dir = file->hidden ? p->call->hidden : parent_of(p, file->path, false, &name);
        if (dir >= 0)
            (void)unlinkat(dir, file->name, 0);
    }
    arena_clear(&p->waiting);
    arena_init(&p->waiting, WAITING_NAMES);
    p->files = p->last_file = NULL;
    p->n_waiting = 0;
    p->bytes_waiting = 0;
}

int landing_flush(struct landing *p)
{
    int r = p->files ? sync_all(p) : 0;

    while (r == 0 && p->files) {
        struct landing_file *file = p->files;
        const char *name;
        int dir = parent_of(p, file->path, false, &name);
        if (dir < 0 || renameat(file->hidden ? p->call->hidden : dir, file->name, dir, name) < 0)
            r = fail_at(p, dir < 0 ? dir : -errno, file->path);
        else
            p->files = file->next;
    }
    drop_waiting(p);
    return r;
}

static int make_room(struct landing *p, const char *path, uint64_t size)
{
    if (size > BYTES_MOST - p->bytes)
        return landing_fail(p, -E2BIG, "it holds more than 64 GiB");
    if (size > p->room || p->bytes > p->room - size)
        return fail_at(p, -ENOSPC, path);
    if (p->n_waiting >= WAITING_MOST || p->bytes_waiting >= WAITING_BYTES_MOST ||
        p->waiting.used + sizeof(struct landing_file) + FILES_PATH > p->waiting.max)
        return landing_flush(p);
    return 0;
}

int landing_file(struct landing *p, const char *path, uint64_t size)
{
    const char *name;
    int r = make_room(p, path, size);
    if (r == 0 && (r = files_room_take(-1, FILES_BLOCK)) < 0)
        r = fail_at(p, r, path);
    int dir = r < 0 ? r : way_to(p, path, &name);

    if (r < 0)
        return r;
    if (dir == -ELOOP)
        return 1;
    if (dir < 0)
        return fail_at(p, dir, path);
    files_temp_name(p->fd_name);
    p->fd_dir = p->parent_hides ? p->call->hidden : dir;
    p->fd =
        openat(p->fd_dir, p->fd_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->fd < 0)
        return fail_at(p, -errno, path);
    memcpy(p->fd_path, path, strlen(path) + 1);
    return 0;
}

int landing_write(struct landing *p, const void *bytes, size_t n, uint64_t at)
{
    const char *from = bytes;

    p->bytes += n;
    p->bytes_waiting += n;
    if (p->bytes > BYTES_MOST)
        return landing_fail(p, -E2BIG, "it holds more than 64 GiB");
    if (p->bytes > p->room)
        return fail_at(p, -ENOSPC, p->fd_path);
    int r = files_room_take(p->fd, n);
    if (r < 0)
        return fail_at(p, r, p->fd_path);
    while (n > 0) {
        ssize_t done = pwrite(p->fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return fail_at(p, done < 0 ? -errno : -EIO, p->fd_path);
        from += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return 0;
}

void landing_file_drop(struct landing *p)
{
    if (p->fd < 0)
        return;
    scope_close(&p->fd);
    (void)unlinkat(p->fd_dir, p->fd_name, 0);
}

static int set_stamp(int fd, const struct landing_stamp *stamp)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, stamp->mtime};

    if (stamp->mode != LANDING_ANY_MODE && fchmod(fd, stamp->mode & 0777U) < 0)
        return -errno;
    /* A time that this file system cannot keep is no reason to lose the file. */
    if (stamp->timed)
        ignore(futimens(fd, times));
    return 0;
}

static struct landing_file *add_waiting(struct landing *p)
{
    size_t n = strlen(p->fd_path) + 1;
    struct landing_file *file = arena_alloc(&p->waiting, sizeof(*file) + n);

    if (!file)
        return NULL;
    file->hidden = p->fd_dir == p->call->hidden;
    memcpy(file->name, p->fd_name, sizeof(file->name));
    memcpy(file->path, p->fd_path, n);
    if (p->files)
        p->last_file->next = file;
    else
        p->files = file;
    p->last_file = file;
    p->n_waiting++;
    return file;
}

int landing_file_end(struct landing *p, uint64_t size, const struct landing_stamp *stamp)
{
    struct stat st;
    int r = set_stamp(p->fd, stamp);

    /* A hole at the end has had nothing written to it. */
    if (r == 0 && (fstat(p->fd, &st) < 0 ||
                   ((uint64_t)st.st_size != size && ftruncate(p->fd, (off_t)size) < 0)))
        r = -errno;
    if (r == 0 && (uint64_t)st.st_size != size)
        r = set_stamp(p->fd, stamp);
    if (r == 0)
        r = remember(p, p->fd_path);
    if (r == 0 && !add_waiting(p))
        r = -ENOMEM;
    if (r < 0) {
        landing_file_drop(p);
        return p->failed_path[0] ? r : fail_at(p, r, p->fd_path);
    }
    p->n_files++;
    scope_close(&p->fd);
    return 0;
}

/* --- what is done last --- */

static int add_directory(struct landing *p, const char *path, const struct landing_stamp *stamp)
{
    size_t n = strlen(path) + 1;
    struct landing_directory *directory = arena_alloc(&p->later, sizeof(*directory) + n);

    if (!directory)
        return landing_fail(p, -E2BIG, "it has too many directories and links");
    directory->stamp = *stamp;
    directory->next = p->directories;
    memcpy(directory->path, path, n);
    p->directories = directory;
    return 0;
}

int landing_directory(struct landing *p, const char *path, const struct landing_stamp *stamp)
{
    size_t n = strlen(path) + 1;
    const char *name;
    struct stat st;

    if (n == 1)
        return 0;
    int dir = way_to(p, path, &name);
    if (dir < 0)
        return dir == -ELOOP ? 0 : fail_at(p, dir, path);
    if (files_mkdirat(dir, name, stamp->mode == LANDING_ANY_MODE ? 0755 : 0700) < 0) {
        if (errno != EEXIST || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_at(p, -errno, path);
        if (S_ISLNK(st.st_mode)) {
            landing_skip(p, path, n - 1, "a symbolic link is in its place");
            return 0;
        }
        if (!S_ISDIR(st.st_mode))
            return fail_at(p, -ENOTDIR, path);
    }
    p->n_directories++;
    return add_directory(p, path, stamp);
}

static int add_link(struct landing *p, const char *path, const char *target, bool hard,
                    const struct landing_stamp *stamp)
{
    size_t n = strlen(path) + 1;
    struct landing_link *link = arena_alloc(&p->later, sizeof(*link) + n);
    const char *copy = arena_copy(&p->later, target, strlen(target));

    if (!link || !copy)
        return landing_fail(p, -E2BIG, "it has too many directories and links");
    link->hard = hard;
    link->stamp = *stamp;
    link->target = copy;
    memcpy(link->path, path, n);
    *p->links_end = link;
    p->links_end = &link->next;
    return 0;
}

int landing_symlink(struct landing *p, const char *path, const char *target,
                    const struct landing_stamp *stamp)
{
    size_t n = strlen(target);

    if (n == 0 || n >= FILES_PATH || path[0] == '\0') {
        landing_skip(p, path, strlen(path), "no symbolic link can hold its target");
        return 0;
    }
    return add_link(p, path, target, false, stamp);
}

int landing_hardlink(struct landing *p, const char *path, const char *target)
{
    struct landing_stamp none = {.mode = 0};

    if (path[0] == '\0' || !know(p, hash(target), false)) {
        landing_skip(p, path, strlen(path), "a hard link to what the archive has not unpacked");
        return 0;
    }
    return add_link(p, path, target, true, &none);
}

/* What it is linked to may only be a file below the destination, reached through no link. */
static int make_hard(struct landing *p, const struct landing_link *link, const char *temporary)
{
    const char *name;
    struct stat st;
    const char *new_name;
    int dir = parent_of(p, link->target, false, &name);
    /* Its own, as the one parent_of keeps is soon another. */
    scoped_fd int from = dir < 0 ? -1 : openat(dir, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (dir < 0)
        return dir;
    if (from < 0 || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -ENOENT;
    dir = parent_of(p, link->path, true, &new_name);
    if (dir < 0)
        return dir;
    if (linkat(from, name, p->parent_hides ? p->call->hidden : dir, temporary, 0) < 0)
        return -errno;
    return 0;
}

/* Made under another name first: what stands there is replaced, at once, unless a directory. */
static int make_link(struct landing *p, const struct landing_link *link)
{
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, link->stamp.mtime};
    const char *name;
    char temporary[48];
    int dir = way_to(p, link->path, &name);

    if (dir < 0)
        return dir == -ELOOP ? 1 : dir;
    int at = p->parent_hides ? p->call->hidden : dir;
    files_temp_name(temporary);
    int r = 0;
    if (link->hard) {
        r = make_hard(p, link, temporary);
        dir = parent_of(p, link->path, false, &name);
        if (dir < 0)
            return r < 0 ? r : dir;
        at = p->parent_hides ? p->call->hidden : dir;
    } else if (symlinkat(link->target, at, temporary) < 0) {
        r = -errno;
    }
    if (r == 0 && link->stamp.timed)
        ignore(utimensat(at, temporary, times, AT_SYMLINK_NOFOLLOW)); /* as above */
    if (r == 0 && renameat(at, temporary, dir, name) < 0)
        r = -errno;
    (void)unlinkat(at, temporary, 0); /* also after a rename onto another name of itself */
    return r;
}

static int make_links(struct landing *p)
{
    for (const struct landing_link *link = p->links; link; link = link->next) {
        int r = make_link(p, link);
        if (r == 0)
            p->n_links++;
        else if (r == -EISDIR || r == -ENOTEMPTY || r == -EEXIST)
            landing_skip(p, link->path, strlen(link->path), "a directory is in its place");
        else if (r == -ENOENT || r == -ENOTDIR || r == -EXDEV || r == -EMLINK)
            landing_skip(p, link->path, strlen(link->path), "it cannot be linked there");
        else if (r < 0)
            return fail_at(p, r, link->path);
    }
    return 0;
}

/* Those further down first: one that is closed afterwards closes the way to them. */
static void close_directories(struct landing *p)
{
    for (const struct landing_directory *at = p->directories; at; at = at->next) {
        const char *name;
        int dir = parent_of(p, at->path, false, &name);
        scoped_fd int fd =
            dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0)
            ignore(set_stamp(fd, &at->stamp)); /* one of another owner keeps what it has */
    }
}

int landing_finish(struct landing *p)
{
    int r = landing_flush(p);

    if (r == 0)
        r = make_links(p);
    if (r == 0) {
        close_directories(p);
        r = sync_all(p);
    }
    return r;
}

/* --- for zip --- */

static int open_unpacked(struct landing *p, const char *path, int flags)
{
    const char *name;
    struct stat st;
    int dir = know(p, hash(path), false) ? parent_of(p, path, false, &name) : -ENOENT;
    scoped_fd int fd =
        dir < 0 ? -1 : openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    return take_fd(&fd);
}

int landing_mode(struct landing *p, const char *path, mode_t mode)
{
    scoped_fd int fd = open_unpacked(p, path, O_RDONLY);

    if (fd >= 0 && fchmod(fd, mode & 0777U) < 0)
        return fail_at(p, -errno, path);
    return 0;
}

int landing_directory_mode(struct landing *p, const char *path, mode_t mode)
{
    return add_directory(p, path, &(struct landing_stamp){.mode = mode});
}

int landing_turn_to_link(struct landing *p, const char *path)
{
    scoped_fd int fd = open_unpacked(p, path, O_RDONLY);
    struct landing_stamp stamp = {.timed = true};
    char target[FILES_PATH];
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return 0;
    ssize_t n = pread(fd, target, sizeof(target) - 1, 0);
    if (n <= 0 || n != st.st_size || memchr(target, '\0', (size_t)n)) {
        landing_skip(p, path, strlen(path), "no symbolic link can hold its target");
        return 0;
    }
    target[n] = '\0';
    stamp.mtime = st.st_mtim;
    p->n_files--;
    return landing_symlink(p, path, target, &stamp);
}

void landing_clear(struct landing *p)
{
    landing_file_drop(p);
    drop_waiting(p);
    drop_parent(p);
    scope_close(&p->dest);
    for (size_t i = 0; i < p->n_systems; i++)
        scope_close(&p->systems[i].fd);
    arena_clear(&p->waiting);
    arena_clear(&p->later);
    buf_clear(&p->skipped.b);
    free(p->known);
}
