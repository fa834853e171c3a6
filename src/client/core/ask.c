/* SPDX-License-Identifier: Apache-2.0 */
/* Questions with one JSON answer, and lists that come in pages. */
#include <stdlib.h>
#include <string.h>

#include "client/core/http.h"
#include "client/core/text.h"

static int read_answer(const struct call *call, json_t **ret, struct err *err)
{
    json_error_t where;

    if (!ret)
        return 0;
    *ret = call->answer.n == 0 ? json_null()
                               : json_loadb(call->answer.p, call->answer.n, JSON_ALLOW_NUL, &where);
    if (!*ret)
        return err_set(err, ERR_IO, 0, "the daemon's answer is not JSON: %s", where.text);
    return 0;
}

int daemon_ask(struct daemon *daemon, const char *method, const char *path, json_t *body,
               json_t **ret, struct err *err)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct call call;
    int r = -1;

    if (body && !text) {
        json_decref(body);
        return err_set(err, ERR_INVALID, 0, "the request cannot be written as JSON: is it UTF-8?");
    }
    json_decref(body);
    if (call_open(&call, daemon, err) == 0) {
        call.body = text;
        call.body_n = text ? strlen(text) : 0;
        r = call_wait(&call, method, path, err);
        if (r == 0)
            r = read_answer(&call, ret, err);
    }
    call_close(&call);
    free(text);
    return r;
}

int daemon_list(struct daemon *daemon, const char *path, const char *name, json_t **ret,
                struct err *err)
{
    json_t *all = json_array();
    json_t *page = NULL;
    const char *cursor = NULL;
    int r = all ? 0 : err_set(err, ERR_LIMIT, 0, "out of memory");

    do {
        struct buf url;
        buf_init(&url, 16384);
        buf_str(&url, path);
        if (cursor) {
            buf_str(&url, strchr(path, '?') ? "&cursor=" : "?cursor=");
            text_url(&url, cursor);
        }
        json_decref(page);
        page = NULL;
        if (r == 0 && buf_done(&url) < 0)
            r = err_set(err, ERR_INVALID, 0, "the request is too long");
        if (r == 0)
            r = daemon_ask(daemon, "GET", url.p, NULL, &page, err);
        buf_clear(&url);
        if (r == 0 && json_array_extend(all, json_object_get(page, name)) < 0)
            r = err_set(err, ERR_IO, 0, "the daemon's answer has no list of %s", name);
        cursor = json_string_value(json_object_get(page, "next"));
    } while (r == 0 && cursor);
    json_decref(page);
    if (r < 0)
        json_decref(all);
    else
        *ret = all;
    return r;
}
