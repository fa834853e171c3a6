/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/templates.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "front/core/record.h"
#include "front/workspaces/trash.h"
#include "protocol/broker.h"

enum {
    MOST_A_TIME = 16,
    AGAIN_MS = 500, /* doubled each time, up to */
    MOST_PAUSE_MS = 60000,
    ID_ROOM = 28,
};

/* --- freezing --- */

struct settling {
    struct front *front;
    template_settled *then;
    void *context;
    char id[ID_ROOM];
    char name[FRONT_ID];
    char workspace[FRONT_ID];
    char bucket[FRONT_ID];
    bool only_finish;
    bool share_cache;
    struct err failed; /* before it was asked whether the tree has moved */
};

static void end_settling(struct settling *s, enum template_end end, const struct err *failed)
{
    s->then(s->context, end, failed);
    free(s);
}

/* Numbers in the answer, with what the broker has counted. */
static bool read_answer(struct answer *answer, struct store_template *t)
{
    struct plain_message m;
    uint64_t tag;

    if (answer->kind != ANSWER_TEMPLATE ||
        !protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return false;
    t->bytes = strtoll(m.texts[1], NULL, 10);
    t->files = strtoll(m.texts[2], NULL, 10);
    return true;
}

static void has_moved(struct settling *s, struct answer *answer)
{
    struct store_template t = {.id = s->id, .name = s->name, .workspace = s->workspace};
    struct err err;

    if (!read_answer(answer, &t)) {
        err_set(&err, ERR_IO, 0, "the broker's answer cannot be read");
        end_settling(s, TEMPLATE_UNDECIDED, &err);
    } else if (sweep_drop_output(s->front, s->workspace, &err) < 0 ||
               store_template_ready(s->front->store, &t, &err) < 0) {
        end_settling(s, TEMPLATE_UNDECIDED, &err);
    } else {
        end_settling(s, TEMPLATE_READY, NULL);
    }
}

static void has_not_moved(struct settling *s)
{
    struct err err;

    if (store_template_remove(s->front->store, s->id, &err) < 0)
        end_settling(s, TEMPLATE_UNDECIDED, &err);
    else
        end_settling(s, TEMPLATE_TAKEN_BACK, &s->failed);
}

static void ask_freeze(struct settling *s);

/* What failed may have failed after the tree had moved: that is asked first. */
static void frozen(void *context, struct answer *answer)
{
    struct settling *s = context;
    struct err err;

    if (answer_check(answer, &err) == 0) {
        has_moved(s, answer);
    } else if (!s->only_finish) {
        s->failed = err;
        s->only_finish = true;
        ask_freeze(s);
    } else if (err.code == ERR_NOT_FOUND) {
        if (s->failed.code == ERR_NONE)
            s->failed = err;
        has_not_moved(s);
    } else {
        end_settling(s, TEMPLATE_UNDECIDED, &err);
    }
}

static void ask_freeze(struct settling *s)
{
    uint64_t tag = broker_expect(s->front->channel, frozen, s);
    struct plain_message m = {.texts = {s->bucket, s->workspace, s->id},
                              .number = (s->only_finish ? FREEZE_ONLY_FINISH : 0) |
                                        (s->share_cache ? FREEZE_SHARE_CACHE : 0)};
    struct err err;
    struct buf b;

    if (!tag) {
        err_set(&err, ERR_LIMIT, ENOMEM, "ask the broker");
        end_settling(s, TEMPLATE_UNDECIDED, &err);
        return;
    }
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &m);
    broker_send(s->front->channel, REQUEST_TEMPLATE_FREEZE, &b);
}

static void find_bucket(struct settling *s)
{
    struct store_workspace w;
    struct arena arena;
    struct err err;

    arena_init(&arena, 8UL << 20);
    bool found = store_workspace_get(s->front->store, &arena, s->workspace, &w, &err) == 1;
    snprintf(s->bucket, sizeof(s->bucket), "%s", found ? w.bucket : s->front->settings->bucket);
    arena_clear(&arena);
}

void template_settle(struct front *front, const struct store_template *t, bool only_finish,
                     template_settled *then, void *context)
{
    struct settling *s = calloc(1, sizeof(*s));
    struct err err;

    if (!s) {
        err_set(&err, ERR_LIMIT, ENOMEM, "freeze the workspace");
        then(context, TEMPLATE_UNDECIDED, &err);
        return;
    }
    s->front = front;
    s->then = then;
    s->context = context;
    s->only_finish = only_finish;
    s->share_cache = t->share_cache;
    text_copy(s->id, sizeof(s->id), t->id);
    text_copy(s->name, sizeof(s->name), t->name);
    text_copy(s->workspace, sizeof(s->workspace), t->workspace);
    find_bucket(s);
    ask_freeze(s);
}

/* --- removing --- */

struct removing {
    struct front *front;
    template_removed *then;
    void *context;
    char id[ID_ROOM];
};

static void removed(void *context, struct answer *answer)
{
    struct removing *r = context;
    struct err err;

    bool failed =
        answer_check(answer, &err) < 0 || store_template_remove(r->front->store, r->id, &err) < 0;
    r->then(r->context, failed ? &err : NULL);
    free(r);
}

void template_remove(struct front *front, const char *id, template_removed *then, void *context)
{
    struct removing *r = calloc(1, sizeof(*r));
    uint64_t tag = r ? broker_expect(front->channel, removed, r) : 0;
    struct err err;
    struct buf b;

    if (!tag) {
        free(r);
        err_set(&err, ERR_LIMIT, ENOMEM, "remove the template");
        then(context, &err);
        return;
    }
    *r = (struct removing){.front = front, .then = then, .context = context};
    text_copy(r->id, sizeof(r->id), id);
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &(struct plain_message){.texts = {id}});
    broker_send(front->channel, REQUEST_TEMPLATE_REMOVE, &b);
}

/* --- the sweep --- */

/* One that it looks after, until nothing is left to do. */
struct tended {
    struct tended *next;
    struct front *front;
    struct change change; /* of it, or of the workspace that it still is */
    char id[ID_ROOM];
    char name[FRONT_ID];
    char workspace[FRONT_ID];
    char owner[FRONT_ID];
    char state[16];
    bool share_cache;
    bool under_way;
    bool found;        /* its row is still there */
    bool asked;        /* its end is on record as wanted */
    uint64_t pause_ms; /* when it could not be done; 0: it was not tried yet */
    uint64_t due_ms;
};

static void look_again(struct timer *timer);

static struct {
    struct tended *first;
    struct front *front;
    struct timer timer; /* when the next one is due */
} tending = {.timer = {.ring = look_again}};

static void look_again(struct timer *timer)
{
    (void)timer;
    templates_sweep(tending.front);
}

static void let_go(struct tended *t)
{
    struct tended **at = &tending.first;

    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    change_end(&t->change);
    free(t);
}

/* The longer it cannot be done, the longer it is left alone. */
static void postpone(struct tended *t)
{
    uint64_t twice = t->pause_ms ? 2 * t->pause_ms : AGAIN_MS;
    uint64_t first = UINT64_MAX;

    change_end(&t->change);
    t->under_way = false;
    t->pause_ms = twice < MOST_PAUSE_MS ? twice : MOST_PAUSE_MS;
    t->due_ms = now_ms() + t->pause_ms;
    tending.front = t->front;
    for (const struct tended *other = tending.first; other; other = other->next) {
        if (!other->under_way && other->due_ms < first)
            first = other->due_ms;
    }
    ignore(timer_set(t->front->events, &tending.timer, first)); /* or the next turn finds it */
}

static void complain(const struct tended *t, const struct err *failed)
{
    char text[512];

    log_warning("template_unfinished", "template", t->name, "state", t->state, "error",
                err_text(failed, text, sizeof(text)), NULL);
}

static void record(struct tended *t, const char *operation, const char *result, const char *reason,
                   front_recorded *heard)
{
    front_record(t->front,
                 &(struct front_record){.actor = "carrel",
                                        .request = "",
                                        .workspace = "",
                                        .operation = operation,
                                        .result = result},
                 json_pack("{s:s, s:s, s:s, s:s}", "template", t->id, "name", t->name, "workspace",
                           t->workspace, "reason", reason),
                 heard, t);
}

static void was_told(void *context, const struct err *failed)
{
    (void)failed; /* the log of the broker says so */
    let_go(context);
}

static void failure_was_told(void *context, const struct err *failed)
{
    (void)failed;
    postpone(context);
}

/* The process that froze it for the front before this one may still be at it. */
static void was_settled(void *context, enum template_end end, const struct err *failed)
{
    struct tended *t = context;

    if (end == TEMPLATE_UNDECIDED) {
        complain(t, failed);
        postpone(t);
    } else {
        if (end == TEMPLATE_READY)
            front_announce(t->front, "workspace.delete", t->workspace, t->owner, NULL);
        record(t, "template.create", end == TEMPLATE_READY ? "ok" : "failed", "was interrupted",
               was_told);
    }
}

/* Of one that was asked for elsewhere it is on record already that it failed, if it did. */
static void was_removed(void *context, const struct err *failed)
{
    struct tended *t = context;
    char text[512];

    if (failed)
        complain(t, failed);
    if (!failed)
        record(t, "template.delete", "ok", "nobody uses it", was_told);
    else if (t->asked)
        record(t, "template.delete", "failed", err_text(failed, text, sizeof(text)),
               failure_was_told);
    else
        postpone(t);
}

static void remove_if_unused(struct tended *t)
{
    char text[512];
    struct err err;
    int r = store_template_removing(t->front->store, t->id, &err);

    if (r == 1)
        template_remove(t->front, t->id, was_removed, t);
    else
        record(t, "template.delete", "failed",
               r < 0 ? err_text(&err, text, sizeof(text)) : "it is used again", failure_was_told);
}

static void removal_recorded(void *context, const struct err *failed)
{
    struct tended *t = context;

    if (failed)
        postpone(t);
    else
        remove_if_unused(t);
}

static void tend(struct tended *t)
{
    struct store_template row = {
        .id = t->id, .name = t->name, .workspace = t->workspace, .share_cache = t->share_cache};
    bool freezing = strcmp(t->state, "freezing") == 0;

    t->asked = strcmp(t->state, "retired") == 0;
    if (!change_begin(&t->change, freezing ? t->workspace : t->id))
        let_go(t); /* a request is at it */
    else if (freezing)
        template_settle(t->front, &row, true, was_settled, t);
    else if (t->asked)
        record(t, "template.delete", "asked", "replaced, and not used any more", removal_recorded);
    else
        template_remove(t->front, t->id, was_removed, t);
}

static struct tended *find(const char *id)
{
    struct tended *t = tending.first;

    while (t && strcmp(t->id, id) != 0)
        t = t->next;
    return t;
}

/* Retired, and workspaces stand on it: there is nothing to do. */
static bool is_in_use(const struct front *front, const struct store_template *row)
{
    uint64_t users;
    struct err err;

    return strcmp(row->state, "retired") == 0 &&
           (store_template_users(front->store, row->id, NULL, &users, &err) < 0 || users > 0);
}

static struct tended *find_or_make(struct front *front, const char *id)
{
    struct tended *t = find(id);

    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->front = front;
    text_copy(t->id, sizeof(t->id), id);
    t->next = tending.first;
    tending.first = t;
    return t;
}

struct found {
    struct front *front;
    struct tended *items[MOST_A_TIME];
    size_t n;
};

static bool collect(void *context, const struct store_template *row)
{
    struct found *found = context;
    struct tended *t = is_in_use(found->front, row) ? NULL : find_or_make(found->front, row->id);

    if (!t)
        return true;
    t->found = true;
    if (t->under_way || t->due_ms > now_ms())
        return true;
    text_copy(t->name, sizeof(t->name), row->name);
    text_copy(t->workspace, sizeof(t->workspace), row->workspace);
    text_copy(t->owner, sizeof(t->owner), row->owner);
    snprintf(t->state, sizeof(t->state), "%s", row->state);
    t->share_cache = row->share_cache;
    t->under_way = true;
    found->items[found->n++] = t;
    return found->n < MOST_A_TIME;
}

/* Those that wait and have nothing to wait for any more. */
static void forget_lost(void)
{
    for (struct tended *t = tending.first, *next; t; t = next) {
        next = t->next;
        if (!t->under_way && !t->found)
            let_go(t);
    }
}

void templates_sweep(struct front *front)
{
    struct found found = {.front = front};
    struct err err;

    for (struct tended *t = tending.first; t; t = t->next)
        t->found = false;
    int r = store_templates(front->store, true, NULL, SIZE_MAX, collect, &found, &err);
    if (r == 0 && found.n < MOST_A_TIME) /* then it has seen all */
        forget_lost();
    for (size_t i = 0; i < found.n; i++)
        tend(found.items[i]);
}
