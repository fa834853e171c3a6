/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a workspace with a lifetime, then the home in it, which also starts it:
 *
 *   POST /v1/workspaces --201--> POST …/files-mkdir --> 201
 *
 * The same Idempotency-Key makes the same id, and what is there already is the answer. */
#include <stdio.h>
#include <string.h>

#include "front/e2b/network.h"
#include "front/e2b/sandbox.h"

static void answer(struct e2b *e)
{
    struct call *call = e->call;
    struct lifetime l;

    call->params[0] = e->data;
    if (e2b_find(call, &l))
        call_json(call, 201, sandbox_brief(call, &l));
}

static void has_home(struct e2b *e, int status, json_t *object)
{
    if (status >= 400)
        e2b_refuse(e, status, object);
    else
        answer(e);
}

static void made(struct e2b *e, int status, json_t *object)
{
    const char *id = e->data;
    bool again = http_header(http_request_of(e->call->x), "idempotency-key") != NULL;

    if (status == 201)
        e2b_ask(e, HTTP_POST, json_pack("{s:s, s:b}", "path", E2B_HOME, "parents", 1), has_home,
                "/v1/workspaces/%s/files-mkdir", id);
    else if (status == 409 && again)
        answer(e);
    else
        e2b_refuse(e, status, object);
}

/* The id of a new one; with a key of the client's, always the same. */
static char *choose_id(struct call *call)
{
    const char *key = http_header(http_request_of(call->x), "idempotency-key");
    char id[28];
    char hash[FRONT_HASH];

    if (!key) {
        make_id('i', id);
        return arena_copy(&call->arena, id, strlen(id));
    }
    const char *text = arena_printf(&call->arena, "%s\n%s", call->actor.owner, key);
    if (!text)
        return NULL;
    hash_hex(text, strlen(text), hash);
    return arena_printf(&call->arena, "i%.32s", hash);
}

/* Names that mean a sandbox with what the host has. */
static bool is_plain(const char *template)
{
    return strcmp(template, "base") == 0 || strcmp(template, "code-interpreter-v1") == 0;
}

static bool refuse(struct call *call, const char *what, const char *instead)
{
    call_error(call, 400, "unsupported", "\"%s\" is not supported by this daemon: %s", what,
               instead);
    return false;
}

static bool check(struct call *call)
{
    const json_t *body = call->body;
    bool auto_pause = json_is_true(json_object_get(body, "autoPause"));

    if (json_array_size(json_object_get(body, "volumeMounts")))
        return refuse(call, "volumeMounts", "a workspace keeps its files itself");
    if (json_object_size(json_object_get(json_object_get(body, "iam"), "tokens")))
        return refuse(call, "iam", "there are no identity tokens");
    if (json_object_get(body, "mcp"))
        return refuse(call, "mcp", "it serves MCP itself, at /mcp");
    if (json_is_false(json_object_get(body, "autoPauseMemory")) && !auto_pause)
        return refuse(call, "autoPauseMemory", "it goes with autoPause only");
    return true;
}

static json_t *labels_of(struct call *call, const char *template)
{
    json_t *labels = json_object();
    const char *name;
    json_t *value;

    json_object_foreach(json_object_get(call->body, "metadata"), name, value)
    {
        if (strncmp(name, E2B_LABEL, strlen(E2B_LABEL)) != 0)
            json_object_set(labels, name, value);
    }
    json_object_set_new(labels, E2B_LABEL "template", json_string(template));
    if (json_object_size(json_object_get(call->body, "envVars")))
        json_object_set(labels, E2B_LABEL "env", json_object_get(call->body, "envVars"));
    return labels;
}

static const char *end_of(const json_t *body)
{
    if (!json_is_true(json_object_get(body, "autoPause")))
        return "purge";
    return json_is_false(json_object_get(body, "autoPauseMemory")) ? "sleep" : "freeze";
}

static json_t *lifetime_wanted(const json_t *body, uint64_t seconds)
{
    const json_t *network = json_object_get(body, "network");

    return json_pack(
        "{s:I, s:s, s:b, s:b}", "seconds", (json_int_t)seconds, "at_end", end_of(body), "resume",
        json_is_true(json_object_get(json_object_get(body, "autoResume"), "enabled")),
        "private_ports", json_is_false(json_object_get(network, "allowPublicTraffic")));
}

void e2b_create(struct call *call)
{
    const char *template = "base";
    json_t *env = NULL;
    json_t *metadata = NULL;
    uint64_t seconds = 300;

    if (!field_text(call, call->body, "templateID", 256, &template) ||
        !field_number(call, call->body, "timeout", 1, 31536000, &seconds) ||
        !field_object(call, call->body, "envVars", &env) ||
        !field_object(call, call->body, "metadata", &metadata) || !check(call))
        return;
    char *id = choose_id(call);
    if (!id) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    json_t *network = NULL;
    if (!network_wanted(call, json_object_get(call->body, "allow_internet_access"),
                        json_object_get(call->body, "network"), &network))
        return;
    struct e2b *e = e2b_begin(call, id);
    if (!e) {
        json_decref(network);
        return;
    }
    json_t *body = json_pack("{s:s, s:o, s:o}", "id", id, "labels", labels_of(call, template),
                             "lifetime", lifetime_wanted(call->body, seconds));
    json_object_set_new(body, "policy", json_pack("{s:o}", "network", network));
    if (!is_plain(template))
        json_object_set_new(body, "template", json_string(template));
    e2b_ask(e, HTTP_POST, body, made, "/v1/workspaces");
}
