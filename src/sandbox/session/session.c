/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox as a whole: its start, its end, and who is woken by what. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "protocol/egress.h"
#include "sandbox/filter.h"
#include "sandbox/netnames.h"
#include "sandbox/overlay.h"
#include "sandbox/session/internal.h"

#define COUNTED_FOR_CPU 256 /* processes */
#define SPEC_BYTES      (16UL << 20)

enum {
    EVENTS = 16,
    ROUNDS = 4 /* of events, before the owner looks at other things */
};

/* --- descriptors --- */

bool source_set(struct session *session, struct source *source, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = source};

    if (source->fd == fd && fd >= 0)
        return epoll_ctl(session->epoll, EPOLL_CTL_MOD, fd, &event) == 0;
    if (source->fd >= 0)
        (void)epoll_ctl(session->epoll, EPOLL_CTL_DEL, source->fd, NULL); /* closed: it is out */
    source->fd = -1;
    if (fd < 0)
        return true;
    if (epoll_ctl(session->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        return false;
    source->fd = fd;
    return true;
}

int session_read_reply(int socket, struct reply *ret, int fds[MESSAGE_MAX_FDS], size_t *ret_count)
{
    struct message_head head;
    int r = message_receive_head(socket, &head, fds);

    if (r <= 0)
        return r;
    *ret_count = head.fd_count;
    r = head.length == sizeof(*ret) ? message_read_exactly(socket, ret, sizeof(*ret)) : -EPROTO;
    if (r == 0)
        return 1;
    return r == -EAGAIN ? -EPROTO : r; /* a part of a word is none */
}

/* --- its start --- */

/* One attempt; *ret_misfit: what came from the pool did not suit the tree. */
static int attempt(struct session *session, bool *ret_misfit, struct err *err)
{
    struct run *run = session->run;
    int r = run_prepare(run, &session->spec, false, NULL, err);

    run->cgroup.nest = run->stays = true;
    for (uint32_t i = 0; r == 0 && i < run->setup.op_count; i++) {
        struct op *op = &run->setup.ops[i];
        if (op->kind == OP_MOVE && run->spec->workspace && strcmp(op->target, ".cache") == 0)
            op->flags |= OP_HIDES; /* session_join.hidden */
    }
    live_init(&session->live);
    if (r == 0)
        r = live_start(&session->live, run, err);
    *ret_misfit = run->misfit;
    for (uint32_t i = 0; r == 0 && i < run->setup.op_count; i++)
        scope_close(&run->sources[i]); /* pid 1 has them */
    if (r == 0) {
        live_release(&session->live);
        identity_forget_owners(&run->identity);
        return 0;
    }
    live_clear(&session->live);
    workspace_unmake(run);
    run_clear(run);
    return -1;
}

static int start_sandbox(struct session *session, struct err *err)
{
    bool misfit;
    int r = attempt(session, &misfit, err);

    if (r < 0 && misfit) {
        session->spec.pool = NULL;
        *err = (struct err){0};
        r = attempt(session, &misfit, err);
    }
    return r;
}

static int watch_all(struct session *session, struct err *err)
{
    struct live *live = &session->live;

    denials_init(&session->denials, run_view_of(session->run));
    limits_watch_init(&session->limits, session->denials.run, denials_add_limit, &session->denials);
    if (limits_watch_begin(&session->limits, session->denials.run, live->pid, err) < 0)
        return -1;
    overlay_started(session->run);
    if (fcntl(live->socket, F_SETFL, O_NONBLOCK) < 0 ||
        !source_set(session, &session->first_process, live->socket, EPOLLIN) ||
        !source_set(session, &session->end, live->pidfd, EPOLLIN) ||
        !source_set(session, &session->groups, session->tell, EPOLLIN) ||
        !source_set(session, &session->limit, limits_watch_fd(&session->limits), EPOLLIN))
        return err_set(err, ERR_LIMIT, errno, "watch the sandbox");
    /* One ahead, but not now: it would take time from what the sandbox is being woken for. */
    session->ahead_ms = now_ms() + AHEAD_AFTER_MS;
    session->ahead_due = true;
    if (session->run->setup.flags & SETUP_NOTIFY)
        return 0;
    /* Nothing else says that it stands. One that has ended says why by itself. */
    if (!keeper_ask(session, NULL) && !session_is_dying(session))
        return err_set(err, ERR_LIMIT, 0,
                       "no memory or open files left for a sandbox; end something or raise the "
                       "limit (ulimit -n)");
    return 0;
}

static void init_sources(struct session *session)
{
    session->first_process = (struct source){.kind = SOURCE_FIRST_PROCESS, .fd = -1};
    session->end = (struct source){.kind = SOURCE_END, .fd = -1};
    session->denial = (struct source){.kind = SOURCE_DENIALS, .fd = -1};
    session->limit = (struct source){.kind = SOURCE_LIMITS, .fd = -1};
    session->groups = (struct source){.kind = SOURCE_GROUPS, .fd = -1};
}

/* Memory and descriptors. */
static int fill_session(struct session *session, const struct carrel_spec *spec, struct err *err)
{
    arena_init(&session->arena, SPEC_BYTES);
    init_sources(session);
    session->tell = session->hidden = -1;
    session->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (session->epoll >= 0)
        session->tell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->tell < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    session->run = malloc(sizeof(*session->run));
    session->room = malloc(MESSAGE_MAX_BYTES);
    if (!session->run || !session->room)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    return session_copy_spec(session, spec, err);
}

static void free_session(struct session *session)
{
    scope_close(&session->hidden);
    scope_close(&session->tell);
    scope_close(&session->epoll);
    arena_clear(&session->arena);
    free(session->room);
    free(session->run);
    free(session);
}

/* What can take a while, and happens aside. */
static void clear_away(void *argument)
{
    struct session *session = argument;

    if (session->started)
        run_clear(session->run);
    free_session(session);
}

static struct session *make_session(const struct carrel_spec *spec, struct err *err)
{
    struct session *session = calloc(1, sizeof(*session));

    if (!session) {
        err_set(err, ERR_LIMIT, 0, "out of memory");
        return NULL;
    }
    if (fill_session(session, spec, err) < 0) {
        free_session(session);
        return NULL;
    }
    return session;
}

int session_start(struct session **ret, const struct carrel_spec *spec,
                  const struct session_calls *calls, void *owner, struct err *err)
{
    if (spec->level == CARREL_LEVEL_DIR)
        return err_set(err, ERR_INVALID, 0, "level dir cannot stay; use level ns");
    struct session *session = make_session(spec, err);
    if (!session)
        return -1;
    if (groups_open(&session->home, &session->run->cgroup, session->tell, err) < 0) {
        free_session(session);
        return -1;
    }
    session->calls = *calls;
    session->owner = owner;
    if (start_sandbox(session, err) < 0) {
        groups_close(&session->home, clear_away, session);
        return -1;
    }
    session->started = true;
    if (watch_all(session, err) < 0) {
        session_free(session);
        return -1;
    }
    *ret = session;
    return 0;
}

/* --- its end --- */

bool session_is_dying(const struct session *session)
{
    struct pollfd first = {.fd = session->live.socket, .events = POLLRDHUP};

    if (first.fd < 0 || (poll(&first, 1, 0) == 1 && (first.revents & (POLLHUP | POLLRDHUP))))
        return true;
    /* A keeper that was just made has a copy of its end, until it runs: then this alone tells. */
    return session->live.pid > 0 && process_count_is_dying(session->live.pid);
}

void session_end_for(struct session *session, enum carrel_reason reason)
{
    if (session->state >= SESSION_ENDING)
        return;
    session->state = SESSION_ENDING;
    session->reason = reason;
    live_kill(&session->live, session->run);
}

void session_end(struct session *session, const char *why)
{
    if (session->state >= SESSION_ENDING)
        return;
    err_set(&session->why, ERR_CONFLICT, 0, "%s", why);
    session_end_for(session, CARREL_ENDED_SIGNAL);
}

static void explain_end(struct session *session)
{
    if (cgroup_ran_out_of_memory(&session->run->cgroup) && session->state < SESSION_ENDING) {
        session->reason = CARREL_ENDED_OOM;
        err_set(&session->why, ERR_LIMIT, 0, SESSION_OUT_OF_MEMORY);
    }
    if (session->why.code)
        return;
    if (session->state == SESSION_STARTING)
        (void)live_explain_death(&session->live, &session->why);
    else
        err_set(&session->why, ERR_IO, 0, "the sandbox's first process has ended");
}

static void hear_first_process(struct session *session);

/* Pid 1 has gone, and with it all that was inside. */
static void conclude(struct session *session)
{
    while (session->live.socket >= 0)
        hear_first_process(session); /* a last word */
    explain_end(session);
    session->never_stood = session->state == SESSION_STARTING && !session->reason;
    if (session->state < SESSION_ENDING && !session->reason)
        session->reason = CARREL_ENDED_SIGNAL;
    session->state = SESSION_ENDING;
    while (session->keepers)
        keeper_lose(session->keepers);
    while (session->execs) {
        struct exec *exec = session->execs;
        if (!exec->killed) {
            exec->killed = true;
            exec->reason = session->reason;
        }
        exec_finish(exec);
    }
    session->state = SESSION_OVER;
    /* Nobody is to be woken for it any more. */
    (void)source_set(session, &session->groups, -1, 0);
    (void)source_set(session, &session->denial, -1, 0);
    (void)source_set(session, &session->limit, -1, 0);
    session->calls.over(session->owner, &session->why);
}

bool session_never_stood(const struct session *session, struct err *ret)
{
    if (session->never_stood)
        *ret = session->why;
    return session->never_stood;
}

static void reap(struct session *session)
{
    int status;
    pid_t reaped = waitpid(session->live.pid, &status, WNOHANG);

    /* No child: the owner's own SIGCHLD handling has reaped it. */
    if (reaped != session->live.pid && !(reaped < 0 && errno == ECHILD))
        return;
    session->live.pid = -1;
    (void)source_set(session, &session->end, -1, 0);
    conclude(session);
}

/* --- what is heard --- */

static void take_failure(struct session *session, const struct reply *reply)
{
    session->why = reply->error;
    session->why.msg[sizeof(session->why.msg) - 1] = '\0';
    if (session->why.code == ERR_NONE || (unsigned)session->why.code >= ERR_CODE_COUNT_)
        session->why.code = ERR_IO;
}

void session_stands(struct session *session)
{
    if (session->state != SESSION_STARTING)
        return;
    session->state = SESSION_LIVE;
    if (session->calls.live)
        session->calls.live(session->owner);
}

static void hear_first_process(struct session *session)
{
    int fds[MESSAGE_MAX_FDS];
    size_t fd_count = 0;
    struct reply reply;
    int r = session_read_reply(session->live.socket, &reply, fds, &fd_count);

    if (r == -EAGAIN && session->live.pid > 0)
        return;
    if (r <= 0) {
        (void)source_set(session, &session->first_process, -1, 0);
        scope_close(&session->live.socket);
        if (r < 0 && r != -ECONNRESET && r != -EAGAIN && !session->why.code)
            err_set(&session->why, ERR_IO, -r, "hear from the sandbox's first process");
        if (session->live.pid > 0)
            live_kill(&session->live, session->run);
    } else if (reply.kind == REPLY_FAILED) {
        if (session->state < SESSION_ENDING)
            take_failure(session, &reply);
    } else if (reply.kind == REPLY_LISTENER && fd_count == 1 && !session->has_listener &&
               (session->run->setup.flags & SETUP_NOTIFY)) {
        session->has_listener = true;
        denials_listen(&session->denials, fds[0]);
        fd_count = 0;
        session_stands(session); /* the filter is the last of its stages */
    } else if (reply.kind == REPLY_NETWORK && session->calls.network &&
               session->state < SESSION_ENDING &&
               fd_count == session->run->setup.port_count + EGRESS_SOCKETS) {
        session->calls.network(session->owner, fds, fd_count);
    } else if (reply.kind == REPLY_SUDO && fd_count == 1) {
        keepers_pass_asker(session, fds[0]);
    } else if (reply.kind == REPLY_HIDDEN && fd_count == 1 && session->hidden < 0) {
        session->hidden = fds[0];
        fd_count = 0;
    }
    for (size_t i = 0; i < fd_count; i++)
        (void)close(fds[i]);
}

void session_places(const struct session *session, char ret[EGRESS_PLACES + 1])
{
    netnames_places(&session->run->setup, ret);
}

const char *session_authority(const struct session *session)
{
    return session->run->authority_key;
}

static void attend_denials(struct session *session)
{
    int r = denials_attend(&session->denials);

    if (r < 0) {
        err_set(&session->why, ERR_IO, -r, "answer a system call of the sandbox");
        session_end_for(session, CARREL_ENDED_SIGNAL);
    }
}

static void attend_limits(struct session *session, bool memory)
{
    static const char *const words[] = {
        [CARREL_ENDED_OOM] = SESSION_OUT_OF_MEMORY,
        [CARREL_ENDED_PIDS] = "--pids: the sandbox kept asking for more processes",
        [CARREL_ENDED_DISK] = "--disk: the sandbox has written more than it may",
    };
    enum carrel_reason reason;

    if (session->state >= SESSION_ENDING && !memory)
        return;
    bool is_reached = limits_watch_check(&session->limits, memory, &reason); /* takes the event */
    if (!is_reached || session->state >= SESSION_ENDING)
        return;
    if (reason < sizeof(words) / sizeof(words[0]) && words[reason])
        err_set(&session->why, ERR_LIMIT, 0, "%s", words[reason]);
    session_end_for(session, reason);
}

static void hear_groups(struct session *session)
{
    uint64_t times;

    ignore(read(session->tell, &times, sizeof(times)) > 0);
    session_hear_late(session);
    keepers_dispatch(session);
}

static void attend_memory(struct exec *exec)
{
    uint64_t times;

    ignore(read(exec->memory.fd, &times, sizeof(times)) > 0);
    if (exec->keeper && exec->keeper->group && group_ran_out_of_memory(exec->keeper->group))
        exec_kill(exec, CARREL_ENDED_OOM);
}

static void hand_out(struct session *session, const struct epoll_event *event)
{
    struct source *source = event->data.ptr;

    if (source->fd < 0)
        return; /* taken away by an earlier one of this batch */
    switch (source->kind) {
    case SOURCE_FIRST_PROCESS:
        hear_first_process(session);
        break;
    case SOURCE_END:
        reap(session);
        break;
    case SOURCE_DENIALS:
        attend_denials(session);
        break;
    case SOURCE_LIMITS:
        attend_limits(session, true);
        break;
    case SOURCE_GROUPS:
        hear_groups(session);
        break;
    case SOURCE_KEEPER:
        keeper_ready(source->of, event->events);
        break;
    case SOURCE_MEMORY:
        attend_memory(source->of);
        break;
    }
}

/* --- by the clock --- */

static void tell_disk(struct session *session)
{
    struct disk_watch *disk = &session->limits.disk;

    disk_watch_idle(disk, session->exec_count == 0);
    disk_watch_follow(disk, session->live.pid);
    for (const struct keeper *k = session->keepers; k; k = k->next)
        disk_watch_trust(disk, k->pid);
}

static void attend_due(struct session *session)
{
    uint64_t now = now_ms();
    struct exec *next;

    if (session->state == SESSION_OVER)
        return;
    if (!session->quiet && limits_watch_due_ms(&session->limits) == 0) {
        tell_disk(session);
        attend_limits(session, false);
        /* Nobody is there to reach one. */
        session->quiet = session->exec_count == 0 && !disk_watch_is_asked(&session->limits.disk);
    }
    for (struct exec *exec = session->execs; exec; exec = next) {
        next = exec->next;
        exec_attend(exec, now);
    }
    if (session->uncounted_ms && session->exec_count == 0 && now >= session->uncounted_ms)
        session_count_refusals(session);
    if (session->ahead_due && now >= session->ahead_ms) {
        session->ahead_due = false;
        keepers_dispatch(session);
    }
    for (const struct keeper *k = session->keepers; k; k = k->next) {
        if (k->state != KEEPER_ASKED || now < k->due_ms)
            continue;
        err_set(&session->why, ERR_IO, 0, "the sandbox's first process does not answer");
        session_end_for(session, CARREL_ENDED_SIGNAL);
        break;
    }
}

/* What nobody can hold an event of any more. */
static void bury(struct session *session)
{
    struct keeper **at = &session->lost;

    while (*at) {
        struct keeper *k = *at;
        if (k->exec) {
            at = &k->next; /* its group is still needed */
            continue;
        }
        *at = k->next;
        keeper_free(k);
    }
    while (session->gone) {
        struct exec *exec = session->gone;
        session->gone = exec->next;
        free(exec->message);
        free(exec);
    }
}

void session_serve(struct session *session)
{
    struct epoll_event events[EVENTS];

    for (int round = 0; round < ROUNDS && session->state != SESSION_OVER; round++) {
        int n = epoll_wait(session->epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++)
            hand_out(session, &events[i]);
        bury(session);
        if (n <= 0)
            break;
        int denials = denials_fd(&session->denials);
        if (session->state != SESSION_OVER && denials != session->denial.fd)
            (void)source_set(session, &session->denial, denials, EPOLLIN);
    }
    attend_due(session);
    bury(session);
}

bool session_disk_left(const struct session *session, uint64_t *ret_bytes, uint64_t *ret_counts)
{
    return disk_watch_left(&session->limits.disk, ret_bytes, ret_counts);
}

void session_count_disk(struct session *session)
{
    disk_watch_ask(&session->limits.disk);
    session->quiet = false;
}

int session_due_ms(const struct session *session)
{
    uint64_t now = now_ms();
    uint64_t due = UINT64_MAX;

    if (session->state == SESSION_OVER)
        return -1;
    int limits = session->quiet ? -1 : limits_watch_due_ms(&session->limits);
    if (limits >= 0 && session->state < SESSION_ENDING)
        due = now + (uint64_t)limits;
    if (session->uncounted_ms && session->exec_count == 0 && session->uncounted_ms < due)
        due = session->uncounted_ms;
    if (session->ahead_due && session->ahead_ms < due)
        due = session->ahead_ms;
    for (const struct exec *exec = session->execs; exec; exec = exec->next) {
        uint64_t one = exec_due_ms(exec);
        due = one < due ? one : due;
    }
    for (const struct keeper *k = session->keepers; k; k = k->next) {
        if (k->state == KEEPER_ASKED && k->due_ms < due && session->state < SESSION_ENDING)
            due = k->due_ms;
    }
    if (due == UINT64_MAX)
        return -1;
    if (due <= now)
        return 0;
    return due - now > 60000 ? 60000 : (int)(due - now);
}

/* --- what else is asked --- */

void session_free(struct session *session)
{
    (void)source_set(session, &session->end, -1, 0);
    live_clear(&session->live);
    if (session->started && session->run->layer_count > 0) {
        scope_close(&session->hidden); /* it lies in the layer of a plan */
        overlay_leave(session->run);   /* now: the next one may be started at once */
    }
    while (session->keepers)
        keeper_lose(session->keepers);
    for (struct keeper *k = session->lost; k; k = k->next) {
        if (k->exec && keeper_has_group(k))
            (void)group_kill(k->group); /* dead by now; only what the kernel still tidies up */
        k->exec = NULL;
    }
    while (session->execs) {
        struct exec *exec = session->execs;
        session->execs = exec->next;
        for (int i = 0; i < 3; i++) {
            scope_close(&exec->fds[i]);
            scope_close(&exec->command_fds[i]);
        }
        exec->next = session->gone;
        session->gone = exec;
    }
    bury(session);
    limits_watch_clear(&session->limits);
    denials_clear(&session->denials);
    groups_close(&session->home, clear_away, session);
}

int session_fd(const struct session *session)
{
    return session->epoll;
}

size_t session_execs(const struct session *session)
{
    return session->exec_count;
}

void session_deny(struct session *session, const struct carrel_denial *denial)
{
    if (session->exec_count > 0 && session->state < SESSION_OVER)
        denials_tell(&session->denials, denial);
}

void *session_exec_of(const struct session *session, uint64_t group, uint64_t at_ms)
{
    const struct exec *found = NULL;

    for (const struct exec *e = session->execs; e; e = e->next) {
        if (exec_group(e) != group)
            continue;
        if (found)
            return NULL;
        found = e;
    }
    /* One that has gone since may have been meant, or have had the group before. */
    if (!found || found->began_us / 1000 > at_ms || (group == 0 && session->gone_ms >= at_ms))
        return NULL;
    return found->owner;
}

int session_pid(const struct session *session)
{
    return session->live.pid;
}

bool session_may_be_joined(const struct session *session, struct session_join *ret)
{
    struct setup *setup = &session->run->setup;

    if (session->state != SESSION_LIVE)
        return false;
    if (setup->filter_length == 0) /* the pool has made it, and nobody kept its filter */
        filter_build(setup, &(struct filter_options){0});
    *ret = (struct session_join){
        .pidfd = session->live.pidfd,
        .hidden = session->hidden,
        .lease = session->run->identity.lease_fd,
        .namespaces =
            CLONE_NEWUSER | (setup->namespaces & (CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC)),
        .uid = setup->uid,
        .gid = setup->gid,
        .filter = setup->filter,
        .filter_length = setup->filter_length};
    return true;
}

double session_cpu_ms(const struct session *session)
{
    double *most = (double *)(uintptr_t)&session->cpu_ms; /* what it was is no part of its state */
    struct process_count count;

    if (session->live.pid <= 0 ||
        process_count_take(session->live.pid, COUNTED_FOR_CPU, &count) < 0)
        return *most;
    double now = (double)(count.user_ms + count.system_ms);
    if (now > *most)
        *most = now;
    else if (count.tasks > COUNTED_FOR_CPU)
        *most += 1; /* too many to count are not idle */
    return *most;
}

bool session_usage(const struct session *session, struct process_count *ret)
{
    return session->live.pid > 0 &&
           process_count_take(session->live.pid, COUNTED_FOR_CPU, ret) == 0;
}

void session_sweep(void)
{
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        scoped_fd int dir = cgroup_choose_v1((enum cgroup_limit)i);
        if (dir >= 0)
            cgroup_sweep(dir); /* on v2 the first sandbox does it */
    }
}
