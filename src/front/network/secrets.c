/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/secrets: values for requests, of an owner. One comes here once and is sealed for
 * carrel-egress; from then on nobody here can read it, and none is ever answered with. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/pack.h"
#include "base/seal.h"
#include "front/network/routes.h"
#include "policy/network_inner.h"
#include "protocol/broker.h"

enum {
    MESSAGE = SEAL_HEX + 4096,
    MOST_LISTED = 1024,
};

/* A value on its way: the context of its call. */
struct setting {
    const char *owner;
    const char *name;
    const char *sealed;
};

/* Whose they are; an administrator says so. False: answered. */
static bool read_owner(struct call *call, const char **ret)
{
    const char *asked = NULL;

    if (!call_text(call, "owner", &asked))
        return false;
    *ret = asked ? asked : call->actor.owner;
    if (asked && !protocol_id_is_valid(asked)) {
        call_bad_field(call, "owner", "1 to 64 of letters, digits, '.', '_' and '-'");
        return false;
    }
    if (!protocol_id_is_valid(*ret) || !actor_is_of(&call->actor, *ret)) {
        call_error(call, asked ? 403 : 400, asked ? "forbidden" : "invalid_request",
                   asked ? "these are another owner's" : "say whose: ?owner=NAME");
        return false;
    }
    *ret = arena_copy(&call->arena, *ret, strlen(*ret)); /* it outlives the request */
    if (!*ret)
        call_error(call, 503, "unavailable", "out of memory");
    return *ret != NULL;
}

static bool read_name(struct call *call)
{
    if (network_is_secret(call->params[0]))
        return true;
    call_bad_field(call, "name", "small letters, digits, '-' and '_', a letter first");
    return false;
}

/* --- set --- */

static void is_set(struct call *call, struct answer *answer)
{
    const struct setting *s = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        call_json(call, 200, json_pack("{s:s, s:s}", "owner", s->owner, "name", s->name));
}

static void send_value(struct call *call, const char *owner, const char *sealed, call_heard *then)
{
    struct buf b;

    buf_init(&b, MESSAGE);
    protocol_pack_secret(&b, call_expect(call, then), owner, call->params[0], sealed);
    broker_send(call->front->channel, REQUEST_SECRET_SET, &b);
}

static void set_recorded(struct call *call, struct answer *answer)
{
    const struct setting *s = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    send_value(call, s->owner, s->sealed, is_set);
}

/* False: answered. */
static bool seal_value(struct call *call, struct setting *s)
{
    static const char *const known[] = {"value", NULL};
    unsigned char public[SEAL_KEY];
    const char *value = NULL;
    scoped_buf struct buf sealed;

    buf_init(&sealed, SEAL_HEX);
    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "value", NETWORK_VALUE_MOST, &value))
        return false;
    if (!value || !network_is_value(value, strlen(value))) {
        call_bad_field(call, "value", "8 to 4096 visible ASCII characters, in one line");
        return false;
    }
    const char *about = arena_printf(&call->arena, "%s/%s", s->owner, s->name);
    bool good = about && bytes_from_hex(call->front->secrets_public, SEAL_KEY, public) &&
                seal(public, about, value, strlen(value), &sealed) == 0 && buf_done(&sealed) == 0;
    explicit_bzero((char *)(uintptr_t)value, strlen(value));
    s->sealed = good ? arena_copy(&call->arena, sealed.p, sealed.n) : NULL;
    if (!s->sealed)
        call_error(call, 503, "unavailable", "the value could not be sealed");
    return s->sealed != NULL;
}

void secret_put(struct call *call)
{
    struct setting *s = arena_alloc(&call->arena, sizeof(*s));

    if (!s) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    s->name = call->params[0];
    call->context = s;
    if (!read_name(call) || !read_owner(call, &s->owner) || !seal_value(call, s))
        return;
    call_drop_body(call);
    call_record(call, "", "secret.set", "ok",
                json_pack("{s:s, s:s}", "owner", s->owner, "secret", s->name), set_recorded);
}

/* --- list --- */

static void heard_list(struct call *call, struct answer *answer)
{
    const char **facts = call_texts(call, answer, MOST_LISTED);

    if (!facts)
        return;
    json_t *list = json_array();
    for (; facts[0] && facts[1]; facts += 2)
        json_array_append_new(list, json_pack("{s:s, s:o}", "name", facts[0], "set",
                                              time_json(strtoll(facts[1], NULL, 10))));
    call_json(call, 200, json_pack("{s:o}", "secrets", list));
}

void secrets_list(struct call *call)
{
    const char *owner;

    if (read_owner(call, &owner))
        call_ask(call, REQUEST_SECRET_LIST, owner, NULL, NULL, heard_list);
}

/* --- remove --- */

static void remove_recorded(struct call *call, struct answer *answer)
{
    const char *owner = call->context;
    struct err err;

    if (answer_check(answer, &err) < 0)
        call_fail(call, &err);
    else
        send_value(call, owner, "", call_heard_empty);
}

void secret_remove(struct call *call)
{
    const char *owner;

    if (!read_name(call) || !read_owner(call, &owner))
        return;
    call->context = (char *)(uintptr_t)owner;
    call_record(call, "", "secret.remove", "ok",
                json_pack("{s:s, s:s}", "owner", owner, "secret", call->params[0]),
                remove_recorded);
}
