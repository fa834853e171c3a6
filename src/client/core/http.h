/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon at the other end: a thin layer over libcurl, in one thread. A verb that only asks and
 * prints uses daemon_ask; one that does several things at a time starts calls and turns. */
#pragma once

#include <curl/curl.h>
#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/core/where.h"

enum {
    CALL_MOST_ANSWER = 64 * 1024 * 1024
};

struct daemon {
    struct where where;
    CURLM *multi;
    const char *if_match; /* sent with what is asked from now on; NULL or "": nothing is */
};

#define CALL_PAUSE CURL_WRITEFUNC_PAUSE

/* One request at a time; used again, it keeps its connection. */
struct call {
    struct daemon *daemon;
    CURL *easy;
    struct curl_slist *headers;
    /* Gets the body of an answer 2xx piece by piece; returns n, or CALL_PAUSE to be given the same
     * bytes again after call_resume. NULL: collected in `answer`, as every other answer is. */
    size_t (*take)(void *context, const char *bytes, size_t n);
    void *context;
    const char *accept;   /* NULL: JSON */
    const char *lines[4]; /* more headers of the request, up to the first NULL */
    /* Gets each header of the answer, with `context`; or NULL. */
    void (*head)(void *context, const char *line, size_t n);
    /* What to send: bytes, that stay until the call has ended, or a file, */
    const char *type;
    const char *body;
    size_t body_n;
    size_t body_at;
    int body_fd; /* -1: none */
    /* ... or what this gives: bytes, 0 at the end, -1 to break the request off. */
    ssize_t (*give)(void *context, char *bytes, size_t size);
    void *give_context;
    /* What came of it, once `busy` is false. */
    bool busy;
    CURLcode result;
    long status;
    long os_errno;
    struct buf answer;
    char request_id[64];
    char error[CURL_ERROR_SIZE];
};

int daemon_open(struct daemon *daemon, const char *state, struct err *err);
void daemon_close(struct daemon *daemon);

int call_open(struct call *call, struct daemon *daemon, struct err *err);
void call_close(struct call *call);
/* `path` is copied. */
int call_start(struct call *call, const char *method, const char *path, struct err *err);
void call_resume(struct call *call);
/* 0 for an answer 2xx; otherwise *err says what went wrong and what to do. */
int call_check(const struct call *call, struct err *err);
/* What an answer other than 2xx says, as an error; returns -1. */
int http_explain(long status, const char *bytes, size_t n, struct err *err);
/* Whether the request did not reach a daemon at all. */
bool call_was_not_sent(const struct call *call);

/* Moves all calls on; waits at most `timeout_ms` for one of them or of `fds`, whose revents are
 * set. */
int daemon_turn(struct daemon *daemon, struct pollfd *fds, size_t count, int timeout_ms,
                struct err *err);
/* Starts the call, waits for its end, and checks it. */
int call_wait(struct call *call, const char *method, const char *path, struct err *err);

/* One question, one JSON answer (NULL where there is none to have). `body` may be NULL and is
 * consumed; *ret is the caller's; `ret` may be NULL. */
int daemon_ask(struct daemon *daemon, const char *method, const char *path, json_t *body,
               json_t **ret, struct err *err);
/* All pages of a list: the arrays named `name` in one. `path` may have a query. */
int daemon_list(struct daemon *daemon, const char *path, const char *name, json_t **ret,
                struct err *err);
