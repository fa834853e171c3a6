/* SPDX-License-Identifier: Apache-2.0 */
#include "front/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/ports.h"
#include "api/templates.h"
#include "base/clock.h"
#include "base/fd.h"
#include "broker/protocol.h"
#include "front/builds.h"
#include "front/files.h"
#include "front/job.h"
#include "front/output.h"
#include "front/plans.h"
#include "front/quota.h"
#include "json/result.h"

#define ARENA_BYTES (8UL << 20)

/* A number in a message of texts. */
static uint64_t number_of(const char *text)
{
    return strtoull(text, NULL, 10);
}

/* workspace, memory, pids: as the broker tells of a sandbox that lives. */
static void set_awake(struct front *front, const struct plain_message *m)
{
    struct quota_wish made = {.workspace = m->texts[0],
                              .owner = "",
                              .memory_bytes = number_of(m->texts[1]),
                              .pids = number_of(m->texts[2])};
    struct store_workspace w;
    struct arena arena;
    struct err err;

    arena_init(&arena, ARENA_BYTES);
    if (store_workspace_get(front->store, &arena, m->texts[3], &w, &err) == 1)
        made.owner = w.owner; /* of a plan's sandbox, too, whose name is that of the plan */
    quota_woke(front, &made);
    arena_clear(&arena);
}

uint64_t front_jobs_in(const struct front *front, const char *workspace)
{
    uint64_t count = 0;

    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct job *job = front->jobs[i]; job; job = job->next)
            count += job->state != JOB_ENDED && strcmp(job->workspace, workspace) == 0;
    }
    return count;
}

static void forget(struct front *front, const char *exec)
{
    struct plain_message m = {.texts = {exec}};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(front->link, REQUEST_FORGET, &b);
}

static void count_end(struct front *front, const struct carrel_result *result)
{
    size_t kinds = sizeof(front->count.execs_ended) / sizeof(front->count.execs_ended[0]);

    if ((size_t)result->reason < kinds)
        front->count.execs_ended[result->reason]++;
    front->count.exec_us += (uint64_t)(result->duration_ms * 1000);
    front->count.denials += result->denial_count;
}

/* Of one that this front does not know: there was no memory for it. */
static void end_unknown(struct front *front, const struct ended_message *m)
{
    json_t *object = result_json(&m->result, false);
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(6));
    struct err err;

    if (text && store_exec_end(front->store, m->exec, text, (int64_t)m->ended_at_ms, &err) >= 0)
        forget(front, m->exec);
    free(text);
    json_decref(object);
}

static void settled(struct front *front, struct job *job, int unrecorded)
{
    if (front->listeners)
        front_announce(front, "exec.end", job->workspace, job->owner,
                       json_pack("{s:s, s:s, s:i}", "exec_id", job->id, "reason",
                                 result_reason(&job->result), "exit_code", job->result.exit_code));
    job_settle(job, unrecorded);
}

static void ended(struct front *front, struct answer *answer)
{
    struct ended_message m;
    struct arena arena;

    arena_init(&arena, ARENA_BYTES);
    if (protocol_unpack_ended(answer->bytes, answer->n, &arena, &m)) {
        struct job *job = job_find(front, m.exec);
        if (job) {
            count_end(front, &m.result);
            job_end(job, &m);
        } else {
            end_unknown(front, &m);
        }
        if (job && !job->settled && (m.flags & ENDED_SETTLED))
            settled(front, job, m.unrecorded);
        if (job && (m.flags & ENDED_GONE))
            job_gone(job);
        execs_next(front);
    }
    arena_clear(&arena);
}

static void pong(struct front *front, uint64_t number)
{
    struct plain_message m = {.number = number};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    link_send(front->link, REQUEST_PONG, &b);
}

void resume_event(void *context, struct answer *answer)
{
    struct front *front = context;
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == EVENT_ENDED) {
        ended(front, answer);
        return;
    }
    if (!protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return;
    struct job *job = job_find(front, m.texts[0]); /* or it speaks of a workspace */
    switch (answer->kind) {
    case EVENT_SETTLED:
        if (job && job->state == JOB_ENDED && !job->settled)
            settled(front, job, (int)m.number);
        break;
    case EVENT_GONE:
        if (job)
            job_gone(job);
        execs_next(front);
        break;
    case EVENT_SANDBOX_LIVE:
        front->count.sandboxes_started++;
        set_awake(front, &m);
        if (strcmp(m.texts[0], m.texts[3]) == 0) /* not a plan's */
            template_start(front, m.texts[3]);
        break;
    case EVENT_SANDBOX_ENDED:
        files_forget(front, m.texts[0]);
        port_cut(front, m.texts[0], 0); /* a connection would keep its network */
        quota_slept(front, m.texts[0]);
        execs_next(front);
        break;
    case EVENT_PING:
        pong(front, m.number);
        break;
    default:
        break;
    }
}

/* A command that lives: its row says whose it is. One without a row gets one: nobody was told of
 * it. If it waits for input, it may have a part of what came with the request, which must not pass
 * for all of it, and nobody is there to give it the rest. */
static void take_exec(struct front *front, struct answer *answer, const struct plain_message *m)
{
    struct store_workspace w = {.owner = ""};
    struct store_exec row;
    struct arena arena;
    struct err err;

    arena_init(&arena, ARENA_BYTES);
    int known = store_workspace_get(front->store, &arena, m->texts[0], &w, &err);
    struct job *job = job_new(front, m->texts[1], m->texts[0], known == 1 ? w.owner : "");
    if (job) {
        job_resume(job);
        job_run(job, answer->fds, answer->fd_count, m->number);
        if (store_exec_get(front->store, &arena, job->id, &row, &err) == 0) {
            if (job->input >= 0 && !job->input_ends)
                job_kill(job, CARREL_ENDED_SIGNAL); /* who knows how much of it was given */
            row = (struct store_exec){.id = job->id,
                                      .workspace = job->workspace,
                                      .owner = job->owner,
                                      .actor = "",
                                      .command = "{}",
                                      .state = "running",
                                      .result = "",
                                      .started_ms = wall_ms()};
            ignore(store_exec_add(front->store, &row, &err));
        }
    }
    arena_clear(&arena);
}

struct lost {
    struct front *front;
    char ids[64][28];
    size_t n;
};

static bool note_lost(void *context, const struct store_exec *row)
{
    struct lost *lost = context;

    if (!job_find(lost->front, row->id) && lost->n < 64) {
        strncpy(lost->ids[lost->n], row->id, 27);
        lost->ids[lost->n++][27] = '\0';
    }
    return lost->n < 64;
}

/* Rows that say "running" of commands nobody has any more: they ended with the last broker. */
static void end_lost(struct front *front)
{
    static const char result[] =
        "{\"exit_code\":137,\"signal\":9,\"reason\":\"broker_ended\",\"timed_out\":false,"
        "\"oom_killed\":false,\"truncated\":false,\"level\":\"ns\","
        "\"note\":\"the daemon ended, and every sandbox with it\"}";
    struct lost lost = {.front = front};
    struct err err;

    size_t ended;
    do {
        lost.n = ended = 0;
        if (store_execs(front->store, NULL, "running", NULL, SIZE_MAX, note_lost, &lost, &err) < 0)
            return;
        for (size_t i = 0; i < lost.n; i++)
            ended += store_exec_end(front->store, lost.ids[i], result, wall_ms(), &err) > 0;
    } while (ended > 0); /* a full disk ends none: the next start tries again */
}

static void heard(void *context, struct answer *answer)
{
    struct front *front = context;
    struct plain_message m;
    uint64_t tag;

    if (!protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return;
    switch (answer->kind) {
    case ANSWER_SANDBOX:
        set_awake(front, &m);
        break;
    case ANSWER_EXEC:
        take_exec(front, answer, &m);
        break;
    case ANSWER_RESUMED:
        strncpy(front->admin_hash, m.texts[0], sizeof(front->admin_hash) - 1);
        end_lost(front);
        output_begin(front);
        front->resumed = true;
        plans_resume(front);
        builds_begin(front);
        link_settle(front->link, tag);
        fprintf(stderr, "level=info event=resumed execs=%zu sandboxes=%zu\n", front->job_count,
                front->awake_count);
        break;
    default:
        break;
    }
}

void resume_ask(struct front *front)
{
    struct plain_message m = {0};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, link_expect_many(front->link, heard, front), &m);
    link_send(front->link, REQUEST_RESUME, &b);
}
