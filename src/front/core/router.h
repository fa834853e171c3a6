/* SPDX-License-Identifier: Apache-2.0 */
/* From an HTTP request to the handler of its route: finds it, finds out who asks and whether the
 * ids in the path are theirs, reads the body. */
#pragma once

#include "front/core/call.h"

/* Who may. Which workspaces, find_workspace says; what of it, the handler. */
#define KEYMAKERS (SCOPE_ADMIN | SCOPE_OWNER)
#define OWNERS    (KEYMAKERS | SCOPE_USER)
#define WORKERS   (OWNERS | SCOPE_AGENT)
#define READERS   (WORKERS | SCOPE_READ)
#define VIEWERS   (READERS | SCOPE_APPROVE) /* of plans; who may not decide is refused on record */

#define BODY_SMALL (256UL << 10)
#define BODY_EXEC  (6UL << 20)
#define BODY_FILES (64UL << 20)
#define BODY_INPUT (1UL << 20)

enum route_flags {
    RAW = 1,     /* the body is not JSON */
    NO_HEAD = 2, /* of a GET: there is no HEAD */
    FOREIGN = 4, /* of another protocol: front->translate makes its answers of ours */
};

/* Of routes with {ws}, whether an agent's key may use them where the workspace's policy says
 * "writes": "plan" (planned.h): what only looks, what goes into the key's plan, and what is done
 * with plans. Another text says why not. */
#define IN_PLAN     ""
#define NOT_IN_PLAN "does not do that; its owner's key does"

/* One line for each method and path of the interface. Each room has a table of its own, on top of
 * its routes.c, which ends with ROUTES_END; main.c has the list of them. */
struct route {
    enum http_method method;
    /* {ws}, {exec}, {plan} and {key} stand for ids, {name} for a template's, {port} for a number,
     * {*} at its end for the rest of the path. */
    const char *path;
    unsigned scopes; /* any of these; 0: open to everybody */
    int64_t body;    /* most bytes; 0: none is read; HTTP_BODY_STREAM: handled as it comes */
    unsigned flags;  /* enum route_flags */
    void (*handle)(struct call *);
    const char *query;   /* names of its parameters, a space between two */
    const char *planned; /* IN_PLAN, or why not; NULL: NOT_IN_PLAN */
};

#define ROUTES_END                                                                                 \
    {                                                                                              \
        .path = NULL                                                                               \
    }

extern const struct http_calls router_calls; /* their owner is the struct front */

/* Whether the path matches the pattern; if so its ids are in call->params. */
bool router_match(struct call *call, const char *pattern, const char *path);
void router_free(struct call *call);
/* Finds the actor: by the key, or over the Unix socket by the peer's uid. False: there is none. */
bool router_identify(struct call *call);
/* Makes the owner of this key, or the workspace of this token, the actor. False: it is neither. */
bool router_use_key(struct call *call, const char *key);
/* Makes the actor an agent of this one workspace, whose token the client has shown. */
void router_become_workspace(struct call *call, const struct store_workspace *w);
/* After a wait: checks actor and owner once more. False: answered. */
bool router_recheck(struct call *call);
