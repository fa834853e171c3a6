/* SPDX-License-Identifier: Apache-2.0 */
#include "front/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "broker/protocol.h"
#include "front/job.h"

enum {
    EVERY_MS = 10000,
    MOST_A_TIME = 64,
};

static bool drop_spool(void *context, const struct store_exec *row)
{
    struct front *front = context;

    ignore(spool_remove(front->execs, row->id)); /* one that is left is found by the next start */
    return true;
}

struct expired {
    char ids[MOST_A_TIME][FRONT_ID];
    size_t n;
    int64_t before_ms;
};

static bool note_expired(void *context, const struct store_workspace *w)
{
    struct expired *e = context;

    if (w->deleted_ms < e->before_ms && e->n < MOST_A_TIME)
        strncpy(e->ids[e->n++], w->id, FRONT_ID - 1);
    return e->n < MOST_A_TIME;
}

static void purged(void *context, struct answer *answer)
{
    (void)context;
    (void)answer; /* what could not be removed is tried again: its row is still there */
}

/* The row goes first, so that nobody undeletes what is being removed; the broker records it. */
static void purge(struct front *front, const char *id)
{
    struct store_workspace w;
    struct arena arena;
    struct err err;
    struct buf b;

    arena_init(&arena, 1UL << 20);
    if (store_workspace_get(front->store, &arena, id, &w, &err) == 1 && w.deleted_ms) {
        struct plain_message m = {.texts = {w.bucket, w.id, w.trash}};
        struct record_message record = {.actor = "carrel",
                                        .workspace = w.id,
                                        .request = "",
                                        .operation = "workspace.purge",
                                        .result = "ok",
                                        .details = "{\"reason\":\"trash period over\"}"};
        buf_init(&b, 8192);
        protocol_pack_record(&b, link_expect(front->link, purged, NULL), &record);
        link_send(front->link, REQUEST_RECORD, &b);
        buf_init(&b, 4096);
        protocol_pack_plain(&b, link_expect(front->link, purged, NULL), &m);
        link_send(front->link, REQUEST_TREE_PURGE, &b);
        ignore(store_workspace_remove(front->store, w.id, &err));
    }
    arena_clear(&arena);
}

static void sweep(struct timer *timer)
{
    struct front *front = (struct front *)(void *)((char *)timer - offsetof(struct front, sweep));
    int64_t now = wall_ms();
    struct err err;
    struct expired e = {.before_ms = now - (int64_t)front->settings->trash_ms};

    ignore(timer_set(front->events, timer, now_ms() + EVERY_MS));
    if (!front->resumed)
        return;
    ignore(store_execs_expire(front->store, now - (int64_t)front->settings->retention_ms,
                              drop_spool, front, &err));
    if (front->settings->trash_ms &&
        store_workspaces(front->store, NULL, true, NULL, SIZE_MAX, note_expired, &e, &err) == 0) {
        for (size_t i = 0; i < e.n; i++)
            purge(front, e.ids[i]);
    }
}

void sweep_begin(struct front *front)
{
    front->sweep.ring = sweep;
    ignore(timer_set(front->events, &front->sweep, now_ms() + EVERY_MS));
}
