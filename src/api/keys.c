/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/keys */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "api/call.h"
#include "broker/protocol.h"

static const struct {
    const char *name;
    unsigned bit;
} scopes[] = {{"admin", SCOPE_ADMIN}, {"user", SCOPE_USER}, {"approve", SCOPE_APPROVE}};

enum {
    SCOPES = sizeof(scopes) / sizeof(scopes[0]),
    KEY_TEXT = 56,
};

static json_t *scopes_json(unsigned bits)
{
    json_t *list = json_array();

    for (size_t i = 0; i < SCOPES; i++) {
        if (bits & scopes[i].bit)
            json_array_append_new(list, json_string(scopes[i].name));
    }
    return list;
}

static json_t *key_json(const struct store_key *key)
{
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "id", key->id, "owner", key->owner, "name",
                     key->name, "scopes", scopes_json(key->scopes), "created",
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

static bool read_scopes(struct call *call, unsigned *ret)
{
    json_t *list = json_object_get(call->body, "scopes");
    json_t *item;
    size_t at;

    *ret = 0;
    json_array_foreach(list, at, item)
    {
        unsigned bit = 0;
        for (size_t i = 0; i < SCOPES; i++) {
            if (json_string_value(item) && strcmp(json_string_value(item), scopes[i].name) == 0)
                bit = scopes[i].bit;
        }
        if (!bit)
            *ret = ~0U;
        else if (*ret != ~0U)
            *ret |= bit;
    }
    if (*ret != 0 && *ret != ~0U)
        return true;
    call_bad_field(call, "scopes", "a list of \"user\", \"approve\", \"admin\"");
    return false;
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
    static const char *const known[] = {"owner", "scopes", "name", NULL};
    struct new_key *key = arena_alloc(&call->arena, sizeof(*key));
    const char *owner = NULL;
    const char *name = "";
    unsigned bits;

    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "owner", PROTOCOL_ID, &owner) ||
        !field_text(call, call->body, "name", 200, &name) || !read_scopes(call, &bits))
        return;
    if (!owner || !protocol_id_is_valid(owner)) {
        call_bad_field(call, "owner", "1 to 64 of letters, digits, '.', '_' and '-'");
        return;
    }
    if (!key || !make_key(key->text)) {
        call_error(call, 500, "internal", "out of memory");
        return;
    }
    make_id('k', key->id);
    hash_hex(key->text, strlen(key->text), key->hash);
    key->row = (struct store_key){.id = key->id,
                                  .hash = key->hash,
                                  .name = name,
                                  .owner = owner,
                                  .scopes = bits,
                                  .made_by = call->actor.key,
                                  .created_ms = wall_ms()};
    call->context = key;
    call_record(
        call, "", "key.create", "ok",
        json_pack("{s:s, s:s, s:o}", "key", key->id, "owner", owner, "scopes", scopes_json(bits)),
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
        store_key_revoke(call->front->store, call->params[0], wall_ms(), &err) < 0)
        call_fail(call, &err);
    else
        call_empty(call);
}

void keys_revoke(struct call *call)
{
    struct store_key key;
    struct err err;
    int found = store_key_get(call->front->store, &call->arena, call->params[0], &key, &err);

    if (found < 0)
        call_fail(call, &err);
    else if (found == 0 || key.revoked_ms || !actor_may_see(&call->actor, key.owner) ||
             ((key.scopes & SCOPE_ADMIN) && !(call->actor.scopes & SCOPE_ADMIN)))
        call_error(call, 404, "not_found", "there is no key '%s'", call->params[0]);
    else
        call_record(call, "", "key.revoke", "ok", json_pack("{s:s}", "key", key.id),
                    recorded_revoke);
}
