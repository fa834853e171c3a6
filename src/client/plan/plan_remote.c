/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a workspace of the daemon. */
#include <string.h>

#include "client/core/client.h"
#include "client/core/text.h"
#include "client/plan/plan.h"
#include "plan/core/state.h"

enum {
    PAGE = 10000 /* operations in one answer */
};

static void plan_path(struct buf *b, const struct plan_address *place, const char *plan,
                      const char *rest)
{
    client_workspace_path(b, place->workspace, "/plans");
    if (plan) {
        buf_str(b, "/");
        text_url(b, plan);
    }
    buf_str(b, rest);
}

static int list(struct plan_address *place, const char *state, json_t **ret, struct err *err)
{
    struct buf path;

    if (place->workspace) {
        plan_path(&path, place, NULL, "");
    } else {
        buf_init(&path, 4096);
        buf_str(&path, "/v1/plans");
    }
    if (state) {
        buf_str(&path, "?state=");
        text_url(&path, state);
    }
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                                : daemon_list(&place->daemon, path.p, "plans", ret, err);
    buf_clear(&path);
    return r;
}

/* The operations come in pages, each with the plan around it. */
static int get_pages(struct plan_address *place, const char *plan, json_t **ret,
                     json_t **ret_operations, struct err *err)
{
    json_t *all = ret_operations ? json_array() : NULL;
    json_t *page = NULL;
    const char *cursor = NULL;
    int r = 0;

    do {
        struct buf path;
        plan_path(&path, place, plan, "");
        if (all)
            buf_printf(&path, "?operations=1&limit=%d", PAGE);
        if (cursor) {
            buf_str(&path, "&cursor=");
            text_url(&path, cursor);
        }
        json_t *last = page;
        page = NULL;
        r = client_do(&place->daemon, "GET", &path, NULL, &page, err);
        json_decref(last);
        if (r == 0 && all && json_array_extend(all, json_object_get(page, "items")) < 0)
            r = err_set(err, ERR_IO, 0, "the daemon's answer has no list of operations");
        cursor = all ? client_text(page, "next") : NULL;
    } while (r == 0 && cursor);
    if (r < 0) {
        json_decref(page);
        json_decref(all);
        return -1;
    }
    json_object_del(page, "items");
    json_object_del(page, "next");
    *ret = page;
    if (all)
        *ret_operations = all;
    return 0;
}

/* The operations of a plan may be lost: what became of it the daemon still knows. */
static int get(struct plan_address *place, const char *plan, json_t **ret, json_t **ret_operations,
               struct err *err)
{
    struct err unheard; /* the first error says more */

    if (get_pages(place, plan, ret, ret_operations, err) == 0)
        return 0;
    if (!ret_operations || err->code != ERR_NOT_FOUND ||
        get_pages(place, plan, ret, NULL, &unheard) < 0)
        return -1;
    if (plan_state_from_name(client_text(*ret, "state")) != PLAN_FAILED) {
        json_decref(*ret);
        return -1;
    }
    *ret_operations = json_array();
    return 0;
}

static int act(struct plan_address *place, const char *plan, const char *verb, json_t *body,
               json_t **ret, struct err *err)
{
    struct buf path;

    plan_path(&path, place, plan, "/");
    buf_str(&path, verb);
    return client_do(&place->daemon, "POST", &path, body, ret, err);
}

static int submit(struct plan_address *place, json_t *body, json_t **ret, struct err *err)
{
    struct buf path;

    plan_path(&path, place, NULL, "");
    return client_do(&place->daemon, "POST", &path, body, ret, err);
}

static int discard(struct plan_address *place, const char *plan, struct err *err)
{
    struct buf path;

    plan_path(&path, place, plan, "");
    return client_do(&place->daemon, "DELETE", &path, NULL, NULL, err);
}

static size_t take_text(void *context, const char *bytes, size_t n)
{
    struct buf *text = context;

    buf_add(text, bytes, n);
    return text->failed ? 0 : n;
}

static int diff(struct plan_address *place, const char *plan, const char *of, struct buf *ret,
                struct err *err)
{
    struct call call;
    struct buf path;

    plan_path(&path, place, plan, "/diff");
    if (of) {
        buf_str(&path, "?path=");
        text_url(&path, of);
    }
    int r = call_open(&call, &place->daemon, err);
    call.take = take_text;
    call.context = ret;
    call.accept = "text/x-diff, text/plain, application/json";
    if (r == 0 && buf_done(&path) < 0)
        r = err_set(err, ERR_INVALID, 0, "the request is too long");
    if (r == 0)
        r = call_wait(&call, "GET", path.p, err);
    call_close(&call);
    buf_clear(&path);
    return r < 0 || buf_done(ret) == 0 ? r
                                       : err_set(err, ERR_LIMIT, 0, "the differences are too long");
}

static void close_remote(struct plan_address *place)
{
    daemon_close(&place->daemon);
}

int plan_open_remote(struct plan_address *ret, const char *state, const char *workspace,
                     struct err *err)
{
    static const struct plan_ways ways = {list, get, act, submit, discard, diff, close_remote};

    *ret = (struct plan_address){.ways = &ways, .workspace = workspace, .tree = -1, .plans = -1};
    return daemon_open(&ret->daemon, state, err);
}
