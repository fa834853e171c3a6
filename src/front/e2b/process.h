/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that E2B's clients know by their pid. An exec of ours is started behind a shell that
 * says its pid in a line of its own and then becomes the command; what follows is what the client
 * is told. */
#pragma once

#include "front/e2b/rpc.h"
#include "front/exec/exec.h"

struct process_stream;

struct process {
    struct follower follower; /* first: of the exec, while that is there */
    struct process *next;
    struct front *front;
    struct exec *exec; /* NULL: it has ended, and all of its streams */
    char workspace[FRONT_ID];
    long pid; /* 0: not known yet */
    char *tag;
    json_t *config; /* as the client gave it */
    bool has_input;
    bool has_terminal;
    bool drained;
    bool failed;     /* it never ran */
    uint64_t begins; /* where its own output does */
    json_t *result;
    struct spool_reader reader; /* of the first line */
    bool reading;
    struct process_stream *streams;
    struct timer forget;
};

/* Of the call's workspace, by what the client names it with; one that has ended is there for a
 * while. NULL: none. */
struct process *process_find(struct call *call, const json_t *selector);
struct process *processes_first(void);
/* What it was not found by, in words. */
const char *process_missing(struct call *call, const json_t *selector);

/* It is paused, and its commands stand still: their clients see their streams broken off. */
void process_streams_cut(const char *workspace);

void process_start(struct call *call);
void process_connect(struct call *call);
