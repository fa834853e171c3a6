/* SPDX-License-Identifier: Apache-2.0 */
/* A request that a handler makes of another route of ours, for the client whose call it has: over a
 * pair of sockets, one end of which our own HTTP server reads like any client's. So who asks, whose
 * it is, what a plan takes, what is recorded and how fast it goes is decided where it is for
 * everybody, and nowhere twice.
 *
 *   inner_start --head--> head --pieces of the answer--> piece, or collected --> done, once
 *   inner_drop at any point: as if a client had hung up; nothing is called any more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "http/server.h"

struct call;
struct front;
struct inner;

/* The credentials of a call: its key, or its peer. A copy, which outlives the call. */
struct inner_asker {
    char authorization[192]; /* the header's value; "": none */
    int64_t uid;
};

/* False: the key is longer than any key is. */
bool inner_asker_of(const struct call *call, struct inner_asker *ret);

struct inner_request {
    enum http_method method;
    const char *target; /* path and query, encoded */
    const char *type;   /* of the body; NULL: JSON */
    const char *accept; /* NULL: whatever there is */
    const char *bytes;  /* of the body: the caller's, until the end */
    size_t n;
    bool feeds;  /* the body comes by inner_feed instead, until inner_feed_end */
    size_t most; /* bytes of an answer that is collected; one that is larger fails */
    /* Each may be NULL. None is called from within inner_start; of the others only `done`, and that
     * where the kernel has no memory to watch it. */
    void (*head)(void *context, int status, const char *type);
    /* Returns how many bytes it took; if fewer than n, the answer waits for inner_continue.
     * NULL, or with a status from 400 on: the answer is collected. */
    size_t (*piece)(void *context, const char *bytes, size_t n);
    /* The answer is complete; the request is freed when this returns. If the answer broke off,
     * `status` is 0 and `body` has what had come. */
    void (*done)(void *context, int status, const struct buf *body);
    void (*room)(void *context); /* inner_feed takes more again */
    void *context;
};

/* NULL: no descriptors or memory; then nothing is called. */
struct inner *inner_start(struct front *front, const struct inner_asker *who,
                          const struct inner_request *request);
void inner_continue(struct inner *inner);
/* Returns how many bytes were taken; if fewer than n, `room` is called when there is room again. */
size_t inner_feed(struct inner *inner, const char *bytes, size_t n);
void inner_feed_end(struct inner *inner);
/* NULL is allowed. */
void inner_drop(struct inner *inner);
