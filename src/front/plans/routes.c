/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/plans and what is done with one. */
#include "front/plans/routes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/answers.h"
#include "base/clock.h"
#include "base/text.h"
#include "front/core/planned.h"
#include "policy/policy.h"
#include "protocol/broker.h"

#define PLANS "/v1/workspaces/{ws}/plans"

const struct route plan_routes[] = {
    {HTTP_GET, "/v1/plans", VIEWERS, 0, 0, plans_list_all, "state limit cursor", NOT_IN_PLAN},
    {HTTP_POST, PLANS, WORKERS, BODY_FILES, RAW, plans_submit, "", IN_PLAN},
    {HTTP_GET, PLANS, VIEWERS, 0, 0, plans_list, "state limit cursor", IN_PLAN},
    {HTTP_GET, PLANS "/{plan}", VIEWERS, 0, 0, plans_get, "operations limit cursor", IN_PLAN},
    {HTTP_GET, PLANS "/{plan}/diff", VIEWERS, 0, 0, plans_diff, "path", IN_PLAN},
    {HTTP_DELETE, PLANS "/{plan}", WORKERS, 0, 0, plans_discard, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/close", WORKERS, BODY_SMALL, RAW, plans_close, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/verify", WORKERS, BODY_SMALL, 0, plans_verify, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/approve", VIEWERS, BODY_EXEC, 0, plans_approve, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/reject", VIEWERS, BODY_SMALL, 0, plans_reject, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/apply", WORKERS, BODY_SMALL, 0, plans_apply, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/undo", WORKERS, BODY_FILES, 0, plans_undo, "", IN_PLAN},
    {HTTP_POST, PLANS "/{plan}/cancel", WORKERS, BODY_SMALL, RAW, plans_cancel, "", IN_PLAN},
    ROUTES_END,
};

enum {
    PAGE_DEFAULT = 100, /* operations */
    MOST_SEEN = 5000,   /* plans of others that are passed over for one page */
    PAGE_MAX = 10000,   /* each page is a reading of the whole plan */
};

/* --- finding one --- */

bool plan_find(struct call *call, struct store_plan *ret)
{
    struct err err;
    int found = store_plan_get(call->front->store, &call->arena, call->params[1], ret, &err);

    if (found < 0) {
        call_fail(call, &err);
        return false;
    }
    if (found == 1 && strcmp(ret->workspace, call->workspace.id) == 0 &&
        actor_may_see_plan(&call->actor, ret->key))
        return true;
    call_error(call, 404, "plan_not_found", "there is no plan '%s' in this workspace",
               call->params[1]);
    return false;
}

void plan_answer(struct call *call, int status)
{
    struct store_plan row;

    if (plan_find(call, &row))
        call_json(call, status, plan_json(call->front, &row));
}

/* --- something that takes its time --- */

/* The call waits for it, and may go; it is finished all the same. */
struct waiting {
    struct call *call;
    int status; /* when it went well */
};

static void answer_outcome(struct call *call, const struct plan_outcome *o, int status)
{
    if (!o->code) {
        plan_answer(call, o->status == 202 ? 202 : status);
        return;
    }
    json_t *error = json_pack("{s:s, s:s}", "code", o->code, "message", o->message);
    if (!error)
        error = json_pack("{s:s, s:s}", "code", o->code, "message", "(not readable)");
    if (o->details)
        json_object_set(error, "details", o->details);
    call_json(call, o->status, json_pack("{s:o}", "error", error));
}

static void done(void *context, const struct plan_outcome *outcome)
{
    struct waiting *waiting = context;
    struct call *call = waiting->call;

    answer_outcome(call, outcome, waiting->status);
    free(waiting);
    call_release(call);
}

bool plan_wait_for(struct call *call, int status, struct plan_asked *ret)
{
    struct waiting *waiting = calloc(1, sizeof(*waiting));

    if (!waiting) {
        call_error(call, 503, "unavailable", "out of memory");
        return false;
    }
    *waiting = (struct waiting){.call = call, .status = status};
    call->pending++;
    *ret = (struct plan_asked){.plan = call->params[1],
                               .actor = call->actor.name,
                               .request = call->id,
                               .done = done,
                               .context = waiting};
    return true;
}

static bool refuse_deleted(struct call *call)
{
    if (!call->workspace.deleted_ms)
        return false;
    call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
    return true;
}

/* One owner does not keep the others from theirs: answered. */
static bool has_too_many(struct call *call)
{
    if (plan_processes_of(call->front, call->workspace.owner) < PLAN_PROCESSES_OWN)
        return false;
    call_quota(call, "plan_jobs",
               "%d plans of the workspace's owner are being worked on; wait for one of them",
               PLAN_PROCESSES_OWN);
    return true;
}

/* --- making --- */

bool plan_no_room(struct call *call)
{
    struct plan_policy policy;
    struct err err;
    int room = plan_policy_of(&call->workspace, &call->arena, &policy, NULL, &err)
                   ? plan_has_room(call->front, call->workspace.id, call->actor.key, &policy, &err)
                   : -1;

    if (room < 0)
        call_fail(call, &err);
    else if (room == 0)
        call_error(call, 413, "plan_limit", "%s", PLAN_NO_ROOM);
    return room != 1;
}

void plans_submit(struct call *call)
{
    struct plan_asked asked;
    char id[28];
    size_t n;
    const char *bytes = http_body(call->x, &n);

    if (refuse_deleted(call) || has_too_many(call) || plan_no_room(call))
        return;
    make_id('p', id);
    call->params[1] = arena_copy(&call->arena, id, strlen(id));
    char *text = malloc(n + 1);
    if (!text || !call->params[1] || n == 0) {
        free(text);
        call_error(call, n ? 503 : 400, n ? "unavailable" : "plan_invalid",
                   n ? "out of memory" : "the body is the plan, as JSON");
        return;
    }
    memcpy(text, bytes, n);
    struct store_plan row = {.workspace = call->workspace.id,
                             .owner = call->workspace.owner,
                             .origin = "submitted",
                             .key = call->actor.key,
                             .actor = call->actor.name,
                             .principal = call->actor.owner,
                             .created_ms = wall_ms(),
                             .updated_ms = wall_ms()};
    if (!plan_wait_for(call, 201, &asked)) {
        free(text);
        return;
    }
    call_drop_body(call);
    plan_submit(call->front, &asked, &row,
                &(struct plan_source){
                    .bucket = call->workspace.bucket, .verb = PLAN_SUBMIT, .text = text, .n = n});
}

/* --- looking --- */

struct listing {
    struct call *call;
    json_t *list;
    uint64_t limit;
    uint64_t seen;
    char after[28]; /* the last one that was looked at */
};

static bool list_one(void *context, const struct store_plan *row)
{
    struct listing *l = context;

    text_copy(l->after, sizeof(l->after), row->id);
    if (!actor_may_see_plan(&l->call->actor, row->key))
        return ++l->seen < MOST_SEEN;
    json_array_append_new(l->list, plan_short_json(l->call->front, row));
    return json_array_size(l->list) < l->limit;
}

/* Of all workspaces: only of those that this one may see. */
static bool list_if_seen(void *context, const struct store_plan *row)
{
    struct listing *l = context;
    struct store_workspace w;
    struct arena arena;
    struct err err;

    arena_init(&arena, 4UL << 20);
    text_copy(l->after, sizeof(l->after), row->id);
    bool more = ++l->seen < MOST_SEEN;
    bool seen = store_workspace_get(l->call->front->store, &arena, row->workspace, &w, &err) == 1 &&
                !w.deleted_ms && actor_may_see(&l->call->actor, w.owner, w.id);
    arena_clear(&arena);
    return seen ? list_one(l, row) && more : more;
}

static void list(struct call *call, const char *workspace,
                 bool (*each)(void *, const struct store_plan *))
{
    struct listing l = {.call = call};
    const char *cursor;
    const char *state;
    struct err err;

    if (!call_limit(call, &l.limit) || !call_text(call, "cursor", &cursor) ||
        !call_text(call, "state", &state))
        return;
    l.list = json_array();
    if (store_plans(call->front->store, workspace, state, cursor, SIZE_MAX, each, &l, &err) < 0) {
        json_decref(l.list);
        call_fail(call, &err);
        return;
    }
    bool full = json_array_size(l.list) == l.limit || l.seen == MOST_SEEN;
    call_json(call, 200,
              json_pack("{s:o, s:o}", "plans", l.list, "next",
                        full ? json_string(l.after) : json_null()));
}

void plans_list(struct call *call)
{
    list(call, call->workspace.id, list_one);
}

void plans_list_all(struct call *call)
{
    list(call, NULL, list_if_seen);
}

/* --- its operations, and the difference of a file --- */

struct looking {
    struct call *call; /* NULL: it has gone */
    struct plan_process *process;
    bool is_diff;
    int fd;
    uint64_t at;
    uint64_t n;
};

static void free_looking(struct looking *l)
{
    if (l->fd >= 0)
        (void)close(l->fd);
    free(l);
}

static void left(struct call *call)
{
    struct looking *l = call->context;

    call->context = NULL;
    call->abandoned = NULL;
    if (l->process)
        plan_process_leave(l->process);
    free_looking(l);
}

/* Lines of operations become the items of a list, as they were written; the flaws are in the row.
 */
static void add_items(struct buf *b, const char *text)
{
    static const char next[] = "{\"next\":";
    static const char number[] = "{\"number\":";
    const char *more = "null}";
    size_t more_n = strlen(more);
    bool first = true;

    buf_str(b, ",\"items\":[");
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (strncmp(text, number, sizeof(number) - 1) == 0) {
            buf_str(b, first ? "" : ",");
            buf_add(b, text, n);
            first = false;
        } else if (strncmp(text, next, sizeof(next) - 1) == 0) {
            more = text + sizeof(next) - 1; /* with the brace that ends it */
            more_n = n - (sizeof(next) - 1);
        }
        text += n + (text[n] == '\n');
    }
    buf_str(b, "],\"next\":");
    buf_add(b, more, more_n);
}

static void answer_items(struct call *call, const struct plan_end *end)
{
    char *text = plan_end_text(end);
    struct store_plan row;
    struct buf b;

    if (!plan_find(call, &row)) {
        free(text);
        return;
    }
    json_t *object = plan_json(call->front, &row);
    char *head = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(object);
    buf_init(&b, PLAN_ANSWER_BYTES + (16UL << 20));
    if (head && text) {
        buf_add(&b, head, strlen(head) - 1);
        add_items(&b, text);
    }
    bool whole = head && text && buf_done(&b) == 0;
    free(head);
    free(text);
    if (!whole)
        call_error(call, 503, "unavailable", "out of memory");
    else
        call_bytes(call, "application/json", b.p, b.n);
    buf_clear(&b);
}

static ssize_t pull_diff(void *context, char *bytes, size_t size)
{
    struct looking *l = context;
    uint64_t rest = l->n - l->at;

    if (rest == 0)
        return 0;
    ssize_t n = pread(l->fd, bytes, rest < size ? (size_t)rest : size, (off_t)l->at);
    if (n > 0)
        l->at += (uint64_t)n;
    return n < 0 ? -errno : n == 0 ? -EPIPE : n;
}

static void answer_error(struct call *call, const struct plan_end *end)
{
    json_t *answer = plan_end_json(end);
    json_t *error = json_object_get(answer, "error");

    if (error)
        call_json(call, err_answer(plan_answer_said(error))->status,
                  json_pack("{s:O}", "error", error));
    else
        call_error(call, 500, "io_error", "carrel-plan ended without an answer");
    json_decref(answer);
}

static void looked(void *owner, const struct plan_end *end)
{
    struct looking *l = owner;
    struct call *call = l->call;

    l->process = NULL;
    if (end->status != 0) {
        call->context = NULL;
        call->abandoned = NULL;
        free_looking(l);
        answer_error(call, end);
    } else if (l->is_diff) {
        l->fd = fcntl(end->fd, F_DUPFD_CLOEXEC, 3);
        l->n = end->n;
        call_stream_sized(call, &(struct http_streamed){.status = 200,
                                                        .type = "text/x-diff; charset=utf-8",
                                                        .headers = "Cache-Control: no-store\r\n",
                                                        .size = l->n,
                                                        .pull = pull_diff,
                                                        .context = l});
    } else {
        call->context = NULL;
        call->abandoned = NULL;
        free_looking(l);
        answer_items(call, end);
    }
}

static void not_looked(void *owner, const struct err *err)
{
    struct looking *l = owner;
    struct call *call = l->call;

    call->context = NULL;
    call->abandoned = NULL;
    free_looking(l);
    call_fail(call, err);
}

static void look(struct call *call, enum plan_verb verb, struct looking *made, json_t *job)
{
    static const struct plan_process_calls calls = {.failed = not_looked, .ended = looked};

    if (has_too_many(call)) {
        json_decref(job);
        return;
    }
    struct looking *l = calloc(1, sizeof(*l));
    char *text = json_dumps(job, JSON_COMPACT);
    struct plan_message m = {.bucket = call->workspace.bucket,
                             .workspace = call->workspace.id,
                             .plan = call->params[1],
                             .actor = call->actor.name,
                             .request = call->id,
                             .owner = call->workspace.owner,
                             .verb = verb};

    json_decref(job);
    if (l) {
        *l = *made;
        l->call = call;
        l->fd = -1;
        l->process = plan_process_start(call->front, &m, text, text ? strlen(text) : 0, &calls, l);
    } else {
        free(text);
    }
    if (!l || !l->process) {
        free(l);
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    call->context = l;
    call->abandoned = left;
}

/* Whether there are files of it to look at; answered otherwise. */
static bool has_files(struct call *call, const struct store_plan *row)
{
    bool dropped = row->dropped || row->state == PLAN_DISCARDED;

    if (refuse_deleted(call))
        return false;
    if (!*row->hash)
        call_error(call, 409, "plan_open", "the plan is open; close it first");
    else if (dropped)
        call_error(call, 410, "gone", "the files of this plan are no longer kept");
    return *row->hash && !dropped;
}

void plans_get(struct call *call)
{
    struct store_plan row;
    struct looking l = {.is_diff = false};
    uint64_t operations;
    uint64_t cursor;
    uint64_t limit;

    if (!call_number(call, "operations", 1, 0, &operations) ||
        !call_number(call, "cursor", INT32_MAX, 0, &cursor) ||
        !call_number(call, "limit", PAGE_MAX, PAGE_DEFAULT, &limit) || !plan_find(call, &row))
        return;
    if (!operations)
        call_json(call, 200, plan_json(call->front, &row));
    else if (has_files(call, &row))
        look(call, PLAN_SHOW, &l,
             json_pack("{s:o, s:I}", "cursor", json_sprintf("%llu", (unsigned long long)cursor),
                       "limit", (json_int_t)limit));
}

void plans_diff(struct call *call)
{
    struct looking l = {.is_diff = true};
    struct store_plan row;
    const char *path;

    if (!call_text(call, "path", &path) || !plan_find(call, &row) || !has_files(call, &row))
        return;
    json_t *job = path ? json_pack("{s:s}", "path", path) : json_object();
    if (!job)
        call_bad_field(call, "path", "UTF-8");
    else
        look(call, PLAN_DIFF, &l, job);
}

/* --- doing --- */

/* False: answered. */
static bool find_to_change(struct call *call, struct store_plan *ret)
{
    return !refuse_deleted(call) && plan_find(call, ret);
}

void plans_close(struct call *call)
{
    struct store_plan row;
    struct plan_asked asked;

    if (find_to_change(call, &row) && plan_wait_for(call, 200, &asked))
        plan_close(call->front, &asked);
}

static void verify_checked(struct call *call)
{
    struct plan_asked asked;

    if (plan_wait_for(call, 200, &asked))
        plan_verify(call->front, &asked);
}

void plans_verify(struct call *call)
{
    static const char *const known[] = {"check", NULL};
    struct store_plan row;
    struct plan_asked asked;

    if (!fields_known(call, call->body, known) || refuse_deleted(call) || !plan_find(call, &row) ||
        has_too_many(call))
        return;
    if (json_object_get(call->body, "check")) {
        if (has_files(call, &row))
            plan_check(call, &row, verify_checked);
        return;
    }
    if (plan_wait_for(call, 200, &asked))
        plan_verify(call->front, &asked);
}

/* What a client believes to apply is what is applied. */
static bool names_hash(struct call *call, const struct store_plan *row)
{
    const char *hash = NULL;

    if (!field_text(call, call->body, "hash", 128, &hash))
        return false;
    if (!hash || strcmp(hash, row->hash) == 0)
        return true;
    call_error(call, 409, "plan_conflict",
               "the plan has another hash: it has changed since you reviewed it");
    return false;
}

void plans_apply(struct call *call)
{
    static const char *const known[] = {"hash", "keep_going", "async", NULL};
    struct store_plan row;
    struct plan_asked asked;
    bool keep_going = false;
    bool async = false;

    if (!fields_known(call, call->body, known) || !find_to_change(call, &row) ||
        !field_flag(call, call->body, "keep_going", &keep_going) ||
        !field_flag(call, call->body, "async", &async) || !names_hash(call, &row) ||
        (!async && has_too_many(call)) || !plan_wait_for(call, 200, &asked))
        return;
    if (async)
        plan_enqueue(call->front, &asked, keep_going);
    else
        plan_apply(call->front, &asked, keep_going);
}

/* Taking back is a change of the tree like any other: where a person approves those, an agent does
 * not undo them. True: answered. */
static bool agent_may_not_undo(struct call *call)
{
    struct plan_policy policy;
    struct err err;

    if (!actor_is_agent(&call->actor))
        return false;
    if (!plan_policy_of(&call->workspace, &call->arena, &policy, NULL, &err))
        call_fail(call, &err);
    else if (policy.approval != PLAN_APPROVAL_NONE)
        call_error(call, 403, "forbidden",
                   "the policy requires approval of plans, so an agent's key cannot undo one; use "
                   "a key with the scope 'owner'");
    else
        return false;
    return true;
}

void plans_undo(struct call *call)
{
    static const char *const known[] = {"paths", "force", NULL};
    json_t *paths = json_object_get(call->body, "paths");
    struct store_plan row;
    struct plan_asked asked;
    bool force = false;
    const json_t *one;
    size_t at;

    if (!fields_known(call, call->body, known) || !find_to_change(call, &row) ||
        !field_flag(call, call->body, "force", &force) || agent_may_not_undo(call) ||
        has_too_many(call))
        return;
    bool good = !paths || json_is_array(paths);
    json_array_foreach(paths, at, one) good = good && json_is_string(one);
    if (!good) {
        call_bad_field(call, "paths", "a list of paths in the workspace");
        return;
    }
    if (plan_wait_for(call, 200, &asked))
        plan_undo(call->front, &asked, paths ? json_incref(paths) : NULL, force);
}

void plans_cancel(struct call *call)
{
    struct store_plan row;
    struct plan_asked asked;

    if (find_to_change(call, &row) && plan_wait_for(call, 200, &asked))
        plan_cancel(call->front, &asked);
}

void plans_discard(struct call *call)
{
    struct store_plan row;
    struct plan_asked asked;

    if (find_to_change(call, &row) && plan_wait_for(call, 200, &asked))
        plan_discard(call->front, &asked);
}
