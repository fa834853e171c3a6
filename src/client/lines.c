/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lines.h"

#include <string.h>

#include "cli/cli.h"
#include "client/client.h"

enum {
    LINE_MAX_BYTES = 4 * 1024 * 1024
};

void lines_open(struct lines *lines, line_fn *take, void *context)
{
    *lines = (struct lines){.take = take, .context = context};
    buf_init(&lines->received, LINE_MAX_BYTES);
}

void lines_close(struct lines *lines)
{
    buf_clear(&lines->received);
}

size_t lines_take(void *context, const char *bytes, size_t n)
{
    struct lines *lines = context;
    char *at;
    char *newline;

    buf_add(&lines->received, bytes, n);
    if (lines->received.failed) {
        lines->status = cli_fail("the daemon sent a line that is too long");
        return 0;
    }
    at = lines->received.p;
    while (lines->status == 0 &&
           (newline = memchr(at, '\n', lines->received.n - (size_t)(at - lines->received.p)))) {
        *newline = '\0';
        if (newline > at && newline[-1] == '\r')
            newline[-1] = '\0';
        lines->status = lines->take(lines->context, at);
        at = newline + 1;
    }
    lines->received.n -= (size_t)(at - lines->received.p);
    memmove(lines->received.p, at, lines->received.n);
    return lines->status ? 0 : n;
}

int lines_follow(struct daemon *daemon, const char *path, const char *accept, line_fn *take,
                 void *context)
{
    struct lines lines;
    struct call call;
    struct err err = {0};

    lines_open(&lines, take, context);
    int r = call_open(&call, daemon, &err);
    call.take = lines_take;
    call.context = &lines;
    call.accept = accept;
    if (r == 0)
        r = call_wait(&call, "GET", path, &err);
    call_close(&call);
    lines_close(&lines);
    if (lines.status)
        return lines.status;
    return r < 0 ? client_fail(&err) : 0;
}
