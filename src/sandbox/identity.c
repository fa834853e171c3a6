/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/path.h"

#define LEASE_DIR  "/run/carrel"
#define LEASE_FILE "uid-leases"

void identity_init(struct identity *id)
{
    *id = (struct identity){.lease_fd = -1};
}

void identity_clear(struct identity *id)
{
    identity_settle(id);
    scope_close(&id->lease_fd);
    identity_forget_owners(id);
}

void identity_forget_owners(struct identity *id)
{
    for (unsigned i = 0; i < id->owner_count; i++)
        scope_close(&id->owners[i].userns);
    id->owner_count = 0;
}

static int open_lease_file(void)
{
    if (mkdir(LEASE_DIR, 0700) < 0 && errno != EEXIST)
        return -errno;
    scoped_fd int dir = open(LEASE_DIR, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (dir < 0 || fstat(dir, &st) < 0)
        return -errno;
    if (st.st_uid != 0 || (st.st_mode & 022))
        return -EPERM;
    int fd = openat(dir, LEASE_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

int identity_lease(struct identity *id, struct err *err)
{
    unsigned first = 0;
    int fd = open_lease_file();

    if (fd < 0)
        return err_set(err, ERR_IO, -fd,
                       "lease a uid range in " LEASE_DIR
                       " (it must be a directory of root's, writable by no other user)");
    id->lease_fd = fd;
    ignore(getrandom(&first, sizeof(first), GRND_NONBLOCK) > 0); /* only spreads the search */
    for (unsigned i = 0; i < IDENTITY_LEASE_COUNT; i++) {
        unsigned slot = (first + i) % IDENTITY_LEASE_COUNT;
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
        if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
            id->range = true;
            id->base = IDENTITY_LEASE_FIRST + slot * IDENTITY_LEASE_SIZE;
            return 0;
        }
        if (errno != EAGAIN && errno != EACCES)
            return err_set(err, ERR_IO, errno, "lock a uid range in " LEASE_DIR);
    }
    return err_set(err, ERR_LIMIT, 0, "all %u uid ranges are in use by running sandboxes",
                   IDENTITY_LEASE_COUNT);
}

static int write_map(pid_t pid, const char *name, const char *text, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    int r = path_write_text(AT_FDCWD, path, text);
    if (r == -ENOENT)
        return err_set(err, ERR_KERNEL, 0,
                       "write '%s': is /proc mounted? (mount -t proc proc /proc)", path);
    return r < 0 ? err_set(err, ERR_IO, -r, "write '%s'", path) : 0;
}

/* A process that does nothing while its user namespace is given maps and opened. It shares our
 * memory, because copying that of a large program takes longer than all the rest. */
struct idle {
    struct idle *next;
    pid_t parent;
    pid_t pid;
    _Alignas(16) char stack[8192];
};

static int stay_idle(void *argument)
{
    const struct idle *idle = argument;

    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    while (getppid() == idle->parent) /* it may have died before that line */
        pause();
    return 1;
}

static struct idle *start_idle(void)
{
    struct idle *idle = malloc(sizeof(*idle));
    sigset_t all;
    sigset_t before;

    if (!idle)
        return NULL;
    idle->parent = getpid();
    sigfillset(&all); /* a handler of the caller's must not run in it */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    idle->pid = clone(stay_idle, idle->stack + sizeof(idle->stack),
                      CLONE_VM | CLONE_NEWUSER | SIGCHLD, idle);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = saved;
    if (idle->pid > 0)
        return idle;
    free(idle);
    return NULL;
}

/* To wait for its end would be to wait until it gets a processor: that is done later. */
static void end_idle(struct identity *id, struct idle *idle)
{
    if (kill(idle->pid, SIGKILL) < 0)
        return; /* then it ends with us, and has its stack until then */
    idle->next = id->ended;
    id->ended = idle;
}

void identity_settle(struct identity *id)
{
    while (id->ended) {
        struct idle *idle = id->ended;
        id->ended = idle->next;
        while (waitpid(idle->pid, NULL, 0) < 0 && errno == EINTR)
            ;
        free(idle);
    }
}

void identity_layer_map(unsigned disk, unsigned shown, char *text, size_t size)
{
    /* Ids that do not stand for themselves, as ranges in order; they can lie in each other. */
    bool below = disk < IDENTITY_LEASE_FIRST;
    const unsigned leased[2] = {IDENTITY_LEASE_FIRST, IDENTITY_LEASE_END};
    const unsigned own[2] = {disk, disk + 1};
    const unsigned *const cuts[] = {below ? own : leased, below ? leased : own};
    const unsigned last[2] = {UINT_MAX - 1, UINT_MAX}; /* no id ends there */
    unsigned at = 0;
    int used = snprintf(text, size, "%u %u 1\n", disk, shown);

    for (size_t i = 0; i < 3; i++) {
        const unsigned *cut = i < 2 ? cuts[i] : last;
        if (cut[0] > at && used >= 0 && (size_t)used < size)
            used += snprintf(text + used, size - (size_t)used, "%u %u %u\n", at, at, cut[0] - at);
        at = cut[1] > at ? cut[1] : at;
    }
}

/* The range of systems, and root, whose directory holds a layer; or, where an owner of files is the
 * inner user, without who that is in the range. */
static void system_map(const struct identity *id, unsigned disk, bool of_tree, char *text,
                       size_t size)
{
    unsigned inside = id->inside_uid;
    unsigned first = IDENTITY_SYSTEM_FIRST;

    if (!of_tree)
        snprintf(text, size, "0 0 1\n%u %u %u\n", first, id->base, IDENTITY_LEASE_SIZE);
    else if (disk == first + inside)
        snprintf(text, size, "%u %u %u\n", first, id->base, IDENTITY_LEASE_SIZE);
    else
        snprintf(text, size, "%u %u 1\n%u %u %u\n%u %u %u\n", disk, id->base + inside, first,
                 id->base, inside, first + inside + 1, id->base + inside + 1,
                 IDENTITY_LEASE_SIZE - inside - 1);
}

static void write_idmap(const struct identity *id, enum identity_map kind, unsigned disk,
                        unsigned shown, char *text, size_t size)
{
    if (kind == IDENTITY_MAP_OWNER)
        snprintf(text, size, "%u %u 1\n", disk, shown);
    else if (kind == IDENTITY_MAP_LAYER)
        identity_layer_map(disk, shown, text, size);
    else
        system_map(id, disk, kind == IDENTITY_MAP_TREE, text, size);
}

static int make_idmap(struct identity *id, enum identity_map kind, uid_t uid, gid_t gid,
                      int *ret_fd, struct err *err)
{
    char path[64];
    char text[160];
    struct idle *idle = start_idle();

    if (!idle)
        return err_set(err, ERR_KERNEL, errno, "make a user namespace for the workspace's files");
    pid_t pid = idle->pid;
    write_idmap(id, kind, uid, identity_outside_uid(id), text, sizeof(text));
    int r = write_map(pid, "uid_map", text, err);
    if (r == 0) {
        write_idmap(id, kind, gid, identity_outside_gid(id), text, sizeof(text));
        r = write_map(pid, "gid_map", text, err);
    }
    if (r == 0) {
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
        if (*ret_fd < 0)
            r = err_set(err, ERR_IO, errno, "open '%s'", path);
    }
    end_idle(id, idle);
    return r;
}

int identity_idmap(struct identity *id, enum identity_map kind, uid_t uid, gid_t gid,
                   int *ret_userns, struct err *err)
{
    for (unsigned i = 0; i < id->owner_count; i++) {
        if (id->owners[i].uid == uid && id->owners[i].gid == gid && id->owners[i].kind == kind) {
            *ret_userns = id->owners[i].userns;
            return 0;
        }
    }
    if (id->owner_count == IDENTITY_MAX_OWNERS)
        return err_set(err, ERR_LIMIT, 0, "more than %d different owners among the mounts",
                       IDENTITY_MAX_OWNERS);
    int fd = -1;
    if (make_idmap(id, kind, uid, gid, &fd, err) < 0)
        return -1;
    id->owners[id->owner_count].uid = uid;
    id->owners[id->owner_count].gid = gid;
    id->owners[id->owner_count].kind = kind;
    id->owners[id->owner_count].userns = fd;
    id->owner_count++;
    *ret_userns = fd;
    return 0;
}

/* --- ids of an ordinary user's --- */

/* Fields of a line with colons; how many there are. */
static size_t split(char *line, const char **fields, size_t most)
{
    char *state;
    size_t n = 0;

    for (char *at = strtok_r(line, ":\n", &state); at && n < most;
         at = strtok_r(NULL, ":\n", &state))
        fields[n++] = at;
    return n;
}

/* The user's name, or `number`. (No name service: this program is linked statically.) */
static const char *find_name(const char *number, char *line, size_t size)
{
    const char *fields[4];
    FILE *file = fopen("/etc/passwd", "re");
    const char *found = NULL;

    while (file && !found && fgets(line, (int)size, file)) {
        if (split(line, fields, 3) == 3 && strcmp(fields[2], number) == 0)
            found = fields[0];
    }
    if (file)
        (void)fclose(file);
    return found ? found : number;
}

/* The first range of a file such as /etc/subuid that is large enough, for the user or his number;
 * 0: there is none. */
static unsigned find_subids(const char *path, const char *name, const char *number)
{
    char line[256];
    const char *fields[3];
    unsigned found = 0;
    FILE *file = fopen(path, "re");

    while (file && !found && fgets(line, sizeof(line), file)) {
        if (split(line, fields, 3) == 3 &&
            (strcmp(fields[0], name) == 0 || strcmp(fields[0], number) == 0) &&
            strtoul(fields[2], NULL, 10) >= IDENTITY_LEASE_SIZE)
            found = (unsigned)strtoul(fields[1], NULL, 10);
    }
    if (file)
        (void)fclose(file);
    return found;
}

int identity_find_subids(struct identity *id, uid_t caller, struct err *err)
{
    char number[16];
    char line[1024];

    snprintf(number, sizeof(number), "%u", caller);
    const char *name = find_name(number, line, sizeof(line));
    id->sub_uid = find_subids("/etc/subuid", name, number);
    id->sub_gid = find_subids("/etc/subgid", name, number);
    if (id->sub_uid && id->sub_gid)
        return 0;
    return err_set(err, ERR_DENIED, 0,
                   "a system of its own needs %u user and group ids beside your own: have the "
                   "administrator run usermod --add-subuids 100000-165535 --add-subgids "
                   "100000-165535 %s",
                   IDENTITY_LEASE_SIZE, name);
}

/* newuidmap(1) is set-user-ID and looks into /etc/subuid itself; the kernel lets nobody else do it.
 * Of the lines of the map it makes: what is below the inner user, he himself, what is above. */
static int map_with_helper(const char *helper, pid_t pid, unsigned inside, unsigned own,
                           unsigned first, struct err *err)
{
    static char *const no_environment[] = {NULL};
    char words[10][16];
    char *argv[12] = {(char *)(uintptr_t)helper};
    const unsigned numbers[10] = {
        (unsigned)pid, 0, first,      inside,         inside,
        own,           1, inside + 1, first + inside, IDENTITY_LEASE_SIZE - inside - 1};
    pid_t child;
    int status = -1;

    for (size_t i = 0; i < 10; i++) {
        snprintf(words[i], sizeof(words[i]), "%u", numbers[i]);
        argv[i + 1] = words[i];
    }
    int r = posix_spawn(&child, helper, NULL, NULL, argv, no_environment);
    if (r != 0)
        return err_set(err, r == ENOENT ? ERR_NOT_FOUND : ERR_IO, r,
                       "start '%s' (apt-get install uidmap)", helper);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return status == 0
               ? 0
               : err_set(err, ERR_DENIED, 0,
                         "%s does not map the ids that /etc/subuid and /etc/subgid give", helper);
}

/* The whole range, except that the user inside may stand for the owner of the files directly. */
static void range_map(const struct identity *id, unsigned inside, unsigned direct, char *text,
                      size_t size)
{
    unsigned rest = IDENTITY_LEASE_SIZE - inside - 1;

    if (!id->direct)
        snprintf(text, size, "0 %u %u\n", id->base, IDENTITY_LEASE_SIZE);
    else if (inside == 0)
        snprintf(text, size, "0 %u 1\n1 %u %u\n", direct, id->base + 1, rest);
    else
        snprintf(text, size, "0 %u %u\n%u %u 1\n%u %u %u\n", id->base, inside, inside, direct,
                 inside + 1, id->base + inside + 1, rest);
}

int identity_write_maps(const struct identity *id, pid_t pid, struct err *err)
{
    char uids[128];
    char gids[128];

    if (id->sub_uid) {
        return map_with_helper("/usr/bin/newgidmap", pid, id->inside_gid, getegid(), id->sub_gid,
                               err) < 0
                   ? -1
                   : map_with_helper("/usr/bin/newuidmap", pid, id->inside_uid, geteuid(),
                                     id->sub_uid, err);
    }
    if (id->range) {
        range_map(id, id->inside_uid, id->direct_uid, uids, sizeof(uids));
        range_map(id, id->inside_gid, id->direct_gid, gids, sizeof(gids));
    } else {
        /* One line is all an ordinary user may write, and the kernel wants setgroups denied first.
         */
        snprintf(uids, sizeof(uids), "%u %u 1\n", id->inside_uid, geteuid());
        snprintf(gids, sizeof(gids), "%u %u 1\n", id->inside_gid, getegid());
        if (write_map(pid, "setgroups", "deny", err) < 0)
            return -1;
    }
    if (write_map(pid, "uid_map", uids, err) < 0 || write_map(pid, "gid_map", gids, err) < 0)
        return -1;
    return 0;
}

int identity_enter_subids(struct err *err)
{
    struct identity id;
    char path[64];
    int r;

    identity_init(&id);
    id.inside_uid = id.inside_gid = 1000;
    if (identity_find_subids(&id, geteuid(), err) < 0)
        return -1;
    struct idle *idle = start_idle();
    if (!idle)
        return err_set(err, ERR_KERNEL, errno, "make a user namespace");
    r = identity_write_maps(&id, idle->pid, err);
    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)idle->pid);
    scoped_fd int userns = r < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (r == 0 && (userns < 0 || setns(userns, CLONE_NEWUSER) < 0))
        r = err_set(err, ERR_KERNEL, errno, "enter a user namespace");
    end_idle(&id, idle);
    identity_settle(&id);
    return r;
}
