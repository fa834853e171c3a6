/* SPDX-License-Identifier: Apache-2.0 */
/* A client that follows the output of a command, live or from the spool. */
#pragma once

#include "front/core/call.h"
#include "front/exec/exec.h"

enum follow_format {
    FOLLOW_NDJSON,
    FOLLOW_SSE,
    FOLLOW_RAW,
};

/* How another protocol wants a command that it asked for. */
struct exec_manner {
    const char *const *before; /* leads to the arguments asked for, which listings show alone */
    /* Its events instead of ours. */
    void (*output)(struct buf *out, enum spool_stream stream, const char *bytes, size_t n);
    void (*end)(struct buf *out, const json_t *result);
    void (*error)(struct buf *out, const json_t *error);
    /* Answers once it runs; NULL: as asked for. */
    void (*runs)(struct call *call, struct exec *exec);
    bool ends_with_client; /* nobody could come back to it */
};

struct follow_request {
    enum follow_format format;
    uint64_t from;
    bool to_the_end; /* wait for more until the command ends; otherwise what is there now */
    bool holds;      /* the command waits for this client */
    int only;        /* one stream (enum spool_stream), or -1 */
    bool whole;      /* raw: a command that failed is shown by a stream that is cut off */
    bool announce;   /* begin with a "start" event */
};

/* By "stream" or "format" texts and the Accept header; false: none of them. */
bool follow_format_of(const char *text, enum follow_format *ret);
/* Answers the call with a stream. `exec` may be NULL: then the spool on disk of `exec_id` is
 * read, and `result` (taken) is its end. */
void follow_start(struct call *call, struct exec *exec, const char *exec_id, json_t *result,
                  const struct follow_request *request);
