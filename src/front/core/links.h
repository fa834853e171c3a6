/* SPDX-License-Identifier: Apache-2.0 */
/* What of other places appears in a workspace: skills, and the ticket's workspace. */
#pragma once

#include "front/core/call.h"
#include "protocol/broker.h"

/* Checks a "links" object for a workspace of this owner; answers 400 or 404 itself. */
bool links_check(struct call *call, json_t *links, const char *owner);
/* Asks where the symlinks of old in a tree lead, at the places that its links say. */
void links_look(struct call *call, const char *bucket, const char *workspace, const json_t *links,
                call_heard *heard);

/* What was found at one of the three places. */
struct links_found {
    const char *names; /* "skills/NAME", "threads/NAME"; "" : nothing that is of use */
    const char *place; /* inside, where it leads */
    const char *why;   /* it is not used */
};

/* The answer to that, whose bytes the texts are. */
bool links_heard(struct answer *answer, struct links_found ret[LINK_COUNT_], struct err *err);
/* Sets "places" in the links: where those lead that name just what the links give already. */
void links_place(json_t *links, const struct links_found found[LINK_COUNT_]);
/* Puts the links of the call's workspace into the message; texts are the arena's. False: one leads
 * nowhere, answered with 409. */
bool links_apply(struct call *call, struct boundary_message *boundary);
