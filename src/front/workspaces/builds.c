/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/builds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/record.h"
#include "front/workspaces/trash.h"

enum {
    MOST_AT_START = 64, /* the others at the next */
    ARENA_BYTES = 16 << 20,
    ABANDONED_MS = 15 * 60 * 1000,
    AGAIN_MS = 60 * 1000,
};

/* One that is to go. */
struct dropped {
    struct dropped *next;
    struct front *front;
    struct change change;
    struct store_workspace w; /* only what store_workspace_move and sweep_move look at */
    char id[FRONT_ID];
    char bucket[FRONT_ID];
    char trash[FRONT_ID];
    char owner[FRONT_ID];
    char builds[FRONT_ID];
    int64_t due_ms;
};

static void forget(struct dropped *d)
{
    struct dropped **at = &d->front->builds;

    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    change_end(&d->change);
    free(d);
}

static void moved(void *context, const struct err *failed)
{
    (void)failed; /* its row says where it belongs: the sweep tries again */
    forget(context);
}

static void record(struct dropped *d, const char *result, const char *reason, front_recorded *heard)
{
    bool for_good = d->front->settings->trash_ms == 0;

    front_record(
        d->front,
        &(struct front_record){.actor = "carrel",
                               .request = "",
                               .workspace = d->id,
                               .operation = for_good ? "workspace.purge" : "workspace.delete",
                               .result = result},
        json_pack("{s:s, s:s}", "reason", reason, "builds", d->builds), heard, d);
}

static void failure_was_told(void *context, const struct err *failed)
{
    struct dropped *d = context;

    (void)failed; /* the log of the broker says so */
    change_end(&d->change);
}

static void recorded(void *context, const struct err *failed)
{
    struct dropped *d = context;
    int64_t now = wall_ms();
    char text[512];
    struct err err;

    snprintf(d->trash, sizeof(d->trash), "%jd", (intmax_t)now);
    d->w = (struct store_workspace){.id = d->id,
                                    .bucket = d->bucket,
                                    .trash = d->trash,
                                    .updated_ms = now,
                                    .deleted_ms = d->front->settings->trash_ms ? now : -now};
    if (failed) {
        change_end(&d->change);
        return;
    }
    if (store_workspace_move(d->front->store, &d->w, 0, &err) < 0) {
        d->due_ms = now + AGAIN_MS;
        record(d, "failed", err_text(&err, text, sizeof(text)), failure_was_told);
        return;
    }
    front_announce(d->front, "workspace.delete", d->id, d->owner, NULL);
    sweep_move(d->front, &d->w, moved, d);
}

static void begin(struct dropped *d, const struct store_workspace *w)
{
    text_copy(d->bucket, sizeof(d->bucket), w->bucket);
    text_copy(d->owner, sizeof(d->owner), w->owner);
    text_copy(d->builds, sizeof(d->builds), w->builds);
    record(d, "ok", "a template's build was interrupted", recorded);
}

/* Not while it is decided whether it has become the template after all. */
static void try(struct dropped *d)
{
    struct store_workspace w;
    struct store_template t;
    struct arena arena;
    struct err err;

    if (d->change.workspace || wall_ms() < d->due_ms)
        return; /* it is under way, or has just failed */
    arena_init(&arena, ARENA_BYTES);
    int found = store_workspace_get(d->front->store, &arena, d->id, &w, &err);
    int frozen = found < 1 ? 0 : store_template_frozen(d->front->store, &arena, d->id, &t, &err);
    if (found == 0 || (found == 1 && (w.deleted_ms || !*w.builds)))
        forget(d);
    else if (found == 1 && frozen == 0 && change_begin(&d->change, d->id))
        begin(d, &w);
    arena_clear(&arena);
}

static void add(struct front *front, const char *workspace)
{
    struct dropped *d = front->builds;

    while (d && strcmp(d->id, workspace) != 0)
        d = d->next;
    if (d)
        return;
    d = calloc(1, sizeof(*d));
    if (!d)
        return;
    d->front = front;
    text_copy(d->id, sizeof(d->id), workspace);
    d->next = front->builds;
    front->builds = d;
}

void builds_sweep(struct front *front)
{
    for (struct dropped *d = front->builds, *next; d; d = next) {
        next = d->next;
        try(d);
    }
}

void builds_begin(struct front *front)
{
    struct store_workspace rows[MOST_AT_START];
    struct arena arena;
    struct err err;

    arena_init(&arena, (size_t)MOST_AT_START * ARENA_BYTES);
    int n = store_builds(front->store, &arena, rows, MOST_AT_START, &err);
    for (int i = 0; i < n; i++)
        add(front, rows[i].id);
    arena_clear(&arena);
    builds_sweep(front);
}

void build_drop(struct front *front, const char *workspace)
{
    add(front, workspace);
    builds_sweep(front);
}

static bool note_end(void *context, const struct store_exec *row)
{
    int64_t *last = context;

    if (row->ended_ms > *last)
        *last = row->ended_ms;
    return true;
}

bool build_is_abandoned(struct front *front, const struct store_workspace *w)
{
    int64_t last = w->updated_ms;
    struct err err;

    if (front_execs_in(front, w->id) > 0 ||
        store_execs(front->store, w->id, NULL, NULL, 1, note_end, &last, &err) < 0)
        return false;
    return wall_ms() - last > ABANDONED_MS;
}
