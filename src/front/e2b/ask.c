/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of theirs asks of our own routes. The client that leaves takes the question with it:
 * as if it had hung up on that route. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/e2b/e2b.h"

static void left(struct call *call)
{
    e2b_drop(call);
}

void e2b_drop(struct call *call)
{
    struct e2b *e = call->context;

    call->context = NULL;
    call->abandoned = NULL;
    if (!e)
        return;
    inner_drop(e->inner);
    if (e->dropped)
        e->dropped(e);
    free(e->body);
    free(e);
}

struct e2b *e2b_begin(struct call *call, void *data)
{
    struct e2b *e = calloc(1, sizeof(*e));

    if (!e) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    e->call = call;
    e->data = data;
    e->who.uid = http_peer_uid(call->x);
    const char *key = call->actor.secret;
    if (key)
        snprintf(e->who.authorization, sizeof(e->who.authorization), "Bearer %s", key);
    call->context = e;
    call->abandoned = left;
    return e;
}

static void done(void *context, int status, const struct buf *body)
{
    struct e2b *e = context;
    json_t *object = body->n && !body->failed ? json_loadb(body->p, body->n, 0, NULL) : NULL;

    e->inner = NULL;
    if (status == 0)
        call_error(e->call, 500, "internal", "the daemon broke off before it had answered");
    else
        e->heard(e, status, object);
    json_decref(object);
}

void e2b_ask(struct e2b *e, enum http_method method, json_t *body,
             void (*heard)(struct e2b *, int, json_t *), const char *format, ...)
{
    va_list args;
    char *target = NULL;

    va_start(args, format);
    int n = vasprintf(&target, format, args);
    va_end(args);
    free(e->body);
    e->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    e->heard = heard;
    const struct inner_request request = {.method = method,
                                          .target = target,
                                          .bytes = e->body,
                                          .n = e->body ? strlen(e->body) : 0,
                                          .most = E2B_MOST,
                                          .done = done,
                                          .context = e};
    e->inner = n >= 0 && (e->body || !body) ? inner_start(e->call->front, &e->who, &request) : NULL;
    if (n >= 0)
        free(target);
    if (!e->inner)
        call_error(e->call, 503, "unavailable", "the daemon has no room for this now; try again");
}

void e2b_refuse(struct e2b *e, int status, json_t *object)
{
    if (object)
        call_json(e->call, status, json_incref(object));
    else
        call_error(e->call, status, "internal", "the daemon gave no reason");
}

const char *e2b_encoded(struct call *call, const char *text, bool is_path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    char *copy = arena_alloc(&call->arena, 3 * strlen(text) + 1);
    char *at = copy;

    for (; copy && *text; text++) {
        if (strchr(plain, *text) || (is_path && *text == '/'))
            *at++ = *text;
        else
            at += snprintf(at, 4, "%%%02X", (unsigned char)*text);
    }
    return copy ? copy : "";
}

bool e2b_query(struct call *call, const char *name, const char **ret)
{
    const char *query = http_request_of(call->x)->query;
    char *plain = arena_copy(&call->arena, query, strlen(query));
    char text[HTTP_MAX_TARGET];

    *ret = NULL;
    for (char *c = plain; c && *c; c++)
        *c = *c == '+' ? ' ' : *c;
    int found = plain ? http_query(plain, name, text, sizeof(text)) : -1;
    if (found == 0)
        return true;
    *ret = found > 0 ? arena_copy(&call->arena, text, strlen(text)) : NULL;
    if (*ret)
        return true;
    call_bad_field(call, name, "given once, and properly encoded");
    return false;
}
