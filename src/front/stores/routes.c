/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/stores: the object stores that workspaces are mirrored to. What is secret of one goes through
 * here once, to the broker, and never comes back. */
#include "front/stores/routes.h"

#include <string.h>

#include "base/pack.h"
#include "front/stores/job.h"
#include "protocol/broker.h"
#include "protocol/store.h"

const struct route store_routes[] = {
    {HTTP_POST, "/v1/stores", SCOPE_ADMIN, BODY_SMALL, 0, stores_set, "", NOT_IN_PLAN},
    {HTTP_GET, "/v1/stores", SCOPE_ADMIN, 0, 0, stores_list, "", NOT_IN_PLAN},
    {HTTP_DELETE, "/v1/stores/{name}", SCOPE_ADMIN, 0, 0, stores_remove, "", NOT_IN_PLAN},
    {HTTP_POST, "/v1/stores/{name}/check", SCOPE_ADMIN, BODY_SMALL, 0, stores_check, "",
     NOT_IN_PLAN},
    ROUTES_END,
};

enum {
    MESSAGE = STORE_TEXT + 4096,
    MOST_LISTED = 256 * STORE_FACTS,
};

/* A store that is being set: the context of its call. */
struct setting {
    const char *name;
    const char *type;
    const char *path;
    struct buf text; /* cleared when it has been sent */
};

static void no_memory(struct call *call)
{
    call_error(call, 503, "unavailable", "out of memory");
}

/* --- set --- */

/* The members of "config" as lines. False: answered. */
static bool put_config(struct call *call, json_t *config, struct buf *text)
{
    const char *key;
    json_t *value;

    json_object_foreach(config, key, value)
    {
        if (!json_is_string(value) || strchr(json_string_value(value), '\n') || strchr(key, '\n') ||
            strstr(key, " = ") || *key == '@') {
            call_bad_field(call, "config",
                           "keys and texts as in a section of rclone's configuration");
            return false;
        }
        store_conf_add(text, key, json_string_value(value));
    }
    return true;
}

/* As the broker will read it. False: answered. */
static bool check_text(struct call *call, struct setting *s)
{
    struct store_conf *conf = arena_alloc(&call->arena, sizeof(*conf));
    char *copy = s->text.p ? arena_copy(&call->arena, s->text.p, s->text.n) : NULL;
    struct err err;

    if (!conf || !copy || s->text.n >= STORE_TEXT) {
        call_error(call, 413, "too_large", "the store's configuration is too large");
        return false;
    }
    if (store_conf_parse(copy, conf, &err) < 0) {
        explicit_bzero(copy, s->text.n);
        call_fail(call, &err);
        return false;
    }
    s->type = arena_copy(&call->arena, conf->type, strlen(conf->type));
    explicit_bzero(copy, s->text.n);
    if (!s->type)
        no_memory(call);
    return s->type != NULL;
}

static bool read_setting(struct call *call, struct setting *s)
{
    static const char *const known[] = {"name", "path", "config", NULL};
    json_t *config = NULL;

    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "name", PROTOCOL_ID, &s->name) ||
        !field_text(call, call->body, "path", STORE_PATH, &s->path) ||
        !field_object(call, call->body, "config", &config))
        return false;
    if (!s->name || !protocol_id_is_valid(s->name)) {
        call_bad_field(call, "name", "1 to 64 of letters, digits, '.', '_' and '-'");
        return false;
    }
    if (!s->path || !config) {
        call_bad_field(call, s->path ? "config" : "path",
                       s->path ? "a section of rclone's configuration as an object"
                               : "a bucket, or a bucket and directories: \"bucket/dir\"");
        return false;
    }
    s->name = arena_copy(&call->arena, s->name, strlen(s->name));
    s->path = arena_copy(&call->arena, s->path, strlen(s->path));
    store_conf_add(&s->text, "@path", s->path ? s->path : "");
    if (!put_config(call, config, &s->text))
        return false;
    if (s->name && s->path && buf_done(&s->text) == 0)
        return check_text(call, s);
    call_error(call, 413, "too_large", "the store's configuration is too large");
    return false;
}

static void set_left(struct call *call)
{
    struct setting *s = call->context;

    if (call->pending)
        return; /* it is still on its way to the broker */
    if (s->text.p)
        explicit_bzero(s->text.p, s->text.n);
    buf_clear(&s->text);
}

static json_t *store_json(const char *const *facts)
{
    return json_pack("{s:s, s:s, s:s, s:s*}", "name", facts[0], "type", facts[1], "path", facts[2],
                     "endpoint", *facts[3] ? facts[3] : NULL);
}

static void is_set(struct call *call, struct answer *answer)
{
    const struct setting *s = call->context;
    const char *const facts[] = {s->name, s->type, s->path, ""};
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_json(call, 201, store_json(facts));
}

static void set_recorded(struct call *call, struct answer *answer)
{
    struct setting *s = call->context;
    struct err err;
    struct buf b;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    uint64_t tag = call_expect(call, is_set);
    if (!tag) {
        no_memory(call);
        return;
    }
    buf_init(&b, MESSAGE);
    protocol_pack_store(&b, tag, s->name, s->text.p);
    explicit_bzero(s->text.p, s->text.n); /* what is secret is here no longer than it takes */
    broker_send(call->front->channel, REQUEST_STORE_SET, &b);
}

void stores_set(struct call *call)
{
    struct setting *s = arena_alloc(&call->arena, sizeof(*s));

    if (!s) {
        no_memory(call);
        return;
    }
    buf_init(&s->text, MESSAGE);
    call->context = s;
    call->abandoned = set_left;
    if (!read_setting(call, s))
        return;
    call_drop_body(call);
    call_record(call, "", "store.set", "ok",
                json_pack("{s:s, s:s, s:s}", "store", s->name, "type", s->type, "path", s->path),
                set_recorded);
}

/* --- list --- */

static void heard_list(struct call *call, struct answer *answer)
{
    const char **facts = call_texts(call, answer, MOST_LISTED);

    if (!facts)
        return;
    json_t *list = json_array();
    for (; facts[0] && facts[1] && facts[2] && facts[3]; facts += STORE_FACTS)
        json_array_append_new(list, store_json(facts));
    call_json(call, 200, json_pack("{s:o}", "stores", list));
}

void stores_list(struct call *call)
{
    call_ask(call, REQUEST_STORE_LIST, NULL, NULL, NULL, heard_list);
}

/* --- remove --- */

/* False: answered. */
static bool has_name(struct call *call)
{
    if (protocol_id_is_valid(call->params[0]))
        return true;
    call_error(call, 404, "not_found", "there is no such store; see 'carrel store ls'");
    return false;
}

static void remove_recorded(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_ask(call, REQUEST_STORE_REMOVE, call->params[0], NULL, NULL, call_heard_empty);
}

void stores_remove(struct call *call)
{
    if (has_name(call))
        call_record(call, "", "store.remove", "ok", json_pack("{s:s}", "store", call->params[0]),
                    remove_recorded);
}

/* --- check --- */

static void is_checked(void *owner, const struct store_end *end)
{
    struct call *call = owner;

    if (end->done)
        call_json(call, 200, json_incref(end->done));
    else
        call_error(call, end->status, end->code, "%s", end->message);
    call_release(call);
}

static void check_recorded(struct call *call, struct answer *answer)
{
    static const struct store_calls calls = {.ended = is_checked};
    const bool *take_over = call->context;
    struct store_job job = {.store = call->params[0],
                            .verb = "check",
                            .bucket = "",
                            .workspace = "",
                            .take_over = *take_over};
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call->pending++;
    if (store_work_start(call->front, &job, &calls, call))
        return;
    no_memory(call);
    call_release(call);
}

void stores_check(struct call *call)
{
    static const char *const known[] = {"take_over", NULL};
    bool *take_over = arena_alloc(&call->arena, sizeof(*take_over));

    if (!take_over) {
        no_memory(call);
        return;
    }
    if (!has_name(call) || !fields_known(call, call->body, known) ||
        !field_flag(call, call->body, "take_over", take_over))
        return;
    call->context = take_over;
    call_record(call, "", "store.check", "ok",
                json_pack("{s:s, s:b}", "store", call->params[0], "take_over", *take_over),
                check_recorded);
}
