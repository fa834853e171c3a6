/* SPDX-License-Identifier: Apache-2.0 */
/* The Model Context Protocol at /mcp, over what the daemon does anyway: a tool is a request to one
 * of our own routes (core/inner.h), so that keys, owners, planned writes and the record are looked
 * after where they are for everybody. Two protocols share the address: the older one (2024-11-05 to
 * 2025-11-25) opens with `initialize` and has sessions; the newer one (2026-07-28) has neither, and
 * each request says what it is.
 *
 *   mcp_post (routes.c): which of the two, is the head right
 *     -> methods.c: what is asked -> tools.c, run.c, resources.c: requests to other routes
 *     <- answer.c: one JSON object, or a stream of progress with the result as its last event
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/events.h"
#include "front/core/call.h"
#include "front/core/inner.h"

#define MCP_MODERN_VERSION "2026-07-28"
#define MCP_LATEST_LEGACY  "2025-11-25"
#define MCP_META           "io.modelcontextprotocol/"

enum {
    MCP_BEHIND = 256 << 10, /* of a stream that its client does not read: the command waits */
    MCP_PARSE = -32700,
    MCP_INVALID = -32600,
    MCP_NO_METHOD = -32601,
    MCP_BAD_PARAMS = -32602,
    MCP_INTERNAL = -32603,
    MCP_NO_RESOURCE = -32002, /* of the older protocol; the newer one has MCP_BAD_PARAMS */
    MCP_HEADER_MISMATCH = -32020,
    MCP_LACKS_CAPABILITY = -32021,
    MCP_NO_VERSION = -32022,
};

struct mcp_tool;
struct mcp_run;

/* The answer of another route: text is whole and NUL-terminated. */
struct mcp_heard {
    int status;        /* 0: it broke off */
    bool is_too_large; /* ... because it is more than was asked for at most */
    const char *bytes;
    size_t n;
};

/* One request of a client's. It lasts as long as its call. */
struct mcp_ask {
    struct mcp_ask *next; /* in front->mcp */
    struct mcp_ask **at;
    struct call *call;
    struct front *front;
    struct inner_asker who;
    bool modern;
    bool is_fixed; /* the address says which workspace, and no other will do */
    char workspace[FRONT_ID];
    char session[60];
    json_t *message;
    const json_t *id; /* of the message */
    json_t *params;   /* likewise, or NULL */
    const struct mcp_tool *tool;
    json_t *args;       /* checked; it has a workspace if the tool needs one */
    const char *target; /* of a tool of its own, without a query; the arena's */
    struct inner *inner;
    void (*heard)(struct mcp_ask *, const struct mcp_heard *);
    struct mcp_run *run;
    json_t *kept; /* of a first answer, until the second is there */
    bool streams;
    bool over;
    struct buf out;
    size_t out_at;
    struct timer ping;
    void *fixture;       /* of the test build: tests/conformance/mcp_fixtures.c */
    const json_t *token; /* of its progress; NULL: nobody wants any */
};

/* --- answer.c --- */

/* The answer lasts: a stream, if the client takes one. False: there is no room, as was told. */
bool mcp_stream(struct mcp_ask *ask);
/* Takes the object. */
void mcp_result(struct mcp_ask *ask, json_t *result);
void mcp_result_with(struct mcp_ask *ask, json_t *result, const char *headers);
/* Takes `data`, or NULL. */
void mcp_error(struct mcp_ask *ask, int status, int code, json_t *data, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A notification about this request; takes the params. Nothing where the answer is no stream. */
void mcp_notify(struct mcp_ask *ask, const char *method, json_t *params);
/* Any message that goes out before the result; takes it. */
void mcp_send(struct mcp_ask *ask, json_t *message);
/* How far it is, by a number that only grows. */
void mcp_progress(struct mcp_ask *ask, uint64_t progress, const char *message, size_t n);
/* Nothing more is said about it. */
void mcp_silence(struct mcp_ask *ask);
/* Whether its client is behind with reading. */
bool mcp_is_behind(const struct mcp_ask *ask);
/* What the daemon is, as both protocols tell it. */
json_t *mcp_server_info(void);
/* A text of bytes; what is no UTF-8 in them is replaced. */
json_t *mcp_text(const char *bytes, size_t n);

/* --- fetch.c: requests to other routes --- */

struct mcp_request {
    enum http_method method;
    const char *target;
    const char *type;
    const char *bytes; /* lasts as long as the ask */
    size_t n;
    size_t most;
};

/* Asks a route; `heard` is called with its answer. False: the ask is answered already. */
bool mcp_fetch(struct mcp_ask *ask, const struct mcp_request *wanted,
               void (*heard)(struct mcp_ask *, const struct mcp_heard *));
/* The sentence of a refusal, with its code; the arena's. */
const char *mcp_reason(struct mcp_ask *ask, const struct mcp_heard *heard);
/* Adds it with everything but letters, digits and -._~ encoded; slashes too unless `is_path`. */
void mcp_encode(struct buf *b, const char *text, bool is_path);

/* --- methods.c --- */

void mcp_answer(struct mcp_ask *ask, const char *method);
json_t *mcp_capabilities(void);
extern const char mcp_instructions[];

/* --- tools.c --- */

json_t *mcp_tool_list(const struct mcp_ask *ask);
void mcp_tool_call(struct mcp_ask *ask);
/* The result of a tool, with its object as text too unless there is a better one; takes both. */
void mcp_tool_result(struct mcp_ask *ask, json_t *text, json_t *structured);
/* ... that it has failed, and why. */
void mcp_tool_failed(struct mcp_ask *ask, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* ... by the answer of a route. */
void mcp_tool_refused(struct mcp_ask *ask, const struct mcp_heard *heard);

/* --- run.c: commands --- */

void mcp_execute(struct mcp_ask *ask);
void mcp_read_process(struct mcp_ask *ask);
/* The client has left, or wants it ended: so is its command, if `kill`. */
void mcp_run_leave(struct mcp_ask *ask, bool kill);
/* We want it ended, and its command with it. */
void mcp_run_end(struct mcp_ask *ask);
/* The client has read. */
void mcp_run_go_on(struct mcp_ask *ask);

/* --- files.c: what of files is not one request --- */

void mcp_read_file(struct mcp_ask *ask);

/* --- resources.c --- */

void mcp_resources_list(struct mcp_ask *ask);
void mcp_resources_templates(struct mcp_ask *ask);
void mcp_resources_read(struct mcp_ask *ask);

/* --- sessions.c: of the older protocol --- */

/* The id of a new one; false: out of memory. */
bool mcp_session_open(struct call *call, char ret[60]);
/* Whether there is one of that id, of who asks. */
bool mcp_session_find(struct call *call, const char *id);
bool mcp_session_close(struct call *call, const char *id);

struct mcp {
    struct mcp_ask *asks;
    struct mcp_session *sessions; /* the one used last first */
    unsigned session_count;
};

/* NULL: out of memory. */
struct mcp *mcp_of(struct front *front);
