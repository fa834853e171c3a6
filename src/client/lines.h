/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of lines from the daemon that goes on until somebody ends it. */
#pragma once

#include "client/http.h"

/* `line` is NUL-terminated, without its newline; returns an exit status, and other than 0 ends
 * the stream. */
typedef int line_fn(void *context, char *line);

/* Follows `path`; returns the exit status. A stream that the daemon has ended is no error. */
int lines_follow(struct daemon *daemon, const char *path, const char *accept, line_fn *take,
                 void *context);
