/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/call.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/answers.h"
#include "base/pack.h"
#include "front/core/planned.h"
#include "front/core/record_text.h"
#include "front/core/router.h"
#include "front/core/scope.h"
#include "protocol/broker.h"

enum {
    PAGE_DEFAULT = 100,
    PAGE_MAX = 1000,
};

bool actor_is_of(const struct actor *actor, const char *owner)
{
    return (actor->scopes & SCOPE_ADMIN) || strcmp(actor->owner, owner) == 0;
}

bool actor_is_limited(const struct actor *actor)
{
    return !actor->workspaces || *actor->workspaces || actor_is_agent(actor);
}

bool actor_is_agent(const struct actor *actor)
{
    return (actor->scopes & SCOPE_AGENT) != 0;
}

bool actor_may_see(const struct actor *actor, const char *owner, const char *workspace)
{
    return actor_is_of(actor, owner) &&
           (!actor_is_limited(actor) || scope_list_has(actor->workspaces, workspace));
}

bool actor_may_see_plan(const struct actor *actor, const char *key)
{
    return !actor_is_agent(actor) || strcmp(actor->key, key) == 0;
}

static void count(struct call *call, int status)
{
    call->status = status;
    call->front->count.requests[status / 100 < 6 ? status / 100 : 5]++;
}

void call_answered(struct call *call, int status)
{
    count(call, status);
}

static const char *own_headers(const struct call *call, const char *more, char *text, size_t size)
{
    snprintf(text, size, "X-Request-Id: %s\r\n%s", call->id, more ? more : "");
    return text;
}

/* How to do better, or NULL. */
static const char *advice(const struct call *call, int status)
{
    return status == 405 || status == 426   ? call->allow
           : status == 401                  ? "WWW-Authenticate: Bearer\r\n"
           : status == 429 || status == 503 ? "Retry-After: 1\r\n"
                                            : NULL;
}

/* An answer in JSON, or without a body, in the words of the route's protocol; NULL: it stays. The
 * caller's to free. */
static char *translate(struct call *call, int *status, const char *type, const char *bytes,
                       size_t n)
{
    bool is_json = type && strcmp(type, "application/json") == 0;

    if (!call->route || !(call->route->flags & FOREIGN) || (type && !is_json) || *status < 200 ||
        *status == 304)
        return NULL;
    json_t *object = n ? json_loadb(bytes, n, 0, NULL) : json_object();
    json_t *(*words)(struct call *, int *, json_t *) =
        call->translate ? call->translate : call->front->translate;
    json_t *said = object ? words(call, status, object) : NULL;
    char *text = said ? json_dumps(said, JSON_COMPACT) : NULL;
    json_decref(said);
    return text;
}

void call_reply(struct call *call, int status, const char *type, const char *headers,
                const char *bytes, size_t n)
{
    const char *more = headers ? headers : advice(call, status);
    char *translated = translate(call, &status, type, bytes, n);
    char text[512];

    if (translated) {
        type = "application/json";
        bytes = translated;
        n = strlen(translated);
    }
    count(call, status);
    if (call->x)
        http_reply(call->x, status, type, own_headers(call, more, text, sizeof(text)), bytes, n);
    free(translated);
}

void call_json(struct call *call, int status, json_t *object)
{
    void (*refused)(struct call *, int, json_t *) = status >= 400 ? call->refused : NULL;

    if (refused) {
        call->refused = NULL;
        refused(call, status, object);
        return;
    }
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    static const char failed[] =
        "{\"error\":{\"code\":\"internal\",\"message\":\"out of memory\"}}";

    json_decref(object);
    if (text)
        call_reply(call, status, "application/json", NULL, text, strlen(text));
    else
        call_reply(call, 500, "application/json", NULL, failed, sizeof(failed) - 1);
    free(text);
}

void call_bytes(struct call *call, const char *type, const char *bytes, size_t n)
{
    call_reply(call, 200, type, NULL, bytes, n);
}

void call_empty(struct call *call)
{
    call_reply(call, 204, NULL, NULL, "", 0);
}

static json_t *error_json(const char *code, const char *message)
{
    json_t *text = json_string(message); /* NULL unless it is UTF-8 */

    return json_pack("{s:s, s:o}", "code", code, "message",
                     text ? text : json_string("(not readable)"));
}

void call_error(struct call *call, int status, const char *code, const char *format, ...)
{
    char message[512];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    call_json(call, status, json_pack("{s:o}", "error", error_json(code, message)));
}

void call_quota(struct call *call, const char *setting, const char *format, ...)
{
    char message[512];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    json_t *error = error_json("quota_exceeded", message);
    json_object_set_new(error, "details", json_pack("{s:s}", "reason", setting));
    call_json(call, 429, json_pack("{s:o}", "error", error));
}

void call_chores(struct call *call)
{
    call_quota(call, "owner_chores",
               "%ju trees of '%s' are being copied or removed, which is the most at a time; try "
               "again",
               (uintmax_t)call->front->settings->owner_chores, call->workspace.owner);
}

enum err_said failure_said(const struct err *err, char *text, size_t size)
{
    static const enum err_said table[ERR_CODE_COUNT_] = {
        [ERR_NONE] = SAID_INTERNAL,       [ERR_INVALID] = SAID_INVALID_REQUEST,
        [ERR_DENIED] = SAID_FORBIDDEN,    [ERR_LIMIT] = SAID_QUOTA_EXCEEDED,
        [ERR_NOT_FOUND] = SAID_NOT_FOUND, [ERR_CONFLICT] = SAID_CONFLICT,
        [ERR_KERNEL] = SAID_UNSUPPORTED,  [ERR_IO] = SAID_INTERNAL,
    };
    struct err said = *err;
    bool full =
        err->os_errno == ENOSPC || err->os_errno == EDQUOT || err->os_errno == EFBIG; /* ulimit */
    bool busy = err->code == ERR_CONFLICT && err->os_errno == EBUSY;
    bool late = err->code == ERR_LIMIT && err->os_errno == ETIMEDOUT;

    if (busy || late)
        said.os_errno = 0; /* our own word, not the system's */
    err_text(&said, text, size);
    return err->said == SAID_IS_A_FORK || err->said == SAID_STORE_FAILED ? err->said
           : full                                                        ? SAID_DISK_FULL
           : busy                                                        ? SAID_WORKSPACE_BUSY
           : late                                                        ? SAID_UNAVAILABLE
           : (unsigned)err->code < ERR_CODE_COUNT_                       ? table[err->code]
                                                                         : SAID_INTERNAL;
}

void call_fail(struct call *call, const struct err *err)
{
    char text[512];
    const struct err_answer *answer = err_answer(failure_said(err, text, sizeof(text)));
    json_t *error = error_json(answer->code, text);

    if (err->said != SAID_NOTHING && err->said != SAID_STORE_FAILED)
        json_object_set_new(error, "details",
                            json_pack("{s:s}", "reason", err_answer(err->said)->code));
    call_json(call, answer->status, json_pack("{s:o}", "error", error));
}

void call_bad_field(struct call *call, const char *field, const char *expected)
{
    char message[256];

    snprintf(message, sizeof(message), "\"%.64s\" must be %s", field, expected);
    json_t *error = error_json("invalid_request", message);
    json_object_set_new(error, "details", json_pack("{s:s}", "field", field));
    call_json(call, 400, json_pack("{s:o}", "error", error));
}

void call_stream(struct call *call, int status, const char *type, const char *headers,
                 http_pull *pull, void *context)
{
    call_stream_sized(call, &(struct http_streamed){.status = status,
                                                    .type = type,
                                                    .headers = headers,
                                                    .size = HTTP_SIZE_UNKNOWN,
                                                    .pull = pull,
                                                    .context = context});
}

void call_stream_sized(struct call *call, const struct http_streamed *s)
{
    struct http_streamed with_ours = *s;
    char text[512];

    count(call, s->status);
    with_ours.headers = own_headers(call, s->headers, text, sizeof(text));
    if (call->x)
        http_stream_sized(call->x, &with_ours);
}

void call_drop_body(struct call *call)
{
    json_decref(call->body);
    call->body = NULL;
    if (call->x)
        http_drop_body(call->x);
}

void call_release(struct call *call)
{
    if (--call->pending == 0 && !call->x)
        router_free(call);
}

static void hear(void *context, struct answer *answer)
{
    struct call *call = context;

    if (call->records)
        call->front->unrecorded = answer->kind == ANSWER_ERROR;
    call->heard(call, answer);
    call_release(call);
}

uint64_t call_expect(struct call *call, call_heard *heard)
{
    uint64_t tag = broker_expect(call->front->channel, hear, call);

    call->heard = heard;
    call->records = false;
    call->pending += tag != 0;
    return tag;
}

void call_record(struct call *call, const char *workspace, const char *operation,
                 const char *result, json_t *details, call_heard *heard)
{
    char *text = record_text(details, DETAILS_MAX);
    struct record_message m = {.actor = call->actor.name,
                               .workspace = workspace,
                               .request = call->id,
                               .operation = operation,
                               .result = result,
                               .details = text ? text : ""};
    struct buf b;

    buf_init(&b, 1UL << 20);
    protocol_pack_record(&b, call_expect(call, heard), &m);
    call->records = true;
    broker_send(call->front->channel, REQUEST_RECORD, &b);
    free(text);
}

void call_ask(struct call *call, uint32_t kind, const char *a, const char *b, const char *c,
              call_heard *heard)
{
    struct plain_message m = {.texts = {a, b, c}};
    struct buf message;

    buf_init(&message, 4096);
    protocol_pack_plain(&message, call_expect(call, heard), &m);
    broker_send(call->front->channel, kind, &message);
}

const char **call_texts(struct call *call, struct answer *answer, size_t most)
{
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return NULL;
    }
    (void)unpack_u64(&u); /* the tag */
    const char **texts = unpack_list(&u, &call->arena, most);
    if (unpack_done(&u))
        return texts;
    call_error(call, 500, "internal", "the broker's answer is not well formed");
    return NULL;
}

void call_heard_empty(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_empty(call);
}

/* Its key, meanwhile. */
static bool is_revoked(struct call *call)
{
    struct store_key key;
    struct arena arena;
    struct err err;

    if (!*call->actor.key)
        return false;
    arena_init(&arena, 64UL << 10);
    bool valid = store_key_get(call->front->store, &arena, call->actor.key, &key, &err) == 1 &&
                 !key.revoked_ms;
    arena_clear(&arena);
    return !valid;
}

bool call_still_may(struct call *call)
{
    const struct store_workspace *was = &call->workspace;
    struct store_workspace w;
    struct arena arena;
    struct err err;

    if (is_revoked(call))
        return false;
    arena_init(&arena, 64UL << 10);
    bool same = store_workspace_get(call->front->store, &arena, was->id, &w, &err) == 1 &&
                w.created_ms == was->created_ms && strcmp(w.owner, was->owner) == 0 &&
                !w.deleted_ms && planned_is(&call->actor, &w) == call->planned;
    arena_clear(&arena);
    return same;
}

bool call_is_replanned(struct call *call)
{
    struct store_workspace w;
    struct arena arena;
    struct err err;

    arena_init(&arena, 64UL << 10);
    bool replanned =
        store_workspace_get(call->front->store, &arena, call->workspace.id, &w, &err) == 1 &&
        w.created_ms == call->workspace.created_ms && !w.deleted_ms &&
        planned_is(&call->actor, &w) != call->planned;
    arena_clear(&arena);
    return replanned;
}

void call_no_more(struct call *call)
{
    if (is_revoked(call))
        call_error(call, 401, "unauthorized", "the key is no longer valid");
    else if (call_is_replanned(call))
        call_error(call, 409, "conflict",
                   "the policy of the workspace was changed (\"writes\"), so the daemon stopped "
                   "this call; send it again");
    else
        call_error(call, 404, "not_found", "there is no workspace '%s' any more",
                   call->workspace.id);
}

bool call_limit(struct call *call, uint64_t *ret)
{
    if (!call_number(call, "limit", PAGE_MAX, PAGE_DEFAULT, ret))
        return false;
    if (*ret > 0)
        return true;
    call_bad_field(call, "limit", "a whole number from 1 to 1000");
    return false;
}

bool call_number(struct call *call, const char *name, uint64_t max, uint64_t fallback,
                 uint64_t *ret)
{
    char text[32];
    char *end;
    int found = http_query(http_request_of(call->x)->query, name, text, sizeof(text));

    *ret = fallback;
    if (found == 0)
        return true;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (found > 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' && !errno && number <= max) {
        *ret = number;
        return true;
    }
    call_bad_field(call, name, max == 1 ? "0 or 1" : "a whole number");
    return false;
}

bool call_text(struct call *call, const char *name, const char **ret)
{
    char text[HTTP_MAX_TARGET]; /* paths, and cursors made of them, are long */
    int found = http_query(http_request_of(call->x)->query, name, text, sizeof(text));

    *ret = NULL;
    if (found == 0)
        return true;
    *ret = found > 0 ? arena_copy(&call->arena, text, strlen(text)) : NULL;
    if (*ret)
        return true;
    call_bad_field(call, name, "given once, and properly encoded");
    return false;
}
