/* SPDX-License-Identifier: Apache-2.0 */
/* Code that is run piece by piece in one state. A context is one; its kernel is an ordinary command
 * of the workspace, started by our own routes with the key of who asks, so that it has no rights
 * but a command's. What the kernel says is read strictly (line.h) and believed by nobody.
 *
 *   source.c    the kernels' programs, which go in over standard input
 *   line.c      one line that a kernel says -> one line for a client; pure
 *   kernel.c    starts, feeds, follows, interrupts and ends one
 *   run.c       one piece of code, from the request to the end of its answer
 *   contexts.c  which there are; in memory alone, as kernels are
 *   routes.c    …/code of a workspace
 *
 *   none --a run wants it--> STARTING --"ready"--> READY --it ends, or says what is none--> none
 */
#pragma once

#include "front/core/call.h"
#include "front/core/inner.h"
#include "front/core/router.h"

enum {
    CODE_LINE = 8 << 20,  /* of a kernel's output */
    CODE_MOST = 1 << 20,  /* of code, and what goes with it: as much as a command's input takes */
    CODE_AHEAD = 4 << 20, /* of an answer that its client does not read; then the kernel waits */
    CODE_QUEUE = 16,      /* runs of one context */
    CODE_CONTEXTS = 64,   /* of one workspace */
    CODE_ALL = 4096,      /* of all */
    CODE_CWD = 4096,
};

enum code_language {
    CODE_PYTHON,
    CODE_JAVASCRIPT,
    CODE_TYPESCRIPT,
    CODE_BASH,
    CODE_LANGUAGES,
};

enum kernel_state {
    KERNEL_NONE,
    KERNEL_STARTING,
    KERNEL_READY,
};

struct code_run;

struct code_context {
    struct code_context *next;
    struct front *front;
    char id[28];
    char workspace[FRONT_ID];
    char owner[FRONT_ID];
    int64_t created_ms; /* of the workspace: another of that id is another */
    enum code_language language;
    bool is_default;
    bool removed; /* freed once nothing is under way */
    char cwd[CODE_CWD];
    json_t *env;

    /* kernel.c */
    enum kernel_state state;
    struct inner_asker who; /* of the newest run */
    char exec_id[28];
    struct inner *inner;  /* starts it, then follows it */
    struct inner *input;  /* sends it a message */
    struct inner *ending; /* asks how it ended */
    char *message;        /* what inner or input is sending */
    struct buf line;
    struct timer patience; /* it was interrupted, and has not ended its run */
    bool paused;
    bool unwanted; /* it is to be ended as soon as its command's id is known */
    unsigned busy; /* functions that still have it: it is not freed under them */
    bool begun;    /* its first run was sent */
    bool heard;    /* its kernel, to the end of what it said */
    char why[320]; /* it was ended by us; "": it ended by itself */

    struct code_run *first; /* those that wait, the one under way first */
    uint64_t runs;
};

/* --- source.c --- */

struct code_program {
    const char *name;        /* of the language */
    const char *other;       /* ... as some say; or NULL */
    const char *const *argv; /* reads its program from standard input */
    const char *program;     /* its text */
    const char *missing;     /* what it needs */
};

const struct code_program *code_program(enum code_language language);
/* False: there is no such language. */
bool code_language_of(const char *name, enum code_language *ret);

/* --- contexts.c --- */

/* The one of that id, of the call's workspace; NULL: there is none. */
struct code_context *code_find(struct call *call, const char *id);

struct code_place {
    enum code_language language;
    const char *cwd;   /* absolute */
    const json_t *env; /* of the kernel: texts by name, or NULL */
};

/* The language's own one, made if need be. NULL: answered. */
struct code_context *code_default(struct call *call, const struct code_place *place);
/* A new one. NULL: answered. */
struct code_context *code_make(struct call *call, const struct code_place *place);
json_t *code_context_json(const struct code_context *context);
/* Those of the call's workspace. */
json_t *code_list(struct call *call);
/* Ends its kernel; what runs is told. */
void code_remove(struct code_context *context);
/* It may go, if it was removed. */
void code_settle(struct code_context *context);

/* --- kernel.c --- */

/* Starts it if there is none, or gives a ready one its next run. */
void kernel_go_on(struct code_context *context);
/* Interrupts the run under way; one that does not end then is ended with its kernel. */
void kernel_interrupt(struct code_context *context);
/* Ends it now. `why` is told to the run under way; the others get a new one. */
void kernel_end(struct code_context *context, const char *why);
/* The client has read: the kernel's output goes on. */
void kernel_continue(struct code_context *context);

/* --- run.c --- */

struct code_request {
    const char *code;
    const json_t *env;   /* texts by name, or NULL */
    uint64_t timeout_ms; /* 0: none */
};

/* Answers the call with lines of JSON, or with why not. */
void code_run(struct call *call, struct code_context *context, const struct code_request *request);
/* The answer begins: there is a kernel, which gets to it. */
void run_begin(struct code_run *run);
void run_begin_all(struct code_context *context);
/* What the kernel is sent for it, with its number; the caller's to free. NULL without memory. */
char *run_message(struct code_run *run, uint64_t number);
/* A line of its own for its client, and then the end. Taken. */
void run_tell(struct code_run *run, json_t *line);
void run_tell_error(struct code_run *run, const char *name, const char *value);
/* All is told; the next one is the context's first. */
void run_end(struct code_context *context);
/* Before it began: as an answer with that status. */
void run_refuse(struct code_context *context, int status, json_t *object);
bool run_is_behind(const struct code_run *run);
/* Whether it was begun under that number. */
bool run_is(const struct code_run *run, uint64_t number);
/* A kernel that was ending when it was sent the code has said nothing of it: the next kernel gets
 * it, once. False: it was not sent that number, or has begun. */
bool run_again(struct code_run *run, uint64_t number);
