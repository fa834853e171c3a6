/* SPDX-License-Identifier: Apache-2.0 */
/* What the front may ask. A request that is not in the table, not well formed or out of turn ends
 * the front: it has been taken over, or has a flaw. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/pack.h"
#include "broker/bases.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/egress.h"
#include "broker/execs.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/forks.h"
#include "broker/front_process.h"
#include "broker/listen.h"
#include "broker/movers.h"
#include "broker/pause.h"
#include "broker/plans.h"
#include "broker/quiet.h"
#include "broker/record.h"
#include "broker/requests.h"
#include "broker/sandboxes.h"
#include "broker/secrets.h"
#include "broker/templates.h"
#include "broker/trees.h"
#include "broker/watchdog.h"

/* false: it is not one. */
typedef bool handler(struct broker *b, uint64_t tag, const struct plain_message *m);

static void answer_unknown(struct broker *b, uint64_t tag, const char *what)
{
    struct err err;

    err_set(&err, ERR_NOT_FOUND, 0, "no such %s is running", what);
    channel_send_error(b, tag, &err);
}

static bool resume(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    (void)m;
    if (b->resumed || b->resume_tag || tag == 0)
        return false;
    b->resume_tag = tag;
    request_try_resume(b);
    return true;
}

void request_try_resume(struct broker *b)
{
    uint64_t tag = b->resume_tag;

    if (!tag)
        return;
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct broker_exec *e = b->execs[i]; e; e = e->next) {
            if (e->generation != b->generation && broker_exec_is_starting(e))
                return;
        }
    }
    b->resume_tag = 0;
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (!s->over)
                sandbox_tell(s, ANSWER_SANDBOX, tag);
            if (!s->over && s->pause.state == PAUSE_FROZEN)
                pause_tell(s);
        }
        for (struct broker_exec *e = b->execs[i]; e; e = e->next)
            broker_exec_tell(e, tag);
    }
    channel_send_plain(
        b, ANSWER_RESUMED, tag,
        &(struct plain_message){.texts = {b->admin_hash, b->state_named, b->secrets_public}});
    b->resumed = b->socket >= 0;
    if (b->resumed && b->generation == 1)
        listen_welcome(b);
}

static bool handle_signal(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct broker_exec *e = broker_exec_find(b, m->texts[0]);

    if (!protocol_exec_id_is_valid(m->texts[0]) || m->number < 1 || m->number > 64)
        return false;
    if (!e || !e->exec || e->ended) {
        answer_unknown(b, tag, "command");
        return true;
    }
    exec_signal(e->exec, (int)m->number);
    sandbox_rearm(e->sandbox);
    channel_send_ok(b, tag);
    return true;
}

/* The limits that the front minds; all others are seen here, and nobody else may claim them. */
static bool is_the_fronts(uint64_t reason)
{
    return reason == 0 || reason == CARREL_ENDED_SIGNAL || reason == CARREL_ENDED_OUTPUT ||
           reason == CARREL_ENDED_DISK;
}

/* With the reason as its number; 0 is a kill. */
static bool handle_kill(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct broker_exec *e = broker_exec_find(b, m->texts[0]);

    if (!protocol_exec_id_is_valid(m->texts[0]) || !is_the_fronts(m->number))
        return false;
    if (!e || !e->exec) {
        answer_unknown(b, tag, "command");
        return true;
    }
    exec_kill(e->exec, m->number ? (enum carrel_reason)m->number : CARREL_ENDED_SIGNAL);
    sandbox_rearm(e->sandbox);
    channel_send_ok(b, tag);
    return true;
}

/* All of the workspace's, the plans' too; it is told when the first of them is over, or with
 * "staged" the last. */
static bool handle_sleep(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct sandbox *s = sandbox_find(b, m->texts[0]);

    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    asleep_end(b, m->texts[0]);
    files_end_leaving(b, m->texts[0]); /* of sandboxes that went to sleep by themselves */
    if (!s)
        s = sandbox_find_any(b, m->texts[0]);
    if (!s) {
        answer_unknown(b, tag, "sandbox");
        return true;
    }
    struct err err;
    if (sandbox_await_end(s, tag, &err) < 0)
        channel_send_error(b, tag, &err);
    for (struct sandbox *each = b->sandboxes[broker_slot(m->texts[0])]; each; each = each->next) {
        if (strcmp(each->workspace, m->texts[0]) != 0)
            continue;
        each->puts_staged = each->puts_staged || strcmp(m->texts[2], "staged") == 0;
        sandbox_end(each, *m->texts[1] ? m->texts[1] : "asked to");
    }
    return true;
}

static bool handle_forget(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct broker_exec *e = broker_exec_find(b, m->texts[0]);

    (void)tag;
    if (!protocol_exec_id_is_valid(m->texts[0]))
        return false;
    if (e)
        broker_exec_forget(e);
    return true;
}

static bool handle_input_end(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct broker_exec *e = broker_exec_find(b, m->texts[0]);

    (void)tag;
    if (!protocol_exec_id_is_valid(m->texts[0]) || m->number > 1)
        return false;
    if (e)
        broker_exec_end_input(e, m->number == 1);
    return true;
}

static bool handle_pong(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    (void)tag;
    if (m->number == 0 || m->number > b->ping)
        return false;
    watchdog_answered(b, m->number);
    return true;
}

/* Which trees a bucket has, known or not. */
static bool handle_tree_scan(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct buf names;
    struct err err;

    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    buf_init(&names, 2UL << 20);
    pack_u64(&names, tag);
    if (tree_scan(b, m->texts[0], &names, &err) < 0 || buf_done(&names) < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &names, NULL, 0);
    buf_clear(&names);
    return true;
}

static bool handle_tree_points(struct broker *b, char *bytes, size_t n)
{
    scoped_buf struct buf answer;
    struct exec_message m;
    struct arena arena;
    uint64_t tag = 0;
    struct err err;

    buf_init(&answer, 1UL << 20);
    arena_init(&arena, 2 << 20);
    bool good = protocol_unpack_exec(bytes, n, &arena, &tag, &m);
    pack_u64(&answer, tag);
    if (good && tree_points(b, &m, &answer, &err) < 0)
        channel_send_error(b, tag, &err);
    else if (good)
        channel_send(b, ANSWER_NAMES, &answer, NULL, 0);
    arena_clear(&arena);
    return good;
}

struct tree_request {
    void (*handle)(struct broker *b, uint64_t tag, const struct plain_message *m);
    bool has_stamp;
};

static bool handle_tree(struct broker *b, uint64_t tag, const struct plain_message *m,
                        const struct tree_request *request)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]) ||
        (request->has_stamp && !protocol_id_is_valid(m->texts[2])))
        return false;
    request->handle(b, tag, m);
    return true;
}

static bool handle_exec(struct broker *b, char *bytes, size_t n)
{
    struct exec_message m;
    struct arena arena;
    uint64_t tag = 0;

    arena_init(&arena, 2 << 20);
    bool good = protocol_unpack_exec(bytes, n, &arena, &tag, &m) && !broker_exec_find(b, m.exec);
    if (good)
        broker_exec_request(b, tag, &m);
    arena_clear(&arena);
    return good;
}

/* What is asked of a workspace's sandbox, with all that it may need to be started. */
static bool ask_sandbox(struct broker *b, char *bytes, size_t n,
                        void (*ask)(struct broker *, uint64_t, const struct exec_message *))
{
    struct exec_message m;
    struct arena arena;
    uint64_t tag = 0;

    arena_init(&arena, 2 << 20);
    bool good = protocol_unpack_exec(bytes, n, &arena, &tag, &m);
    if (good)
        ask(b, tag, &m);
    arena_clear(&arena);
    return good;
}

static bool handle_files(struct broker *b, char *bytes, size_t n)
{
    return ask_sandbox(b, bytes, n, files_request);
}

static bool handle_network(struct broker *b, char *bytes, size_t n)
{
    return ask_sandbox(b, bytes, n, egress_request);
}

static bool handle_files_asleep(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]))
        return false;
    asleep_request(b, tag, m);
    return true;
}

static bool handle_plan_job(struct broker *b, char *bytes, size_t n)
{
    struct plan_message m;
    uint64_t tag = 0;

    if (!protocol_unpack_plan(bytes, n, &tag, &m) || tag == 0)
        return false;
    plan_request(b, tag, &m);
    return true;
}

static bool handle_plan_cancel(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    (void)tag;
    plan_request_cancel(b, m->number);
    return true;
}

static bool handle_plan_drop(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]) ||
        !protocol_plan_id_is_valid(m->texts[2]))
        return false;
    tree_drop_plan(b, tag, m);
    return true;
}

static bool handle_plan_view(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]) ||
        !protocol_plan_id_is_valid(m->texts[2]) || !protocol_plan_id_is_valid(m->texts[3]))
        return false;
    tree_copy_plan(b, tag, m);
    return true;
}

static bool handle_fork(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]) ||
        !protocol_id_is_valid(m->texts[2]) || !protocol_snapshot_id_is_valid(m->texts[3]))
        return false;
    fork_make(b, tag, m);
    return true;
}

static bool handle_usage(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    scoped_buf struct buf numbers;

    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    buf_init(&numbers, 4096);
    pack_u64(&numbers, tag);
    sandbox_usage(b, m->texts[0], &numbers);
    channel_send(b, ANSWER_NAMES, &numbers, NULL, 0);
    return true;
}

static bool handle_freeze(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || m->number > 1)
        return false;
    pause_request(b, tag, m);
    return true;
}

static bool handle_system_reset(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]))
        return false;
    base_reset(b, tag, m);
    return true;
}

static bool handle_plan_scan(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    scoped_buf struct buf names;
    struct err err;

    buf_init(&names, 2UL << 20);
    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    pack_u64(&names, tag);
    if (plan_scan(b, m->texts[0], &names, &err) < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send(b, ANSWER_NAMES, &names, NULL, 0);
    return true;
}

/* With the template as the third text. */
static bool handle_template(struct broker *b, uint64_t tag, const struct plain_message *m,
                            void (*handle)(struct broker *b, uint64_t tag,
                                           const struct plain_message *m))
{
    if (!protocol_id_is_valid(m->texts[0]) || !protocol_id_is_valid(m->texts[1]) ||
        !protocol_template_id_is_valid(m->texts[2]) ||
        m->number > (FREEZE_ONLY_FINISH | FREEZE_SHARE_CACHE))
        return false;
    handle(b, tag, m);
    return true;
}

static bool handle_tree_fill(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    return handle_template(b, tag, m, template_fill);
}

static bool handle_template_freeze(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    return handle_template(b, tag, m, template_freeze);
}

static bool handle_template_remove(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_template_id_is_valid(m->texts[0]))
        return false;
    template_erase(b, tag, m);
    return true;
}

static bool handle_tree_quiet(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    quiet_request(b, tag, m);
    return true;
}

static bool handle_store_remove(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    if (!protocol_id_is_valid(m->texts[0]))
        return false;
    store_remove(b, tag, m);
    return true;
}

static bool handle_store_list(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    (void)m;
    store_list(b, tag);
    return true;
}

static bool handle_store_cancel(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    (void)tag;
    mover_cancel(b, m->number);
    return true;
}

struct told {
    struct waiter waiter;
    uint64_t tag;
    uint64_t generation;
};

static void record_written(struct broker *b, struct waiter *waiter, bool written)
{
    struct told *told = (struct told *)(void *)waiter;
    struct err err;

    if (told->generation == b->generation && written) {
        channel_send_ok(b, told->tag);
    } else if (told->generation == b->generation) {
        err_set(&err, ERR_IO, record_errno(b), "the audit could not be written");
        channel_send_error(b, told->tag, &err);
    }
    free(told);
}

/* What only the broker has seen, only the broker records. */
static bool is_the_brokers(const char *operation)
{
    return strncmp(operation, "daemon.", 7) == 0 || strncmp(operation, "front.", 6) == 0 ||
           strncmp(operation, "audit.", 6) == 0 || strcmp(operation, "sandbox.start") == 0 ||
           strcmp(operation, "exec.start") == 0 || strcmp(operation, "sandbox.end") == 0 ||
           strcmp(operation, "exec.end") == 0 || strcmp(operation, "denial") == 0 ||
           strncmp(operation, "net.", 4) == 0 || strcmp(operation, "plan.step") == 0 ||
           strcmp(operation, "plan.recover") == 0;
}

/* Says last, where readers look, that the front has said so. */
static void sign(struct buf *details, const char *text)
{
    size_t n = strlen(text);

    if (n <= 2) {
        buf_str(details, "{\"by\":\"front\"}");
        return;
    }
    buf_add(details, text, n - 1);
    buf_str(details, ",\"by\":\"front\"}");
}

static bool handle_record(struct broker *b, char *bytes, size_t n)
{
    scoped_buf struct buf details;
    struct record_message m;
    uint64_t tag = 0;
    struct err err;

    buf_init(&details, PROTOCOL_DETAILS + 64); /* first: every way out clears it */
    if (!protocol_unpack_record(bytes, n, &tag, &m) || is_the_brokers(m.operation))
        return false;
    sign(&details, m.details);
    struct told *told = buf_done(&details) == 0 ? calloc(1, sizeof(*told)) : NULL;
    bool kept = false;
    if (told) {
        struct audit_record record = {.actor = m.actor,
                                      .workspace = m.workspace,
                                      .request = m.request,
                                      .operation = m.operation,
                                      .result = m.result,
                                      .details = details.p};
        *told =
            (struct told){.waiter.done = record_written, .tag = tag, .generation = b->generation};
        kept = record_may_add(b, m.operation, &err) == 0 &&
               record_add(b, &record, &told->waiter, &err) == 0;
    } else {
        err_set(&err, ERR_LIMIT, 0, "keep a record");
    }
    if (!kept) {
        free(told);
        channel_send_error(b, tag, &err);
    }
    return true; /* kept by the record; NOLINT(clang-analyzer-unix.Malloc) */
}

static const struct {
    const char *name;
    handler *plain;
    bool (*raw)(struct broker *b, char *bytes, size_t n);
    struct tree_request tree;
    bool early;    /* may come before the answer to resume */
    bool outlives; /* done also for a front that has died since */
} table[REQUEST_COUNT_] = {
    [REQUEST_RESUME] = {"resume", .plain = resume, .early = true},
    [REQUEST_TREE_MAKE] = {"tree_make", .tree = {tree_make, false}},
    [REQUEST_TREE_TRASH] = {"tree_trash", .tree = {tree_trash, true}},
    [REQUEST_TREE_BACK] = {"tree_back", .tree = {tree_back, true}},
    [REQUEST_TREE_PURGE] = {"tree_purge", .tree = {tree_purge, true}},
    [REQUEST_EXEC] = {"exec", .raw = handle_exec},
    [REQUEST_SIGNAL] = {"signal", .plain = handle_signal},
    [REQUEST_KILL] = {"kill", .plain = handle_kill},
    [REQUEST_SLEEP] = {"sleep", .plain = handle_sleep},
    [REQUEST_FORGET] = {"forget", .plain = handle_forget},
    [REQUEST_RECORD] = {"record", .raw = handle_record},
    [REQUEST_INPUT_END] = {"input_end", .plain = handle_input_end, .outlives = true},
    [REQUEST_TREE_SCAN] = {"tree_scan", .plain = handle_tree_scan},
    [REQUEST_TREE_LOOK] = {"tree_look", .tree = {tree_look, false}},
    [REQUEST_TREE_POINTS] = {"tree_points", .raw = handle_tree_points},
    [REQUEST_PONG] = {"pong", .plain = handle_pong, .early = true},
    [REQUEST_FILES] = {"files", .raw = handle_files},
    [REQUEST_FILES_ASLEEP] = {"files_asleep", .plain = handle_files_asleep},
    [REQUEST_PLAN_JOB] = {"plan_job", .raw = handle_plan_job},
    [REQUEST_PLAN_CANCEL] = {"plan_cancel", .plain = handle_plan_cancel},
    [REQUEST_PLAN_DROP] = {"plan_drop", .plain = handle_plan_drop},
    [REQUEST_PLAN_VIEW] = {"plan_view", .plain = handle_plan_view},
    [REQUEST_PLAN_SCAN] = {"plan_scan", .plain = handle_plan_scan},
    [REQUEST_TREE_FILL] = {"tree_fill", .plain = handle_tree_fill},
    [REQUEST_TEMPLATE_FREEZE] = {"template_freeze", .plain = handle_template_freeze},
    [REQUEST_TEMPLATE_REMOVE] = {"template_remove", .plain = handle_template_remove},
    [REQUEST_TREE_QUIET] = {"tree_quiet", .plain = handle_tree_quiet},
    [REQUEST_NETWORK] = {"network", .raw = handle_network},
    [REQUEST_STORE_SET] = {"store_set", .raw = store_set},
    [REQUEST_STORE_REMOVE] = {"store_remove", .plain = handle_store_remove},
    [REQUEST_STORE_LIST] = {"store_list", .plain = handle_store_list},
    [REQUEST_STORE_JOB] = {"store_job", .raw = mover_request},
    [REQUEST_STORE_CANCEL] = {"store_cancel", .plain = handle_store_cancel},
    [REQUEST_SECRET_SET] = {"secret_set", .raw = secret_set},
    [REQUEST_SECRET_LIST] = {"secret_list", .plain = secret_list},
    [REQUEST_FORK] = {"fork", .plain = handle_fork},
    [REQUEST_FREEZE] = {"freeze", .plain = handle_freeze},
    [REQUEST_SYSTEM_RESET] = {"system_reset", .plain = handle_system_reset},
    [REQUEST_USAGE] = {"usage", .plain = handle_usage},
};

_Static_assert(REQUEST_COUNT_ == REQUEST_USAGE + 1, "every request is in the table");

void request_refuse(struct broker *b, uint32_t kind, const char *why)
{
    const char *name = kind < REQUEST_COUNT_ ? table[kind].name : NULL;

    log_error("front_refused", "request", name ? name : "unknown", "why", why, NULL);
    (void)record_note(b,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = "",
                                             .request = "",
                                             .operation = "front.refused",
                                             .result = name ? name : "unknown",
                                             .details = ""},
                      NULL);
    channel_close(b);
    front_kill(b);
}

void request_handle(struct broker *b, uint32_t kind, char *bytes, size_t n)
{
    struct plain_message m;
    uint64_t tag = 0;
    bool good;

    if (kind >= REQUEST_COUNT_ || !table[kind].name) {
        request_refuse(b, kind, "it is not in the table");
        return;
    }
    if (b->deaf && !table[kind].outlives)
        return; /* nobody would hear the answer */
    if (!b->resumed && !table[kind].early) {
        request_refuse(b, kind, "it came before the answer to resume");
        return;
    }
    if (table[kind].raw)
        good = table[kind].raw(b, bytes, n);
    else if (!protocol_unpack_plain(bytes, n, &tag, &m))
        good = false;
    else if (table[kind].plain)
        good = table[kind].plain(b, tag, &m);
    else
        good = handle_tree(b, tag, &m, &table[kind].tree);
    if (!good)
        request_refuse(b, kind, "it is not well formed, or out of turn");
}
