/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions of the older protocol: a name by which a client cancels what it has asked for, and
 * nothing else. They live in memory; after a restart the client is told that it has none, and
 * begins another. Who opens more than an owner may have loses those not used for the longest time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/mcp/mcp.h"

enum {
    OWNER_MOST = 128,
    ALL_MOST = 4096,
};

struct mcp_session {
    struct mcp_session *next;
    char id[60];
    struct actor actor; /* who opened it; `workspaces` is not kept */
};

struct mcp *mcp_of(struct front *front)
{
    if (!front->mcp)
        front->mcp = calloc(1, sizeof(*front->mcp));
    return front->mcp;
}

static void drop(struct mcp *mcp, struct mcp_session **at)
{
    struct mcp_session *gone = *at;

    *at = gone->next;
    mcp->session_count--;
    free(gone);
}

/* Ends the oldest session of that owner, or of all, if there are as many as there may be. */
static void make_room(struct mcp *mcp, const char *owner)
{
    struct mcp_session **oldest = NULL;
    struct mcp_session **oldest_own = NULL;
    unsigned own = 0;

    for (struct mcp_session **at = &mcp->sessions; *at; at = &(*at)->next) {
        oldest = at;
        if (strcmp((*at)->actor.owner, owner) == 0) {
            own++;
            oldest_own = at;
        }
    }
    if (own >= OWNER_MOST)
        drop(mcp, oldest_own);
    else if (oldest && mcp->session_count >= ALL_MOST)
        drop(mcp, oldest);
}

bool mcp_session_open(struct call *call, char ret[60])
{
    struct mcp *mcp = mcp_of(call->front);
    struct mcp_session *s = calloc(1, sizeof(*s));
    char a[28];
    char b[28];

    if (!mcp || !s) {
        free(s);
        return false;
    }
    make_room(mcp, call->actor.owner);
    make_id('m', a);
    make_id('s', b);
    snprintf(s->id, sizeof(s->id), "%s%s", a, b);
    s->actor = call->actor;
    s->actor.workspaces = NULL;
    s->next = mcp->sessions;
    mcp->sessions = s;
    mcp->session_count++;
    memcpy(ret, s->id, sizeof(s->id));
    return true;
}

/* Where it hangs; NULL: there is none of this actor. */
static struct mcp_session **find(struct call *call, const char *id)
{
    struct mcp *mcp = call->front->mcp;

    for (struct mcp_session **at = mcp ? &mcp->sessions : NULL; at && *at; at = &(*at)->next) {
        if (strcmp((*at)->id, id) == 0)
            return strcmp((*at)->actor.name, call->actor.name) == 0 ? at : NULL;
    }
    return NULL;
}

bool mcp_session_find(struct call *call, const char *id)
{
    struct mcp_session **at = find(call, id);

    if (!at)
        return false;
    struct mcp_session *s = *at;
    *at = s->next;
    s->next = call->front->mcp->sessions;
    call->front->mcp->sessions = s;
    return true;
}

bool mcp_session_close(struct call *call, const char *id)
{
    struct mcp_session **at = find(call, id);

    if (at)
        drop(call->front->mcp, at);
    return at != NULL;
}
