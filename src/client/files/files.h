/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs on files. A place is WS:/path in a workspace, or a plain path here. Both are answered
 * by the same file server: the daemon's, over HTTP, or one that is started here for as long as the
 * verb runs.
 *
 *   verb --> files_ask, files_pull, files_push --+-- HTTP --> daemon        (files_remote.c)
 *                                                +-- socket --> carrel-files (files_local.c) */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/core/args.h"
#include "client/core/http.h"
#include "protocol/files.h"

enum {
    PLACE_ID = 65,
    FILES_WORDS = 256, /* most words of a verb */
};

struct client_path {
    bool local;
    bool folder; /* written with a slash at its end: a directory is meant */
    char workspace[PLACE_ID];
    char path[FILES_PATH]; /* absolute */
};

int place_parse(const char *word, struct client_path *ret, struct err *err);
/* The last part of its path; "" of the root. */
const char *place_name(const struct client_path *place);
/* Becomes what has this name in it. */
int place_enter(struct client_path *place, const char *name, struct err *err);
bool place_same_side(const struct client_path *a, const struct client_path *b);

/* One run of a verb. */
struct files {
    struct args_common common;
    bool reached; /* the daemon */
    struct daemon daemon;
    int socket; /* of a file server here; -1: none */
    pid_t pid;
};

struct files_verb {
    const char *help;
    const struct args_rule *rules;
    size_t least; /* words */
    size_t most;
    const char *missing; /* said when there are fewer: "name a place: carrel ls WS:/path" */
};

/* Reads the options and words. -1: go on; otherwise the exit status. */
int files_begin(struct files *f, char **argv, const struct files_verb *verb, const char **words);
/* Says what went wrong, and with which word; returns 125. */
int files_fail(const char *word, struct err *err);
/* Ends all that was started, and gives the status back. */
int files_end(struct files *f, int status);
/* The daemon, asked for on first use. */
int files_daemon(struct files *f, struct err *err);

/* The value of an option, if it was given. */
int files_number(const char *option, const char *text, uint64_t least, uint64_t most, uint64_t *ret,
                 struct err *err);
int files_mode(const char *text, uint64_t *ret, struct err *err);
/* An ETag, if one was given; the other: what to do about an error that comes of it. */
int files_if_match(const char *text, struct files_message *m, struct err *err);
void files_explain_match(struct err *err);

/* One question with one JSON answer. texts: of an edit, the old and the new one; else NULL. */
int files_ask(struct files *f, const struct client_path *place, struct files_message *m,
              const char *const *texts, json_t **ret, struct err *err);

/* What there is, links followed: its type ("" when there is nothing) and mode. */
struct files_kind {
    char type[16];
    uint64_t mode;
    uint64_t size;
};

int files_look(struct files *f, const struct client_path *place, struct files_kind *ret,
               struct err *err);

/* Returns n, or less to end it. */
typedef size_t files_take(void *context, const char *bytes, size_t n);

/* Bytes read, 0 at the end, -1 to break it off. */
struct files_source {
    ssize_t (*give)(void *context, char *bytes, size_t size);
    void *context;
};

/* An answer that is no JSON, piece by piece. */
int files_pull(struct files *f, const struct client_path *place, struct files_message *m,
               files_take *take, void *context, struct err *err);
/* A body, piece by piece, to a workspace. */
int files_push(struct files *f, const struct client_path *place, struct files_message *m,
               const struct files_source *from, json_t **ret, struct err *err);

/* --- the file server here */
struct local_stream {
    int fd;
    struct files_head head;
    uint64_t left; /* of the answer, or of its piece */
    bool pieces;
    bool ended;
};

int local_start(struct files *f, const struct files_message *m, struct local_stream *ret,
                struct err *err);
/* Of a body. -1: it listens no more, and has answered. */
int local_send(struct local_stream *s, const char *bytes, size_t n);
int local_send_end(struct local_stream *s);
/* The head of the answer; one that tells of a failure is an error. */
int local_answer(struct local_stream *s, struct err *err);
/* The body of the answer: bytes, 0 at its good end, -1 cut off. */
ssize_t local_read(struct local_stream *s, char *bytes, size_t size);
int local_json(struct local_stream *s, json_t **ret, struct err *err);
void local_stop(struct local_stream *s);
void local_end(struct files *f);

/* --- showing */
/* A member NAME, or NAME_b64, as bytes; false: there is none. */
bool files_bytes(const json_t *object, const char *name, struct buf *ret);
/* Adds bytes to what is printed: as they are, or, for a terminal, escaped. */
void files_show(struct buf *b, const char *bytes, size_t n);
/* Writes to standard output; 0, or 125 when that failed and was said. */
int files_put_out(const char *bytes, size_t n);

/* A bar on the terminal that standard error is, or nothing. */
struct progress {
    bool shown;
    const char *name;
    uint64_t done;
    uint64_t total; /* 0: unknown */
    int64_t begun_ms;
    int64_t told_ms;
};

void progress_begin(struct progress *p, const char *name, uint64_t total);
void progress_add(struct progress *p, uint64_t n);
void progress_end(struct progress *p);
