/* SPDX-License-Identifier: Apache-2.0 */
/* Signed addresses of files. They do not say which sandbox they are of: that is the one with whose
 * token the signature comes out right.
 *
 *   signature = "v1_" base64(SHA-256("path:read|write:username:token[:expiration]")), without "="
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/digest.h"
#include "front/core/live.h"
#include "front/e2b/e2b.h"

struct wanted {
    struct call *call;
    const char *path;
    const char *user;
    const char *signature;
    const char *expiration; /* NULL: none */
    bool writes;
    bool found;
    struct lifetime lifetime;
};

static bool is_signed_with(const struct wanted *w, const char *token)
{
    unsigned char digest[DIGEST_BYTES];
    scoped_buf struct buf text;
    scoped_buf struct buf made;

    buf_init(&text, 32768);
    buf_init(&made, 256);
    buf_printf(&text, "%s:%s:%s:%s", w->path, w->writes ? "write" : "read", w->user, token);
    if (w->expiration)
        buf_printf(&text, ":%s", w->expiration);
    if (buf_done(&text) < 0 || digest_bytes(text.p, text.n, digest) < 0)
        return false;
    buf_str(&made, "v1_");
    bytes_add_base64(&made, digest, sizeof(digest));
    if (buf_done(&made) < 0)
        return false;
    while (made.n && made.p[made.n - 1] == '=')
        made.p[--made.n] = '\0';
    return e2b_same(made.p, w->signature);
}

/* What is no time is over. */
static bool is_over(const struct wanted *w)
{
    char *end = NULL;
    long long at = w->expiration ? strtoll(w->expiration, &end, 10) : 0;

    return w->expiration && (end == w->expiration || *end || at < wall_ms() / 1000);
}

static bool try_one(void *context, const struct store_workspace *row)
{
    struct wanted *w = context;
    struct call *call = w->call;
    struct lifetime l;
    struct arena arena;

    if (!row->token || !*row->token)
        return true;
    arena_init(&arena, 65536);
    bool fits = lifetime_of(row, &arena, &l) && is_signed_with(w, l.token);
    arena_clear(&arena);
    if (!fits)
        return true;
    struct err err;
    w->found = store_workspace_get(call->front->store, &call->arena, row->id, &call->workspace,
                                   &err) == 1 &&
               e2b_lifetime(call, &w->lifetime);
    return false;
}

static bool refuse(struct call *call, const char *why)
{
    call_json(call, 401, json_pack("{s:i, s:s}", "code", 401, "message", why));
    return false;
}

static bool read(struct call *call, struct wanted *w)
{
    const char *path = NULL;
    const char *user = NULL;

    if (!e2b_query(call, "path", &path) || !e2b_query(call, "username", &user) ||
        !e2b_query(call, "signature", &w->signature) ||
        !e2b_query(call, "signature_expiration", &w->expiration))
        return false;
    w->path = path ? path : "";
    w->user = user ? user : "";
    return w->signature || refuse(call, "missing signature query parameter");
}

bool e2b_signature(struct call *call, bool writes, const struct lifetime *l)
{
    struct wanted w = {.call = call, .writes = writes};

    if (!read(call, &w))
        return false;
    if (!is_signed_with(&w, l->token))
        return refuse(call, "invalid signature");
    if (is_over(&w))
        return refuse(call, "signature is already expired");
    return true;
}

bool e2b_signed(struct call *call, bool writes)
{
    struct wanted w = {.call = call, .writes = writes};
    struct err err;

    if (!read(call, &w))
        return false;
    if (store_workspaces(call->front->store, NULL, false, NULL, SIZE_MAX, try_one, &w, &err) < 0) {
        call_fail(call, &err);
        return false;
    }
    if (!w.found)
        return refuse(call, "invalid signature");
    if (is_over(&w))
        return refuse(call, "signature is already expired");
    if (w.lifetime.paused && (!w.lifetime.resume || !lifetime_resume(call, &call->workspace))) {
        if (!call->status)
            e2b_gone(call, call->workspace.id);
        return false;
    }
    router_become_workspace(call, &call->workspace);
    call->actor.secret = w.lifetime.token;
    return live_charge(call, call->workspace.owner, false);
}
