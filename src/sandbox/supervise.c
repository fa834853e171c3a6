/* SPDX-License-Identifier: Apache-2.0 */
/* Watches over one running sandbox: relays streams, forwards signals, keeps the deadline, the
 * output bound and the other limits (limits.c), answers for what was denied (denial.c), and does
 * not return before the last process has gone.
 *
 *   started --(REPLY_EXITED)--> ended --(pid 1 gone, or left; streams drained)--> done
 *      |--(deadline, output bound, limit, pid 1 gone)--> killed --(the same)--> done
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/command_streams.h"
#include "sandbox/denial/denial.h"
#include "sandbox/limits/limits.h"
#include "sandbox/netnames.h"
#include "sandbox/run.h"
#include "sandbox/start.h"
#include "sandbox/wire.h"
#include "sys/message.h"
#include "sys/process.h"
#include "sys/process_count.h"

#define FLUSH_AFTER_KILL_MS 1000
#define KILLED_AT_MOST      4096 /* processes looked at before they are killed */

struct watch {
    struct run *run;
    struct live live;
    struct command_streams streams;
    uint64_t asked_ms;    /* when the sandbox was last asked to end */
    uint64_t deadline_ms; /* 0: none */
    uint64_t oom_before;
    struct denials denials;
    struct netnames netnames;
    struct limit_watch limits;
    bool out_of_memory; /* of its own limit */
    bool has_terminal;  /* one is all it may send */
    bool has_listener;  /* likewise */
    bool started;       /* pid 1 reported that the command runs */
    bool exited;        /* ... and its end */
    uint64_t refusals;  /* by the kernel, for want of a network, until then */
    int status;
    bool failed; /* pid 1 reported a failure */
    int failed_status;
    struct err failure;
    bool gone; /* pid 1 has been reaped, or left to end by itself: nobody else is there */
    bool may_leave;
    bool quit; /* ... and had ended by itself */
    struct rusage usage;
    struct process_count at_kill;
    int last_signal;
    enum carrel_reason killed_for;
    bool killed;
};

/* Once pid 1 is killed, nobody is told what the others have used and met. */
static void look_before_the_kill(struct watch *w)
{
    ignore(process_count_take(w->live.pid, KILLED_AT_MOST, &w->at_kill) == 0); /* then it is less */
    if (!w->exited)
        w->refusals = refusals_of(&w->denials.run, w->live.pid);
}

static void kill_for(struct watch *w, enum carrel_reason reason)
{
    uint64_t now = now_ms();

    if (!w->killed && !w->exited) {
        w->killed = true;
        w->killed_for = reason;
    }
    /* At level dir the first call asks and the next one forces: give pid 1 time in between. */
    if (w->asked_ms && now - w->asked_ms < FLUSH_AFTER_KILL_MS)
        return;
    if (!w->asked_ms && w->live.pid > 0 && w->run->level == CARREL_LEVEL_NS)
        look_before_the_kill(w);
    w->asked_ms = now;
    live_kill(&w->live, w->run);
}

static void close_fds(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        (void)close(fds[i]);
}

static void take_failure(struct watch *w, const struct reply *reply)
{
    bool known = reply->status == STATUS_NOT_EXECUTABLE || reply->status == STATUS_NOT_FOUND;

    w->failed = true;
    w->failed_status = known ? reply->status : STATUS_CARREL_FAILED;
    w->failure = reply->error;
    w->failure.msg[sizeof(w->failure.msg) - 1] = '\0';
    if (w->failure.code == ERR_NONE || (unsigned)w->failure.code >= ERR_CODE_COUNT_)
        w->failure.code = ERR_IO;
}

static void fail_as(struct watch *w, const struct err *err)
{
    if (!w->failed) {
        w->failed = true;
        w->failed_status = STATUS_CARREL_FAILED;
        w->failure = *err;
    }
    kill_for(w, CARREL_ENDED_SIGNAL);
}

static void fail(struct watch *w, int r, const char *doing)
{
    struct err err;

    err_set(&err, ERR_IO, -r, "%s", doing);
    fail_as(w, &err);
}

/* What pid 1 says cannot be read. That it has gone is no failure of ours. */
static void lose_contact(struct watch *w, int r)
{
    scope_close(&w->live.socket);
    if (r != 0 && r != -ECONNRESET && r != -EAGAIN)
        fail(w, r, "hear from the sandbox's first process");
}

/* Whether pid 1 may be left to its end once nobody else is there: it then only takes the mounts and
 * the other namespaces down. Somebody who goes on, who reaps nobody (in a container pid 1 may be
 * anyone), or who is about to remove a group, a layer or a file system waits for that. */
static bool may_leave(const struct run *run)
{
    const ino_t first_pid_namespace = 0xEFFFFFFC;
    struct stat root;
    struct stat pids;

    if (!run->spec->exits || run->level != CARREL_LEVEL_NS || run->taken || run->layer_count > 0 ||
        run->in_image || run->cgroup.wanted || stat("/", &root) < 0 ||
        stat("/proc/self/ns/pid", &pids) < 0 || pids.st_ino != first_pid_namespace)
        return false;
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        const struct op *op = &run->setup.ops[i];
        if (op->kind == OP_BIND && (op->flags & OP_OWNED) && op->device != root.st_dev)
            return false;
    }
    return true;
}

/* Killed all the same, whatever it says: it is nobody's any more. */
static void leave(struct watch *w, const struct reply *reply)
{
    (void)process_kill(w->live.pidfd);
    w->live.pid = -1;
    w->gone = w->quit = true;
    w->usage.ru_utime.tv_usec = (suseconds_t)reply->cpu_user_us;
    w->usage.ru_stime.tv_usec = (suseconds_t)reply->cpu_system_us;
    w->usage.ru_maxrss = (long)(reply->peak_rss_bytes / 1024);
    w->usage.ru_oublock = (long)(reply->written_bytes / 512);
}

static void take_network(struct watch *w, const int *fds, size_t count)
{
    struct err err = {0};

    if (netnames_serve(&w->netnames, w->run, fds, count, &err) < 0)
        fail_as(w, &err);
}

/* One reply of pid 1. Anything but a whole, expected message ends the sandbox. */
static void take_reply(struct watch *w)
{
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    struct reply reply;
    int r = message_receive_head(w->live.socket, &head, fds);

    if (r <= 0) {
        lose_contact(w, r);
        return;
    }
    r = head.length == sizeof(reply) ? message_read_exactly(w->live.socket, &reply, sizeof(reply))
                                     : -EPROTO;
    if (r < 0) {
        close_fds(fds, head.fd_count);
        lose_contact(w, r);
        return;
    }
    switch (reply.kind) {
    case REPLY_FAILED:
        take_failure(w, &reply);
        break;
    case REPLY_EXITED:
        w->exited = true;
        w->status = reply.status;
        w->refusals = reply.refusals;
        if (reply.empty && w->may_leave && !w->killed)
            leave(w, &reply);
        break;
    case REPLY_TERMINAL:
        if (head.fd_count == 1 && w->run->spec->tty && !w->has_terminal &&
            command_streams_adopt_terminal(&w->streams, fds[0]) == 0) {
            w->has_terminal = true;
            head.fd_count = 0;
        }
        break;
    case REPLY_LISTENER:
        if (head.fd_count == 1 && (w->run->setup.flags & SETUP_NOTIFY) && !w->has_listener) {
            w->has_listener = true;
            denials_listen(&w->denials, fds[0]);
            head.fd_count = 0;
        }
        break;
    case REPLY_NETWORK:
        take_network(w, fds, head.fd_count);
        break;
    case REPLY_STARTED:
        w->started = true;
        break;
    case REPLY_ROOT:   /* there is no record */
    case REPLY_HIDDEN: /* of no use here */
        break;
    default:
        kill_for(w, CARREL_ENDED_SIGNAL);
    }
    close_fds(fds, head.fd_count);
}

/* The first is the command's to handle; the same one again ends the sandbox. */
static void forward_signal(struct watch *w)
{
    struct signalfd_siginfo info;
    int fd = w->run->spec->signal_fd;

    if (read(fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    if (info.ssi_signo == SIGWINCH) {
        if (w->streams.of[OUT].from >= 0 && w->run->spec->tty)
            command_streams_copy_size(&w->streams, w->streams.of[OUT].from);
        return;
    }
    bool ends = info.ssi_signo != SIGUSR1 && info.ssi_signo != SIGUSR2;
    if ((ends && w->last_signal == (int)info.ssi_signo) || w->live.socket < 0) {
        kill_for(w, CARREL_ENDED_SIGNAL);
        return;
    }
    w->last_signal = (int)info.ssi_signo;
    uint32_t number = info.ssi_signo;
    (void)message_send(w->live.socket, MESSAGE_SIGNAL, &number, sizeof(number), NULL, 0);
}

static void reap(struct watch *w)
{
    int status;

    /* A last word may still be in the socket. */
    while (w->live.socket >= 0)
        take_reply(w);
    pid_t reaped = wait4(w->live.pid, &status, WNOHANG, &w->usage);
    /* No child: the caller's own SIGCHLD handling has reaped it, and its usage is lost. */
    if (reaped != w->live.pid && !(reaped < 0 && errno == ECHILD))
        return;
    w->quit = reaped > 0 && WIFEXITED(status);
    w->live.pid = -1;
    w->gone = true;
}

struct poll_set {
    struct pollfd fds[6 + 2 * STREAMS];
    nfds_t n;
};

static void add_poll(struct poll_set *set, int fd, short events)
{
    if (fd >= 0)
        set->fds[set->n++] = (struct pollfd){.fd = fd, .events = events};
}

static bool ready(const struct poll_set *set, int fd, short events)
{
    for (nfds_t i = 0; fd >= 0 && i < set->n; i++) {
        if (set->fds[i].fd == fd && set->fds[i].events == events && set->fds[i].revents)
            return true;
    }
    return false;
}

static void fill_poll_set(struct watch *w, struct poll_set *set)
{
    set->n = 0;
    if (!w->gone) {
        add_poll(set, w->live.socket, POLLIN);
        add_poll(set, w->live.pidfd, POLLIN);
        add_poll(set, denials_fd(&w->denials), POLLIN);
        add_poll(set, limits_watch_fd(&w->limits), POLLIN);
        add_poll(set, w->netnames.socket, POLLIN);
    }
    if (w->run->spec->signal_fd > 0)
        add_poll(set, w->run->spec->signal_fd, POLLIN);
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &w->streams.of[i];
        if (i == IN && w->gone)
            continue;
        if (stream_wants_read(s))
            add_poll(set, s->from, POLLIN);
        if (stream_wants_write(s))
            add_poll(set, s->to, POLLOUT);
    }
}

/* End of input: a pipe is closed, a terminal is told with its end-of-file character. */
static void end_input(struct watch *w)
{
    struct stream *in = &w->streams.of[IN];

    if (in->to < 0 || !stream_is_done(in))
        return;
    if (w->run->spec->tty)
        ignore(write(in->to, "\004", 1) == 1); /* nobody there to read it: nothing lost */
    if (in->own_to)
        (void)close(in->to);
    in->to = -1;
}

/* Errors have a stream of their own, or go where the output goes. */
static bool carries_errors(const struct watch *w, int which)
{
    return which == ERR || (which == OUT && w->streams.errors_in_output);
}

/* Reads, and lets whoever looks for denials see what came. */
static void read_stream(struct watch *w, int which, struct budget *budget)
{
    struct stream *s = &w->streams.of[which];
    size_t captured = s->captured.n;

    stream_read(s, budget, w->gone);
    if (!carries_errors(w, which))
        return;
    if (s->capturing && !s->captured.failed && s->captured.n > captured)
        denials_scan(&w->denials, s->captured.p + captured, s->captured.n - captured);
    else if (!s->capturing && s->at == 0 && s->n > 0)
        denials_scan(&w->denials, s->data, s->n);
}

static void move_streams(struct watch *w, const struct poll_set *set)
{
    for (int i = 0; i < STREAMS; i++) {
        struct stream *s = &w->streams.of[i];
        struct budget *budget = i != IN && w->streams.bounded ? &w->streams.budget : NULL;
        if (i == IN && w->gone)
            continue;
        /* Once pid 1 has gone nobody writes any more: what is in the pipe is all there will be. */
        if (stream_wants_read(s) && (w->gone || ready(set, s->from, POLLIN)))
            read_stream(w, i, budget);
        if (stream_wants_write(s) && ready(set, s->to, POLLOUT))
            stream_write(s);
    }
    end_input(w);
    if (w->streams.budget.exceeded && !w->gone)
        kill_for(w, CARREL_ENDED_OUTPUT);
}

static bool is_over(const struct watch *w)
{
    return w->gone && stream_is_done(&w->streams.of[OUT]) && stream_is_done(&w->streams.of[ERR]);
}

/* -1: wait for ever. A reader who never reads cannot hold a run past its deadline. */
static int wait_ms(const struct watch *w)
{
    uint64_t now = now_ms();
    uint64_t until = w->deadline_ms;
    int limits = w->gone ? -1 : limits_watch_due_ms(&w->limits);

    if (w->gone &&
        (stream_wants_read(&w->streams.of[OUT]) || stream_wants_read(&w->streams.of[ERR])))
        return 0;
    if (!until)
        return limits;
    if (now >= until)
        until = now + FLUSH_AFTER_KILL_MS / 4;
    int deadline = until - now > 60000 ? 60000 : (int)(until - now) + 1;
    return limits >= 0 && limits < deadline ? limits : deadline;
}

static bool past(const struct watch *w, uint64_t grace_ms)
{
    return w->deadline_ms && now_ms() >= w->deadline_ms && now_ms() - w->deadline_ms >= grace_ms;
}

/* The limits that others keep, and what was denied. */
static void look_after(struct watch *w, const struct poll_set *set)
{
    enum carrel_reason reason;
    struct err err = {0};
    bool memory = ready(set, limits_watch_fd(&w->limits), POLLIN);

    int r = ready(set, denials_fd(&w->denials), POLLIN) ? denials_attend(&w->denials) : 0;
    if (r < 0)
        fail(w, r, "answer a system call of the sandbox");
    if (ready(set, w->netnames.socket, POLLIN) &&
        netnames_hear(&w->netnames, &w->denials, &err) < 0)
        fail_as(w, &err);
    if ((memory || limits_watch_due_ms(&w->limits) == 0) &&
        limits_watch_check(&w->limits, memory, &reason))
        kill_for(w, reason);
}

/* Fails only where we cannot see any more what happens: the sandbox then ends with us. */
static int watch_to_the_end(struct watch *w, struct err *err)
{
    struct poll_set set;

    while (!is_over(w)) {
        fill_poll_set(w, &set);
        if (poll(set.fds, set.n, wait_ms(w)) < 0 && errno != EINTR)
            return err_set(err, ERR_LIMIT, errno, "watch the sandbox, which has been ended");
        if (ready(&set, w->live.socket, POLLIN))
            take_reply(w);
        if (w->run->spec->signal_fd > 0 && ready(&set, w->run->spec->signal_fd, POLLIN))
            forward_signal(w);
        if (!w->gone)
            look_after(w, &set);
        if (!w->gone && ready(&set, w->live.pidfd, POLLIN))
            reap(w);
        move_streams(w, &set);
        if (past(w, 0) && !w->gone)
            kill_for(w, CARREL_ENDED_TIMEOUT);
        if (w->gone && past(w, FLUSH_AFTER_KILL_MS))
            break;
    }
    return 0;
}

static double milliseconds(struct timeval t)
{
    return (double)t.tv_sec * 1000 + (double)t.tv_usec / 1000;
}

static void tell_reason(struct watch *w, struct carrel_result *ret)
{
    bool beyond_disk = ret->usage.overshoot_bytes > 0;

    if (!w->killed && (w->streams.budget.exceeded || w->out_of_memory || beyond_disk)) {
        w->killed = true; /* the command ended before it could be ended */
        w->killed_for = w->out_of_memory ? CARREL_ENDED_OOM
                        : beyond_disk    ? CARREL_ENDED_DISK
                                         : CARREL_ENDED_OUTPUT;
    }
    if (w->killed) {
        ret->reason = w->killed_for;
        ret->signal = SIGKILL;
        ret->exit_code = limits_status(w->killed_for);
        if (!ret->exit_code)
            ret->exit_code = STATUS_SIGNAL_BASE + SIGKILL;
    } else if (w->exited && WIFEXITED(w->status)) {
        ret->exit_code = WEXITSTATUS(w->status);
    } else {
        ret->reason = CARREL_ENDED_SIGNAL;
        ret->signal = w->exited ? WTERMSIG(w->status) : SIGKILL;
        ret->exit_code = STATUS_SIGNAL_BASE + ret->signal;
        if (ret->signal == SIGKILL && limits_oom_kills() > w->oom_before)
            ret->reason = CARREL_ENDED_OOM;
    }
}

/* What only some runs are asked to count is unknown in the others. */
static void tell_usage(struct watch *w, struct carrel_result *ret)
{
    ret->usage.cpu_user_ms = milliseconds(w->usage.ru_utime);
    ret->usage.cpu_system_ms = milliseconds(w->usage.ru_stime);
    ret->usage.peak_rss_bytes = (uint64_t)w->usage.ru_maxrss * 1024;
    if ((double)w->at_kill.user_ms > ret->usage.cpu_user_ms)
        ret->usage.cpu_user_ms = (double)w->at_kill.user_ms;
    if ((double)w->at_kill.system_ms > ret->usage.cpu_system_ms)
        ret->usage.cpu_system_ms = (double)w->at_kill.system_ms;
    if (w->at_kill.peak_rss_bytes > ret->usage.peak_rss_bytes)
        ret->usage.peak_rss_bytes = w->at_kill.peak_rss_bytes;
    ret->usage.written_bytes = (uint64_t)w->usage.ru_oublock * 512;
    if (w->at_kill.written_bytes > ret->usage.written_bytes)
        ret->usage.written_bytes = w->at_kill.written_bytes;
    ret->usage.peak_memory_bytes = CARREL_UNKNOWN;
    ret->usage.processes = CARREL_UNKNOWN;
    ret->usage.added_bytes = CARREL_UNKNOWN;
    ret->usage.overshoot_bytes = 0;
    w->out_of_memory = limits_watch_end(&w->limits, ret);
}

static void hand_over(struct stream *s, char **ret_bytes, size_t *ret_size)
{
    if (!s->capturing || buf_done(&s->captured) < 0)
        return;
    *ret_bytes = s->captured.p;
    *ret_size = s->captured.n;
    s->captured = (struct buf){0};
}

static int conclude(struct watch *w, struct carrel_result *ret, struct err *err)
{
    ret->level = w->run->level;
    tell_usage(w, ret);
    if (w->failed && w->failed_status == STATUS_CARREL_FAILED) {
        *err = w->failure;
        return -1;
    }
    if (w->failed) {
        ret->exit_code = w->failed_status;
        err_text(&w->failure, ret->note, sizeof(ret->note));
    } else if (!w->exited && !w->started && w->out_of_memory) {
        return err_set(err, ERR_LIMIT, 0, "--memory: the sandbox could not be made in so little");
    } else if (!w->exited && !w->killed && !w->started) {
        return live_explain_death(&w->live, err);
    } else if (!w->exited && !w->killed && w->quit) {
        return err_set(err, ERR_IO, 0,
                       "the sandbox's first process ended without a word on how the command did");
    } else {
        tell_reason(w, ret);
    }
    for (int i = OUT; i < STREAMS; i++) {
        if (w->streams.of[i].write_errno)
            return err_set(
                err, ERR_IO, w->streams.of[i].write_errno,
                "standard %s cannot be written, and what the command wrote there is lost",
                i == OUT ? "output" : "error");
    }
    ret->truncated = w->streams.budget.exceeded;
    netnames_end(&w->netnames, &w->denials);
    denials_add_refusals(&w->denials, w->refusals);
    denials_take(&w->denials, ret);
    hand_over(&w->streams.of[OUT], &ret->out, &ret->out_size);
    hand_over(&w->streams.of[ERR], &ret->err, &ret->err_size);
    return 0;
}

static void watch_clear(struct watch *w)
{
    command_streams_clear(&w->streams);
    live_clear(&w->live);
    limits_watch_clear(&w->limits);
    netnames_clear(&w->netnames);
    denials_clear(&w->denials);
}

static int start_and_watch(struct watch *w, struct carrel_result *ret, struct err *err)
{
    uint64_t timeout_ms = w->run->spec->timeout_ms;
    struct timespec began;
    struct timespec ended;

    clock_gettime(CLOCK_MONOTONIC, &began);
    if (timeout_ms && __builtin_add_overflow(now_ms(), timeout_ms, &w->deadline_ms))
        w->deadline_ms = UINT64_MAX;
    if (command_streams_open(&w->streams, w->run->spec, err) < 0 ||
        live_start(&w->live, w->run, err) < 0 || netnames_start(&w->netnames, w->run, err) < 0)
        return -1;
    w->oom_before = limits_oom_kills(); /* while pid 1 builds */
    w->may_leave = may_leave(w->run);
    if (limits_watch_begin(&w->limits, run_view_of(w->run), w->live.pid, err) < 0)
        return -1;
    command_streams_give(&w->streams, &w->run->identity);
    if (live_command(&w->live, w->run, w->streams.fds, err) < 0)
        return -1;
    command_streams_close(&w->streams);
    if (fcntl(w->live.socket, F_SETFL, O_NONBLOCK) < 0)
        return err_set(err, ERR_IO, errno, "watch the sandbox");
    if (watch_to_the_end(w, err) < 0)
        return -1;
    command_streams_return_input(&w->streams);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    ret->duration_ms = (double)(ended.tv_sec - began.tv_sec) * 1000 +
                       (double)(ended.tv_nsec - began.tv_nsec) / 1e6;
    return conclude(w, ret, err);
}

/* Of zeroed memory: the buffers of the streams are large, and most of them never touched. */
static void watch_init(struct watch *w, struct run *run, struct live *early)
{
    w->run = run;
    command_streams_init(&w->streams);
    denials_init(&w->denials, run_view_of(run));
    netnames_init(&w->netnames);
    limits_watch_init(&w->limits, run_view_of(run), denials_add_limit, &w->denials);
    w->live = *early;
    live_init(early);
}

int supervise(struct run *run, struct live *early, struct carrel_result *ret, struct err *err)
{
    struct watch *w = calloc(1, sizeof(*w));

    if (!w)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    watch_init(w, run, early);
    int r = start_and_watch(w, ret, err);
    watch_clear(w);
    free(w);
    return r;
}
