/* SPDX-License-Identifier: Apache-2.0 */
/* Connect, the protocol of envd's services, in JSON over HTTP/1.1. */
#pragma once

#include "front/e2b/e2b.h"
#include "front/e2b/envelope.h"

/* The body of a call with one message, as an object which is the caller's. NULL: answered, in a
 * stream's way. */
json_t *rpc_message(struct call *call);
/* From here on refusals are told as the end of a stream. */
void rpc_is_stream(struct call *call);
void rpc_end(struct call *call, const char *code, const char *message);
/* From here on as answers to a single message. */
void rpc_is_unary(struct call *call);
void rpc_error(struct call *call, int status, const char *code, const char *message);
void rpc_done(struct call *call);
/* Milliseconds; 0: none. */
uint64_t rpc_timeout(const struct call *call);
uint64_t rpc_keepalive(const struct call *call);
/* Who is asked for: "user", which is the default, or "root". NULL: somebody else, answered. */
const char *rpc_user(struct call *call);
/* A path as envd reads it: of that user's home. NULL: answered. */
const char *rpc_path(struct call *call, const char *user, const char *path);
