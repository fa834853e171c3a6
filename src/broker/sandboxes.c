/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that are awake: a sandbox each, started by the first command, ended when the front
 * says so, when it ends itself, or with the broker. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "broker/channel.h"
#include "broker/chores.h"
#include "broker/egress.h"
#include "broker/execs.h"
#include "broker/files.h"
#include "broker/idle.h"
#include "broker/log.h"
#include "broker/plans.h"
#include "broker/quiet.h"
#include "broker/record.h"
#include "broker/requests.h"
#include "broker/sandbox_spec.h"
#include "broker/sandboxes.h"
#include "broker/templates.h"
#include "broker/tree_locks.h"
#include "sys/message.h"

enum {
    MOST_DEFERRED = 64, /* commands that wait for one sandbox to end */
    NAME_ROOM = PROTOCOL_ID + 8,
};

/* A request that is looked at again when the sandbox is over. */
struct deferred {
    struct deferred *next;
    uint64_t generation;
    uint32_t kind;
    uint64_t tag;
    char shown[PROTOCOL_ID + 1];
    size_t n;
    char bytes[];
};

struct sleeper {
    struct sleeper *next;
    uint64_t tag;
    uint64_t generation;
};

struct sandbox *sandbox_find_plan(const struct broker *b, const char *workspace, const char *plan)
{
    struct sandbox *d = b->sandboxes[broker_slot(workspace)];

    while (d && (strcmp(d->workspace, workspace) != 0 || strcmp(d->plan, plan) != 0))
        d = d->next;
    return d;
}

struct sandbox *sandbox_find(const struct broker *b, const char *workspace)
{
    return sandbox_find_plan(b, workspace, "");
}

struct sandbox *sandbox_find_any(const struct broker *b, const char *workspace)
{
    struct sandbox *d = b->sandboxes[broker_slot(workspace)];

    while (d && strcmp(d->workspace, workspace) != 0)
        d = d->next;
    return d;
}

void sandbox_rearm(struct sandbox *d)
{
    if (d->over) {
        timer_stop(d->broker->events, &d->timer);
        return;
    }
    int due = session_due_ms(d->session);
    if (due < 0)
        timer_stop(d->broker->events, &d->timer);
    else if (timer_set(d->broker->events, &d->timer, now_ms() + (uint64_t)due) < 0)
        log_error("timer_failed", "workspace", d->workspace, NULL);
}

static void ready(struct watch *watch, uint32_t what)
{
    struct sandbox *d = container_of(watch, struct sandbox, watch);

    (void)what;
    session_serve(d->session);
    files_tell_disk(d);
    sandbox_rearm(d);
}

static void ring(struct timer *timer)
{
    struct sandbox *d = container_of(timer, struct sandbox, timer);

    session_serve(d->session);
    files_tell_disk(d);
    sandbox_rearm(d);
}

static void over(void *owner, const struct err *why)
{
    struct sandbox *d = owner;

    if (!d->ending && why && why->code != ERR_NONE)
        err_text(why, d->why, sizeof(d->why));
    else if (!d->ending)
        snprintf(d->why, sizeof(d->why), "it ended by itself");
    d->over = true;
    d->broker->sweep = true;
}

static void live(void *owner)
{
    files_sandbox_lives(owner);
}

static void network(void *owner, const int *fds, size_t count)
{
    struct sandbox *d = owner;

    d->own_listeners = count - 1; /* one is of datagrams */
    egress_add(d, fds, count);
}

/* A name that was refused is told of before the command that asked for it has ended. */
static void ending(void *owner)
{
    const struct sandbox *d = owner;

    if (d->network.n > 0)
        egress_hear(d->broker);
}

static const struct session_calls calls = {.started = broker_exec_started,
                                           .ended = broker_exec_ended,
                                           .gone = broker_exec_gone,
                                           .live = live,
                                           .network = network,
                                           .ending = ending,
                                           .over = over};

static void free_desk(struct sandbox *d)
{
    if (d->session)
        session_free(d->session);
    egress_drop(d);
    buf_clear(&d->spec);
    buf_clear(&d->network);
    free(d);
}

static int start(struct sandbox *d, const struct exec_message *m, struct err *err)
{
    struct broker *b = d->broker;
    struct sandbox_spec spec;

    int r = sandbox_spec_make(b, m, &spec, err);
    if (r == 0)
        r = session_start(&d->session, &spec.spec, &calls, d, err);
    d->cache = spec.cache;
    sandbox_spec_clear(&spec);
    if (r < 0) {
        d->session = NULL;
        return -1;
    }
    d->watch.ready = ready;
    d->timer.ring = ring;
    r = events_watch(b->events, &d->watch, session_fd(d->session), EPOLLIN);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "watch the sandbox");
    return 0;
}

/* How the front knows it: by its workspace, or as that of a plan. */
static const char *name_of(const struct sandbox *d, char name[NAME_ROOM])
{
    snprintf(name, NAME_ROOM, "%s%s", *d->plan ? "plan:" : "", *d->plan ? d->plan : d->workspace);
    return name;
}

void sandbox_deny(struct sandbox *d, const struct carrel_denial *denial)
{
    char name[NAME_ROOM];

    if (d->over || !d->session)
        return;
    session_deny(d->session, denial);
    if (d->broker->resumed)
        channel_send_plain(d->broker, EVENT_DENIED, 0,
                           &(struct plain_message){
                               .texts = {name_of(d, name), denial->what, denial->rule, denial->fix},
                               .number = denial->count});
}

void sandbox_tell(const struct sandbox *d, uint32_t kind, uint64_t tag)
{
    char memory[24];
    char pids[24];
    char name[NAME_ROOM];
    struct plain_message m = {.texts = {name_of(d, name), memory, pids, d->workspace},
                              .number = d->since_ms};

    snprintf(memory, sizeof(memory), "%llu", (unsigned long long)d->memory_bytes);
    snprintf(pids, sizeof(pids), "%llu", (unsigned long long)d->pids);
    channel_send_plain(d->broker, kind, tag, &m);
}

static struct sandbox *new_sandbox(struct broker *b, const struct exec_message *m, struct buf *spec,
                                   struct buf *network_of, struct err *err)
{
    struct sandbox *d = calloc(1, sizeof(*d));

    if (!d) {
        err_set(err, ERR_LIMIT, ENOMEM, "keep the sandbox");
        return NULL;
    }
    d->broker = b;
    d->number = ++b->sandboxes_begun;
    d->watch.fd = d->files_watch.fd = -1;
    d->since_ms = (uint64_t)wall_ms();
    d->memory_bytes = m->spec.limits.memory_bytes;
    d->pids = m->spec.limits.pids;
    d->tmp_exec = m->spec.tmp_exec;
    d->host_net = m->spec.net == CARREL_NET_HOST;
    d->has_image = m->spec.limits.disk_image;
    d->busy_ms = now_ms();
    snprintf(d->workspace, sizeof(d->workspace), "%s", m->workspace);
    snprintf(d->bucket, sizeof(d->bucket), "%s", m->bucket);
    snprintf(d->plan, sizeof(d->plan), "%s", m->plan);
    snprintf(d->shown, sizeof(d->shown), "%s", protocol_shown(&m->spec));
    snprintf(d->template, sizeof(d->template), "%s", m->spec.template);
    d->spec = *spec;
    *spec = (struct buf){.max = spec->max};
    d->network = *network_of;
    *network_of = (struct buf){.max = network_of->max};
    if (start(d, m, err) < 0) {
        free_desk(d);
        return NULL;
    }
    struct sandbox **slot = &b->sandboxes[broker_slot(d->workspace)];
    d->next = *slot;
    *slot = d;
    b->sandbox_count++;
    idle_watch(d);
    char details[64] = "";
    if (*m->plan)
        snprintf(details, sizeof(details), "{\"plan\":\"%s\"}", m->plan);
    (void)record_note(b,
                      &(struct audit_record){.actor = m->actor,
                                             .workspace = m->workspace,
                                             .request = m->request,
                                             .operation = "sandbox.start",
                                             .result = *m->plan ? "plan" : "ok",
                                             .details = details},
                      NULL);
    if (b->resumed)
        sandbox_tell(d, EVENT_SANDBOX_LIVE, 0);
    return d;
}

int sandbox_put_off(struct sandbox *d, uint32_t kind, struct buf *request, uint64_t tag,
                    const char *shown, struct err *err)
{
    struct deferred **last = &d->deferred;
    struct deferred *kept = d->deferred_count < MOST_DEFERRED && buf_done(request) == 0
                                ? malloc(sizeof(*kept) + request->n)
                                : NULL;

    if (!kept)
        return err_set(err, ERR_LIMIT, 0, "too many commands wait for the workspace's sandbox");
    *kept = (struct deferred){
        .generation = d->broker->generation, .kind = kind, .tag = tag, .n = request->n};
    snprintf(kept->shown, sizeof(kept->shown), "%s", shown);
    memcpy(kept->bytes, request->p, request->n);
    while (*last)
        last = &(*last)->next;
    *last = kept;
    d->deferred_count++;
    return 1;
}

static int defer(struct sandbox *d, uint32_t kind, const struct exec_message *m, uint64_t tag,
                 struct err *err)
{
    scoped_buf struct buf message;

    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_exec(&message, tag, m);
    return sandbox_put_off(d, kind, &message, tag, protocol_shown(&m->spec), err);
}

bool sandbox_shows(const struct sandbox *d, const char *workspace)
{
    return strcmp(d->workspace, workspace) == 0 || strcmp(d->shown, workspace) == 0;
}

void sandbox_refuse_deferred(struct sandbox *d, const char *workspace, const char *why)
{
    struct deferred **at = &d->deferred;
    struct err err;

    err_set(&err, ERR_CONFLICT, 0, "%s; try again", why);
    while (*at) {
        struct deferred *kept = *at;
        if (strcmp(d->workspace, workspace) != 0 && strcmp(kept->shown, workspace) != 0) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        d->deferred_count--;
        if (kept->generation == d->broker->generation)
            channel_send_error(d->broker, kept->tag, &err);
        free(kept);
    }
}

/* In two parts: what a sandbox is made with, and what can be another while it lives. */
static int pack_boundary(struct buf *spec, struct buf *network_of, const struct exec_message *m,
                         struct err *err)
{
    struct exec_message fixed = {.bucket = m->bucket, .spec = m->spec};

    fixed.spec.net_rules = NULL;
    fixed.spec.net_connections = fixed.spec.net_bytes_per_hour = 0;
    protocol_pack_exec(spec, 0, &fixed);
    if (m->spec.net == CARREL_NET_ALLOW)
        egress_pack_network(network_of, &m->spec);
    return buf_done(spec) < 0 || buf_done(network_of) < 0
               ? err_set(err, ERR_LIMIT, ENOMEM, "keep the policy")
               : 0;
}

static bool is_same(const struct buf *a, const struct buf *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

/* Whether the sandbox is as the boundary says, or has become so: rules of the network that lead to
 * the same ports are changed while it lives. What is not allowed any more ends in any case. */
static bool is_within(struct sandbox *d, const struct exec_message *m, const struct buf *spec,
                      struct buf *network_of)
{
    bool same = is_same(&d->spec, spec);
    struct err err;

    if (is_same(&d->network, network_of))
        return same;
    if (egress_check(d->broker, &m->spec, &err) < 0)
        return false;
    bool whole = egress_change(d, &m->spec) && same;
    buf_clear(&d->network);
    if (!whole) { /* like nothing that can be asked for, also not what it was */
        buf_init(&d->network, MESSAGE_MAX_BYTES);
        buf_str(&d->network, "changed");
        return false;
    }
    d->network = *network_of;
    *network_of = (struct buf){.max = network_of->max};
    return true;
}

/* Whatever of the workspace's is awake; what cannot be changed ends with its next command. */
void sandbox_change_network(struct broker *b, const struct exec_message *m)
{
    for (struct sandbox *d = b->sandboxes[broker_slot(m->workspace)]; d; d = d->next) {
        scoped_buf struct buf spec;
        scoped_buf struct buf network_of;
        struct err err;
        buf_init(&spec, MESSAGE_MAX_BYTES);
        buf_init(&network_of, MESSAGE_MAX_BYTES);
        if (strcmp(d->workspace, m->workspace) == 0 && !d->ending && !d->over &&
            pack_boundary(&spec, &network_of, m, &err) == 0)
            (void)is_within(d, m, &spec, &network_of);
    }
}

static int find_or_start(struct broker *b, uint32_t kind, const struct exec_message *m,
                         uint64_t tag, struct sandbox **ret, struct err *err)
{
    struct sandbox *d = sandbox_find_plan(b, m->workspace, m->plan);
    scoped_buf struct buf spec;
    scoped_buf struct buf network_of;

    buf_init(&spec, MESSAGE_MAX_BYTES);
    buf_init(&network_of, MESSAGE_MAX_BYTES);
    int locked = lock_defer(b, kind, m, tag, err);
    if (locked != 0)
        return locked;
    if (pack_boundary(&spec, &network_of, m, err) < 0)
        return -1;
    if (*m->plan && (plan_is_worked_on(b, m->plan) || chore_has_plan(b, m->plan)))
        return err_set(err, ERR_CONFLICT, 0, "the plan is being closed");
    if (d && (d->ending || d->over))
        return defer(d, kind, m, tag, err);
    if (d && !is_within(d, m, &spec, &network_of)) {
        /* No command ever runs in a boundary that is not the one that was asked for. */
        if (session_execs(d->session) > 0)
            return err_set(err, ERR_CONFLICT, 0,
                           "the workspace's sandbox lives with another policy, and commands run in "
                           "it; let it sleep first");
        sandbox_put_to_sleep(d, "the policy changed");
        return defer(d, kind, m, tag, err);
    }
    if (sandbox_spec_check_room(b, kind, m, d == NULL, err) < 0)
        return -1;
    if (!d)
        d = new_sandbox(b, m, &spec, &network_of, err);
    if (!d)
        return -1;
    *ret = d;
    return 0;
}

int sandbox_find_or_start(struct broker *b, uint32_t kind, const struct exec_message *m,
                          uint64_t tag, struct sandbox **ret, struct err *err)
{
    struct exec_message expanded = *m;
    struct arena arena;

    if (m->spec.net != CARREL_NET_ALLOW)
        return find_or_start(b, kind, m, tag, ret, err);
    arena_init(&arena, 8 << 20);
    int r = egress_expand(b, &expanded.spec, &arena, err);
    if (r == 0)
        r = find_or_start(b, kind, &expanded, tag, ret, err);
    arena_clear(&arena);
    return r;
}

void sandbox_end(struct sandbox *d, const char *why)
{
    if (d->ending || d->over)
        return;
    snprintf(d->why, sizeof(d->why), "%s", why);
    d->ending = true;
    session_end(d->session, d->why);
    sandbox_rearm(d);
}

void sandbox_put_to_sleep(struct sandbox *d, const char *why)
{
    if (d->ending || d->over)
        return;
    files_put_off(d);
    files_server_end(d); /* first: while nothing is said to end, calls on files may finish */
    sandbox_end(d, why);
}

int sandbox_await_end(struct sandbox *d, uint64_t tag, struct err *err)
{
    struct sleeper *sleeper = malloc(sizeof(*sleeper));

    if (!sleeper)
        return err_set(err, ERR_LIMIT, ENOMEM, "wait for the end of a sandbox");
    *sleeper =
        (struct sleeper){.next = d->sleepers, .tag = tag, .generation = d->broker->generation};
    d->sleepers = sleeper;
    return 0;
}

void sandbox_end_all(struct broker *b, const char *why)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *d = b->sandboxes[i]; d; d = d->next)
            sandbox_end(d, why);
    }
}

static void unlink_desk(struct sandbox *d)
{
    struct sandbox **at = &d->broker->sandboxes[broker_slot(d->workspace)];

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    d->broker->sandbox_count--;
}

/* With the end of the workspace's last one, of those that were ended for it; who waits, waits for
 * that. */
static void put_staged(struct sandbox *d)
{
    struct sandbox *other = sandbox_find_any(d->broker, d->workspace);
    struct sleeper **last = other ? &other->sleepers : NULL;

    if (!other || !other->puts_staged) {
        sandbox_spec_put_staged(d->broker, d);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = d->sleepers;
    d->sleepers = NULL;
}

/* Also when it could not be written: it is over all the same, and the journal tries again. Only now
 * the next one may be started, so that the front hears of the end before. */
static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct sandbox *d = container_of(waiter, struct sandbox, end_wait);
    struct deferred *deferred = d->deferred;

    char name[NAME_ROOM];

    (void)written;
    unlink_desk(d);
    if (d->puts_staged)
        put_staged(d);
    if (b->resumed)
        channel_send_plain(b, EVENT_SANDBOX_ENDED, 0,
                           &(struct plain_message){.texts = {name_of(d, name), d->why}});
    while (d->sleepers) {
        struct sleeper *sleeper = d->sleepers;
        d->sleepers = sleeper->next;
        if (sleeper->generation == b->generation)
            channel_send_ok(b, sleeper->tag);
        free(sleeper);
    }
    free_desk(d);
    while (deferred) {
        struct deferred *next = deferred->next;
        if (deferred->generation == b->generation && b->resumed)
            request_handle(b, deferred->kind, deferred->bytes, deferred->n);
        free(deferred);
        deferred = next;
    }
    plans_look(b);
    quiet_look(b);
    cache_tidy(b);
}

static void record_end(struct sandbox *d)
{
    scoped_buf struct buf details;

    buf_init(&details, 4096);
    buf_str(&details, "{\"why\":");
    record_put_text(&details, d->why, sizeof(d->why));
    buf_str(&details, "}");
    struct audit_record record = {.actor = "broker",
                                  .workspace = d->workspace,
                                  .request = "",
                                  .operation = "sandbox.end",
                                  .result = d->ending ? "ok" : "failed",
                                  .details = buf_done(&details) == 0 ? details.p : ""};
    d->end_wait.done = end_written;
    if (record_note(d->broker, &record, &d->end_wait) < 0)
        end_written(d->broker, &d->end_wait, false);
}

static void clear_away(struct sandbox *d)
{
    struct broker *b = d->broker;

    events_forget(b->events, &d->watch);
    timer_stop(b->events, &d->timer);
    timer_stop(b->events, &d->idle_timer);
    files_server_end(d);
    session_free(d->session);
    d->session = NULL;
    egress_drop(d);
    record_end(d);
}

void sandbox_sweep(struct broker *b)
{
    if (!b->sweep)
        return;
    b->sweep = false;
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *d = b->sandboxes[i], *next; d; d = next) {
            next = d->next; /* others may be added meanwhile, but at the beginning */
            if (d->over && d->session)
                clear_away(d);
        }
    }
}
