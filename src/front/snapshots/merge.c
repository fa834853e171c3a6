/* SPDX-License-Identifier: Apache-2.0 */
/* A merge is a plan. First there is a snapshot of the fork as it is now; then carrel-plan holds it
 * against what fork and workspace had in common, which is the snapshot that the fork stands on, or
 * the one that the last merge was made of, and against the workspace. To go back to a snapshot is
 * the same without anything in common. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "front/plans/routes.h"
#include "front/snapshots/job.h"
#include "front/snapshots/routes.h"
#include "front/snapshots/versions.h"

struct merging {
    struct store_workspace fork; /* of a merge */
    const char *name;            /* of the snapshot, else */
    const char *prefer;
    json_t *decided;      /* the body's; or NULL */
    struct change change; /* of the fork, until there is the plan */
    plan_done *done;      /* what the call waits for then */
    void *waiting;
};

/* --- what both begin with --- */

static struct merging *begin(struct call *call)
{
    struct merging *m = arena_alloc(&call->arena, sizeof(*m));

    if (!m)
        call_error(call, 413, "too_large", "the request is too large");
    else if (*call->workspace.base)
        call_error(call, 409, "is_a_fork",
                   "the workspace '%s' is a fork, of which there are no plans; copy its files "
                   "into an ordinary workspace first (carrel ws backup, carrel ws restore)",
                   call->workspace.id);
    else if (!job_refused(call) && !plan_no_room(call))
        return m;
    return NULL;
}

static void let_go(struct call *call)
{
    struct merging *m = call->context;

    change_end(&m->change);
}

static void is_made(void *context, const struct plan_outcome *outcome)
{
    struct merging *m = context;

    change_end(&m->change);
    m->done(m->waiting, outcome);
}

/* The plan of it. Takes `merge`. */
static void make_plan(struct call *call, const char *base, const char *theirs, json_t *merge)
{
    struct merging *m = call->context;
    struct plan_asked asked;
    char id[28];
    json_t *job =
        json_pack("{s:s, s:O*}", "prefer", m->prefer ? m->prefer : "", "decided", m->decided);
    char *text = json_dumps(job, JSON_COMPACT);

    json_decref(job);
    make_id('p', id);
    call->params[1] = arena_copy(&call->arena, id, strlen(id));
    struct store_plan row = {.workspace = call->workspace.id,
                             .owner = call->workspace.owner,
                             .origin = "submitted",
                             .key = call->actor.key,
                             .actor = call->actor.name,
                             .principal = call->actor.owner,
                             .created_ms = wall_ms(),
                             .updated_ms = wall_ms()};
    if (!text || !call->params[1]) {
        call_error(call, 503, "unavailable", "out of memory");
    } else if (plan_wait_for(call, 201, &asked)) {
        const struct plan_source source = {.bucket = call->workspace.bucket,
                                           .verb = PLAN_MERGE,
                                           .text = text,
                                           .n = strlen(text),
                                           .base = base,
                                           .theirs = theirs,
                                           .merge = merge};
        m->done = asked.done;
        m->waiting = asked.context;
        asked.done = is_made;
        asked.context = m;
        plan_submit(call->front, &asked, &row, &source);
        return;
    }
    change_end(&m->change);
    free(text);
    json_decref(merge);
}

/* --- a fork --- */

static void taken(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    const struct merging *m = call->context;
    const char *snapshot = json_string_value(json_object_get(answer, "id"));
    const char *last = NULL;
    struct err err;
    int found = store_merge_base(call->front->store, &call->arena, m->fork.id, call->workspace.id,
                                 &last, &err);
    const char *base =
        found == 1 ? arena_printf(&call->arena, "%s/%s", m->fork.id, last) : m->fork.base;
    const char *theirs =
        snapshot ? arena_printf(&call->arena, "%s/%s", m->fork.id, snapshot) : NULL;

    (void)frozen_ms;
    if (found < 0 || !theirs || !base)
        let_go(call);
    if (found < 0)
        call_fail(call, &err);
    else if (!theirs || !base)
        call_error(call, 503, "unavailable", "out of memory");
    else
        make_plan(
            call, base, theirs,
            json_pack("{s:s, s:s, s:s}", "fork", m->fork.id, "snapshot", snapshot, "base", base));
}

static bool read_decided(struct call *call, struct merging *m)
{
    const char *path;
    const json_t *side;

    if (!field_text(call, call->body, "prefer", 8, &m->prefer) ||
        !field_object(call, call->body, "decided", &m->decided))
        return false;
    bool good = !m->prefer || strcmp(m->prefer, "ours") == 0 || strcmp(m->prefer, "theirs") == 0;
    if (!good)
        call_bad_field(call, "prefer", "\"ours\" or \"theirs\"");
    json_object_foreach(m->decided, path, side)
    {
        const char *word = json_string_value(side);
        bool known = word && (strcmp(word, "ours") == 0 || strcmp(word, "theirs") == 0);
        if (good && !known)
            call_bad_field(call, "decided", "paths, each with \"ours\" or \"theirs\"");
        good = good && known;
    }
    return good;
}

void snapshots_merge(struct call *call)
{
    static const char *const known[] = {"fork", "prefer", "decided", NULL};
    const char *fork = NULL;
    struct merging *m = begin(call);

    if (!m || !fields_known(call, call->body, known) ||
        !field_text(call, call->body, "fork", PROTOCOL_ID, &fork) || !read_decided(call, m) ||
        !version_workspace(call, "fork", fork, &m->fork))
        return;
    if (!*m->fork.base) {
        call_error(call, 409, "conflict", "the workspace '%s' is no fork", m->fork.id);
        return;
    }
    call->context = m;
    version_take(
        call,
        &(struct version_wish){
            .of = &m->fork, .why = "merge", .change = &m->change, .then = taken, .failed = let_go});
}

/* --- a snapshot of its own --- */

static void found(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    const char *id = json_string_value(json_object_get(json_object_get(answer, "snapshot"), "id"));
    const char *theirs = id ? arena_printf(&call->arena, "%s/%s", call->workspace.id, id) : NULL;

    (void)frozen_ms;
    if (!theirs)
        call_error(call, 503, "unavailable", "out of memory");
    else
        make_plan(call, "", theirs, json_pack("{s:s}", "snapshot", id));
}

void snapshots_restore(struct call *call)
{
    static const struct job_calls calls = {.done = found};
    static const char *const known[] = {NULL};
    struct merging *m = begin(call);

    if (!m || !fields_known(call, call->body, known))
        return;
    call->context = m;
    job_start(call,
              &(struct job_wish){.verb = PLAN_SNAPSHOTS,
                                 .job = json_pack("{s:s}", "find", call->params[1])},
              &calls);
}
