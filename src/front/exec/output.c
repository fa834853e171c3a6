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
struct kept {
    struct kept *next; /* in the slot */
    struct kept *older_own;
    struct kept *newer_own;
    struct kept *older;
    struct kept *newer;
    struct tenant *tenant;
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

static struct kept *find(const struct front *front, const char *id)
{
    struct kept *k = front->kept[slot_of(id)];

    while (k && strcmp(k->id, id) != 0)
        k = k->next;
    return k;
}

static void unlink_kept(struct front *front, struct kept *k)
{
    struct kept **at = &front->kept[slot_of(k->id)];
    struct tenant *t = k->tenant;

    while (*at != k)
        at = &(*at)->next;
    *at = k->next;
    *(k->older ? &k->older->newer : &front->oldest) = k->newer;
    *(k->newer ? &k->newer->older : &front->newest) = k->older;
    *(k->older_own ? &k->older_own->newer_own : &t->oldest) = k->newer_own;
    *(k->newer_own ? &k->newer_own->older_own : &t->newest) = k->older_own;
    t->output_kept -= k->bytes;
    front->output_kept -= k->bytes;
    tenant_drop(front, t);
    free(k);
}

/* As the newest of all, or, of what is found from before, as the oldest. */
static void link_kept(struct front *front, struct kept *k, bool newest)
{
    struct kept **slot = &front->kept[slot_of(k->id)];
    struct tenant *t = k->tenant;

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
    struct kept *k = bytes ? calloc(1, sizeof(*k)) : NULL;

    if (!k)
        return; /* without memory for it, it stays uncounted, and goes with its time */
    k->tenant = tenant_use(front, owner);
    if (!k->tenant) {
        free(k);
        return;
    }
    text_copy(k->id, sizeof(k->id), id);
    k->bytes = bytes;
    link_kept(front, k, newest);
}

/* Who asks for it later hears that it is gone. */
static void forget(struct front *front, struct kept *k)
{
    ignore(spool_empty(front->execs, k->id)); /* what cannot be emptied goes with its time */
    unlink_kept(front, k);
}

/* Whether there is more than allowed, and nothing left to forget. */
static bool is_over(struct front *front, struct tenant *t)
{
    uint64_t own = front->settings->owner_output;
    uint64_t most = front->settings->max_output;

    while (own && t->oldest && t->output_running + t->output_kept > own)
        forget(front, t->oldest);
    while (most && front->oldest && front->output_running + front->output_kept > most)
        forget(front, front->oldest);
    return (own && t->output_running > own) || (most && front->output_running > most);
}

static void count(struct job *job, uint64_t bytes)
{
    job->quota.tenant->output_running += bytes - job->counted;
    job->front->output_running += bytes - job->counted;
    job->counted = bytes;
}

void output_grew(struct job *job)
{
    if (!is_counted(job->front))
        return;
    count(job, spool_kept(&job->spool));
    if (!is_over(job->front, job->quota.tenant))
        return;
    spool_tighten(&job->spool, LEAST_KEPT);
    count(job, spool_kept(&job->spool));
}

void output_leave(struct job *job)
{
    if (!job->has_spool || !job->quota.tenant || !is_counted(job->front))
        return;
    uint64_t bytes = spool_kept(&job->spool);
    count(job, 0);
    if (!find(job->front, job->id))
        keep(job->front, job->id, job->owner, bytes, true);
    (void)is_over(job->front, job->quota.tenant);
}

void output_removed(struct front *front, const char *exec)
{
    struct kept *k = find(front, exec);

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
        fstatvfs(front->execs, &st) == 0 && (uint64_t)st.f_bavail * st.f_frsize < floor;
    return front->below_floor;
}

bool output_may_grow(struct job *job)
{
    /* What one that has ended left in its pipe is the last of it. */
    return job->taken < PIPE_FULL || (job->state == JOB_ENDED && !job->drained) ||
           !is_below_floor(job->front);
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
    if (!job_find(front, row->id) && !find(front, row->id))
        keep(front, row->id, row->owner, spool_size(front->execs, row->id), false);
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
