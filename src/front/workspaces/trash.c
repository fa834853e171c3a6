/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pack.h"
#include "base/text.h"
#include "front/exec/exec.h"
#include "front/exec/output.h"
#include "front/workspaces/builds.h"
#include "front/workspaces/lifetime.h"
#include "front/workspaces/templates.h"
#include "protocol/broker.h"

enum {
    EVERY_MS = 10000,
    SOON_MS = 100,    /* until the broker has told what lives */
    RETRY_MS = 60000, /* after something could not be removed */
    FRESH_MS = 2000,
    MOST_A_TIME = 64, /* workspaces that are looked after at once */
    MOST_TRIES = 40,  /* somebody wakes what is to sleep, or works on a plan of it */
    AGAIN_MS = 100,
    SPOOLS_A_TIME = 256,
    SPOOLS_PAUSE_MS = 10,
    CHANGE_SLOTS = 512, /* an adoption is thousands of changes */
};

/* A look through the trash, page by page; and through the spools, once. */
static struct {
    struct change *changes[CHANGE_SLOTS];
    struct front *front;
    bool began;
    bool going;
    bool listing;        /* the store calls us */
    bool full;           /* there may be more than this page */
    bool thorough;       /* also at those that should have nothing left to do */
    bool wants_thorough; /* the next look is */
    uint64_t not_before_ms;
    int64_t expired_before_ms;
    size_t under_way;
    char after[FRONT_ID];
    DIR *spools;
    struct timer spools_timer;
    size_t spools_removed; /* files */
} sweeping;

/* --- one change at a time --- */

static struct change **slot_of(const char *workspace)
{
    return &sweeping.changes[hash_text(workspace) % CHANGE_SLOTS];
}

bool change_begin(struct change *change, const char *workspace)
{
    struct change **slot = slot_of(workspace);

    for (const struct change *c = *slot; c; c = c->next) {
        if (strcmp(c->workspace, workspace) == 0)
            return false;
    }
    change->workspace = workspace;
    change->next = *slot;
    *slot = change;
    return true;
}

void change_end(struct change *change)
{
    if (!change->workspace)
        return;
    for (struct change **at = slot_of(change->workspace); *at; at = &(*at)->next) {
        if (*at == change) {
            *at = change->next;
            break;
        }
    }
    change->workspace = NULL;
}

/* --- a workspace on its way out --- */

struct leaving {
    struct front *front;
    sweep_moved *then;
    void *context;
    char id[FRONT_ID];
    char bucket[FRONT_ID];
    char trash[FRONT_ID];
    bool for_good;
    unsigned tries;
    struct timer again;
};

static void finish(struct leaving *l, const struct err *failed)
{
    l->then(l->context, failed);
    free(l);
}

static void ask(struct leaving *l, uint32_t kind, const struct plain_message *m,
                broker_heard *heard)
{
    uint64_t tag = broker_expect(l->front->channel, heard, l);
    struct buf b;
    struct err err;

    if (!tag) {
        err_set(&err, ERR_LIMIT, ENOMEM, "ask the broker");
        finish(l, &err);
        return;
    }
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, m);
    broker_send(l->front->channel, kind, &b);
}

static void ask_tree(struct leaving *l, uint32_t kind, broker_heard *heard)
{
    ask(l, kind, &(struct plain_message){.texts = {l->bucket, l->id, l->trash}}, heard);
}

static bool drop_spool(void *context, const struct store_exec *row)
{
    struct front *front = context;

    ignore(spool_remove(front->spools, row->id)); /* one that is left is found by the next start */
    output_removed(front, row->id);
    return true;
}

int sweep_drop_output(struct front *front, const char *workspace, struct err *err)
{
    exec_write_rows(front);
    return store_execs(front->store, workspace, NULL, NULL, SIZE_MAX, drop_spool, front, err);
}

static void purged(void *context, struct answer *answer)
{
    struct leaving *l = context;
    struct err err;

    bool failed =
        answer_check(answer, &err) < 0 || store_workspace_remove(l->front->store, l->id, &err) < 0;
    finish(l, failed ? &err : NULL);
}

static void put_to_sleep(struct leaving *l);

static void try_again(struct timer *timer)
{
    put_to_sleep(container_of(timer, struct leaving, again));
}

/* A tree that is nowhere, as somebody has removed it by hand, has nothing left to do. */
static void trashed(void *context, struct answer *answer)
{
    struct leaving *l = context;
    struct err err;

    if (answer_check(answer, &err) < 0 && err.code != ERR_NOT_FOUND) {
        l->again.ring = try_again;
        if (err.code != ERR_CONFLICT || ++l->tries == MOST_TRIES ||
            timer_set(l->front->events, &l->again, now_ms() + AGAIN_MS) < 0)
            finish(l, &err);
        return;
    }
    if (!l->for_good) {
        finish(l, NULL);
        return;
    }
    if (sweep_drop_output(l->front, l->id, &err) < 0)
        finish(l, &err);
    else
        ask_tree(l, REQUEST_TREE_PURGE, purged);
}

static void slept(void *context, struct answer *answer)
{
    (void)answer; /* it was asleep already, or is now */
    ask_tree(context, REQUEST_TREE_TRASH, trashed);
}

static void put_to_sleep(struct leaving *l)
{
    ask(l, REQUEST_SLEEP, &(struct plain_message){.texts = {l->id, "workspace deleted"}}, slept);
}

void sweep_move(struct front *front, const struct store_workspace *w, sweep_moved *then,
                void *context)
{
    struct leaving *l = calloc(1, sizeof(*l));
    struct err err;

    if (!l) {
        err_set(&err, ERR_LIMIT, ENOMEM, "remove the workspace");
        then(context, &err);
        return;
    }
    *l = (struct leaving){
        .front = front, .then = then, .context = context, .for_good = w->deleted_ms < 0};
    text_copy(l->id, sizeof(l->id), w->id);
    text_copy(l->bucket, sizeof(l->bucket), w->bucket);
    text_copy(l->trash, sizeof(l->trash), w->trash);
    put_to_sleep(l);
}

/* --- the trash --- */

struct item {
    struct change change;
    struct front *front;
    struct store_workspace w; /* only what store_workspace_move and sweep_move look at */
    char id[FRONT_ID];
    char bucket[FRONT_ID];
    char trash[FRONT_ID];
};

static void next_page(struct front *front);

static void item_moved(void *context, const struct err *failed)
{
    struct item *item = context;
    struct front *front = item->front;
    char text[512];

    if (failed) {
        log_warning("sweep_failed", "workspace", item->id, "error",
                    err_text(failed, text, sizeof(text)), NULL);
        sweeping.wants_thorough = true;
        sweeping.not_before_ms = now_ms() + RETRY_MS;
    }
    change_end(&item->change);
    free(item);
    sweeping.under_way--;
    if (sweeping.under_way == 0 && !sweeping.listing)
        next_page(front);
}

static void item_recorded(void *context, struct answer *answer)
{
    struct item *item = context;
    int64_t was = item->w.deleted_ms;
    struct err err;

    item->w.deleted_ms = -was;
    item->w.updated_ms = wall_ms();
    if (answer_check(answer, &err) < 0 ||
        store_workspace_move(item->front->store, &item->w, was, &err) < 0)
        item_moved(item, &err);
    else
        sweep_move(item->front, &item->w, item_moved, item);
}

static void record_purge(struct item *item)
{
    static const char reason[] = "{\"reason\":\"trash period over\"}";
    struct record_message record = {.actor = "carrel",
                                    .workspace = item->id,
                                    .request = "",
                                    .operation = "workspace.purge",
                                    .result = "ok",
                                    .details = reason};
    uint64_t tag = broker_expect(item->front->channel, item_recorded, item);
    struct err err;
    struct buf b;

    if (!tag) {
        err_set(&err, ERR_LIMIT, ENOMEM, "ask the broker");
        item_moved(item, &err);
        return;
    }
    buf_init(&b, 8192);
    protocol_pack_record(&b, tag, &record);
    broker_send(item->front->channel, REQUEST_RECORD, &b);
}

/* Its row becomes one that is on its way out, once that is on record; then it goes. One that is
 * already was recorded by whoever began it. */
static void look_after(struct front *front, const struct store_workspace *w, bool expired)
{
    struct item *item = calloc(1, sizeof(*item));

    if (!item)
        return;
    text_copy(item->id, sizeof(item->id), w->id);
    text_copy(item->bucket, sizeof(item->bucket), w->bucket);
    text_copy(item->trash, sizeof(item->trash), w->trash);
    item->front = front;
    item->w = (struct store_workspace){
        .id = item->id, .bucket = item->bucket, .trash = item->trash, .deleted_ms = w->deleted_ms};
    if (!change_begin(&item->change, item->id)) {
        free(item); /* a request is at it */
        return;
    }
    sweeping.under_way++;
    if (expired && w->deleted_ms > 0)
        record_purge(item);
    else
        sweep_move(front, &item->w, item_moved, item);
}

static bool look_at(void *context, const struct store_workspace *w)
{
    bool expired = w->deleted_ms < sweeping.expired_before_ms;
    bool fresh = w->deleted_ms > wall_ms() - FRESH_MS; /* its own call may still be at it */

    text_copy(sweeping.after, sizeof(sweeping.after), w->id);
    if (sweeping.thorough && fresh && !expired)
        sweeping.wants_thorough = true; /* later */
    else if (w->deleted_ms < 0 ? now_ms() >= sweeping.not_before_ms : expired || sweeping.thorough)
        look_after(context, w, expired);
    sweeping.full = sweeping.under_way >= MOST_A_TIME;
    return !sweeping.full;
}

static void next_page(struct front *front)
{
    struct err err;
    int r;

    if (!sweeping.full) {
        sweeping.going = false;
        return;
    }
    do {
        sweeping.full = false;
        sweeping.listing = true;
        r = store_workspaces(front->store, NULL, true, sweeping.after, SIZE_MAX, look_at, front,
                             &err);
        sweeping.listing = false;
    } while (r == 0 && sweeping.full && sweeping.under_way == 0);
    if (sweeping.under_way == 0)
        sweeping.going = false;
}

static void look_through_trash(struct front *front)
{
    if (sweeping.going)
        return;
    sweeping.thorough = sweeping.wants_thorough && now_ms() >= sweeping.not_before_ms;
    if (sweeping.thorough)
        sweeping.wants_thorough = false;
    sweeping.expired_before_ms = wall_ms() - (int64_t)front->settings->trash_ms;
    memset(sweeping.after, 0, sizeof(sweeping.after));
    sweeping.going = sweeping.full = true;
    next_page(front);
}

void sweep_look_again(void)
{
    sweeping.wants_thorough = true;
    sweeping.not_before_ms = 0;
}

/* --- what a front that died has left --- */

/* True: a file with output of a command that nobody knows, whose id it is named after. */
static bool is_lost(struct front *front, const char *name, char id[PROTOCOL_EXEC_ID + 1])
{
    struct store_exec row;
    struct arena arena;
    struct err err;

    memset(id, 0, PROTOCOL_EXEC_ID + 1);
    memcpy(id, name, strnlen(name, PROTOCOL_EXEC_ID));
    if (!protocol_exec_id_is_valid(id) || name[PROTOCOL_EXEC_ID] != '.' || exec_find(front, id))
        return false;
    arena_init(&arena, 8UL << 20);
    bool lost = store_exec_get(front->store, &arena, id, &row, &err) == 0;
    arena_clear(&arena);
    return lost;
}

static void look_through_spools(struct timer *timer)
{
    struct front *front = sweeping.front;
    const struct dirent *entry = NULL;
    char id[PROTOCOL_EXEC_ID + 1];

    for (size_t i = 0; i < SPOOLS_A_TIME; i++) {
        entry = readdir(sweeping.spools); /* one thread; NOLINT(concurrency-mt-unsafe) */
        if (!entry)
            break;
        if (is_lost(front, entry->d_name, id))
            sweeping.spools_removed += spool_remove(front->spools, id) == 0;
    }
    if (entry && timer_set(front->events, timer, now_ms() + SPOOLS_PAUSE_MS) == 0)
        return;
    if (sweeping.spools_removed)
        fprintf(stderr, "level=info event=lost_output_removed files=%zu\n",
                sweeping.spools_removed);
    (void)closedir(sweeping.spools);
    sweeping.spools = NULL;
}

static void begin_spools(struct front *front)
{
    scoped_fd int fd = openat(front->spools, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    sweeping.spools = fd < 0 ? NULL : fdopendir(fd);
    if (!sweeping.spools) {
        log_warning("cannot_list_output", "error", strerrordesc_np(errno), NULL);
        return;
    }
    (void)take_fd(&fd); /* closed with it */
    sweeping.spools_timer.ring = look_through_spools;
    look_through_spools(&sweeping.spools_timer);
}

static void count_unknown(void *context, struct answer *answer)
{
    struct front *front = context;
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    struct arena names_arena;
    struct err err;
    size_t count = 0;

    if (answer->kind != ANSWER_NAMES)
        return;
    arena_init(&names_arena, 2UL << 20);
    (void)unpack_u64(&u); /* the tag */
    const char **names = unpack_list(&u, &names_arena, PROTOCOL_NAMES);
    for (; names && *names; names++) {
        struct store_workspace w;
        struct arena arena;
        arena_init(&arena, 8UL << 20);
        count += store_workspace_get(front->store, &arena, *names, &w, &err) == 0;
        arena_clear(&arena);
    }
    arena_clear(&names_arena);
    if (count)
        fprintf(stderr,
                "level=info event=unknown_trees bucket='%s' count=%zu "
                "then='left as they are; /v1/adopt makes them workspaces'\n",
                front->settings->bucket, count);
}

static void ask_for_trees(struct front *front)
{
    uint64_t tag = broker_expect(front->channel, count_unknown, front);
    struct buf b;

    if (!tag)
        return;
    buf_init(&b, 4096);
    protocol_pack_plain(&b, tag, &(struct plain_message){.texts = {front->settings->bucket}});
    broker_send(front->channel, REQUEST_TREE_SCAN, &b);
}

static void sweep(struct timer *timer)
{
    struct front *front = container_of(timer, struct front, sweep);
    struct err err;

    ignore(timer_set(front->events, timer, now_ms() + (front->resumed ? EVERY_MS : SOON_MS)));
    if (!front->resumed)
        return;
    if (!sweeping.began) {
        sweeping.began = true;
        sweep_look_again();
        begin_spools(front);
        ask_for_trees(front);
        lifetimes_look(front);
    }
    ignore(store_execs_expire(front->store, wall_ms() - (int64_t)front->settings->retention_ms,
                              drop_spool, front, &err));
    look_through_trash(front);
    templates_sweep(front);
    builds_sweep(front);
    execs_next(front); /* for what no event tells of, as a reader that let go of its output */
}

void sweep_begin(struct front *front)
{
    sweeping.front = front;
    front->sweep.ring = sweep;
    ignore(timer_set(front->events, &front->sweep, now_ms() + SOON_MS));
}
