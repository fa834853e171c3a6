/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request on a workspace's files: the message to its file server, the body on its way in,
 * the record of a change, and the answer on its way out. */
#pragma once

#include "front/core/call.h"
#include "protocol/files.h"

/* `operation` names the change in the record ("file.write"), NULL: nothing is changed. The answer
 * waits until the record is on disk; what then fails is recorded too. The message is copied. False:
 * answered. */
bool file_call_begin(struct call *call, const struct files_message *m, const char *operation);
/* A change to many: one more of its paths for the record, which has as many as fit. */
void file_call_path(struct call *call, const char *path);
/* Bytes of the body that are at hand. */
void file_call_body(struct call *call, const void *bytes, size_t n);
/* Has been answered before it went. */
void file_call_drop(struct call *call);
/* Sends it: with what was given as body, or, `streamed`, with what the client still sends. */
void file_call_go(struct call *call, bool streamed);
