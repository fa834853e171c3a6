/* SPDX-License-Identifier: Apache-2.0 */
#include "front/snapshots/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/answers.h"
#include "front/plans/process.h"

struct job {
    struct call *call;
    const struct job_calls *calls;
};

bool job_refused(struct call *call)
{
    if (call->workspace.deleted_ms)
        call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
    else if (plan_processes_of(call->front, call->workspace.owner) >= PLAN_PROCESSES_OWN)
        call_quota(call, "plan_jobs",
                   "%d plans and snapshots of the workspace's owner are being worked on; wait for "
                   "one of them",
                   PLAN_PROCESSES_OWN);
    else
        return false;
    return true;
}

/* What carrel-plan says of a plan, of a snapshot. */
static enum err_said said_of(enum err_said said)
{
    static const struct {
        enum err_said plan;
        enum err_said snapshot;
    } words[] = {
        {SAID_PLAN_INVALID, SAID_INVALID_REQUEST},  {SAID_PLAN_NOT_FOUND, SAID_SNAPSHOT_NOT_FOUND},
        {SAID_PLAN_REFUSED, SAID_SNAPSHOT_REFUSED}, {SAID_PLAN_LIMIT, SAID_SNAPSHOT_LIMIT},
        {SAID_PLAN_CONFLICT, SAID_CONFLICT},        {SAID_PLAN_STALE, SAID_CONFLICT},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (words[i].plan == said)
            return words[i].snapshot;
    }
    return said;
}

static void answer_error(struct call *call, const struct plan_end *end, const json_t *answer)
{
    json_t *error = json_object_get(answer, "error");
    const struct err_answer *said = err_answer(said_of(plan_answer_said(error)));

    if (error)
        call_json(call, said->status,
                  json_pack("{s:{s:s, s:O}}", "error", "code", said->code, "message",
                            json_object_get(error, "message")));
    else if (*end->why)
        call_error(call, 503, "unavailable", "it took too long and was ended");
    else
        call_error(call, 500, "io_error", "carrel-plan ended without an answer");
}

static void ended(void *owner, const struct plan_end *end)
{
    struct job *job = owner;
    struct call *call = job->call;
    const struct job_calls *calls = job->calls;
    json_t *answer = plan_end_json(end);

    free(job);
    if (end->status == 0 && answer) {
        calls->done(call, answer, end->frozen_ms);
    } else {
        if (calls->failed)
            calls->failed(call);
        answer_error(call, end, answer);
    }
    json_decref(answer);
    call_release(call);
}

static void failed(void *owner, const struct err *err)
{
    struct job *job = owner;
    struct call *call = job->call;
    const struct job_calls *calls = job->calls;

    free(job);
    if (calls->failed)
        calls->failed(call);
    call_fail(call, err);
    call_release(call);
}

void job_start(struct call *call, const struct job_wish *wish, const struct job_calls *calls)
{
    static const struct plan_process_calls heard = {.failed = failed, .ended = ended};
    const struct store_workspace *of = wish->of ? wish->of : &call->workspace;
    struct job *job = malloc(sizeof(*job));
    char *text = json_dumps(wish->job, JSON_COMPACT);
    char id[28];

    json_decref(wish->job);
    make_id('p', id);
    struct plan_message m = {.bucket = of->bucket,
                             .workspace = of->id,
                             .plan = id,
                             .actor = call->actor.name,
                             .request = call->id,
                             .base = wish->base,
                             .theirs = wish->theirs,
                             .owner = of->owner,
                             .verb = wish->verb};
    if (job)
        *job = (struct job){call, calls};
    if (!job)
        free(text);
    if (job && plan_process_start(call->front, &m, text, text ? strlen(text) : 0, &heard, job)) {
        call->pending++;
        return;
    }
    free(job);
    if (calls->failed)
        calls->failed(call);
    call_error(call, 503, "unavailable", "out of memory");
}
