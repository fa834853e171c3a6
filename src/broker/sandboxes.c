/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that are awake: a sandbox each, started by the first command, ended when the front
 * says so, when it ends itself, or with the broker. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "broker/channel.h"
#include "broker/chores.h"
#include "broker/egress.h"
#include "broker/execs.h"
#include "broker/files.h"
#include "broker/idle.h"
#include "broker/pause.h"
#include "broker/plans.h"
#include "broker/quiet.h"
#include "broker/record.h"
#include "broker/requests.h"
#include "broker/sandbox_spec.h"
#include "broker/sandboxes.h"
#include "broker/store_mounts.h"
#include "broker/templates.h"
#include "broker/tree_locks.h"
#include "protocol/egress.h"
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
    struct sandbox *s = b->sandboxes[broker_slot(workspace)];

    while (s && (strcmp(s->workspace, workspace) != 0 || strcmp(s->plan, plan) != 0))
        s = s->next;
    return s;
}

struct sandbox *sandbox_find(const struct broker *b, const char *workspace)
{
    return sandbox_find_plan(b, workspace, "");
}

struct sandbox *sandbox_find_any(const struct broker *b, const char *workspace)
{
    struct sandbox *s = b->sandboxes[broker_slot(workspace)];

    while (s && strcmp(s->workspace, workspace) != 0)
        s = s->next;
    return s;
}

void sandbox_rearm(struct sandbox *s)
{
    if (s->over) {
        timer_stop(s->broker->events, &s->timer);
        return;
    }
    int due = session_due_ms(s->session);
    if (due < 0)
        timer_stop(s->broker->events, &s->timer);
    else if (timer_set(s->broker->events, &s->timer, now_ms() + (uint64_t)due) < 0)
        log_error("timer_failed", "workspace", s->workspace, NULL);
}

static void ready(struct watch *watch, uint32_t what)
{
    struct sandbox *s = container_of(watch, struct sandbox, watch);

    (void)what;
    session_serve(s->session);
    files_tell_disk(s);
    sandbox_rearm(s);
}

static void ring(struct timer *timer)
{
    struct sandbox *s = container_of(timer, struct sandbox, timer);

    session_serve(s->session);
    files_tell_disk(s);
    sandbox_rearm(s);
}

static void over(void *owner, const struct err *why)
{
    struct sandbox *s = owner;

    if (!s->ending && why && why->code != ERR_NONE)
        err_text(why, s->why, sizeof(s->why));
    else if (!s->ending)
        snprintf(s->why, sizeof(s->why), "it ended by itself");
    timer_stop(s->broker->events, &s->pause.timer);
    s->over = true;
    s->broker->sweep = true;
}

static void live(void *owner)
{
    files_sandbox_lives(owner);
}

static void network(void *owner, const int *fds, size_t count)
{
    struct sandbox *s = owner;

    s->own_listeners = count - (EGRESS_SOCKETS - 1); /* of the first, one */
    egress_add(s, fds, count);
}

/* A name that was refused is told of before the command that asked for it has ended. */
static void ending(void *owner)
{
    const struct sandbox *s = owner;

    if (s->network.n > 0)
        egress_hear(s->broker);
}

static const struct session_calls calls = {.started = broker_exec_started,
                                           .ended = broker_exec_ended,
                                           .gone = broker_exec_gone,
                                           .live = live,
                                           .network = network,
                                           .ending = ending,
                                           .root = broker_exec_root,
                                           .over = over};

static void free_desk(struct sandbox *s)
{
    if (s->session)
        session_free(s->session);
    egress_drop(s);
    buf_clear(&s->spec);
    buf_clear(&s->network);
    arena_clear(&s->arena);
    free(s);
}

static int start(struct sandbox *s, const struct exec_message *m, struct err *err)
{
    struct broker *b = s->broker;
    struct sandbox_spec spec;

    int r = sandbox_spec_make(b, m, &spec, err);
    if (r == 0)
        r = session_start(&s->session, &spec.spec, &calls, s, err);
    s->cache = spec.cache;
    sandbox_spec_clear(&spec);
    if (r < 0) {
        s->session = NULL;
        return -1;
    }
    s->watch.ready = ready;
    s->timer.ring = ring;
    r = events_watch(b->events, &s->watch, session_fd(s->session), EPOLLIN);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "watch the sandbox");
    return 0;
}

/* How the front knows it: by its workspace, or as that of a plan. */
static const char *name_of(const struct sandbox *s, char name[NAME_ROOM])
{
    snprintf(name, NAME_ROOM, "%s%s", *s->plan ? "plan:" : "", *s->plan ? s->plan : s->workspace);
    return name;
}

void sandbox_deny(struct sandbox *s, const struct carrel_denial *denial)
{
    char name[NAME_ROOM];

    if (s->over || !s->session)
        return;
    session_deny(s->session, denial);
    if (s->broker->resumed && !channel_is_behind(s->broker)) /* results have them all the same */
        channel_send_plain(s->broker, EVENT_DENIED, 0,
                           &(struct plain_message){
                               .texts = {name_of(s, name), denial->what, denial->rule, denial->fix},
                               .number = denial->count});
}

void sandbox_tell(const struct sandbox *s, uint32_t kind, uint64_t tag)
{
    char memory[24];
    char pids[24];
    char name[NAME_ROOM];
    struct plain_message m = {.texts = {name_of(s, name), memory, pids, s->workspace},
                              .number = s->since_ms};

    snprintf(memory, sizeof(memory), "%llu", (unsigned long long)s->memory_bytes);
    snprintf(pids, sizeof(pids), "%llu", (unsigned long long)s->pids);
    channel_send_plain(s->broker, kind, tag, &m);
}

static const char *const *copy_list(struct arena *arena, const char *const *list)
{
    size_t n = 0;

    while (list && list[n])
        n++;
    const char **copy = arena_alloc(arena, (n + 1) * sizeof(*copy));
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = arena_copy(arena, list[i], strlen(list[i]));
        if (!copy[i])
            return NULL;
    }
    return copy;
}

static struct sandbox *new_sandbox(struct broker *b, const struct exec_message *m, struct buf *spec,
                                   struct buf *network_of, struct err *err)
{
    struct sandbox *s = calloc(1, sizeof(*s));

    if (!s) {
        err_set(err, ERR_LIMIT, ENOMEM, "keep the sandbox");
        return NULL;
    }
    s->broker = b;
    arena_init(&s->arena, MESSAGE_MAX_BYTES);
    s->stores = copy_list(&s->arena, m->spec.stores);
    s->number = ++b->sandboxes_begun;
    s->watch.fd = s->files_watch.fd = -1;
    s->since_ms = (uint64_t)wall_ms();
    s->memory_bytes = m->spec.limits.memory_bytes;
    s->pids = m->spec.limits.pids;
    s->tmp_exec = m->spec.tmp_exec;
    s->host_net = m->spec.net == CARREL_NET_HOST;
    s->has_image = m->spec.limits.disk_image;
    s->busy_ms = now_ms();
    snprintf(s->workspace, sizeof(s->workspace), "%s", m->workspace);
    snprintf(s->bucket, sizeof(s->bucket), "%s", m->bucket);
    snprintf(s->plan, sizeof(s->plan), "%s", m->plan);
    snprintf(s->shown, sizeof(s->shown), "%s", protocol_shown(&m->spec));
    snprintf(s->template, sizeof(s->template), "%s", m->spec.template);
    s->spec = *spec;
    *spec = (struct buf){.max = spec->max};
    s->network = *network_of;
    *network_of = (struct buf){.max = network_of->max};
    if (!s->stores)
        err_set(err, ERR_LIMIT, ENOMEM, "keep the sandbox");
    if (!s->stores || start(s, m, err) < 0) {
        free_desk(s);
        return NULL;
    }
    struct sandbox **slot = &b->sandboxes[broker_slot(s->workspace)];
    s->next = *slot;
    *slot = s;
    b->sandbox_count++;
    idle_watch(s);
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
        sandbox_tell(s, EVENT_SANDBOX_LIVE, 0);
    return s;
}

int sandbox_put_off(struct sandbox *s, uint32_t kind, struct buf *request, uint64_t tag,
                    const char *shown, struct err *err)
{
    struct deferred **last = &s->deferred;
    struct deferred *kept = s->deferred_count < MOST_DEFERRED && buf_done(request) == 0
                                ? malloc(sizeof(*kept) + request->n)
                                : NULL;

    if (!kept)
        return err_set(err, ERR_LIMIT, 0, "too many commands wait for the workspace's sandbox");
    *kept = (struct deferred){
        .generation = s->broker->generation, .kind = kind, .tag = tag, .n = request->n};
    snprintf(kept->shown, sizeof(kept->shown), "%s", shown);
    memcpy(kept->bytes, request->p, request->n);
    while (*last)
        last = &(*last)->next;
    *last = kept;
    s->deferred_count++;
    return 1;
}

static int defer(struct sandbox *s, uint32_t kind, const struct exec_message *m, uint64_t tag,
                 struct err *err)
{
    scoped_buf struct buf message;

    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_exec(&message, tag, m);
    return sandbox_put_off(s, kind, &message, tag, protocol_shown(&m->spec), err);
}

bool sandbox_shows(const struct sandbox *s, const char *workspace)
{
    return strcmp(s->workspace, workspace) == 0 || strcmp(s->shown, workspace) == 0;
}

void sandbox_refuse_deferred(struct sandbox *s, const char *workspace, const char *why)
{
    struct deferred **at = &s->deferred;
    struct err err;

    err_set(&err, ERR_CONFLICT, 0, "%s; try again", why);
    while (*at) {
        struct deferred *kept = *at;
        if (strcmp(s->workspace, workspace) != 0 && strcmp(kept->shown, workspace) != 0) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        s->deferred_count--;
        if (kept->generation == s->broker->generation)
            channel_send_error(s->broker, kept->tag, &err);
        free(kept);
    }
}

/* In two parts: what a sandbox is made with, and what can be another while it lives. */
static int pack_spec(struct buf *spec, struct buf *network_of, const struct exec_message *m,
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

/* Whether the sandbox is as the spec says, or has become so: rules of the network that lead to
 * the same ports are changed while it lives. What is not allowed any more ends in any case. */
static bool is_within(struct sandbox *s, const struct exec_message *m, const struct buf *spec,
                      struct buf *network_of)
{
    bool same = is_same(&s->spec, spec);
    struct err err;

    if (is_same(&s->network, network_of))
        return same;
    if (egress_check(s->broker, &m->spec, &err) < 0)
        return false;
    bool whole = egress_change(s, &m->spec) && same;
    buf_clear(&s->network);
    if (!whole) { /* like nothing that can be asked for, also not what it was */
        buf_init(&s->network, MESSAGE_MAX_BYTES);
        buf_str(&s->network, "changed");
        return false;
    }
    s->network = *network_of;
    *network_of = (struct buf){.max = network_of->max};
    return true;
}

/* Whatever of the workspace's is awake; what cannot be changed ends with its next command. */
void sandbox_change_network(struct broker *b, const struct exec_message *m)
{
    for (struct sandbox *s = b->sandboxes[broker_slot(m->workspace)]; s; s = s->next) {
        scoped_buf struct buf spec;
        scoped_buf struct buf network_of;
        struct err err;
        buf_init(&spec, MESSAGE_MAX_BYTES);
        buf_init(&network_of, MESSAGE_MAX_BYTES);
        if (strcmp(s->workspace, m->workspace) == 0 && !s->ending && !s->over &&
            pack_spec(&spec, &network_of, m, &err) == 0)
            (void)is_within(s, m, &spec, &network_of);
    }
}

static int find_or_start(struct broker *b, uint32_t kind, const struct exec_message *m,
                         uint64_t tag, struct sandbox **ret, struct err *err)
{
    struct sandbox *s = sandbox_find_plan(b, m->workspace, m->plan);
    scoped_buf struct buf spec;
    scoped_buf struct buf network_of;

    buf_init(&spec, MESSAGE_MAX_BYTES);
    buf_init(&network_of, MESSAGE_MAX_BYTES);
    int locked = lock_defer(b, kind, m, tag, err);
    if (locked != 0)
        return locked;
    if (pack_spec(&spec, &network_of, m, err) < 0)
        return -1;
    if (*m->plan && (plan_is_worked_on(b, m->plan) || chore_has_plan(b, m->plan)))
        return err_set(err, ERR_CONFLICT, 0, "the plan is being closed");
    if (s && (s->ending || s->over))
        return defer(s, kind, m, tag, err);
    if (s && !is_within(s, m, &spec, &network_of)) {
        /* No command ever runs in another sandbox than the one that was asked for. */
        if (session_execs(s->session) > 0)
            return err_set(err, ERR_CONFLICT, 0,
                           "the workspace's sandbox lives with another policy, and commands run in "
                           "it; let it sleep first");
        sandbox_put_to_sleep(s, "the policy changed");
        return defer(s, kind, m, tag, err);
    }
    if (sandbox_spec_check_room(b, kind, m, s == NULL, err) < 0)
        return -1;
    int stores = s ? 0 : store_mounts_await(b, kind, m, tag, err);
    if (stores != 0)
        return stores;
    if (s && kind == REQUEST_EXEC)
        pause_end(s);
    if (!s)
        s = new_sandbox(b, m, &spec, &network_of, err);
    if (!s)
        return -1;
    *ret = s;
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

void sandbox_end(struct sandbox *s, const char *why)
{
    if (s->ending || s->over)
        return;
    pause_end(s); /* who stands still cannot even die, on cgroup v1 */
    snprintf(s->why, sizeof(s->why), "%s", why);
    s->ending = true;
    session_end(s->session, s->why);
    sandbox_rearm(s);
}

void sandbox_put_to_sleep(struct sandbox *s, const char *why)
{
    if (s->ending || s->over)
        return;
    files_put_off(s);
    files_server_end(s); /* first: while nothing is said to end, calls on files may finish */
    sandbox_end(s, why);
}

int sandbox_await_end(struct sandbox *s, uint64_t tag, struct err *err)
{
    struct sleeper *sleeper = malloc(sizeof(*sleeper));

    if (!sleeper)
        return err_set(err, ERR_LIMIT, ENOMEM, "wait for the end of a sandbox");
    *sleeper =
        (struct sleeper){.next = s->sleepers, .tag = tag, .generation = s->broker->generation};
    s->sleepers = sleeper;
    return 0;
}

/* Thousandths of one processor since somebody last asked; the first time since it began. */
static uint64_t usage_rate(struct sandbox *s, double cpu_ms, uint64_t now)
{
    uint64_t since = s->usage_ms ? s->usage_ms : s->since_ms;
    double used = cpu_ms - (s->usage_ms ? s->usage_cpu_ms : 0);
    double passed = now > since ? (double)(now - since) : 1;

    s->usage_ms = now;
    s->usage_cpu_ms = cpu_ms;
    return used > 0 ? (uint64_t)(used * 1000 / passed) : 0;
}

void sandbox_usage(struct broker *b, const char *workspace, struct buf *numbers)
{
    struct sandbox *s = sandbox_find(b, workspace);
    const char *list[USAGE_NUMBERS + 1] = {NULL};
    char text[USAGE_NUMBERS][24];
    struct process_count count;

    if (s && !s->over && session_usage(s->session, &count)) {
        double cpu_ms = (double)(count.user_ms + count.system_ms);
        const uint64_t all[USAGE_NUMBERS] = {s->since_ms, (uint64_t)cpu_ms,
                                             usage_rate(s, cpu_ms, (uint64_t)wall_ms()),
                                             count.rss_bytes, count.tasks};
        for (size_t i = 0; i < USAGE_NUMBERS; i++) {
            snprintf(text[i], sizeof(text[i]), "%llu", (unsigned long long)all[i]);
            list[i] = text[i];
        }
    }
    pack_list(numbers, list);
}

void sandbox_end_all(struct broker *b, const char *why)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i]; s; s = s->next)
            sandbox_end(s, why);
    }
}

/* With the end of the workspace's last one, of those that were ended for it; who waits, waits for
 * that. */
static void put_staged(struct sandbox *s)
{
    struct sandbox *other = sandbox_find_any(s->broker, s->workspace);
    struct sleeper **last = other ? &other->sleepers : NULL;

    if (!other || !other->puts_staged) {
        sandbox_spec_put_staged(s->broker, s);
        return;
    }
    while (*last)
        last = &(*last)->next;
    *last = s->sleepers;
    s->sleepers = NULL;
}

/* Also when it could not be written: it is over all the same, and the record tries again. Only now
 * the next one may be started, so that the front hears of the end before. */
static void end_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct sandbox *s = container_of(waiter, struct sandbox, end_wait);
    struct sandbox **at = &b->sandboxes[broker_slot(s->workspace)];
    struct deferred *deferred = s->deferred;
    char name[NAME_ROOM];

    (void)written;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    b->sandbox_count--;
    if (s->puts_staged)
        put_staged(s);
    if (b->resumed)
        channel_send_plain(b, EVENT_SANDBOX_ENDED, 0,
                           &(struct plain_message){.texts = {name_of(s, name), s->why}});
    while (s->sleepers) {
        struct sleeper *sleeper = s->sleepers;
        s->sleepers = sleeper->next;
        if (sleeper->generation == b->generation)
            channel_send_ok(b, sleeper->tag);
        free(sleeper);
    }
    free_desk(s);
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

static void record_end(struct sandbox *s)
{
    scoped_buf struct buf details;

    buf_init(&details, 4096);
    buf_str(&details, "{\"why\":");
    record_put_text(&details, s->why, sizeof(s->why));
    buf_str(&details, "}");
    struct audit_record record = {.actor = "broker",
                                  .workspace = s->workspace,
                                  .request = "",
                                  .operation = "sandbox.end",
                                  .result = s->ending ? "ok" : "failed",
                                  .details = buf_done(&details) == 0 ? details.p : ""};
    s->end_wait.done = end_written;
    if (record_note(s->broker, &record, &s->end_wait) < 0)
        end_written(s->broker, &s->end_wait, false);
}

static void clear_away(struct sandbox *s)
{
    struct broker *b = s->broker;

    events_forget(b->events, &s->watch);
    timer_stop(b->events, &s->timer);
    timer_stop(b->events, &s->idle_timer);
    files_server_end(s);
    session_free(s->session);
    s->session = NULL;
    egress_drop(s);
    record_end(s);
}

void sandbox_sweep(struct broker *b)
{
    if (!b->sweep)
        return;
    b->sweep = false;
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i], *next; s; s = next) {
            next = s->next; /* others may be added meanwhile, but at the beginning */
            if (s->over && s->session)
                clear_away(s);
        }
    }
}
