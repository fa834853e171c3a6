/* SPDX-License-Identifier: Apache-2.0 */
#include "front/exec/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/text.h"
#include "front/core/quota.h"
#include "front/exec/exec.h"

enum {
    LEAST_KEPT = 1 << 20, /* of one that runs, however full it is */
    PIPE_FULL = 65536,    /* so much a pipe would hold as well: nobody is ended for it */
    FLOOR_MS = 100,       /* between one look at the disk and the next */
    SCAN_AT_ONCE = 256,
    SCAN_PAUSE_MS = 5,
};

#define FLOOR_STEP (16ULL << 20) /* ... or so many bytes */

/* The output of a command that is over. In three lists: of its slot, its owner, and all. */
struct kept_output {
    struct kept_output *next; /* in the slot */
    struct kept_output *older_own;
    struct kept_output *newer_own;
    struct kept_output *older;
    struct kept_output *newer;
    struct owner_use *tenant;
    uint64_t bytes;
    char id[28];
};

static size_t slot_of(const char *id)
{
    return hash_text(id) % FRONT_SLOTS;
}

static bool is_counted(const struct front *front)
{
    return front->settings->owner_output || front->settings->max_output;
}

static struct kept_output *find(const struct front *front, const char *id)
{
    struct kept_output *k = front->kept[slot_of(id)];

    while (k && strcmp(k->id, id) != 0)
        k = k->next;
    return k;
}

static void unlink_kept(struct front *front, struct kept_output *k)
{
    struct kept_output **at = &front->kept[slot_of(k->id)];
    struct owner_use *t = k->tenant;

    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    *(k->older ? &k->older->newer : &front->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &front->newest) = k->older;
    *(k->older_own ? &k->older_own->newer_own : &t->oldest) = k->newer_own;
    *(k->newer_own ? &k->newer_own->older_own : &t->newest) = k->older_own;
    t->output_kept -= k->bytes;
    front->output_kept -= k->bytes;
    owner_use_drop(front, t);
    free(k);
}

/* As the newest of all, or, of what is found from before, as the oldest. */
static void link_kept(struct front *front, struct kept_output *k, bool newest)
{
    struct kept_output **slot = &front->kept[slot_of(k->id)];
    struct owner_use *t = k->tenant;

    k->next = *slot;
    *slot = k;
    if (newest) {
        k->older = front->newest;
        k->older_own = t->newest;
    } else {
        k->newer = front->oldest;
        k->newer_own = t->oldest;
    }
    *(k->older ? &k->older->newer : &front->oldest) = k;
    *(k->newer ? &k->newer->older : &front->newest) = k;
    *(k->older_own ? &k->older_own->newer_own : &t->oldest) = k;
    *(k->newer_own ? &k->newer_own->older_own : &t->newest) = k;
    t->output_kept += k->bytes;
    front->output_kept += k->bytes;
}

static void keep(struct front *front, const char *id, const char *owner, uint64_t bytes,
                 bool newest)
{
    struct kept_output *k = bytes ? calloc(1, sizeof(*k)) : NULL;

    if (!k)
        return; /* without memory for it, it stays uncounted, and goes with its time */
    k->tenant = owner_use_use(front, owner);
    if (!k->tenant) {
        free(k);
        return;
    }
    text_copy(k->id, sizeof(k->id), id);
    k->bytes = bytes;
    link_kept(front, k, newest);
}

/* Who asks for it later hears that it is gone. */
static void forget(struct front *front, struct kept_output *k)
{
    ignore(spool_empty(front->spools, k->id)); /* what cannot be emptied goes with its time */
    unlink_kept(front, k);
}

/* Whether there is more than allowed, and nothing left to forget. */
static bool is_over(struct front *front, struct owner_use *t)
{
    uint64_t own = front->settings->owner_output;
    uint64_t most = front->settings->max_output;

    while (own && t->oldest && t->output_running + t->output_kept > own)
        forget(front, t->oldest);
    while (most && front->oldest && front->output_running + front->output_kept > most)
        forget(front, front->oldest);
    return (own && t->output_running > own) || (most && front->output_running > most);
}

static void count(struct exec *exec, uint64_t bytes)
{
    exec->quota.tenant->output_running += bytes - exec->counted;
    exec->front->output_running += bytes - exec->counted;
    exec->counted = bytes;
}

void output_grew(struct exec *exec)
{
    if (!is_counted(exec->front))
        return;
    count(exec, spool_kept(&exec->spool));
    if (!is_over(exec->front, exec->quota.tenant))
        return;
    spool_tighten(&exec->spool, LEAST_KEPT);
    count(exec, spool_kept(&exec->spool));
}

void output_leave(struct exec *exec)
{
    if (!exec->has_spool || !exec->quota.tenant || !is_counted(exec->front))
        return;
    uint64_t bytes = spool_kept(&exec->spool);
    count(exec, 0);
    if (!find(exec->front, exec->id))
        keep(exec->front, exec->id, exec->owner, bytes, true);
    (void)is_over(exec->front, exec->quota.tenant);
}

void output_removed(struct front *front, const char *exec_id)
{
    struct kept_output *k = find(front, exec_id);

    if (k)
        unlink_kept(front, k);
}

/* --- the disk --- */

static bool is_below_floor(struct front *front)
{
    uint64_t floor = front->settings->disk_floor;
    uint64_t now = now_ms();
    struct statvfs st;

    if (floor == 0)
        return false;
    uint64_t taken = front->count.output_bytes - front->floor_bytes;
    if (front->floor_ms && now - front->floor_ms < FLOOR_MS && taken < FLOOR_STEP)
        return front->below_floor;
    front->floor_ms = now;
    front->floor_bytes = front->count.output_bytes;
    front->below_floor =
        fstatvfs(front->spools, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < floor;
    return front->below_floor;
}

bool output_may_grow(struct exec *exec)
{
    /* What one that has ended left in its pipe is the last of it. */
    return exec->taken < PIPE_FULL || (exec->state == EXEC_ENDED && !exec->drained) ||
           !is_below_floor(exec->front);
}

/* --- from before --- */

struct scan {
    struct front *front;
    size_t seen;
    char last[28];
};

static bool scan_one(void *context, const struct store_exec *row)
{
    struct scan *scan = context;
    struct front *front = scan->front;

    scan->seen++;
    text_copy(scan->last, sizeof(scan->last), row->id);
    if (!exec_find(front, row->id) && !find(front, row->id))
        keep(front, row->id, row->owner, spool_size(front->spools, row->id), false);
    return true;
}

/* The newest first, some at a time: others wait meanwhile. */
static void scan(struct timer *timer)
{
    struct front *front = container_of(timer, struct front, output_timer);
    struct scan scan = {.front = front};
    struct err err;

    if (store_execs(front->store, NULL, "ended", *front->scanned ? front->scanned : NULL,
                    SCAN_AT_ONCE, scan_one, &scan, &err) < 0 ||
        scan.seen < SCAN_AT_ONCE)
        return;
    memcpy(front->scanned, scan.last, sizeof(front->scanned));
    ignore(timer_set(front->events, timer, now_ms() + SCAN_PAUSE_MS));
}

void output_begin(struct front *front)
{
    if (!is_counted(front))
        return;
    front->output_timer.ring = scan;
    scan(&front->output_timer);
}
