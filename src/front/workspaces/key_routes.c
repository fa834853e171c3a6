/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/keys. Who makes which: an administrator all, an owner those of agents, of who approves and of
 * who reads, under its own name. Keys that a key has made outlive it. */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "front/core/live.h"
#include "front/core/scope.h"
#include "front/workspaces/request.h"
#include "front/workspaces/routes.h"
#include "front/workspaces/template_routes.h"
#include "protocol/broker.h"

enum {
    KEY_TEXT = 56,
    LONGEST_POLICY = 16 << 10, /* of a key, which every request reads */
};

static json_t *scopes_json(unsigned bits)
{
    json_t *list = json_array();
    const char *name;

    for (size_t i = 0; scope_at(i, bits, &name); i++) {
        if (name)
            json_array_append_new(list, json_string(name));
    }
    return list;
}

static json_t *text_or_null(const char *text)
{
    return *text ? json_string(text) : json_null();
}

static json_t *parsed_or_null(const char *text)
{
    return *text ? json_parsed(text) : json_null();
}

static json_t *key_json(const struct store_key *key)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "id", key->id, "owner",
                     key->owner, "name", key->name, "scopes", scopes_json(key->scopes),
                     "workspaces", parsed_or_null(key->workspaces), "template",
                     text_or_null(key->template), "policy", parsed_or_null(key->policy), "created",
                     time_json(key->created_ms), "revoked", time_json(key->revoked_ms));
}

/* "ck_" and 52 characters of base 32: 32 random bytes. */
static bool make_key(char text[KEY_TEXT])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[52];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
        return false;
    memcpy(text, "ck_", 3);
    for (size_t i = 0; i < sizeof(bytes); i++)
        text[3 + i] = digits[bytes[i] & 31];
    text[3 + sizeof(bytes)] = '\0';
    return true;
}

/* --- what a new one is to be --- */

static bool read_scopes(struct call *call, unsigned *ret)
{
    json_t *list = json_object_get(call->body, "scopes");
    bool good = json_array_size(list) > 0;
    json_t *item;
    size_t at;

    *ret = 0;
    json_array_foreach(list, at, item)
    {
        unsigned bit = scope_by_name(json_string_value(item));
        good = good && bit;
        *ret |= bit;
    }
    if (!good)
        call_bad_field(call, "scopes",
                       "a list of \"admin\", \"owner\", \"user\", \"agent\", \"approve\" or "
                       "\"read\"");
    return good;
}

/* An owner's key makes keys under its own name, and none that could make others. */
static bool read_owner(struct call *call, unsigned bits, const char **ret)
{
    *ret = call->actor.scopes & SCOPE_ADMIN ? NULL : call->actor.owner;
    if (!field_text(call, call->body, "owner", PROTOCOL_ID, ret))
        return false;
    if (!*ret || !protocol_id_is_valid(*ret))
        call_bad_field(call, "owner", "1 to 64 of letters, digits, '.', '_' and '-'");
    else if (!actor_is_of(&call->actor, *ret))
        call_error(call, 403, "forbidden",
                   "this key makes keys of '%s' only; an administrator makes those of others",
                   call->actor.owner);
    else if (!scopes_may_make(call->actor.scopes, bits))
        call_error(call, 403, "forbidden",
                   "this key makes keys with the scopes 'agent', 'approve' and 'read'; an "
                   "administrator makes the others");
    else
        return true;
    return false;
}

static bool read_workspaces(struct call *call, const char **ret)
{
    json_t *list = json_object_get(call->body, "workspaces");
    size_t n = json_array_size(list);
    const json_t *item;
    size_t at;

    *ret = "";
    if (!list || json_is_null(list))
        return true;
    bool good = n > 0 && n <= SCOPE_PATTERNS_MOST;
    json_array_foreach(list, at, item)
    {
        good = good && json_is_string(item) &&
               strlen(json_string_value(item)) == json_string_length(item) &&
               scope_pattern_is_valid(json_string_value(item));
    }
    *ret = good ? json_compact(&call->arena, list) : NULL;
    if (!*ret)
        call_bad_field(call, "workspaces",
                       "a list of 1 to 32 ids of workspaces, or patterns of them such as "
                       "\"thread-*\", where '*' stands for any characters and '?' for one");
    return *ret != NULL;
}

/* What an agent's workspaces are made with is known to be possible when the key is made. */
static bool read_fixed(struct call *call, struct store_key *key)
{
    struct store_template found = {.id = ""};

    if (!field_text(call, call->body, "template", PROTOCOL_ID, &key->template))
        return false;
    if ((*key->template || json_object_get(call->body, "policy")) && !(key->scopes & SCOPE_AGENT)) {
        call_error(call, 400, "invalid_request",
                   "only an agent's key has a template and a policy, which the workspaces that it "
                   "makes get");
        return false;
    }
    if ((*key->template && !template_find(call, key->template, &found)) ||
        !workspace_read_policy(call, found.id, &key->policy))
        return false;
    if (strlen(key->policy) > LONGEST_POLICY) {
        call_error(call, 413, "too_large", "the policy of a key has at most %d bytes",
                   LONGEST_POLICY);
        return false;
    }
    return true;
}

static bool read_key(struct call *call, struct store_key *key)
{
    static const char *const known[] = {"owner",    "scopes", "name", "workspaces",
                                        "template", "policy", NULL};

    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "name", 200, &key->name) ||
        !read_scopes(call, &key->scopes) || !read_owner(call, key->scopes, &key->owner) ||
        !read_workspaces(call, &key->workspaces))
        return false;
    const char *why = scopes_refuse(key->scopes, *key->workspaces);
    if (why)
        call_error(call, 400, "invalid_request", "%s", why);
    return !why && read_fixed(call, key);
}

struct new_key {
    struct store_key row;
    char id[28];
    char text[KEY_TEXT];
    char hash[FRONT_HASH];
};

static void recorded_new(struct call *call, struct answer *answer)
{
    struct new_key *key = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0 || store_key_add(call->front->store, &key->row, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    json_t *object = key_json(&key->row);
    json_object_set_new(object, "key", json_string(key->text));
    call_json(call, 201, object);
}

void keys_create(struct call *call)
{
    struct new_key *key = arena_alloc(&call->arena, sizeof(*key));

    if (!key || !make_key(key->text)) {
        call_error(call, 500, "internal", "out of memory");
        return;
    }
    make_id('k', key->id);
    hash_hex(key->text, strlen(key->text), key->hash);
    key->row = (struct store_key){.id = key->id,
                                  .hash = key->hash,
                                  .name = "",
                                  .made_by = call->actor.key,
                                  .created_ms = wall_ms(),
                                  .template = "",
                                  .policy = ""};
    if (!read_key(call, &key->row))
        return;
    call->context = key;
    call_record(call, "", "key.create", "ok",
                json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "key", key->id, "owner", key->row.owner,
                          "scopes", scopes_json(key->row.scopes), "workspaces",
                          parsed_or_null(key->row.workspaces), "template",
                          text_or_null(key->row.template), "policy",
                          parsed_or_null(key->row.policy)),
                recorded_new);
}

static bool list_one(void *context, const struct store_key *key)
{
    return json_array_append_new(context, key_json(key)) == 0;
}

/* The id after which the next page begins, when this one is full. */
static json_t *next_of(const json_t *list, uint64_t limit)
{
    size_t n = json_array_size(list);

    if (n == 0 || n < limit)
        return json_null();
    return json_incref(json_object_get(json_array_get(list, n - 1), "id"));
}

void keys_list(struct call *call)
{
    const char *cursor;
    uint64_t limit;
    struct err err;
    bool all = (call->actor.scopes & SCOPE_ADMIN) != 0;

    if (!call_limit(call, &limit) || !call_text(call, "cursor", &cursor))
        return;
    json_t *list = json_array();
    if (store_keys(call->front->store, all ? NULL : call->actor.owner, cursor, (size_t)limit,
                   list_one, list, &err) < 0) {
        json_decref(list);
        call_fail(call, &err);
        return;
    }
    json_t *next = next_of(list, limit);
    call_json(call, 200, json_pack("{s:o, s:o}", "keys", list, "next", next));
}

static void recorded_revoke(struct call *call, struct answer *answer)
{
    struct err err;

    if (answer_check(answer, &err) < 0 ||
        store_key_revoke(call->front->store, call->params[0], wall_ms(), &err) < 0) {
        call_fail(call, &err);
        return;
    }
    live_end_key(call->front, call->params[0], call);
    call_empty(call);
}

/* Itself, and those that it could make: who works with a key of less does not shut out who decides
 * about that work. */
static bool may_revoke(const struct call *call, const struct store_key *key)
{
    return strcmp(key->id, call->actor.key) == 0 ||
           scopes_may_make(call->actor.scopes, key->scopes);
}

void keys_revoke(struct call *call)
{
    struct store_key key;
    struct err err;
    int found = store_key_get(call->front->store, &call->arena, call->params[0], &key, &err);

    if (found < 0)
        call_fail(call, &err);
    else if (found == 0 || key.revoked_ms || !actor_is_of(&call->actor, key.owner) ||
             ((key.scopes & SCOPE_ADMIN) && !(call->actor.scopes & SCOPE_ADMIN)))
        call_error(call, 404, "not_found", "there is no key '%s'", call->params[0]);
    else if (!may_revoke(call, &key))
        call_error(call, 403, "forbidden",
                   "this key revokes itself%s; an administrator revokes key '%s'",
                   call->actor.scopes & SCOPE_OWNER
                       ? " and keys with the scopes 'agent', 'approve' and 'read'"
                       : " and no other",
                   key.id);
    else
        call_record(call, "", "key.revoke", "ok", json_pack("{s:s}", "key", key.id),
                    recorded_revoke);
}
