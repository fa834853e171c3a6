/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of a command's end. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/session/internal.h"

uint64_t exec_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* --- denials: those seen while a command ran are its own, and everybody's who ran then --- */

void exec_mark_denials(struct exec *exec)
{
    struct session *session = exec->session;
    struct denial_mark *mark = &exec->mark;
    struct denials *d = &session->denials;

    pthread_mutex_lock(&d->lock);
    if (session->exec_count == 0) { /* nobody needs the old ones any more */
        d->count = 0;
        d->dropped = 0;
    }
    mark->blind = session->uncounted_ms != 0;
    mark->count = d->count;
    mark->dropped = d->dropped;
    for (size_t i = 0; i < d->count; i++)
        mark->counts[i] = d->list[i].count;
    pthread_mutex_unlock(&d->lock);
}

/* What the kernel has refused since it was last asked. Asking takes time: a command that ended well
 * does not wait for it, and what it met is counted when nothing runs, as nobody's. */
static uint64_t new_refusals(struct session *session)
{
    uint64_t before = session->refusals;
    uint64_t now = refusals_of(&session->denials.run, session->live.pid);

    session->refusals = now > before ? now : before;
    return session->refusals - before;
}

void session_count_refusals(struct session *session)
{
    (void)new_refusals(session);
    session->uncounted_ms = 0;
}

static void add_refusals(struct exec *exec, const struct carrel_result *result)
{
    struct session *session = exec->session;

    if (session->run->net == CARREL_NET_HOST || session->live.pid <= 0)
        return;
    if (result->exit_code == 0 || exec->mark.blind)
        session->uncounted_ms = now_ms() + COUNT_AFTER_MS;
    else
        denials_add_refusals(&session->denials, new_refusals(session));
}

static void take_denials(struct session *session, const struct denial_mark *mark,
                         struct carrel_result *ret)
{
    struct denials *d = &session->denials;

    pthread_mutex_lock(&d->lock);
    ret->denials_dropped = d->dropped - mark->dropped;
    if (d->count > 0)
        ret->denials = calloc(d->count, sizeof(*ret->denials));
    for (size_t i = 0; ret->denials && i < d->count; i++) {
        unsigned before = i < mark->count ? mark->counts[i] : 0;
        if (d->list[i].count == before)
            continue;
        ret->denials[ret->denial_count] = d->list[i];
        ret->denials[ret->denial_count++].count -= before;
    }
    pthread_mutex_unlock(&d->lock);
}

/* --- what is told of an end --- */

static void tell_usage(const struct exec *exec, const struct reply *reply,
                       struct carrel_usage *usage)
{
    const struct keeper *k = exec->keeper;
    const struct process_count *count = &exec->at_kill;

    *usage = (struct carrel_usage){.peak_memory_bytes = CARREL_UNKNOWN,
                                   .processes = CARREL_UNKNOWN,
                                   .added_bytes = CARREL_UNKNOWN};
    if (reply) {
        usage->cpu_user_ms = (double)reply->cpu_user_us / 1000;
        usage->cpu_system_ms = (double)reply->cpu_system_us / 1000;
        usage->peak_rss_bytes = reply->peak_rss_bytes;
        usage->written_bytes = reply->written_bytes;
    } else if (exec->killed && k) { /* what its keeper has seen before is not this one's */
        double user = (double)count->user_ms - k->spent_user_ms;
        double kernel = (double)count->system_ms - k->spent_system_ms;
        usage->cpu_user_ms = user > 0 ? user : 0;
        usage->cpu_system_ms = kernel > 0 ? kernel : 0;
        usage->peak_rss_bytes = count->peak_rss_bytes;
        usage->written_bytes = count->written_bytes;
    }
}

bool exec_ran_out_of_memory(const struct exec *exec)
{
    const struct keeper *k = exec->keeper;

    return (exec->limited && k && k->group && group_ran_out_of_memory(k->group)) ||
           cgroup_ran_out_of_memory(&exec->session->run->cgroup);
}

static void tell_reason(struct exec *exec, const struct reply *reply, struct carrel_result *ret)
{
    if (exec->failed) {
        ret->exit_code = exec->failed_status;
        err_text(&exec->failure, ret->note, sizeof(ret->note));
    } else if (exec->killed) {
        ret->reason = exec->reason;
        ret->signal = SIGKILL;
        ret->exit_code = limits_status(exec->reason);
        if (!ret->exit_code)
            ret->exit_code = STATUS_SIGNAL_BASE + SIGKILL;
    } else if (exec->limited && reply && WIFEXITED(reply->status) && exec_ran_out_of_memory(exec)) {
        ret->reason = CARREL_ENDED_OOM; /* it ended before it could be ended */
        ret->signal = SIGKILL;
        ret->exit_code = STATUS_MEMORY_LIMIT;
    } else if (reply && WIFEXITED(reply->status)) {
        ret->exit_code = WEXITSTATUS(reply->status);
    } else {
        ret->reason = CARREL_ENDED_SIGNAL;
        ret->signal = reply ? WTERMSIG(reply->status) : SIGKILL;
        ret->exit_code = STATUS_SIGNAL_BASE + ret->signal;
        if (ret->signal == SIGKILL && exec_ran_out_of_memory(exec)) {
            ret->reason = CARREL_ENDED_OOM;
            ret->exit_code = STATUS_MEMORY_LIMIT;
        } else if (ret->signal == SIGKILL && limits_oom_kills() > exec->oom_before) {
            ret->reason = CARREL_ENDED_OOM; /* inferred, as with a run of its own */
        }
    }
    if (exec->session->state >= SESSION_ENDING && exec->killed && exec->session->why.code)
        err_text(&exec->session->why, ret->note, sizeof(ret->note));
}

void exec_tell_end(struct exec *exec, const struct reply *reply)
{
    struct session *session = exec->session;
    struct carrel_result result = {.level = CARREL_LEVEL_NS};

    if (exec->state >= EXEC_LEFTOVER)
        return;
    exec->state = EXEC_LEFTOVER;
    exec->deadline_ms = exec->due_ms = 0;
    for (int i = 0; i < 3; i++) {
        scope_close(&exec->fds[i]);
        scope_close(&exec->command_fds[i]);
    }
    result.duration_ms = (double)(exec_now_us() - exec->began_us) / 1000;
    tell_usage(exec, reply, &result.usage);
    tell_reason(exec, reply, &result);
    add_refusals(exec, &result);
    if (session->calls.ending)
        session->calls.ending(session->owner);
    take_denials(session, &exec->mark, &result);
    session->calls.ended(exec->owner, exec, &result);
    carrel_result_clear(&result);
}
