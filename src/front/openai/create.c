/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a workspace, then the directory in it, each by the route that is there for it:
 *
 *   POST /v1/workspaces --201, or 409 of the one that the key is for--> POST …/files-mkdir --> id
 *
 * One that a failure leaves without its directory gets it with its first command. */
#include "front/openai/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/core/inner.h"
#include "protocol/broker.h"

struct creating {
    struct call *call; /* NULL: the client has left; what was begun is finished */
    struct front *front;
    struct inner *inner;
    struct inner_asker who;
    char *body; /* of the request under way */
    char *id;   /* of the workspace; NULL: the daemon chooses it */
    bool is_given;
};

static void end(struct creating *c)
{
    if (c->call) {
        c->call->context = NULL;
        c->call->abandoned = NULL;
    }
    free(c->body);
    free(c->id);
    free(c);
}

static void fail(struct creating *c, int status, const struct buf *body)
{
    struct call *call = c->call;
    json_t *said = body && body->n ? json_loadb(body->p, body->n, 0, NULL) : NULL;

    end(c);
    if (call && status >= 400 && said) {
        call_json(call, status, said);
        return;
    }
    json_decref(said);
    if (call)
        call_error(call, 503, "unavailable", "the workspace could not be made; try again");
}

static bool ask(struct creating *c, const char *target, json_t *object,
                void (*done)(void *, int, const struct buf *))
{
    free(c->body);
    c->body = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    const struct inner_request request = {.method = HTTP_POST,
                                          .target = target,
                                          .bytes = c->body,
                                          .n = c->body ? strlen(c->body) : 0,
                                          .done = done,
                                          .context = c};
    c->inner = c->body ? inner_start(c->front, &c->who, &request) : NULL;
    return c->inner != NULL;
}

static void has_directory(void *context, int status, const struct buf *body)
{
    struct creating *c = context;
    struct call *call = c->call;

    c->inner = NULL;
    if (status < 200 || status > 299) {
        fail(c, status, body);
        return;
    }
    json_t *answer = json_pack("{s:s}", "id", c->id);
    end(c);
    if (call)
        call_json(call, 200, answer);
    else
        json_decref(answer);
}

static void made(void *context, int status, const struct buf *body)
{
    struct creating *c = context;
    char target[2 * PROTOCOL_ID];

    c->inner = NULL;
    if (status == 201 && !c->id) {
        json_t *object = json_loadb(body->p, body->n, 0, NULL);
        const char *id = json_string_value(json_object_get(object, "id"));
        c->id = id ? strdup(id) : NULL;
        json_decref(object);
    } else if (status != 201 && !(status == 409 && c->is_given)) {
        fail(c, status, body);
        return;
    }
    snprintf(target, sizeof(target), "/v1/workspaces/%s/files-mkdir", c->id ? c->id : "");
    if (!c->id || !ask(c, target, json_pack("{s:s}", "path", "/workspace"), has_directory))
        fail(c, 503, NULL);
}

static void left(struct call *call)
{
    struct creating *c = call->context;

    c->call = NULL;
    call->context = NULL;
}

/* The id that a key is for, where that is a single one: it can make no other. */
static char *only_id(const struct call *call)
{
    const char *for_these = call->actor.workspaces;
    json_t *list = json_parsed(for_these && *for_these ? for_these : "[]");
    const char *id = json_string_value(json_array_get(list, 0));
    bool is_one = json_array_size(list) == 1 && id && !strpbrk(id, "*?");
    char *copy = is_one ? strdup(id) : NULL;

    json_decref(list);
    return copy;
}

/* Buckets are not mounted; how long a client waits, and for which ports, is its own affair. */
static bool read_body(struct call *call, const char **ret_id)
{
    static const char *const known[] = {"exposedPorts", "timeoutMs", "createTimeoutMs",
                                        "mounts",       "id",        NULL};

    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "id", PROTOCOL_ID, ret_id))
        return false;
    if (*ret_id && !protocol_id_is_valid(*ret_id)) {
        call_bad_field(call, "id", "the id of a workspace");
        return false;
    }
    if (json_array_size(json_object_get(call->body, "mounts")) == 0)
        return true;
    call_error(call, 400, "unsupported",
               "buckets cannot be mounted; a workspace's policy says what is mounted in it");
    return false;
}

void sandbox_create(struct call *call)
{
    const char *asked = NULL;

    if (!read_body(call, &asked))
        return;
    struct creating *c = calloc(1, sizeof(*c));
    if (!c || !inner_asker_of(call, &c->who)) {
        free(c);
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    c->call = call;
    c->front = call->front;
    c->id = asked ? strdup(asked) : only_id(call);
    c->is_given = c->id != NULL;
    call->context = c;
    call->abandoned = left;
    json_t *body = c->id ? json_pack("{s:s}", "id", c->id) : json_object();
    if (!ask(c, "/v1/workspaces", body, made))
        fail(c, 503, NULL);
}
