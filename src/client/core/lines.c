/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/lines.h"

#include <string.h>

#include "base/answers.h"
#include "cli/cli.h"
#include "client/core/client.h"

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

int lines_check(const char *line, size_t n, struct err *err)
{
    static const char data[] = "data: ";
    static const char error[] = "{\"type\":\"error\",\"error\":{";
    size_t skip =
        n > sizeof(data) && memcmp(line, data, sizeof(data) - 1) == 0 ? sizeof(data) - 1 : 0;
    struct err said;

    line += skip;
    n -= skip;
    if (n < sizeof(error) || memcmp(line, error, sizeof(error) - 1) != 0)
        return 0;
    json_t *object = json_loadb(line, n, 0, NULL);
    const char *code = client_text(json_object_get(object, "error"), "code");
    int status = err_answer(err_said_of(code))->status;
    json_decref(object);
    (void)http_explain(status, line, n, &said);
    return err_set(err, said.code, 0, "the daemon ended the stream: %.220s", said.msg);
}

size_t lines_take(void *context, const char *bytes, size_t n)
{
    struct lines *lines = context;
    char *at;
    char *newline;
    struct err err;

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
        lines->status = lines_check(at, strlen(at), &err) < 0 ? client_fail(&err)
                                                              : lines->take(lines->context, at);
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
