/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of lines from the daemon, which lasts until the user or the daemon ends it. */
#pragma once

#include "client/core/http.h"

/* `line` is NUL-terminated, without its newline; returns an exit status, and other than 0 ends
 * the stream. */
typedef int line_fn(void *context, char *line);

/* Bytes to lines. */
struct lines {
    struct buf received;
    line_fn *take;
    void *context;
    int status; /* other than 0: it is to end */
};

void lines_open(struct lines *lines, line_fn *take, void *context);
void lines_close(struct lines *lines);
/* Whether the line is the last word of the daemon's, which says why it ends the stream: -1. */
int lines_check(const char *line, size_t n, struct err *err);
/* context: a struct lines. Returns n, or 0 when it is to end. */
size_t lines_take(void *context, const char *bytes, size_t n);

/* Follows `path`; returns the exit status. A stream that has come to its end is no error; one that
 * the daemon ends before is. */
int lines_follow(struct daemon *daemon, const char *path, const char *accept, line_fn *take,
                 void *context);
