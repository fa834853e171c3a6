/* SPDX-License-Identifier: Apache-2.0 */
/* The workspace in which a template is built: commands in it, what they say told as it comes, and
 * a person who may stop it at any time. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/files/files.h"

struct build {
    struct files f;           /* the daemon */
    bool json;                /* tell as lines of JSON, on standard output */
    bool quiet;               /* tell only of failures */
    char workspace[PLACE_ID]; /* "": none is made yet */
    int signal_fd;
    int stopped_by; /* a signal; 0: none */
    const char *step;
    struct buf line; /* of output, without its end yet */
    struct buf tail; /* the last of the output */
};

/* From here on signals are heard between and in requests only. */
int build_open(struct build *b, struct err *err);
void build_close(struct build *b);

/* -1: somebody wants it to end. */
int build_stopped(struct build *b, struct err *err);

/* Tells that a step begins; `step` stays. */
void build_begin(struct build *b, const char *step, unsigned number, unsigned of);
/* One line of JSON; consumed. */
void build_tell(const struct build *b, json_t *event);
void build_say(const struct build *b, const char *message);

/* One question about the workspace, "/v1/workspaces/ID" + what; body is consumed, ret may be
 * NULL. */
int build_ask(struct build *b, const char *method, const char *what, json_t *body, json_t **ret,
              struct err *err);

/* Asks for anything else: 200 or 404; 0: for now nobody can tell. */
long build_look(struct build *b, const char *path, json_t **ret);
/* Likewise, for what must not be asked for twice. 1: nobody knows what has come of it. */
int build_post(struct build *b, const char *path, const char *text, json_t **ret, struct err *err);

struct build_command {
    const char *const *argv; /* ends with NULL */
    const char *input;       /* NULL: none */
    struct buf *output;      /* gets standard output; NULL: it is told, as errors are */
};

/* Runs it to its end. One that fails is an error that says what to do. */
int build_run(struct build *b, const struct build_command *command, struct err *err);

int build_put(struct build *b, const char *path, const char *text, struct err *err);
int build_get(struct build *b, const char *path, struct buf *ret, struct err *err);
/* A file from here. */
int build_put_file(struct build *b, const char *path, const char *from, struct err *err);
