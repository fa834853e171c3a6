/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of lines from the daemon that goes on until somebody ends it. */
#pragma once

#include "client/http.h"

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
/* context: a struct lines. Returns n, or 0 when it is to end. */
size_t lines_take(void *context, const char *bytes, size_t n);

/* Follows `path`; returns the exit status. A stream that the daemon has ended is no error. */
int lines_follow(struct daemon *daemon, const char *path, const char *accept, line_fn *take,
                 void *context);
