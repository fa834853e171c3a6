/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/adopt: trees that lie in a bucket and that nobody has told us of become workspaces where
 * they are. Nothing of them is changed; the empty mount points come with the first command. Links
 * of theirs to the bucket's skills and to another thread go on to work inside, as far as they lead
 * to what is the same owner's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pack.h"
#include "front/core/call.h"
#include "front/workspaces/find_links.h"
#include "front/workspaces/routes.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

struct adoption {
    const char *bucket;
    const char *owner;
    bool dry;
    json_t *list;           /* what was found, and what is done with it */
    const char **names;     /* of those to adopt */
    size_t *rows;           /* ... and where in the list they are */
    struct change *changes; /* ... and that nobody else changes them meanwhile */
    size_t count;
    size_t at; /* the one that is looked at, or recorded */
    struct links_look look;
    int64_t now;
};

static json_t *item_of(const struct adoption *a, size_t i)
{
    return json_array_get(a->list, a->rows[i]);
}

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
    else if (!a->dry && !change_begin(&a->changes[a->count], name))
        action = "busy";
    json_t *item = json_pack("{s:s, s:s, s:[]}", "id", name, "action", action, "made");
    if (strcmp(action, "adopt") == 0) {
        a->names[a->count] = name;
        a->rows[a->count++] = json_array_size(a->list);
    }
    if (strcmp(action, "busy") == 0)
        json_object_set_new(item, "why", json_string("another change of this id is under way"));
    if (strcmp(action, "conflict") == 0)
        json_object_set_new(item, "why", json_string("a workspace of another bucket has this id"));
    json_array_append_new(a->list, item);
}

static void end_changes(struct adoption *a)
{
    for (size_t i = 0; a->changes && i < a->count; i++)
        change_end(&a->changes[i]);
}

/* Answered, or the client has gone. What is still under way ends the changes itself. */
static void left(struct call *call)
{
    if (call->pending == 0)
        end_changes(call->context);
}

static void reply(struct call *call, struct adoption *a)
{
    end_changes(a);
    call_json(call, 200,
              json_pack("{s:s, s:b, s:i, s:o}", "bucket", a->bucket, "dry_run", a->dry, "adopted",
                        a->dry ? 0 : (int)a->count, "workspaces", a->list));
}

static void give_up(struct call *call, const struct err *err)
{
    struct adoption *a = call->context;

    end_changes(a);
    json_decref(a->list);
    call_fail(call, err);
}

static void recorded(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    struct err err;
    int64_t now = wall_ms();

    if (answer_check(answer, &err) < 0) {
        give_up(call, &err);
        return;
    }
    for (size_t i = 0; i < a->count; i++) {
        char *links = json_dumps(json_object_get(item_of(a, i), "links"), JSON_COMPACT);
        struct store_workspace w = {.id = a->names[i],
                                    .owner = a->owner,
                                    .bucket = a->bucket,
                                    .policy = "{}",
                                    .links = links ? links : "{}",
                                    .labels = "{}",
                                    .trash = "",
                                    .created_ms = a->now,
                                    .updated_ms = now};
        int r = store_workspace_add(call->front->store, &w, &err);
        free(links);
        if (r < 0) {
            give_up(call, &err);
            return;
        }
    }
    reply(call, a);
}

/* Those with links one by one, as these are part of their sandbox spec; then all. */
static void record_next(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    struct err err;

    if (answer && answer_check(answer, &err) < 0) {
        give_up(call, &err);
        return;
    }
    while (a->at < a->count && json_object_size(json_object_get(item_of(a, a->at), "links")) == 0)
        a->at++;
    if (a->at == a->count) {
        call_record(call, "", "workspace.adopt", "ok",
                    json_pack("{s:s, s:s, s:i}", "bucket", a->bucket, "owner", a->owner, "count",
                              (int)a->count),
                    recorded);
        return;
    }
    size_t i = a->at++;
    call_record(call, a->names[i], "workspace.adopt", "ok",
                json_pack("{s:s, s:s, s:O}", "bucket", a->bucket, "owner", a->owner, "links",
                          json_object_get(item_of(a, i), "links")),
                record_next);
}

/* When the workspace was made that a link leads to; 0: it is none of this owner's. */
static int64_t made_of(struct call *call, const struct adoption *a, const char *name)
{
    struct store_workspace known;
    struct arena arena;
    struct err err;
    int64_t made = 0;

    if (strcmp(name, a->names[a->at]) == 0)
        return 0;
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->names[i], name) == 0)
            return a->now;
    }
    arena_init(&arena, 1UL << 20);
    if (store_workspace_get(call->front->store, &arena, name, &known, &err) == 1 &&
        !known.deleted_ms && strcmp(known.owner, a->owner) == 0 &&
        strcmp(known.bucket, a->bucket) == 0)
        made = known.created_ms;
    arena_clear(&arena);
    return made;
}

/* What the tree's own links ask for is given only if it is the owner's already. */
static json_t *links_of(struct call *call, const struct adoption *a)
{
    json_t *links = json_object();
    const char *user = a->look.found[LINK_USER].old.names;
    const char *ticket = a->look.found[LINK_TICKET].old.names;

    if (strncmp(user, "skills/", 7) == 0 && strcmp(user + 7, a->owner) == 0)
        json_object_set_new(links, "skills_user", json_string(a->owner));
    int64_t made = strncmp(ticket, "threads/", 8) == 0 ? made_of(call, a, ticket + 8) : 0;
    if (made) {
        json_object_set_new(links, "ticket", json_string(ticket + 8));
        json_object_set_new(links, "ticket_made", json_integer(made));
    }
    links_place(links, a->look.found);
    const json_t *places = json_object_get(links, "places");
    if (!json_object_get(places, "user")) /* they would be in the way of a mount */
        (void)json_object_del(links, "skills_user");
    if (!json_object_get(places, "ticket")) {
        (void)json_object_del(links, "ticket");
        (void)json_object_del(links, "ticket_made");
    }
    return links;
}

static void tell_unused(json_t *item, const json_t *links, const struct links_look *look)
{
    const json_t *places = json_object_get(links, "places");
    json_t *unused = json_object();

    for (size_t i = 0; i < LINK_COUNT_; i++) {
        const struct link_found *found = &look->found[i];
        const char *why = *found->why ? found->why
                          : *found->old.names
                              ? "what it leads to is not the owner's, or hides another link"
                              : NULL;
        if (why && !json_object_get(places, look->links[i].name))
            json_object_set_new(unused, look->links[i].at, json_string(why));
    }
    if (json_object_size(unused) > 0)
        json_object_set(item, "links_unused", unused);
    json_decref(unused);
}

static void go_on(struct call *call)
{
    struct adoption *a = call->context;

    if (a->at < a->count) {
        a->look.workspace = a->names[a->at];
        links_look(call, &a->look);
    } else if (a->dry || a->count == 0) {
        reply(call, a);
    } else {
        a->at = 0;
        record_next(call, NULL);
    }
}

/* What the first command adds, or why there will be none. */
static void points_heard(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    json_t *item = item_of(a, a->at);
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    char text[512];
    struct arena arena;
    struct err err;

    if (answer_check(answer, &err) < 0) {
        json_object_set_new(item, "why", json_string(err_text(&err, text, sizeof(text))));
    } else {
        arena_init(&arena, 64UL << 10);
        (void)unpack_u64(&u); /* the tag */
        const char **places = unpack_list(&u, &arena, PROTOCOL_NAMES);
        for (; places && *places; places++)
            json_array_append_new(json_object_get(item, "made"), json_string(*places));
        arena_clear(&arena);
    }
    a->at++;
    go_on(call);
}

static void ask_points(struct call *call, const struct adoption *a, const json_t *links)
{
    static const char *const argv[] = {"true", NULL}; /* it is not run */
    char id[28];
    struct exec_message m = {
        .bucket = a->bucket, .workspace = a->names[a->at], .exec = id, .argv = argv};
    struct shared_link all[LINK_COUNT_];
    struct arena arena;
    struct buf message;

    make_id('x', id);
    arena_init(&arena, 64UL << 10);
    if (links_read(&arena, links, all))
        m.spec.shared = links_mounts(&arena, all);
    buf_init(&message, 16UL << 10);
    protocol_pack_exec(&message, call_expect(call, points_heard), &m);
    broker_send(call->front->channel, REQUEST_TREE_POINTS, &message);
    arena_clear(&arena);
}

static void has_looked(struct call *call, const struct err *failed)
{
    struct adoption *a = call->context;

    if (failed) {
        give_up(call, failed);
        return;
    }
    json_t *links = links_of(call, a);
    json_object_set(item_of(a, a->at), "links", links);
    tell_unused(item_of(a, a->at), links, &a->look);
    ask_points(call, a, links);
    json_decref(links);
}

static void scanned(struct call *call, struct answer *answer)
{
    struct adoption *a = call->context;
    const char **names = call_texts(call, answer, PROTOCOL_NAMES);
    struct err err;
    size_t n = 0;

    if (!names)
        return;
    while (names[n])
        n++;
    a->list = json_array();
    a->names = arena_alloc(&call->arena, (n + 1) * sizeof(*a->names));
    a->rows = arena_alloc(&call->arena, (n + 1) * sizeof(*a->rows));
    a->changes = arena_alloc(&call->arena, (n + 1) * sizeof(*a->changes));
    for (size_t i = 0; i < n; i++) {
        char *name = arena_copy(&call->arena, names[i], strlen(names[i])); /* outlives the answer */
        if (!name || !a->names || !a->rows || !a->changes) {
            err_set(&err, ERR_LIMIT, ENOMEM, "look at the trees");
            give_up(call, &err);
            return;
        }
        look_at(call, a, name);
    }
    a->now = wall_ms();
    go_on(call);
}

void workspaces_adopt(struct call *call)
{
    static const char *const known[] = {"path", "owner", "dry_run", NULL};
    struct adoption *a = arena_alloc(&call->arena, sizeof(*a));
    const char *path = NULL;

    if (!a || !links_read(&call->arena, NULL, a->look.links)) {
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
    a->look.bucket = a->bucket;
    a->look.done = has_looked;
    if (!a->bucket || !protocol_id_is_valid(a->owner)) {
        call_error(call, 400, "invalid_request",
                   "'%.200s' is not a bucket below '%s': start the daemon with --state on the "
                   "directory that has it",
                   path ? path : "", call->front->settings->state);
        return;
    }
    call->context = a;
    call->abandoned = left;
    call_ask(call, REQUEST_TREE_SCAN, a->bucket, NULL, NULL, scanned);
}
