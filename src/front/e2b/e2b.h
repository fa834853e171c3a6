/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol of E2B's clients in terms of our own routes. A sandbox of theirs is a workspace with
 * a lifetime (workspaces/lifetime.h); what they ask for is asked of our own routes (core/inner.h),
 * or handed to their functions, with the key that they sent or, inside a sandbox, its token. The
 * room has no rows. docs/from-e2b.md says what is different. */
#pragma once

#include "front/core/inner.h"
#include "front/core/router.h"
#include "front/workspaces/lifetime.h"

enum {
    E2B_ENVD = 49983, /* files and commands of a sandbox */
    E2B_CODE = 49999, /* its code interpreter */
    E2B_MOST = 8 << 20,
};

#define E2B_VERSION "0.6.13" /* of envd, whose behaviour this is */
#define E2B_HOME    "/home/user"
/* Labels that begin like this are ours and not the client's metadata. */
#define E2B_LABEL "e2b."

/* Each has a table, which ends with ROUTES_END; scopes is not looked at. */
extern const struct route e2b_control_routes[];
extern const struct route e2b_envd_routes[]; /* of port 49983 */
extern const struct route e2b_code_routes[]; /* of port 49999: call->workspace is the sandbox */

/* GET /metrics of port 49983. */
void e2b_metrics_inside(struct call *call);

/* --- how errors are said --- */

/* {"code": 404, "message": …} */
json_t *e2b_words(struct call *call, int *status, json_t *object);
/* {"code": "not_found", "message": …} */
json_t *e2b_rpc_words(struct call *call, int *status, json_t *object);
/* The word of Connect for one of our statuses, and the status that goes with it. */
const char *e2b_rpc_code(int status, const char *ours, int *ret_status);
/* Of a port that nobody listens on: its number is call->number. */
json_t *e2b_port_words(struct call *call, int *status, json_t *object);

/* --- asking our own routes, one after the other --- */

struct e2b {
    struct call *call;
    struct inner *inner;
    struct inner_asker who;
    char *body;
    void (*heard)(struct e2b *e, int status, json_t *object); /* which is not its to keep */
    void *data;
    void (*dropped)(struct e2b *e); /* or NULL */
};

/* It is the call's context from here on, and goes with it. NULL: answered. */
struct e2b *e2b_begin(struct call *call, void *data);
/* The call is handed to another handler. */
void e2b_drop(struct call *call);
/* Takes the object; NULL: none. The format makes the target. */
void e2b_ask(struct e2b *e, enum http_method method, json_t *body,
             void (*heard)(struct e2b *, int, json_t *), const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Answers with what was refused. */
void e2b_refuse(struct e2b *e, int status, json_t *object);
/* Of a path or query: encoded, in the arena; "" without room. */
const char *e2b_encoded(struct call *call, const char *text, bool is_path);

/* A parameter, as forms encode it: a plus is a blank. NULL: there is none. False: answered. */
bool e2b_query(struct call *call, const char *name, const char **ret);

/* --- sandboxes --- */

/* The lifetime of the call's workspace. False: it is none of theirs, which is answered. */
bool e2b_lifetime(struct call *call, struct lifetime *ret);
/* 502, as their proxy says it. */
void e2b_gone(struct call *call, const char *id);
/* Equal, in a time that does not depend on where they differ. */
bool e2b_same(const char *a, const char *b);
/* Whether the address is signed with the token of this sandbox; false: answered. */
bool e2b_signature(struct call *call, bool writes, const struct lifetime *l);
/* ... of which one it is: that is the call's workspace then. */
bool e2b_signed(struct call *call, bool writes);
