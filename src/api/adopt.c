/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/adopt: trees that lie in a bucket and that nobody has told us of become workspaces where
 * they are. Nothing of them is changed; the empty mount points come with the first command. */
#include <stdio.h>
#include <string.h>

#include "api/call.h"
#include "base/pack.h"
#include "broker/protocol.h"

struct adoption {
    const char *bucket;
    const char *owner;
    bool dry;
    json_t *list;       /* what was found, and what is done with it */
    const char **names; /* of those to adopt */
    size_t count;
};

/* "DIR/bucket", or the name of a bucket. */
static const char *bucket_of(const struct call *call, const char *path)
{
    const char *state = call->front->settings->state;
    size_t n = strlen(state);

    if (strncmp(path, state, n) == 0 && path[n] == '/')
        path += n + 1;
    return protocol_id_is_valid(path) ? path : NULL;
}

static void look_at(struct call *call, struct adoption *a, const char *name)
{
    struct store_workspace known;
    struct err err;
    const char *action = "adopt";

    int found = store_workspace_get(call->front->store, &call->arena, name, &known, &err);
    if (found == 1)
        action = strcmp(known.bucket, a->bucket) == 0 ? "known" : "conflict";
    else if (found < 0)
        action = "failed";
    else
        a->names[a->count++] = name;
    json_t *item = json_pack("{s:s, s:s, s:[]}", "id", name, "action", action, "made");
    if (strcmp(action, "conflict") == 0)
        json_object_set_new(item, "why", json_string("a workspace of another bucket has this id"));
    json_array_append_new(a->list, item);
}

static void reply(struct call *call, struct adoption *a)
{
    call_json(call, 200,
              json_pack("{s:s, s:b, s:i, s:o}", "bucket", a->bucket, "dry_run", a->dry, "adopted",
                        a->dry ? 0 : (int)a->count, "workspaces", a->list));
}

static void recorded(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    struct err err;
    int64_t now = wall_ms();

    if (answer_check(answer, &err) < 0) {
        json_decref(a->list);
        call_fail(call, &err);
        return;
    }
    for (size_t i = 0; i < a->count; i++) {
        struct store_workspace w = {.id = a->names[i],
                                    .owner = a->owner,
                                    .bucket = a->bucket,
                                    .policy = "{}",
                                    .links = "{}",
                                    .labels = "{}",
                                    .trash = "",
                                    .created_ms = now,
                                    .updated_ms = now};
        if (store_workspace_add(call->front->store, &w, &err) < 0) {
            json_decref(a->list);
            call_fail(call, &err);
            return;
        }
    }
    reply(call, a);
}

static void scanned(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    struct err err;

    if (answer_check(answer, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    (void)unpack_u64(&u); /* the tag */
    const char **names = unpack_list(&u, &call->arena, PROTOCOL_NAMES);
    size_t n = 0;
    while (names && names[n])
        n++;
    a->list = json_array();
    a->names = arena_alloc(&call->arena, (n + 1) * sizeof(*a->names));
    for (size_t i = 0; a->names && i < n; i++) {
        char *name = arena_copy(&call->arena, names[i], strlen(names[i])); /* outlives the answer */
        if (name)
            look_at(call, a, name);
    }
    if (a->dry || a->count == 0)
        reply(call, a);
    else
        call_record(call, "", "workspace.adopt", "ok",
                    json_pack("{s:s, s:s, s:i}", "bucket", a->bucket, "owner", a->owner, "count",
                              (int)a->count),
                    recorded);
}

void workspaces_adopt(struct call *call)
{
    static const char *const known[] = {"path", "owner", "dry_run", NULL};
    struct adoption *a = arena_alloc(&call->arena, sizeof(*a));
    const char *path = NULL;

    if (!a) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    a->owner = call->actor.owner;
    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "path", 4096, &path) ||
        !field_text(call, call->body, "owner", PROTOCOL_ID, &a->owner) ||
        !field_flag(call, call->body, "dry_run", &a->dry))
        return;
    a->bucket = path ? bucket_of(call, path) : call->front->settings->bucket;
    if (!a->bucket || !protocol_id_is_valid(a->owner)) {
        call_error(call, 400, "invalid_request",
                   "'%.200s' is not a bucket below '%s': start the daemon with --state on the "
                   "directory that has it",
                   path ? path : "", call->front->settings->state);
        return;
    }
    call->context = a;
    call_ask(call, REQUEST_TREE_SCAN, a->bucket, NULL, NULL, scanned);
}
