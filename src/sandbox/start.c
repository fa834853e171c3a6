/* SPDX-License-Identifier: Apache-2.0 */
/* clone -> (child: keep capabilities over exec, exec carrel-init) while the parent opens the mount
 * trees -> maps, cgroup -> frame message -> root message. The child shares our memory until it
 * execs, so nothing here that it uses may go away before pid 1 has answered or died. */
#include "sandbox/start.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/etc_linked.h"
#include "sandbox/overlay.h"
#include "sandbox/pool.h"
#include "sandbox/wire.h"
#include "sys/clone.h"
#include "sys/message.h"
#include "sys/mount.h"
#include "sys/process.h"

#ifndef CARREL_INIT_PATH
#define CARREL_INIT_PATH "/usr/local/libexec/carrel/carrel-init"
#endif

enum {
    FIRST_FREE_FD = 10,
    CHILD_STACK_BYTES = 64 * 1024,
    ENDING_MS = 200,
    PATH_SHOWN = 100,
};

struct child_start {
    int init;
    int null;
    int socket;
    char name[16];
    char namespaces[16];
    volatile int failed_errno;
    _Alignas(16) char stack[CHILD_STACK_BYTES];
};

void live_init(struct live *live)
{
    *live = (struct live){.pid = -1, .pidfd = -1, .socket = -1};
}

void live_clear(struct live *live)
{
    scope_close(&live->socket);
    if (live->pid > 0) {
        (void)process_kill(live->pidfd);
        while (waitpid(live->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    scope_close(&live->pidfd);
    live_release(live);
    free(live->start);
    live_init(live);
}

/* Exec drops the capabilities of anybody but uid 0; ambient ones stay, and pid 1 needs them to
 * build the sandbox. They are good only inside the new user namespace. */
static int keep_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];

    if (syscall(SYS_capget, &head, sets) < 0)
        return -1;
    sets[0].inheritable = sets[0].permitted;
    sets[1].inheritable = sets[1].permitted;
    if (syscall(SYS_capset, &head, sets) < 0)
        return -1;
    for (unsigned cap = 0; cap < 64; cap++) {
        if (!(sets[cap / 32].permitted & (1U << (cap % 32))))
            continue;
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
            return -1;
    }
    return 0;
}

/* Runs in the child, on its own stack, in shared memory. */
static int become_init(void *argument)
{
    static char *const no_environment[] = {NULL};
    struct child_start *start = argument;
    char *const argv[] = {start->name, start->namespaces, NULL};
    char *const *environment = no_environment;

#ifdef CARREL_WEAK
    extern char **environ;
    environment = environ;
#endif
    for (int fd = 0; fd < 3; fd++) {
        if (dup2(start->null, fd) < 0)
            goto failed;
    }
    if (dup2(start->socket, 3) < 0)
        goto failed;
    if (start->namespaces[0] && keep_capabilities() < 0)
        goto failed;
    syscall(SYS_execveat, start->init, "", argv, environment, AT_EMPTY_PATH);
failed:
    start->failed_errno = errno;
    return 1;
}

static int explain_clone(int e, struct err *err)
{
    if (e == EAGAIN || e == ENOMEM)
        return err_set(err, ERR_LIMIT, e,
                       "no process or memory left for a sandbox; end something or raise the limit "
                       "(ulimit -u, pids cgroup)");
    return err_set(err, ERR_KERNEL, e, "this host gives no user namespace; %s",
                   host_userns_remedy(e));
}

static int high_fd(int fd, int *ret)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
    int saved = errno;

    (void)close(fd);
    errno = saved;
    *ret = high;
    return high < 0 ? -errno : 0;
}

/* Everything the child needs, at descriptors it will not overwrite. */
static int open_child_files(struct child_start *start, const char *init_path, int *ret_socket,
                            struct err *err)
{
    int pair[2];
    int init = open(init_path, O_PATH | O_CLOEXEC);

    if (init < 0)
        return err_set(err, ERR_NOT_FOUND, errno,
                       "open '%s', Carrel's own first process; reinstall Carrel", init_path);
    if (high_fd(init, &start->init) < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || high_fd(null, &start->null) < 0)
        return err_set(err, ERR_IO, errno, "open '/dev/null'");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a socket pair");
    int r = high_fd(pair[0], ret_socket);
    if (high_fd(pair[1], &start->socket) < 0 || r < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    return 0;
}

/* A pid 1 that does not read must not hold us past the run's deadline. */
static void bound_sending(int fd, uint64_t timeout_ms)
{
    struct timeval limit = {.tv_sec = (time_t)(timeout_ms / 1000),
                            .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};

    if (timeout_ms && timeout_ms < 1000UL * 86400 * 365)
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

/* Our copies; the child may still be reading the numbers, so they stay as they are. */
static void close_child_files(const struct child_start *start)
{
    int fds[] = {start->init, start->null, start->socket};

    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        scope_close(&fds[i]);
}

/* Straight into the v2 group, where there is one; what does not work so is attached afterwards. */
static pid_t clone_child(struct run *run, int flags, struct live *live)
{
    struct child_start *start = live->start;
    struct clone_request request = {.flags = (uint64_t)flags,
                                    .cgroup = cgroup_clone_fd(&run->cgroup),
                                    .stack = start->stack,
                                    .stack_size = CHILD_STACK_BYTES,
                                    .function = become_init,
                                    .argument = start};

    if (request.cgroup >= 0) {
        pid_t pid = clone_into_cgroup(&request, &live->pidfd);
        if (pid > 0) {
            cgroup_cloned(&run->cgroup);
            return pid;
        }
        if (pid != -ENOSYS && pid != -EACCES && pid != -EINVAL && pid != -E2BIG) {
            errno = -pid;
            return -1;
        }
    }
    return clone(become_init, start->stack + CHILD_STACK_BYTES, flags | SIGCHLD, start,
                 &live->pidfd);
}

/* The maker of a user namespace is charged for what is used in it (inotify, pipes, queues): as
 * root, let that be the leased uid, not root's own account. Of this thread alone, and only for the
 * clone; what a change of ids takes from the process is put back. */
static pid_t clone_as_owner(struct run *run, int flags, struct live *live)
{
    struct process_marks marks;
    pid_t pid = -1;

    if (run->identity.range) {
        process_keep_marks(&marks);
        uid_t real = getuid();
        uid_t own = geteuid();
        /* The real uid too: before Linux 6.16 exec takes ambient capabilities from who differs. */
        if (syscall(SYS_setresuid, run->identity.base, run->identity.base, -1) == 0) {
            /* Writing to our cgroup takes one; without, it is attached afterwards. */
            if (cgroup_clone_fd(&run->cgroup) >= 0)
                ignore(process_raise_capabilities() == 0);
            pid = clone_child(run, flags, live);
            int saved = errno;
            if (syscall(SYS_setresuid, real, own, -1) <
                0) { /* going on as somebody else is worse */
                fputs("carrel: the kernel did not let root be root again\n", stderr);
                _exit(STATUS_CARREL_FAILED);
            }
            process_restore_marks(&marks);
            errno = saved;
        }
    }
    /* Where ordinary users may make none, the leased uid may not either. */
    if (pid < 0 && (!run->identity.range || errno == EPERM))
        pid = clone_child(run, flags, live);
    return pid;
}

static int clone_init(struct live *live, struct run *run, struct err *err)
{
    uint32_t namespaces = run->setup.namespaces;
    uint32_t now = namespaces & (CLONE_NEWUSER | CLONE_NEWPID);
    struct child_start *start = live->start;
    sigset_t all;
    sigset_t before;

    /* The cgroup namespace is made when pid 1 is in its group, see stage_cgroup_root. */
    if (namespaces)
        snprintf(start->namespaces, sizeof(start->namespaces), "%x",
                 namespaces & ~now & ~(uint32_t)CLONE_NEWCGROUP);
    /* A handler of the caller's must not run in the child. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int flags = (int)now | CLONE_VM | CLONE_PIDFD;
    pid_t pid = clone_as_owner(run, flags, live);
    int saved = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return explain_clone(saved, err);
    live->pid = pid;
    return 0;
}

/* Without idmapped mounts the user inside stands for the tree's owner directly: never for root. */
int live_use_owner_directly(struct run *run, struct err *err)
{
    char path[PATH_SHOWN];

    if (run->owner_uid == 0 || run->owner_gid == 0)
        return err_set(err, ERR_KERNEL, 0,
                       "'%s' belongs to root and its filesystem has no idmapped mounts: give it to "
                       "an ordinary user (chown -R 1000:1000), or move it to ext4, xfs, btrfs or "
                       "tmpfs",
                       run->workspace_path);
    if (run->taken) { /* its maps are written already */
        run->misfit = true;
        return err_set(err, ERR_CONFLICT, 0, "the prepared sandbox has other id maps");
    }
    if (etc_linked_show_to(run->owner_uid, run->owner_gid, path, sizeof(path)) != 0)
        return err_set(err, ERR_KERNEL, 0,
                       "'%s' would be shown to the owner of '%s', whose filesystem has no idmapped "
                       "mounts, and not everybody may read it: let everybody, or the owner not",
                       path, run->workspace_path);
    identity_forget_owners(&run->identity); /* their maps lead to somebody else */
    run->identity.direct = true;
    run->identity.direct_uid = run->owner_uid;
    run->identity.direct_gid = run->owner_gid;
    return 0;
}

static bool no_idmap_here(int r)
{
    return r == -EINVAL || r == -EOPNOTSUPP || r == -ENOSYS;
}

/* Whether this operation binds the tree that is read-write by nature. */
static bool is_main_tree(const struct run *run, const struct op *op)
{
    return (op->flags & OP_OWNED) && strcmp(op->source, run->workspace_path) == 0;
}

/* Gives a tree its flags and, where the user inside shall own it, its id map. */
static int finish_tree(struct run *run, const struct op *op, int tree, struct err *err)
{
    bool recursive = (op->flags & OP_RECURSIVE) != 0;
    int userns = -1;

    bool of_system = run->spec->base && is_main_tree(run, op);
    enum identity_map kind = of_system ? IDENTITY_MAP_TREE : IDENTITY_MAP_OWNER;
    if (op->flags & OP_SYSTEM)
        kind = IDENTITY_MAP_SYSTEM;
    if ((op->flags & (OP_OWNED | OP_SYSTEM)) && !(op->flags & OP_READY) &&
        identity_idmap(&run->identity, kind, op->uid, op->gid, &userns, err) < 0)
        return -1;
    int r = mount_set(tree, op->attrs, recursive, userns);
    if (userns >= 0 && no_idmap_here(r)) {
        if (run->spec->base)
            return err_set(err, ERR_KERNEL, -r,
                           "a system of its own needs idmapped mounts, which the filesystem of "
                           "'%s' does not have; keep it on ext4, xfs, btrfs or tmpfs",
                           op->source);
        if (is_main_tree(run, op)) {
            if (live_use_owner_directly(run, err) < 0)
                return -1;
        } else if (!(op->attrs & MOUNT_RDONLY)) {
            return err_set(err, ERR_KERNEL, -r,
                           "'%s' could not be written inside: its filesystem has no idmapped "
                           "mounts; show it with --ro",
                           op->source);
        }
        r = mount_set(tree, op->attrs, recursive, -1);
    }
    if (r < 0)
        return err_set(err, ERR_IO, -r, "set mount flags of '%s'", op->source);
    return 0;
}

/* Borrowed descriptors that go with a message. */
struct fd_list {
    int fds[MESSAGE_MAX_FDS];
    size_t n;
};

static int finish_trees(struct run *run, uint32_t first, uint32_t end, struct err *err)
{
    for (uint32_t i = first; i < end; i++) {
        const struct op *op = &run->setup.ops[i];
        if (op->kind == OP_BIND && op_has_tree(op) &&
            finish_tree(run, op, run->sources[i], err) < 0)
            return -1;
    }
    return 0;
}

static int collect_trees(const struct run *run, uint32_t first, uint32_t end, struct fd_list *trees,
                         struct err *err)
{
    for (uint32_t i = first; i < end; i++) {
        if (!op_has_tree(&run->setup.ops[i]))
            continue;
        if (trees->n >= MESSAGE_MAX_FDS - 1)
            return err_set(err, ERR_LIMIT, 0, "too many mounts (at most %d)", MESSAGE_MAX_FDS - 1);
        trees->fds[trees->n++] = run->sources[i]; /* clear_up closes it */
    }
    return 0;
}

static int send_bytes(struct live *live, uint32_t kind, const char *bytes, size_t n,
                      const struct fd_list *fds, struct err *err)
{
    if (n == 0)
        return err_set(err, ERR_LIMIT, 0, "command and environment are larger than %u bytes",
                       MESSAGE_MAX_BYTES);
    int r = message_send(live->socket, kind, bytes, n, fds->fds, fds->n);
    /* Pid 1 has left a reply, or died, or the deadline is over: the supervisor finds out which. */
    if (r == -EPIPE || r == -ECONNRESET || r == -EAGAIN)
        return 0;
    return r < 0 ? err_set(err, ERR_IO, -r, "talk to the sandbox's first process") : 0;
}

/* Room for a message, kept for the next one: to give pages back stops all processors that run this
 * memory, and pid 1 may be one of them. */
static char *map_message(struct live *live)
{
    if (live->bytes)
        return live->bytes;
    char *bytes =
        mmap(NULL, MESSAGE_MAX_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return bytes == MAP_FAILED ? NULL : (live->bytes = bytes);
}

void live_release(struct live *live)
{
    if (live->bytes)
        (void)munmap(live->bytes, MESSAGE_MAX_BYTES);
    live->bytes = NULL;
}

/* Everything about pid 1 that must be in place before it builds, then what it builds first. */
static int send_frame(struct live *live, struct run *run, struct err *err)
{
    struct fd_list trees = {.n = 0};

    if (cgroup_attach(&run->cgroup, live->pid, err) < 0)
        return -1;
    if (run->level == CARREL_LEVEL_NS) {
        if (run->host.can_lease) {
            if (finish_trees(run, 0, run->setup.frame_count, err) < 0 ||
                collect_trees(run, 0, run->setup.frame_count, &trees, err) < 0)
                return -1;
            /* Pid 1 holds the lease too: it ends with the last process of the sandbox. */
            trees.fds[trees.n++] = run->identity.lease_fd;
        }
        if (identity_write_maps(&run->identity, live->pid, err) < 0)
            return -1;
    }
    char *bytes = map_message(live);
    if (!bytes)
        return err_set(err, ERR_LIMIT, ENOMEM, "send the setup");
    size_t n = wire_encode_frame(&run->setup, bytes, MESSAGE_MAX_BYTES);
    return send_bytes(live, MESSAGE_FRAME, bytes, n, &trees, err);
}

static int send_root(struct live *live, const struct run *run, const struct fd_list *trees,
                     struct err *err)
{
    char *bytes = map_message(live);

    if (!bytes)
        return err_set(err, ERR_LIMIT, ENOMEM, "send the setup");
    size_t n = wire_encode_root(&run->setup, bytes, MESSAGE_MAX_BYTES);
    return send_bytes(live, MESSAGE_ROOT, bytes, n, trees, err);
}

/* A pid 1 that could not go on leaves a reply and exits, perhaps while we still write its maps. */
static bool has_ended(const struct live *live)
{
    struct pollfd ended = {.fd = live->pidfd, .events = POLLIN};

    return poll(&ended, 1, ENDING_MS) == 1;
}

const char *live_init_path(const struct run *run)
{
    return run->spec->init_path ? run->spec->init_path : CARREL_INIT_PATH;
}

int live_begin(struct live *live, struct run *run, struct err *err)
{
    const char *init_path = live_init_path(run);

    live->start = malloc(sizeof(*live->start));
    if (!live->start)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    live->start->init = live->start->null = live->start->socket = -1;
    snprintf(live->start->name, sizeof(live->start->name), "carrel-init");
    live->start->namespaces[0] = '\0';
    live->start->failed_errno = 0;
    if (run->level == CARREL_LEVEL_NS && run->host.can_lease &&
        identity_lease(&run->identity, err) < 0)
        return -1;
    struct carrel_limits limits = run->spec->limits;
    if (run->pids_by_rlimit)
        limits.pids = 0;
    if (cgroup_make(&run->cgroup, &limits, run->workspace, err) < 0)
        return -1;
    int r = open_child_files(live->start, init_path, &live->socket, err);
    if (r == 0)
        r = clone_init(live, run, err);
    close_child_files(live->start);
    return r;
}

int live_start_frame(struct live *live, struct run *run, struct err *err)
{
    int r = live_begin(live, run, err) < 0 || send_frame(live, run, err) < 0 ? -1 : 0;

    identity_settle(&run->identity);
    live_release(live); /* it may have to wait long for its root */
    return r;
}

/* All that goes onto the root. How it can be mapped decides the maps of pid 1, and one tree decides
 * for all. The layers came first, since only they can be made again: here, where the tenant's tree
 * turns out to have no map. */
static int finish_root(struct run *run, struct fd_list *trees, struct err *err)
{
    uint32_t first = run->setup.frame_count;
    uint32_t end = run->setup.op_count;
    bool direct = run->identity.direct;

    if (finish_trees(run, first, end, err) < 0 ||
        (run->identity.direct != direct && overlay_mount(run, err) < 0))
        return -1;
    return collect_trees(run, first, end, trees, err);
}

static int send_setup(struct live *live, struct run *run, struct err *err)
{
    struct fd_list trees = {.n = 0};

    if (run->level != CARREL_LEVEL_NS)
        return send_frame(live, run, err);
    if (run->host.can_lease && finish_root(run, &trees, err) < 0)
        return -1;
    if (!run->taken && send_frame(live, run, err) < 0)
        return -1;
    return send_root(live, run, &trees, err);
}

/* What is left to do when pid 1 has all that it needs, and is busy with it. */
static void clear_up(struct run *run)
{
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        if (run->setup.ops[i].kind != OP_LAYER) /* the last to let go of one waits for the disk */
            scope_close(&run->sources[i]);
    }
    identity_settle(&run->identity);
}

int live_start(struct live *live, struct run *run, struct err *err)
{
    if (run->taken)
        pool_hand_over(run->taken, live);
    else if (live->pid < 0 && live_begin(live, run, err) < 0)
        return -1;
    bound_sending(live->socket, run->spec->timeout_ms);
    if (run->level == CARREL_LEVEL_NS && run->spec->workspace &&
        workspace_make_mount_points(run, err) < 0)
        return -1;
    if (run->host.can_lease && overlay_mount(run, err) < 0)
        return -1;
    if (send_setup(live, run, err) < 0 && (run->misfit || !has_ended(live)))
        return -1;
    clear_up(run);
    return 0; /* what pid 1 had to say, if it died meanwhile, the supervisor reads */
}

int live_command(struct live *live, const struct run *run, const int fds[3], struct err *err)
{
    struct fd_list files = {.n = 0};
    char *bytes = map_message(live);

    if (!bytes)
        return err_set(err, ERR_LIMIT, ENOMEM, "send the command");
    if (!run->spec->tty) {
        memcpy(files.fds, fds, 3 * sizeof(int));
        files.n = 3;
    }
    size_t n = wire_encode_command(&run->command, bytes, MESSAGE_MAX_BYTES);
    return send_bytes(live, MESSAGE_COMMAND, bytes, n, &files, err);
}

void live_kill(struct live *live, const struct run *run)
{
    if (run->level == CARREL_LEVEL_DIR && !live->asked_to_end) {
        live->asked_to_end = true;
        (void)shutdown(live->socket, SHUT_RDWR);
    } else if (live->pidfd >= 0) {
        (void)process_kill(live->pidfd);
    }
}

int live_explain_death(const struct live *live, struct err *err)
{
    if (live->start->failed_errno)
        return err_set(err, ERR_IO, live->start->failed_errno,
                       "start Carrel's own first process (carrel-init)");
    return err_set(err, ERR_IO, 0, "the sandbox's first process was killed while it started");
}
