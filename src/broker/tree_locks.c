/* SPDX-License-Identifier: Apache-2.0 */
/* Who may use a workspace's tree. A sandbox that lives shares it with others, whether it writes to
 * the tree or, as a plan's, only reads below its layer. What changes the tree as a whole (a plan
 * that is applied or undone, a snapshot, a template) has it alone: it asks, those that do nothing
 * are put to sleep, and what comes meanwhile waits, for a while. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/requests.h"
#include "broker/sandboxes.h"
#include "broker/tree_locks.h"
#include "sys/message.h"

enum {
    MOST_WAITING = 64, /* requests, for one workspace */
    WAIT_MS = 30000,
    LOOK_MS = 500,
    MOST_NAMED = 5, /* commands that are in the way */
};

/* A request that is looked at again when the workspace is free. */
struct waiting {
    struct waiting *next;
    uint64_t tag;
    uint64_t generation;
    uint64_t due_ms;
    uint32_t kind;
    char workspace[PROTOCOL_ID + 1];
    char shown[PROTOCOL_ID + 1];
    size_t n;
    char bytes[];
};

struct tree_lock {
    struct tree_lock *next;
    struct broker *broker;
    char workspace[PROTOCOL_ID + 1];
    const void *holder;
    enum lock_use use;
    struct waiting *waiting;
    size_t count;
    struct timer timer;
};

/* What it is done for, and why a sandbox ends for it: for people, and for the record. */
static const struct {
    const char *now;
    const char *ends;
} uses_of[] = {
    [LOCK_PLAN] = {"a plan is being applied to the workspace",
                   "a plan is applied to its workspace"},
    [LOCK_FREEZE] = {"the workspace is becoming a template", "its workspace becomes a template"},
    [LOCK_FILL] = {"the workspace is given its template's files",
                   "its workspace is given its template's files"},
    [LOCK_SNAPSHOT] = {"a snapshot of the workspace is being made",
                       "a snapshot of its workspace is made, on a host without a freezer"},
    [LOCK_RESET] = {"the workspace's system is being reset", "its workspace's system is reset"},
};

static struct tree_lock *find(const struct broker *b, const char *workspace)
{
    struct tree_lock *lock = b->locks;

    while (lock && strcmp(lock->workspace, workspace) != 0)
        lock = lock->next;
    return lock;
}

bool lock_is_held(const struct broker *b, const char *workspace)
{
    return find(b, workspace) != NULL;
}

static void refuse(struct broker *b, const struct tree_lock *lock, const struct waiting *w)
{
    struct err err;

    err_set(&err, ERR_CONFLICT, EBUSY, "%s, and that takes longer than a request waits",
            uses_of[lock->use].now);
    if (w->generation == b->generation)
        channel_send_error(b, w->tag, &err);
}

/* Those that have waited long enough. */
static void look(struct timer *timer)
{
    struct tree_lock *lock = container_of(timer, struct tree_lock, timer);
    struct broker *b = lock->broker;

    while (lock->waiting && lock->waiting->due_ms <= now_ms()) {
        struct waiting *w = lock->waiting;
        lock->waiting = w->next;
        lock->count--;
        refuse(b, lock, w);
        free(w);
    }
    if (lock->waiting)
        ignore(timer_set(b->events, timer, now_ms() + LOOK_MS) == 0); /* it had its place */
}

int lock_take(struct broker *b, const char *workspace, enum lock_use use, const void *holder,
              struct err *err)
{
    struct tree_lock *lock = find(b, workspace);

    if (lock)
        return lock->holder == holder
                   ? 0
                   : err_set(err, ERR_CONFLICT, EBUSY, "%s; try again", uses_of[lock->use].now);
    lock = calloc(1, sizeof(*lock));
    if (!lock)
        return err_set(err, ERR_LIMIT, ENOMEM, "lock the workspace");
    lock->broker = b;
    lock->holder = holder;
    lock->use = use;
    lock->timer.ring = look;
    snprintf(lock->workspace, sizeof(lock->workspace), "%s", workspace);
    lock->next = b->locks;
    b->locks = lock;
    asleep_end(b, workspace);
    return 0;
}

void lock_pass(struct broker *b, const char *workspace, const void *from, const void *to)
{
    struct tree_lock *lock = find(b, workspace);

    if (lock && lock->holder == from)
        lock->holder = to;
}

void lock_release(struct broker *b, const char *workspace, const void *holder)
{
    struct tree_lock **at = &b->locks;

    while (*at && strcmp((*at)->workspace, workspace) != 0)
        at = &(*at)->next;
    struct tree_lock *lock = *at;
    if (!lock || lock->holder != holder)
        return;
    *at = lock->next;
    timer_stop(b->events, &lock->timer);
    while (lock->waiting) {
        struct waiting *w = lock->waiting;
        lock->waiting = w->next;
        if (w->generation == b->generation && b->resumed)
            request_handle(b, w->kind, w->bytes, w->n); /* it may be locked again by then */
        free(w);
    }
    free(lock);
}

static void refuse_of(struct tree_lock *lock, const char *workspace, const struct err *err)
{
    struct waiting **at = &lock->waiting;

    while (*at) {
        struct waiting *w = *at;
        if (strcmp(w->workspace, workspace) != 0 && strcmp(w->shown, workspace) != 0) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        lock->count--;
        if (w->generation == lock->broker->generation)
            channel_send_error(lock->broker, w->tag, err);
        free(w);
    }
}

void lock_refuse(struct broker *b, const char *workspace, const char *why)
{
    struct err err;

    err_set(&err, ERR_CONFLICT, 0, "%s; try again", why);
    for (struct tree_lock *lock = b->locks; lock; lock = lock->next)
        refuse_of(lock, workspace, &err);
}

static int keep(struct tree_lock *lock, uint32_t kind, const struct exec_message *m, uint64_t tag,
                struct err *err)
{
    scoped_buf struct buf message;
    struct waiting **last = &lock->waiting;

    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_exec(&message, tag, m);
    struct waiting *w = lock->count < MOST_WAITING && buf_done(&message) == 0
                            ? malloc(sizeof(*w) + message.n)
                            : NULL;
    if (!w)
        return err_set(err, ERR_CONFLICT, EBUSY, "%s, and too many requests wait",
                       uses_of[lock->use].now);
    *w = (struct waiting){.tag = tag,
                          .generation = lock->broker->generation,
                          .due_ms = now_ms() + WAIT_MS,
                          .kind = kind,
                          .n = message.n};
    snprintf(w->workspace, sizeof(w->workspace), "%s", m->workspace);
    snprintf(w->shown, sizeof(w->shown), "%s", protocol_shown(&m->spec));
    memcpy(w->bytes, message.p, message.n);
    while (*last)
        last = &(*last)->next;
    *last = w;
    lock->count++;
    if (!lock->timer.due_ms)
        ignore(timer_set(lock->broker->events, &lock->timer, now_ms() + LOOK_MS) == 0);
    return 1;
}

/* Its own workspace, or the one whose tree it shows. */
int lock_defer(struct broker *b, uint32_t kind, const struct exec_message *m, uint64_t tag,
               struct err *err)
{
    struct tree_lock *lock = find(b, m->workspace);

    if (!lock)
        lock = find(b, protocol_shown(&m->spec)); /* "" is nobody's name */
    return lock ? keep(lock, kind, m, tag, err) : 0;
}

/* The commands of a sandbox that are in the way, by their ids. */
static size_t name_commands(const struct broker *b, const struct sandbox *s, struct buf *names,
                            size_t named)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct broker_exec *e = b->execs[i]; e; e = e->next) {
            if (e->sandbox != s || !e->exec)
                continue;
            if (named < MOST_NAMED)
                buf_printf(names, "%s%s", named ? ", " : "", e->id);
            named++;
        }
    }
    return named;
}

/* 0: all that use it are ending or do nothing; -1: commands run, which `err` names. */
static int check_commands(const struct broker *b, const char *workspace, struct err *err)
{
    scoped_buf struct buf names;
    size_t named = 0;

    buf_init(&names, 4096);
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (sandbox_shows(s, workspace) && !s->over && !s->ending &&
                session_execs(s->session) > 0)
                named = name_commands(b, s, &names, named);
        }
    }
    if (named == 0)
        return 0;
    return err_set(err, ERR_CONFLICT, EBUSY,
                   "%zu command%s of the workspace run%s, or left processes behind (%s%s); end "
                   "them first",
                   named, named == 1 ? "" : "s", named == 1 ? "s" : "",
                   buf_done(&names) == 0 ? names.p : "", named > MOST_NAMED ? ", ..." : "");
}

/* Whether a call on its files is under way; the sandbox would take it along. */
static bool has_file_calls(const struct broker *b, const char *workspace)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (sandbox_shows(s, workspace) && files_under_way(s))
                return true;
        }
    }
    return false;
}

int lock_settle(struct broker *b, const char *workspace, bool patient, struct err *err)
{
    const struct tree_lock *lock = find(b, workspace);
    enum lock_use use = lock ? lock->use : LOCK_PLAN;
    bool left = files_are_leaving(b, workspace, UINT64_MAX) || asleep_is_read(b, workspace);

    if (check_commands(b, workspace, err) < 0)
        return -1;
    if (patient && has_file_calls(b, workspace))
        return 1; /* they are short */
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (!sandbox_shows(s, workspace))
                continue;
            sandbox_end(s, uses_of[use].ends);
            left = true;
        }
    }
    if (left && !patient)
        files_end_leaving(b, workspace);
    return left;
}
