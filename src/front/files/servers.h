/* SPDX-License-Identifier: Apache-2.0 */
/* Calls to the file servers of workspaces: the socket of each server, and one stream for each call,
 * with its body on the way in and its answer on the way out (protocol/files.h).
 *
 *   files_stream_begin, files_start --(a server is known, or the broker gives one)--> body flows
 * --files_end_body--> head: `answered` --files_stream_pull until 0--> files_free */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "front/core/front.h"
#include "protocol/broker.h"
#include "protocol/files.h"

struct files_stream;
struct quota_answer;
struct quota_request;

struct files_calls {
    /* The head of the answer is there. */
    void (*answered)(void *owner, const struct files_head *head);
    /* The server cannot be reached, or died with the call: nothing was answered. */
    void (*failed)(void *owner, const struct err *err);
    /* Only for what may be answered without waking the workspace (asleep.h): it has to be woken,
     * and its owner may have no more sandboxes. May be NULL for others. */
    void (*over_quota)(void *owner, const struct quota_answer *quota);
    /* Asked before a call is sent that has waited, or is sent again: the id may be another's
     * workspace by now. False: it was answered, and is over. */
    bool (*still_may)(void *owner);
    /* There is room for more of the body; or more of the answer can be pulled. */
    void (*room)(void *owner);
    void (*more)(void *owner);
};

/* The message is packed; `wake` is the exec_message for REQUEST_FILES, used if the workspace has no
 * server yet, and `whose` what its sandbox then counts for. All are copied. NULL without memory. */
struct files_stream *files_stream_begin(struct front *front, const struct quota_request *whose,
                                        const struct files_message *m,
                                        const struct exec_message *wake,
                                        const struct files_calls *calls, void *owner);
/* 0, or -errno: nothing will be told. */
int files_start(struct files_stream *stream);
/* Puts bytes of the body into the stream; how many were taken. */
size_t files_body(struct files_stream *stream, const char *bytes, size_t n);
/* It is whole. Without this the server takes nothing of it. */
void files_end_body(struct files_stream *stream);
/* >0 bytes of the answer's body; 0: its end; -EAGAIN; other -errno: it was cut off. */
ssize_t files_stream_pull(struct files_stream *stream, char *bytes, size_t size);
/* Returns the descriptor that came with the head, once; -1: none. A tenant may have made it: it can
 * be anything. */
int files_take_fd(struct files_stream *stream);
/* At any time. */
void files_free(struct files_stream *stream);
/* Whether calls on its files are under way, but for those that only wait for changes. */
bool files_are_used(const struct front *front, const char *workspace);
/* The sandbox has ended, and its server with it. */
void files_forget(struct front *front, const char *workspace);
