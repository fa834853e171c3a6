/* SPDX-License-Identifier: Apache-2.0 */
/* What a request can ask for, in each of the two protocols. */
#include <string.h>

#include "front/core/live.h"
#include "front/mcp/mcp.h"
#ifdef CARREL_MCP_FIXTURES
#include "front/mcp/fixtures.h"
#endif

enum {
    OLDER = 1,
    NEWER = 2,
    BOTH = OLDER | NEWER,
    LIST_TTL_MS = 60000,
};

const char mcp_instructions[] =
    "Carrel runs commands and keeps files in private workspaces. Paths are absolute inside a "
    "workspace. Use 'execute' for commands that end, 'start_process' for those that go on. "
    "'plan_run' "
    "runs a command of which nothing changes the workspace before 'plan_apply'. Where a "
    "workspace's "
    "policy says \"writes\": \"plan\", all that you change goes into one plan: close it with "
    "'plan_close', look at it with 'plan_show' and 'plan_diff', and apply it, or have a person "
    "approve "
    "it.";

json_t *mcp_capabilities(void)
{
#ifdef CARREL_MCP_FIXTURES
    return fixtures_capabilities();
#else
    /* There are no prompts; but who asks for them gets an empty list, and not an error. */
    return json_pack("{s:{}, s:{}, s:{}}", "tools", "resources", "prompts");
#endif
}

/* What may be kept, and by whom: the newer protocol wants to know. */
static void list(struct mcp_ask *ask, const char *name, json_t *items)
{
    json_t *result = json_pack("{s:o}", name, items);

    if (ask->modern) {
        json_object_set_new(result, "ttlMs", json_integer(LIST_TTL_MS));
        json_object_set_new(result, "cacheScope", json_string("private"));
    }
    mcp_result(ask, result);
}

static void discover(struct mcp_ask *ask)
{
    mcp_result(ask,
               json_pack("{s:[s], s:o, s:s, s:i, s:s}", "supportedVersions", MCP_MODERN_VERSION,
                         "capabilities", mcp_capabilities(), "instructions", mcp_instructions,
                         "ttlMs", LIST_TTL_MS, "cacheScope", "private"));
}

static void ping(struct mcp_ask *ask)
{
    mcp_result(ask, json_object());
}

static void tools_list(struct mcp_ask *ask)
{
    if (json_object_get(ask->params, "cursor")) {
        mcp_error(ask, 200, MCP_BAD_PARAMS, NULL,
                  "there is no such cursor: all tools are on one page");
        return;
    }
    list(ask, "tools", mcp_tool_list(ask));
}

static void prompts_list(struct mcp_ask *ask)
{
    list(ask, "prompts", json_array());
}

static void prompts_get(struct mcp_ask *ask)
{
    mcp_error(ask, 200, MCP_BAD_PARAMS, NULL, "there are no prompts");
}

/* Nothing that could be told changes while the daemon runs: it stays open, and says which
 * of the notifications that were asked for it will send, which is none. */
static void listen_on(struct mcp_ask *ask)
{
    if (!json_is_object(json_object_get(ask->params, "notifications"))) {
        mcp_error(ask, 400, MCP_BAD_PARAMS, NULL, "params.notifications is missing");
        return;
    }
    if (!mcp_stream(ask))
        return;
    if (!ask->streams) {
        mcp_error(ask, 406, MCP_INVALID, NULL, "it needs 'Accept: text/event-stream'");
        return;
    }
    mcp_notify(
        ask, "notifications/subscriptions/acknowledged",
        json_pack("{s:{}, s:{s:O}}", "notifications", "_meta", MCP_META "subscriptionId", ask->id));
}

static const struct {
    const char *name;
    unsigned protocols;
    void (*answer)(struct mcp_ask *);
} methods[] = {
    {"ping", OLDER, ping},
    {"server/discover", NEWER, discover},
    {"subscriptions/listen", NEWER, listen_on},
    {"tools/list", BOTH, tools_list},
    {"tools/call", BOTH, mcp_tool_call},
    {"resources/list", BOTH, mcp_resources_list},
    {"resources/templates/list", BOTH, mcp_resources_templates},
    {"resources/read", BOTH, mcp_resources_read},
    {"prompts/list", BOTH, prompts_list},
    {"prompts/get", BOTH, prompts_get},
};

void mcp_answer(struct mcp_ask *ask, const char *method)
{
    unsigned protocol = ask->modern ? NEWER : OLDER;
    const json_t *token = json_object_get(json_object_get(ask->params, "_meta"), "progressToken");

    if (json_is_string(token) || json_is_integer(token))
        ask->token = token;
    if (!ask->params) {
        ask->params = json_object();
        json_object_set_new(ask->message, "params", ask->params);
    }
#ifdef CARREL_MCP_FIXTURES
    if (fixtures_answer(ask, method))
        return;
#endif
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if ((methods[i].protocols & protocol) && strcmp(methods[i].name, method) == 0) {
            methods[i].answer(ask);
            return;
        }
    }
    mcp_error(ask, ask->modern ? 404 : 200, MCP_NO_METHOD, NULL, "there is no method '%.60s' here",
              method);
}
