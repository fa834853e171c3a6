/* SPDX-License-Identifier: Apache-2.0 */
/* From an HTTP request to the handler of its route: finds it, finds out who asks and whether the
 * ids in the path are theirs, reads the body. */
#pragma once

#include "front/core/call.h"

struct route {
    enum http_method method;
    const char *path; /* {ws}, {exec}, {plan} and {key} stand for ids, {port} for a number */
    unsigned scopes;  /* any of these; 0: open to everybody */
    int64_t body;     /* most bytes; 0: none is read; HTTP_BODY_STREAM: handled as it comes */
    bool raw;         /* the body is not JSON */
    void (*handle)(struct call *);
    const char *query; /* names of its parameters, a space between two */
};

extern const struct route routes[];
extern const size_t route_count;
extern const struct http_calls router_calls; /* their owner is the struct front */

void router_free(struct call *call);
/* Who asks: by the key, or over the Unix socket by the peer's uid. False: nobody we know. */
bool router_identify(struct call *call);
/* Who asks and whose it is, once more, after a wait; false: answered. */
bool router_recheck(struct call *call);
