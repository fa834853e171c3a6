/* SPDX-License-Identifier: Apache-2.0 */
/* A command over a WebSocket, both ways, for terminals in a page and for clients of other
 * protocols. Binary messages are its output, in the order in which it was written, and its input;
 * texts are JSON:
 *
 *   to the client    {"type":"ready","exec_id":…} first; {"type":"exit","code":N,"result":{…}} or
 *                    {"type":"error","code":…,"message":…} last, and a Close
 *   to the command   {"type":"resize","cols":N,"rows":N}, {"type":"signal","signal":"INT"},
 *                    {"type":"eof"}
 */
#pragma once

#include "front/core/call.h"
#include "front/exec/exec.h"

#define ATTACH_FROM_FIRST UINT64_MAX

/* Whether the request asks for a WebSocket that can be; false: answered. */
bool attach_is_asked(struct call *call);
/* Answers with 101. `from`: the offset of the output to begin at, or ATTACH_FROM_FIRST: the oldest
 * that is kept. */
void attach_start(struct call *call, struct exec *exec, uint64_t from);
/* The same for a terminal that is this client's alone: the command is ended when it leaves, and
 * "ready" is said when it prompts, so that a line of any length can be typed. */
void attach_terminal(struct call *call, struct exec *exec);
