/* SPDX-License-Identifier: Apache-2.0 */
/* What of other places appears in a workspace: skills, and the ticket's workspace. To the broker
 * these are mounts of the bucket's own directories. */
#pragma once

#include "front/core/call.h"
#include "protocol/broker.h"

enum link_kind {
    LINK_SYSTEM, /* the skills of all */
    LINK_USER,
    LINK_TICKET,
    LINK_COUNT_,
};

/* One of them, as a workspace's settings have it. */
struct shared_link {
    const char *name;   /* in "places" */
    const char *source; /* as in spec_message.shared; "": none is given */
    const char *at;     /* where it appears, relative to /; "": nowhere */
    const char *place;  /* where a symlink of old in its stead leads; "": there is none */
    bool writable;
};

/* Checks a "links" object for a workspace of this owner; answers 400 or 404 itself. */
bool links_check(struct call *call, json_t *links, const char *owner);
/* NULL is an empty object. Texts are the arena's; false: it has no room. */
bool links_read(struct arena *arena, const json_t *links, struct shared_link ret[LINK_COUNT_]);
/* As spec_message.shared; NULL without room. */
const char *const *links_mounts(struct arena *arena, const struct shared_link links[LINK_COUNT_]);
/* Puts the links of the call's workspace into the message; texts are the arena's. False: one leads
 * nowhere, answered with 409. */
bool links_apply(struct call *call, struct spec_message *spec);
