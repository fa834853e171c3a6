/* SPDX-License-Identifier: Apache-2.0 */
/* From a call of a tool to a request to a route, and from its answer to the tool's result. */
#include "front/mcp/tools.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef CARREL_MCP_FIXTURES
#include "front/mcp/fixtures.h"
#endif
#include "protocol/broker.h"

/* --- as clients are told --- */

static json_t *type_of(enum mcp_type type)
{
    switch (type) {
    case MCP_TEXT:
    case MCP_PATH:
        return json_pack("{s:s}", "type", "string");
    case MCP_NUMBER:
        return json_pack("{s:s}", "type", "integer");
    case MCP_FLAG:
        return json_pack("{s:s}", "type", "boolean");
    case MCP_TEXTS:
        return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
    case MCP_MAP:
        return json_pack("{s:s, s:{s:s}}", "type", "object", "additionalProperties", "type",
                         "string");
    }
    return NULL;
}

static void add_field(const struct mcp_field *f, json_t *properties, json_t *needed)
{
    json_t *schema = type_of(f->type);

    json_object_set_new(schema, "description", json_string(f->what));
    if (f->type == MCP_NUMBER)
        json_object_set_new(schema, "minimum", json_integer(f->least));
    if (f->type == MCP_NUMBER && f->most)
        json_object_set_new(schema, "maximum", json_integer(f->most));
    json_object_set_new(properties, f->name, schema);
    if (f->is_needed)
        json_array_append_new(needed, json_string(f->name));
}

static json_t *input_of(const struct mcp_ask *ask, const struct mcp_tool *tool)
{
    static const struct mcp_field workspace = {.name = "workspace",
                                               .what = "The id of the workspace."};
    struct mcp_field own = workspace;
    json_t *properties = json_object();
    json_t *needed = json_array();

    own.is_needed = !*ask->workspace;
    if (!(tool->hints & NO_WORKSPACE) && !ask->is_fixed)
        add_field(&own, properties, needed);
    for (const struct mcp_field *f = tool->fields; f->name; f++)
        add_field(f, properties, needed);
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required",
                     needed, "additionalProperties", 0);
}

/* From "name:type" with a blank between. */
static json_t *output_of(const struct mcp_tool *tool)
{
    static const char *const names[128] = {['s'] = "string",  ['i'] = "integer", ['n'] = "number",
                                           ['b'] = "boolean", ['o'] = "object",  ['a'] = "array"};
    json_t *properties = json_object();
    json_t *needed = json_array();

    for (const char *at = tool->gives; *at;) {
        size_t n = strcspn(at, ":");
        const char *type = names[(unsigned char)at[n + 1] & 127];
        char flag = at[n + 2];
        json_t *schema = flag == '?' ? json_pack("{s:[s,s]}", "type", type, "null")
                                     : json_pack("{s:s}", "type", type);
        json_object_setn_new(properties, at, n, schema);
        if (flag != '*' && flag != '?')
            json_array_append_new(needed, json_stringn(at, n));
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    return json_pack("{s:s, s:o, s:o}", "type", "object", "properties", properties, "required",
                     needed);
}

static json_t *tool_json(const struct mcp_ask *ask, const struct mcp_tool *tool)
{
    json_t *hints =
        json_pack("{s:s, s:b, s:b, s:b, s:b}", "title", tool->title, "readOnlyHint",
                  (tool->hints & READS) != 0, "destructiveHint", (tool->hints & DESTROYS) != 0,
                  "idempotentHint", (tool->hints & REPEATS) != 0, "openWorldHint",
                  (tool->hints & OPEN_WORLD) != 0);

    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "name", tool->name, "title", tool->title,
                     "description", tool->what, "inputSchema", input_of(ask, tool), "outputSchema",
                     output_of(tool), "annotations", hints);
}

/* Where the address says which workspace, there is none to choose or to make. */
static bool is_offered(const struct mcp_ask *ask, const struct mcp_tool *tool)
{
    return !ask->is_fixed || !(tool->hints & NO_WORKSPACE);
}

json_t *mcp_tool_list(const struct mcp_ask *ask)
{
    json_t *list = json_array();

    for (size_t i = 0; i < mcp_tool_count; i++) {
        if (is_offered(ask, &mcp_tools[i]))
            json_array_append_new(list, tool_json(ask, &mcp_tools[i]));
    }
#ifdef CARREL_MCP_FIXTURES
    fixtures_tools(list);
#endif
    return list;
}

/* --- what a call says --- */

static bool is_of(const json_t *value, const struct mcp_field *f)
{
    const char *key;
    json_t *item;
    size_t i;

    switch (f->type) {
    case MCP_TEXT:
    case MCP_PATH:
        return json_is_string(value);
    case MCP_FLAG:
        return json_is_boolean(value);
    case MCP_NUMBER:
        return json_is_integer(value) && json_integer_value(value) >= f->least &&
               (!f->most || json_integer_value(value) <= f->most);
    case MCP_TEXTS:
        json_array_foreach(value, i, item)
        {
            if (!json_is_string(item))
                return false;
        }
        return json_is_array(value);
    case MCP_MAP:
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            if (!json_is_string(item))
                return false;
        }
        return json_is_object(value);
    }
    return false;
}

static bool bad(struct mcp_ask *ask, const char *format, const char *name)
{
    char text[200];

    /* The format is one of this file's. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof(text), format, name);
#pragma GCC diagnostic pop
    mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "%s: %s", ask->tool->name, text);
    return false;
}

static bool is_known(const struct mcp_tool *tool, const char *name)
{
    for (const struct mcp_field *f = tool->fields; f->name; f++) {
        if (strcmp(f->name, name) == 0)
            return true;
    }
    return false;
}

/* Other names that models know for the same. */
static void translate(json_t *args)
{
    static const char *const names[][2] = {{"file_path", "path"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *value = json_object_get(args, names[i][0]);
        if (value && !json_object_get(args, names[i][1])) {
            json_object_set(args, names[i][1], value);
            json_object_del(args, names[i][0]);
        }
    }
}

static bool take_workspace(struct mcp_ask *ask)
{
    const json_t *given = json_object_get(ask->args, "workspace");
    const char *id = given ? json_string_value(given) : ask->workspace;

    if (ask->tool->hints & NO_WORKSPACE)
        return !given || bad(ask, "there is no argument '%s'", "workspace");
    if (!id)
        return bad(ask, "'%s' must be a text", "workspace");
    if (!*id)
        return bad(ask, "'%s' is missing; workspace_list lists the workspaces", "workspace");
    if (ask->is_fixed && strcmp(id, ask->workspace) != 0)
        return bad(ask, "this server works only in the workspace '%s'", ask->workspace);
    if (!protocol_id_is_valid(id))
        return bad(ask, "'%s' is not the id of a workspace", "workspace");
    if (!given)
        json_object_set_new(ask->args, "workspace", json_string(id));
    return true;
}

static bool take_args(struct mcp_ask *ask)
{
    json_t *given = json_object_get(ask->params, "arguments");
    const char *name;
    json_t *value;
    void *next;

    if (given && !json_is_object(given))
        return bad(ask, "'%s' must be an object", "arguments");
    ask->args = given ? json_copy(given) : json_object();
    translate(ask->args);
    json_object_foreach_safe(ask->args, next, name, value)
    {
        if (json_is_null(value))
            json_object_del(ask->args, name);
        else if (strcmp(name, "workspace") != 0 && !is_known(ask->tool, name))
            return bad(ask, "there is no argument '%.60s'", name);
    }
    for (const struct mcp_field *f = ask->tool->fields; f->name; f++) {
        value = json_object_get(ask->args, f->name);
        if (!value && f->is_needed)
            return bad(ask, "'%s' is missing", f->name);
        if (value && !is_of(value, f))
            return bad(ask, "'%s' does not match the tool's inputSchema", f->name);
    }
    return take_workspace(ask);
}

/* --- the request --- */

static const char *text_of(const struct mcp_ask *ask, const struct mcp_field *f)
{
    return json_string_value(json_object_get(ask->args, f->name));
}

/* The address of the workspace, and of the thing in it. */
static void add_path(const struct mcp_ask *ask, struct buf *b)
{
    const struct mcp_tool *tool = ask->tool;

    if (!(tool->hints & NO_WORKSPACE)) {
        buf_str(b, "/v1/workspaces/");
        mcp_encode(b, json_string_value(json_object_get(ask->args, "workspace")), false);
    }
    for (const char *at = tool->path; *at;) {
        size_t n = strcspn(at, "{");
        buf_add(b, at, n);
        at += n;
        for (const struct mcp_field *f = tool->fields; *at && f->name; f++) {
            if (f->place == IN_PATH)
                mcp_encode(b, text_of(ask, f), false);
        }
        at += strcspn(at, "}");
        at += *at == '}';
    }
    for (const struct mcp_field *f = tool->fields; f->name; f++) {
        if (f->place != IN_FILE)
            continue;
        if (*text_of(ask, f) != '/')
            buf_str(b, "/");
        mcp_encode(b, text_of(ask, f), true);
    }
}

static void add_query(const struct mcp_ask *ask, struct buf *b)
{
    bool any = ask->tool->query != NULL;

    if (any)
        buf_printf(b, "?%s", ask->tool->query);
    for (const struct mcp_field *f = ask->tool->fields; f->name; f++) {
        const json_t *value = json_object_get(ask->args, f->name);
        if (f->place != IN_QUERY || !value)
            continue;
        buf_printf(b, "%s%s=", any ? "&" : "?", f->as ? f->as : f->name);
        any = true;
        if (f->type == MCP_FLAG)
            buf_str(b, json_is_true(value) ? "1" : "0");
        else if (f->type == MCP_NUMBER)
            buf_printf(b, "%lld", (long long)json_integer_value(value));
        else
            mcp_encode(b, json_string_value(value), true);
    }
}

/* A path as the routes want it. */
static json_t *absolute(json_t *value)
{
    const char *path = json_string_value(value);
    scoped_buf struct buf b = {.n = 0};

    if (*path == '/')
        return json_incref(value);
    buf_init(&b, 16384);
    buf_printf(&b, "/%s", path);
    return buf_done(&b) == 0 ? json_stringn(b.p, b.n) : json_incref(value);
}

/* Puts paths and members where they belong; NULL: it has no body of JSON. */
static json_t *body_of(const struct mcp_ask *ask)
{
    const struct mcp_tool *tool = ask->tool;
    json_t *body = tool->body ? json_parsed(tool->body) : NULL;

    for (const struct mcp_field *f = tool->fields; f->name; f++) {
        json_t *value = json_object_get(ask->args, f->name);
        if (f->place != IN_BODY || !value)
            continue;
        if (!body)
            body = json_object();
        json_object_set_new(body, f->as ? f->as : f->name,
                            f->type == MCP_PATH ? absolute(value) : json_incref(value));
    }
    return body;
}

/* --- the result --- */

void mcp_tool_result(struct mcp_ask *ask, json_t *text, json_t *structured)
{
    if (!text) {
        char *dump = json_dumps(structured, JSON_COMPACT | JSON_REAL_PRECISION(6));
        text = json_string(dump ? dump : "{}");
        free(dump);
    }
    mcp_result(ask, json_pack("{s:[{s:s, s:o}], s:o, s:b}", "content", "type", "text", "text", text,
                              "structuredContent", structured, "isError", 0));
}

void mcp_tool_failed(struct mcp_ask *ask, const char *format, ...)
{
    char message[1024];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof(message) ? (size_t)n : sizeof(message) - 1;
    mcp_result(ask, json_pack("{s:[{s:s, s:o}], s:b}", "content", "type", "text", "text",
                              mcp_text(message, size), "isError", 1));
}

void mcp_tool_refused(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    mcp_tool_failed(ask, "%s", mcp_reason(ask, heard));
}

/* What no model has any use for, and every list would repeat. */
static void prune(json_t *answer)
{
    static const char *const lists[] = {"entries", "matches"};
    json_t *item;
    size_t i;

    json_object_del(answer, "etag");
    for (size_t k = 0; k < sizeof(lists) / sizeof(lists[0]); k++) {
        json_array_foreach(json_object_get(answer, lists[k]), i, item)
            json_object_del(item, "etag");
    }
}

static void heard(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    if (heard->status == 0 || heard->status >= 400) {
        mcp_tool_refused(ask, heard);
        return;
    }
    if (strcmp(ask->tool->gives, "ok:b") == 0) {
        mcp_tool_result(ask, NULL, json_pack("{s:b}", "ok", 1));
        return;
    }
    if (strcmp(ask->tool->gives, "diff:s") == 0) {
        json_t *diff = mcp_text(heard->bytes, heard->n);
        mcp_tool_result(ask, json_incref(diff), json_pack("{s:o}", "diff", diff));
        return;
    }
    json_t *answer = json_loadb(heard->bytes, heard->n, JSON_ALLOW_NUL, NULL);
    if (!json_is_object(answer)) {
        json_decref(answer);
        mcp_tool_failed(ask,
                        "the daemon gave an answer that is too large to pass on; ask for less");
        return;
    }
    prune(answer);
    mcp_tool_result(ask, NULL, answer);
}

static void fetch(struct mcp_ask *ask, const char *target)
{
    struct mcp_request wanted = {.method = ask->tool->method, .target = target};
    json_t *body = body_of(ask);

    for (const struct mcp_field *f = ask->tool->fields; f->name; f++) {
        const json_t *value = json_object_get(ask->args, f->name);
        if (f->place != IN_BYTES || !value)
            continue;
        wanted.type = "application/octet-stream";
        wanted.bytes = json_string_value(value);
        wanted.n = json_string_length(value);
    }
    if (body) {
        json_decref(ask->kept);
        char *text = json_dumps(body, JSON_COMPACT);
        json_decref(body);
        ask->kept = text ? json_string(text) : NULL; /* lasts as long as the ask */
        free(text);
        wanted.bytes = json_string_value(ask->kept);
        wanted.n = json_string_length(ask->kept);
    }
    (void)mcp_fetch(ask, &wanted, heard);
}

static void call_tool(struct mcp_ask *ask)
{
    scoped_buf struct buf target = {.n = 0};

    buf_init(&target, HTTP_MAX_TARGET);
    add_path(ask, &target);
    if (!ask->tool->own)
        add_query(ask, &target);
    if (buf_done(&target) < 0) {
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "%s: an argument is too long", ask->tool->name);
        return;
    }
    if (ask->tool->own) {
        ask->target = arena_copy(&ask->call->arena, target.p, target.n);
        if (ask->target)
            ask->tool->own(ask);
        else
            mcp_error(ask, 413, MCP_BAD_PARAMS, NULL, "the request is too large");
        return;
    }
    if (!(ask->tool->hints & LASTS) || mcp_stream(ask))
        fetch(ask, target.p);
}

void mcp_tool_call(struct mcp_ask *ask)
{
    const char *name = json_string_value(json_object_get(ask->params, "name"));

#ifdef CARREL_MCP_FIXTURES
    if (name && fixtures_call(ask, name))
        return;
#endif
    for (size_t i = 0; name && i < mcp_tool_count; i++) {
        if (strcmp(mcp_tools[i].name, name) == 0 && is_offered(ask, &mcp_tools[i]))
            ask->tool = &mcp_tools[i];
    }
    if (!ask->tool)
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "there is no tool '%.60s'; tools/list tells them",
                  name ? name : "");
    else if (take_args(ask))
        call_tool(ask);
}
