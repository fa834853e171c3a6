/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of this room to other routes, one at a time for each request of a client's. */
#include <string.h>

#include "front/mcp/mcp.h"

static void done(void *context, int status, const struct buf *body)
{
    struct mcp_ask *ask = context;
    const struct mcp_heard heard = {
        .status = status,
        .is_too_large = body->failed,
        .bytes = body->n && !body->failed ? body->p : "",
        .n = body->failed ? 0 : body->n,
    };

    ask->inner = NULL;
    ask->heard(ask, &heard);
}

bool mcp_fetch(struct mcp_ask *ask, const struct mcp_request *wanted,
               void (*heard)(struct mcp_ask *, const struct mcp_heard *))
{
    const struct inner_request request = {
        .method = wanted->method,
        .target = wanted->target,
        .type = wanted->type,
        .bytes = wanted->bytes,
        .n = wanted->n,
        .most = wanted->most ? wanted->most : 8UL << 20,
        .done = done,
        .context = ask,
    };

    ask->heard = heard;
    ask->inner = inner_start(ask->front, &ask->who, &request);
    if (!ask->inner)
        mcp_error(ask, 503, MCP_INTERNAL, NULL,
                  "the daemon has no room for this request now; try again");
    return ask->inner != NULL;
}

const char *mcp_reason(struct mcp_ask *ask, const struct mcp_heard *heard)
{
    json_t *object = json_loadb(heard->bytes, heard->n, 0, NULL);
    const json_t *error = json_object_get(object, "error");
    const char *message = json_string_value(json_object_get(error, "message"));
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *text =
        message ? arena_printf(&ask->call->arena, "%s (%s)", message, code ? code : "error")
        : heard->is_too_large
            ? "the answer is larger than 8 MiB; ask for less, by 'limit' or below a narrower path"
        : heard->status == 0
            ? "the daemon broke off before it had answered; look whether it was done, and try again"
            : "the daemon answered with an error that it does not explain";

    json_decref(object);
    return text ? text : "out of memory";
}

void mcp_encode(struct buf *b, const char *text, bool is_path)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

    for (; *text; text++) {
        if (strchr(plain, *text) || (is_path && *text == '/'))
            buf_add(b, text, 1);
        else
            buf_printf(b, "%%%02X", (unsigned char)*text);
    }
}
