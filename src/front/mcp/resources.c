/* SPDX-License-Identifier: Apache-2.0 */
/* Files and plans by address: carrel://WORKSPACE/PATH and carrel-plan://WORKSPACE/PLAN. Listed are
 * the files at the top of the workspace that is meant without a word, and its plans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "front/mcp/mcp.h"
#ifdef CARREL_MCP_FIXTURES
#include "front/mcp/fixtures.h"
#endif
#include "protocol/broker.h"

#define FILES "carrel://"
#define PLANS "carrel-plan://"

enum {
    READ_MOST = 8 << 20,
    PAGE = 500,
    TTL_MS = 0, /* somebody may have written meanwhile */
};

static void add_hints(const struct mcp_ask *ask, json_t *result)
{
    if (!ask->modern)
        return;
    json_object_set_new(result, "ttlMs", json_integer(TTL_MS));
    json_object_set_new(result, "cacheScope", json_string("private"));
}

static void not_found(struct mcp_ask *ask, const char *why)
{
    const char *uri = json_string_value(json_object_get(ask->params, "uri"));

    mcp_error(ask, 200, ask->modern ? MCP_BAD_PARAMS : MCP_NO_RESOURCE,
              json_pack("{s:o}", "uri", mcp_text(uri ? uri : "", uri ? strlen(uri) : 0)), "%s",
              why);
}

/* --- the list --- */

static void add_resource(json_t *list, const char *scheme, const char *workspace, const char *path,
                         const char *type)
{
    scoped_buf struct buf uri = {.n = 0};

    buf_init(&uri, 16384);
    buf_printf(&uri, "%s%s", scheme, workspace);
    mcp_encode(&uri, path, true);
    if (buf_done(&uri) < 0)
        return;
    json_t *resource = json_pack("{s:s, s:s}", "uri", uri.p, "name", path + 1);
    if (type)
        json_object_set_new(resource, "mimeType", json_string(type));
    json_array_append_new(list, resource);
}

/* Takes the list. */
static void tell_list(struct mcp_ask *ask, json_t *list, const char *cursor)
{
    json_t *result = json_pack("{s:o}", "resources", list);

#ifdef CARREL_MCP_FIXTURES
    fixtures_resources(list);
#endif
    if (cursor)
        json_object_set_new(result, "nextCursor", json_string(cursor));
    add_hints(ask, result);
    mcp_result(ask, result);
}

/* A workspace that cannot be read has nothing to list, and a key may not reach any. */
static json_t *page_of(const struct mcp_heard *heard)
{
    return heard->status == 200 ? json_loadb(heard->bytes, heard->n, 0, NULL) : NULL;
}

static void heard_plans(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    json_t *page = page_of(heard);
    json_t *list = ask->kept;
    json_t *item;
    size_t i;

    ask->kept = NULL;
    json_array_foreach(json_object_get(page, "plans"), i, item)
    {
        char path[64];
        const char *id = json_string_value(json_object_get(item, "id"));
        snprintf(path, sizeof(path), "/%s", id ? id : "");
        add_resource(list, PLANS, ask->workspace, path, "text/x-diff");
    }
    json_decref(page);
    tell_list(ask, list, NULL);
}

static void heard_files(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    json_t *page = page_of(heard);
    const char *cursor = json_string_value(json_object_get(page, "next"));
    json_t *list = json_array();
    char target[160];
    json_t *item;
    size_t i;

    json_array_foreach(json_object_get(page, "entries"), i, item)
    {
        const char *path = json_string_value(json_object_get(item, "path"));
        const char *type = json_string_value(json_object_get(item, "type"));
        if (path && type && strcmp(type, "file") == 0)
            add_resource(list, FILES, ask->workspace, path, NULL);
    }
    if (cursor) {
        tell_list(ask, list, cursor);
        json_decref(page);
        return;
    }
    json_decref(page);
    ask->kept = list;
    snprintf(target, sizeof(target), "/v1/workspaces/%s/plans?limit=100", ask->workspace);
    (void)mcp_fetch(ask, &(struct mcp_request){.method = HTTP_GET, .target = target}, heard_plans);
}

void mcp_resources_list(struct mcp_ask *ask)
{
    const char *cursor = json_string_value(json_object_get(ask->params, "cursor"));
    scoped_buf struct buf target = {.n = 0};

    if (!*ask->workspace) {
        tell_list(ask, json_array(), NULL);
        return;
    }
    buf_init(&target, HTTP_MAX_TARGET);
    buf_printf(&target, "/v1/workspaces/%s/files/?list=1&limit=%d", ask->workspace, PAGE);
    if (cursor) {
        buf_str(&target, "&cursor=");
        mcp_encode(&target, cursor, true);
    }
    if (buf_done(&target) < 0)
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "the cursor is too long");
    else
        (void)mcp_fetch(ask, &(struct mcp_request){.method = HTTP_GET, .target = target.p},
                        heard_files);
}

void mcp_resources_templates(struct mcp_ask *ask)
{
    json_t *list = json_pack(
        "[{s:s, s:s, s:s}, {s:s, s:s, s:s, s:s}]", "uriTemplate", FILES "{workspace}{+path}",
        "name", "file", "description", "A file of a workspace; path begins with /.", "uriTemplate",
        PLANS "{workspace}/{plan}", "name", "plan", "description",
        "What a plan changes in texts, as a unified diff.", "mimeType", "text/x-diff");
#ifdef CARREL_MCP_FIXTURES
    fixtures_templates(list);
#endif
    json_t *result = json_pack("{s:o}", "resourceTemplates", list);
    add_hints(ask, result);
    mcp_result(ask, result);
}

/* --- one of them --- */

static void heard_content(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    const char *uri = json_string_value(json_object_get(ask->params, "uri"));
    bool is_plan = strncmp(uri, PLANS, sizeof(PLANS) - 1) == 0;
    scoped_buf struct buf blob = {.n = 0};

    if (heard->status == 0) {
        not_found(ask,
                  "it is larger than 8 MiB, which is the most of a resource; read it by pages");
        return;
    }
    if (heard->status != 200) {
        not_found(ask, mcp_reason(ask, heard));
        return;
    }
    json_t *content = json_pack("{s:s}", "uri", uri);
    if (bytes_are_utf8(heard->bytes, heard->n)) {
        json_object_set_new(content, "mimeType",
                            json_string(is_plan ? "text/x-diff" : "text/plain"));
        json_object_set_new(content, "text", json_stringn(heard->bytes, heard->n));
    } else {
        buf_init(&blob, 2UL * READ_MOST);
        bytes_add_base64(&blob, heard->bytes, heard->n);
        json_object_set_new(content, "mimeType", json_string("application/octet-stream"));
        json_object_set_new(content, "blob",
                            buf_done(&blob) == 0 ? json_stringn(blob.p, blob.n) : NULL);
    }
    json_t *result = json_pack("{s:[o]}", "contents", content);
    add_hints(ask, result);
    mcp_result(ask, result);
}

/* The route that has what an address names; false: it names nothing of ours. */
static bool add_target(const struct mcp_ask *ask, struct buf *b, const char *uri)
{
    bool is_plan = strncmp(uri, PLANS, sizeof(PLANS) - 1) == 0;
    size_t skip = is_plan ? sizeof(PLANS) - 1 : sizeof(FILES) - 1;
    char id[FRONT_ID];

    if (!is_plan && strncmp(uri, FILES, sizeof(FILES) - 1) != 0)
        return false;
    size_t n = strcspn(uri + skip, "/");
    if (n == 0 || n >= sizeof(id) || uri[skip + n] != '/')
        return false;
    memcpy(id, uri + skip, n);
    id[n] = '\0';
    const char *rest = uri + skip + n;
    /* What is not encoded as it should be is what the address does not have. */
    if (!protocol_id_is_valid(id) || (ask->is_fixed && strcmp(id, ask->workspace) != 0) ||
        strpbrk(rest, "?# \r\n\t"))
        return false;
    for (const char *p = rest; *p; p++) {
        if ((unsigned char)*p < ' ' || (unsigned char)*p > '~')
            return false;
    }
    buf_printf(b, "/v1/workspaces/%s/%s%s%s", id, is_plan ? "plans" : "files", rest,
               is_plan ? "/diff" : "");
    return buf_done(b) == 0;
}

void mcp_resources_read(struct mcp_ask *ask)
{
    const char *uri = json_string_value(json_object_get(ask->params, "uri"));
    scoped_buf struct buf target = {.n = 0};

    buf_init(&target, HTTP_MAX_TARGET);
    if (!uri) {
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "params.uri is missing");
        return;
    }
#ifdef CARREL_MCP_FIXTURES
    if (fixtures_read(ask, uri))
        return;
#endif
    if (add_target(ask, &target, uri))
        (void)mcp_fetch(
            ask, &(struct mcp_request){.method = HTTP_GET, .target = target.p, .most = READ_MOST},
            heard_content);
    else
        not_found(ask, "there is no such resource; they are " FILES "WORKSPACE/PATH and " PLANS
                       "WORKSPACE/PLAN");
}
