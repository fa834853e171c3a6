/* SPDX-License-Identifier: Apache-2.0 */
#include "front/code/routes.h"

#include <string.h>

#include "front/code/code.h"

#define CODE "/v1/workspaces/{ws}/code"

static void execute(struct call *call);
static void contexts_list(struct call *call);
static void contexts_create(struct call *call);
static void contexts_restart(struct call *call);
static void contexts_delete(struct call *call);

const struct route code_routes[] = {
    {HTTP_POST, CODE, WORKERS, CODE_MOST, 0, execute, "", NOT_IN_PLAN},
    {HTTP_GET, CODE "/contexts", READERS, 0, 0, contexts_list, "", IN_PLAN},
    {HTTP_POST, CODE "/contexts", WORKERS, BODY_SMALL, 0, contexts_create, "", NOT_IN_PLAN},
    {HTTP_POST, CODE "/contexts/{context}/restart", WORKERS, BODY_SMALL, RAW, contexts_restart, "",
     NOT_IN_PLAN},
    {HTTP_DELETE, CODE "/contexts/{context}", WORKERS, 0, 0, contexts_delete, "", NOT_IN_PLAN},
    ROUTES_END,
};

/* False: answered. */
static bool read_language(struct call *call, enum code_language *ret)
{
    const char *name = NULL;

    if (!field_text(call, call->body, "language", 32, &name))
        return false;
    if (!name || code_language_of(name, ret))
        return true;
    call_bad_field(call, "language", "python, javascript, typescript or bash");
    return false;
}

static bool find(struct call *call, const char *id, struct code_context **ret)
{
    *ret = code_find(call, id);
    if (!*ret)
        call_error(call, 404, "not_found", "there is no context '%.64s' in this workspace", id);
    return *ret != NULL;
}

static bool read_env(struct call *call, const json_t **ret)
{
    json_t *env = NULL;
    const char *name;
    json_t *value;

    if (!field_object(call, call->body, "env", &env))
        return false;
    json_object_foreach(env, name, value)
    {
        if (*name && !strchr(name, '=') && json_is_string(value) &&
            strlen(json_string_value(value)) == json_string_length(value))
            continue;
        call_bad_field(call, "env", "an object of texts by name");
        return false;
    }
    *ret = env;
    return true;
}

static void execute(struct call *call)
{
    static const char *const known[] = {"code", "language", "context", "env", "timeout_ms", NULL};
    struct code_request request = {.code = NULL};
    struct code_context *context = NULL;
    enum code_language language = CODE_PYTHON;
    const char *id = NULL;

    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "code", CODE_MOST, &request.code) ||
        !field_text(call, call->body, "context", 27, &id) || !read_language(call, &language) ||
        !read_env(call, &request.env) ||
        !field_number(call, call->body, "timeout_ms", 1, 86400000, &request.timeout_ms))
        return;
    if (!request.code) {
        call_bad_field(call, "code", "a text");
        return;
    }
    if (id && json_object_get(call->body, "language")) {
        call_bad_field(call, "language", "left out where there is a context, which has its own");
        return;
    }
    if (id && !find(call, id, &context))
        return;
    const struct code_place place = {.language = language, .cwd = "/"};
    context = context ? context : code_default(call, &place);
    if (context)
        code_run(call, context, &request);
}

static void contexts_list(struct call *call)
{
    call_json(call, 200, json_pack("{s:o}", "contexts", code_list(call)));
}

static void contexts_create(struct call *call)
{
    static const char *const known[] = {"language", "cwd", NULL};
    struct code_place place = {.language = CODE_PYTHON, .cwd = "/"};

    if (!fields_known(call, call->body, known) || !read_language(call, &place.language) ||
        !field_text(call, call->body, "cwd", CODE_CWD - 1, &place.cwd))
        return;
    struct code_context *context = code_make(call, &place);
    if (context)
        call_json(call, 201, code_context_json(context));
}

static void contexts_restart(struct call *call)
{
    struct code_context *context;

    if (!find(call, call->params[1], &context))
        return;
    kernel_end(context, "the context was restarted");
    call_empty(call);
}

static void contexts_delete(struct call *call)
{
    struct code_context *context;

    if (!find(call, call->params[1], &context))
        return;
    code_remove(context);
    call_empty(call);
}
