/* SPDX-License-Identifier: Apache-2.0 */
/* Port 49999, the code interpreter: their words for what code/ does. Unset members may be null. */
#include <string.h>

#include "front/code/code.h"
#include "front/e2b/e2b.h"

static void health(struct call *call);
static void execute(struct call *call);
static void contexts_list(struct call *call);
static void contexts_create(struct call *call);
static void contexts_restart(struct call *call);
static void contexts_remove(struct call *call);

const struct route e2b_code_routes[] = {
    {HTTP_GET, "/health", 0, 0, FOREIGN, health, "source", NULL},
    {HTTP_POST, "/execute", 0, CODE_MOST, FOREIGN, execute, "source", NOT_IN_PLAN},
    {HTTP_GET, "/contexts", 0, 0, FOREIGN, contexts_list, "source", IN_PLAN},
    {HTTP_POST, "/contexts", 0, BODY_SMALL, FOREIGN, contexts_create, "source", NOT_IN_PLAN},
    {HTTP_POST, "/contexts/{id}/restart", 0, BODY_SMALL, RAW | FOREIGN, contexts_restart, "source",
     NOT_IN_PLAN},
    {HTTP_DELETE, "/contexts/{id}", 0, 0, FOREIGN, contexts_remove, "source", NOT_IN_PLAN},
    ROUTES_END,
};

static void health(struct call *call)
{
    call_reply(call, 200, "application/json", NULL, "\"OK\"", 4);
}

/* False: answered. */
static bool read_language(struct call *call, enum code_language *ret)
{
    const char *name = NULL;

    if (!field_text(call, call->body, "language", 32, &name))
        return false;
    if (!name || code_language_of(name, ret))
        return true;
    call_error(call, 400, "unsupported",
               "this daemon has no language '%.32s': python, javascript, typescript or bash", name);
    return false;
}

static bool find(struct call *call, const char *id, struct code_context **ret)
{
    *ret = code_find(call, id);
    if (!*ret)
        call_error(call, 404, "not_found", "Context %.64s not found", id);
    return *ret != NULL;
}

/* What a sandbox's own commands find; the caller's to give back. */
static json_t *env_of(struct call *call)
{
    json_t *env = json_pack("{s:s, s:s, s:s, s:s}", "HOME", E2B_HOME, "USER", "user", "LOGNAME",
                            "user", "E2B_SANDBOX", "true");
    json_t *labels = json_parsed(call->workspace.labels);

    json_object_update(env, json_object_get(labels, E2B_LABEL "env"));
    json_decref(labels);
    return env;
}

static struct code_context *default_of(struct call *call, enum code_language language)
{
    json_t *env = env_of(call);
    const struct code_place place = {.language = language, .cwd = E2B_HOME, .env = env};
    struct code_context *context = code_default(call, &place);

    json_decref(env);
    return context;
}

static void execute(struct call *call)
{
    struct code_request request = {.code = NULL};
    struct code_context *context = NULL;
    enum code_language language = CODE_PYTHON;
    const char *id = NULL;
    json_t *env = NULL;

    if (!field_text(call, call->body, "code", CODE_MOST, &request.code) ||
        !field_text(call, call->body, "context_id", 64, &id) || !read_language(call, &language) ||
        !field_object(call, call->body, "env_vars", &env))
        return;
    if (!request.code || (id && json_is_string(json_object_get(call->body, "language")))) {
        call_error(call, 400, "invalid_request",
                   request.code ? "Only one of context_id or language can be provided"
                                : "code is missing");
        return;
    }
    if (id && !find(call, id, &context))
        return;
    request.env = env;
    context = context ? context : default_of(call, language);
    if (context)
        code_run(call, context, &request);
}

static void contexts_list(struct call *call)
{
    call_json(call, 200, code_list(call));
}

static void contexts_create(struct call *call)
{
    struct code_place place = {.language = CODE_PYTHON, .cwd = E2B_HOME};

    if (!read_language(call, &place.language) ||
        !field_text(call, call->body, "cwd", CODE_CWD - 1, &place.cwd))
        return;
    json_t *env = env_of(call);
    place.env = env;
    struct code_context *context = code_make(call, &place);
    json_decref(env);
    if (context)
        call_json(call, 200, code_context_json(context));
}

static void contexts_restart(struct call *call)
{
    struct code_context *context;

    if (!find(call, call->params[0], &context))
        return;
    kernel_end(context, "the context was restarted");
    call_reply(call, 200, "application/json", NULL, "null", 4);
}

static void contexts_remove(struct call *call)
{
    struct code_context *context;

    if (!find(call, call->params[0], &context))
        return;
    code_remove(context);
    call_reply(call, 200, "application/json", NULL, "null", 4);
}
