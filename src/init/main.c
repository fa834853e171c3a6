/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-init: pid 1 of a sandbox. Exec'd fresh by the engine in a new user and pid namespace with
 * one descriptor, the socket to the engine; nothing of the engine's memory or environment is here.
 *
 *   unshare the other namespaces -> receive the setup -> run the stages -> receive the command,
 *   start it, report its end -> exit, and the kernel kills everything left in the pid namespace.
 *
 * In a sandbox that stays there are keepers instead (keeper.c), each started when the engine sends
 * a socket for it, and pid 1 only waits for those whom nobody else waits for.
 *
 * At level dir there are no namespaces: the same program only starts the command and, being the
 * subreaper of all that descends from it, kills the whole tree at the end. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "init/init.h"
#include "sandbox/wire.h"
#include "sys/path.h"
#include "sys/refusals.h"

enum {
    ENGINE_SOCKET = 3
};

struct stage {
    const char *name;
    int (*enter)(struct sandbox *, struct err *);
};

/* Order is the security argument. These do not depend on whose tree it will be; a pool has them
 * done ahead. */
static const struct stage frame_stages[] = {
    {"ids-for-building", stage_become_builder}, /* files need an owner that is mapped */
    {"nested-userns", stage_namespace_limits},  /* through the host's /proc: before it goes */
    {"keyring", stage_new_keyring},             /* inherited by every command */
    {"hostname", stage_hostname},               /* needs CAP_SYS_ADMIN */
    {"loopback", stage_loopback},               /* needs CAP_NET_ADMIN */
    {"ns-cgroup", stage_cgroup_root},           /* when the engine has put us in our cgroup */
    {"frame", stage_build_frame},               /* needs the host's paths and CAP_SYS_ADMIN */
    {"caps", stage_lock_capabilities},          /* needs CAP_SETPCAP; takes none of ours yet */
};

static const struct stage root_stages[] = {
    {"time", stage_clock},                     /* through the host's /proc; before any child */
    {"root", stage_build_root},                /* needs the host's paths and CAP_SYS_ADMIN */
    {"enter-root", stage_enter_root},          /* from here on the host's paths are gone */
    {"verify-mounts", stage_verify_mounts},    /* nobody moved what we mounted */
    {"sudo", stage_sudo},                      /* in a directory of root's inside: before ids */
    {"network", stage_network},                /* needs CAP_NET_ADMIN, CAP_NET_BIND_SERVICE */
    {"rlimits", stage_limits},                 /* before ids: lowering needs no privilege */
    {"close-fds", stage_close_files},          /* no host directory survives as a descriptor */
    {"ids", stage_drop_ids},                   /* groups, gid, uid: needs CAP_SETGID, CAP_SETUID */
    {"caps", stage_drop_capabilities},         /* nothing after this needs any */
    {"no-new-privs", stage_no_new_privileges}, /* lets an unprivileged process do the next two */
    {"dumpable", stage_undumpable},            /* after the ids, which would reset it */
    {"landlock", stage_scopes},                /* needs no-new-privs */
    {"parent-death", stage_die_with_parent},   /* after the ids, which would clear it */
    {"seccomp", stage_filter},                 /* it forbids most of the above */
    {"left-root", stage_left_root},            /* last: what enter-root began has time until here */
};

static struct setup setup;
static struct sandbox sandbox = {.setup = &setup,
                                 .lease = -1,
                                 .listener = -1,
                                 .proc_self = -1,
                                 .sudo = -1,
                                 .frame = -1,
                                 .root = -1,
                                 .prepared = -1};

static enum {
    EMPTY,
    FRAMED,
    BUILT
} progress;

static pid_t command_pid;

static void answer(uint32_t kind, int status, const struct err *err, int fd)
{
    static struct reply reply;

    memset(&reply, 0, sizeof(reply));
    reply.kind = kind;
    reply.status = status;
    if (err)
        reply.error = *err;
    talk_answer(sandbox.socket, &reply, fd);
}

static _Noreturn void die_as(int status, const struct err *err)
{
    answer(REPLY_FAILED, status, err, -1);
    _exit(1);
}

static _Noreturn void die(const struct err *err)
{
    die_as(STATUS_CARREL_FAILED, err);
}

static void enter(const struct stage *stages, size_t count)
{
    struct err err = {0};

    for (size_t i = 0; i < count; i++) {
        if (weak(stages[i].name))
            continue;
        if (stages[i].enter(&sandbox, &err) < 0)
            die(&err);
    }
}

static _Noreturn void malformed(const char *what)
{
    struct err err = {0};

    err_set(&err, ERR_INVALID, 0, "the %s message is malformed", what);
    die(&err);
}

static void take_trees(const int *fds, size_t count)
{
    memcpy(sandbox.trees, fds, count * sizeof(int));
    sandbox.tree_count = (uint32_t)count;
    sandbox.trees_used = 0;
}

static void build_frame(char *bytes, size_t length, const int *fds, size_t fd_count)
{
    struct err err = {0};

    if (wire_decode_frame(&setup, bytes, length) < 0)
        malformed("frame");
    if (setup.flags & SETUP_DIR_LEVEL) {
        if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
            err_set(&err, ERR_KERNEL, errno, "become the parent of what the command leaves behind");
            die(&err);
        }
        progress = BUILT;
        return;
    }
    take_trees(fds, fd_count);
    if ((setup.flags & SETUP_UID_RANGE) && sandbox.tree_count > 0)
        sandbox.lease =
            sandbox.trees[--sandbox.tree_count]; /* it ends with the last process that has it */
    sandbox.proc_self = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC);
    enter(frame_stages, sizeof(frame_stages) / sizeof(frame_stages[0]));
    progress = FRAMED;
    if (setup.flags & SETUP_SAY_READY)
        answer(REPLY_READY, 0, NULL, -1);
}

static void build_root(char *bytes, size_t length, const int *fds, size_t fd_count)
{
    if (wire_decode_root(&setup, bytes, length) < 0)
        malformed("root");
    take_trees(fds, fd_count);
    enter(root_stages, sizeof(root_stages) / sizeof(root_stages[0]));
    if (sandbox.listener >= 0) {
        answer(REPLY_LISTENER, 0, NULL, sandbox.listener);
        (void)close(sandbox.listener);
    }
    progress = BUILT;
}

static void start(struct message *message)
{
    struct err err = {0};
    int status;

    if (talk_start(sandbox.socket, message, &command_pid, &status, &err) < 0)
        die_as(status, &err);
    talk_close_files(message);
    answer(REPLY_STARTED, 0, NULL, -1);
}

/* A sandbox that stays: commands are its keepers' business. One that could not be made shows by the
 * end of its socket. */
static void start_keeper(const struct message *message)
{
    if (message->head.fd_count != 1 || (setup.flags & SETUP_DIR_LEVEL))
        malformed("keeper");
    pid_t pid = fork();
    if (pid == 0)
        keeper_serve(message->fds[0]);
    (void)close(message->fds[0]);
}

/* Kills every descendant: children of a killed child come to us, their subreaper, and the next pass
 * finds them. The kernel's list can miss one while others exit, so only waitpid says when all are
 * gone, and nothing here waits for a child that may not have been killed yet. */
static void kill_descendants(void)
{
    for (;;) {
        keeper_kill_children(command_pid, false); /* at this level anybody may trace */
        pid_t reaped;
        do {
            reaped = waitpid(-1, NULL, __WALL | WNOHANG);
        } while (reaped > 0);
        if (reaped < 0)
            return; /* ECHILD: nobody left */
        (void)poll(NULL, 0, 1);
    }
}

/* The kernel would kill the rest when pid 1 goes, but not count what they used. */
static void kill_namespace(void)
{
    pid_t reaped;

    do {
        (void)kill(-1, SIGKILL);
        reaped = waitpid(-1, NULL, __WALL);
    } while (reaped > 0 || errno == EINTR);
}

static void add_usage(struct reply *sum, int who)
{
    struct rusage usage;

    if (getrusage(who, &usage) < 0)
        return;
    uint64_t peak = (uint64_t)usage.ru_maxrss * 1024;
    sum->cpu_user_us +=
        (uint64_t)usage.ru_utime.tv_sec * 1000000 + (uint64_t)usage.ru_utime.tv_usec;
    sum->cpu_system_us +=
        (uint64_t)usage.ru_stime.tv_sec * 1000000 + (uint64_t)usage.ru_stime.tv_usec;
    sum->written_bytes += (uint64_t)usage.ru_oublock * 512;
    if (peak > sum->peak_rss_bytes)
        sum->peak_rss_bytes = peak;
}

/* Nobody left to wait for is nobody left at all: who loses its parent in here comes to us. */
static void tell_end(int status, bool empty)
{
    static struct reply reply = {.kind = REPLY_EXITED};

    reply.status = status;
    reply.empty = empty;
    if (setup.namespaces & CLONE_NEWNET)
        reply.refusals = network_refusals("/proc/net");
    add_usage(&reply, RUSAGE_SELF);
    add_usage(&reply, RUSAGE_CHILDREN);
    talk_answer(sandbox.socket, &reply, -1);
}

static _Noreturn void finish(void)
{
    if (setup.flags & SETUP_DIR_LEVEL)
        kill_descendants();
    else if (getpid() == 1)
        kill_namespace();
    _exit(0);
}

static void reap(void)
{
    bool ended = false;
    int status = 0;
    int one;
    pid_t pid;

    while ((pid = waitpid(-1, &one, WNOHANG | __WALL)) > 0) {
        sudo_ended(pid);
        if (pid != command_pid)
            continue;
        ended = true;
        status = one;
    }
    if (ended) {
        bool empty = pid < 0 && errno == ECHILD && getpid() == 1;
        if (setup.flags & SETUP_DIR_LEVEL)
            kill_descendants();
        tell_end(status, empty);
        if (empty) {
            (void)sched_yield(); /* the engine goes first: it may not wait for our end */
            _exit(0);
        }
        finish();
    }
    if (command_pid && pid < 0 && errno == ECHILD) { /* and nobody told us how it ended */
        struct err err = {0};
        err_set(&err, ERR_IO, errno, "the kernel lost sight of the command");
        die(&err);
    }
}

static void serve_message(void)
{
    static struct message message;
    const struct message_head *head = &message.head;
    uint32_t signal_number;

    message.room = 0; /* the bytes of earlier ones stay mapped for as long as the sandbox lives */
    if (!talk_receive(sandbox.socket, &message))
        finish();
    /* The frame comes first, then the root, each once; nothing is started without both. */
    uint32_t wanted = progress == EMPTY ? MESSAGE_FRAME : progress == FRAMED ? MESSAGE_ROOT : 0;
    if (wanted ? head->kind != wanted : head->kind <= MESSAGE_ROOT)
        finish();
    switch (head->kind) {
    case MESSAGE_FRAME:
        build_frame(message.bytes, head->length, message.fds, head->fd_count);
        break;
    case MESSAGE_ROOT:
        build_root(message.bytes, head->length, message.fds, head->fd_count);
        break;
    case MESSAGE_COMMAND:
        if (command_pid)
            finish(); /* one command a sandbox */
        start(&message);
        break;
    case MESSAGE_SIGNAL:
        memcpy(&signal_number, message.bytes, sizeof(signal_number)); /* the mapping is never
                                                                         shorter */
        if (command_pid > 0)
            (void)kill(-command_pid, (int)signal_number);
        break;
    case MESSAGE_KEEPER:
        start_keeper(&message);
        talk_release(&message);
        break;
    default:
        finish();
    }
}

/* Pid 1 keeps the only command, or the engine knows who keeps that of who asks. */
static void hear_asker(void)
{
    scoped_fd int asker = sudo_accept(sandbox.sudo);
    static struct reply reply = {.kind = REPLY_SUDO};

    if (asker >= 0 && command_pid)
        sudo_serve(take_fd(&asker), sandbox.socket);
    else if (asker >= 0)
        talk_answer(sandbox.socket, &reply, asker);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    unsigned long namespaces = argc > 1 ? strtoul(argv[1], NULL, 16) : 0;

    sandbox.socket = ENGINE_SOCKET;
    (void)fcntl(sandbox.socket, F_SETFD, FD_CLOEXEC);
    keeper_take_over_signals(); /* now: a pool has it done ahead */
    if (namespaces && unshare((int)namespaces) < 0) {
        err_set(&err, ERR_KERNEL, errno, "make namespaces (0x%lx)", namespaces);
        die(&err);
    }
    do
        serve_message(); /* the setup, which the engine still prepares */
    while (progress != BUILT);
    int signals = keeper_watch_children();
    if (signals < 0) {
        err_set(&err, ERR_LIMIT, errno, "watch for the command's end");
        die(&err);
    }
    struct pollfd ready[3] = {{.fd = sandbox.socket, .events = POLLIN},
                              {.fd = signals, .events = POLLIN},
                              {.fd = -1, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo info;
        int pause = sandbox.sudo < 0 ? 0 : sudo_pause_ms();
        ready[2].fd = pause ? -1 : sandbox.sudo;
        if (poll(ready, 3, pause ? pause : -1) < 0 && errno != EINTR) {
            err_set(&err, ERR_LIMIT, errno, "wait for the command, which has been ended");
            answer(REPLY_FAILED, STATUS_CARREL_FAILED, &err, -1);
            finish();
        }
        if (ready[1].revents) {
            ignore(read(signals, &info, sizeof(info)) > 0); /* only a wake-up */
            reap();
        }
        if (ready[0].revents)
            serve_message();
        if (ready[2].revents)
            hear_asker();
    }
}
