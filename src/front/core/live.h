/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that have not ended, and what ends them before their time: their key was revoked, their
 * workspace deleted, or their place is needed by others. Each is told once, and a stream that can
 * say so ends with {"type":"error","error":{...}} as its last line or event. */
#pragma once

#include "front/core/call.h"

struct ending {
    int status; /* of the answer, if there is none yet */
    const char *code;
    const char *reason; /* the setting that says so; NULL: none does */
    const char *message;
    bool ends_commands; /* a follower of a command hears of its end */
};

void live_add(struct call *call);
void live_remove(struct call *call);

/* Returns the last line of a stream, without its line end; the caller frees it. NULL: no memory. */
char *ending_line(const struct ending *ending);
/* Answers with that error, not through call->refused. What is under way goes on as if the client
 * had left. */
void call_answer_ending(struct call *call, const struct ending *ending);
/* The end of a call that says nothing by itself: that error, or, where it was answered, cut off. */
void call_end_plainly(struct call *call, const struct ending *ending);

/* Ends all calls of a key, except the call that revokes it. */
void live_end_key(struct front *front, const char *key, const struct call *except);
/* Ends all streams of a workspace. Its commands end with its sandbox; their followers hear that as
 * usual. */
void live_end_workspace(struct front *front, const char *workspace, const struct call *except);
/* For struct http_calls. */
void live_evicted(void *front, struct exchange *x, enum http_limit limit);

/* Counts the call's connection for its owner. False: over a limit, and answered. */
bool live_charge(struct call *call, const char *owner, bool is_admin);
/* Takes a place for an answer that lasts. False: over a limit, and answered. */
bool live_hold(struct call *call, enum http_stream_kind kind);
