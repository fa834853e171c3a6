/* SPDX-License-Identifier: Apache-2.0 */
#include "front/resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/quota.h"
#include "front/e2b/process.h"
#include "front/exec/exec.h"
#include "front/exec/output.h"
#include "front/files/servers.h"
#include "front/plans/make.h"
#include "front/plans/planned.h"
#include "front/ports/routes.h"
#include "front/stores/mirror.h"
#include "front/workspaces/builds.h"
#include "front/workspaces/template_start.h"
#include "protocol/broker.h"
#include "json/result.h"

#define ARENA_BYTES (8UL << 20)

/* A workspace with something that began under a policy of before. */
struct outdated {
    struct outdated *next;
    char workspace[FRONT_ID];
};

/* A number in a message of texts. */
static uint64_t number_of(const char *text)
{
    return strtoull(text, NULL, 10);
}

/* workspace, memory, pids: as the broker tells of a sandbox that lives. */
static void set_awake(struct front *front, const struct plain_message *m)
{
    struct quota_request made = {.workspace = m->texts[0],
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

static void forget(struct front *front, const char *exec_id)
{
    struct plain_message m = {.texts = {exec_id}};
    struct buf b;

    buf_init(&b, 4096);
    protocol_pack_plain(&b, 0, &m);
    broker_send(front->channel, REQUEST_FORGET, &b);
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

static void settled(struct front *front, struct exec *exec, int unrecorded)
{
    front->tree_changed(front, exec->workspace);
    if (front->listeners)
        front_announce(front, "exec.end", exec->workspace, exec->owner,
                       json_pack("{s:s, s:s, s:i}", "exec_id", exec->id, "reason",
                                 result_reason(&exec->result), "exit_code",
                                 exec->result.exit_code));
    exec_settle(exec, unrecorded);
}

static void ended(struct front *front, struct answer *answer)
{
    struct ended_message m;
    struct arena arena;

    arena_init(&arena, ARENA_BYTES);
    if (protocol_unpack_ended(answer->bytes, answer->n, &arena, &m)) {
        struct exec *exec = exec_find(front, m.exec);
        if (exec && answer->kind == ANSWER_RAN)
            exec_run(exec, answer->fds, answer->fd_count, m.flags & ENDED_GONE ? EXEC_OVER : 0);
        if (m.flags & ENDED_LAST)
            files_forget(front, m.workspace); /* before anybody is told of the end */
        if (exec) {
            count_end(front, &m.result);
            exec_end(exec, &m);
        } else {
            end_unknown(front, &m);
        }
        if (exec && !exec->settled && (m.flags & ENDED_SETTLED))
            settled(front, exec, m.unrecorded);
        if (exec && (m.flags & ENDED_GONE))
            exec_gone(exec);
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
    broker_send(front->channel, REQUEST_PONG, &b);
}

void resume_event(void *context, struct answer *answer)
{
    struct front *front = context;
    struct plain_message m;
    uint64_t tag;

    if (answer->kind == EVENT_ENDED || answer->kind == ANSWER_RAN) {
        ended(front, answer);
        return;
    }
    if (!protocol_unpack_plain(answer->bytes, answer->n, &tag, &m))
        return;
    struct exec *exec = exec_find(front, m.texts[0]); /* or it speaks of a workspace */
    switch (answer->kind) {
    case EVENT_SETTLED:
        if (exec && exec->state == EXEC_ENDED && !exec->settled)
            settled(front, exec, (int)m.number);
        break;
    case EVENT_GONE:
        if (exec)
            exec_gone(exec);
        execs_next(front);
        break;
    case EVENT_SANDBOX_LIVE:
        front->count.sandboxes_started++;
        set_awake(front, &m);
        if (strcmp(m.texts[0], m.texts[3]) == 0 && /* not a plan's */
            !quota_starts_nothing(front, m.texts[3]))
            template_start(front, m.texts[3]);
        break;
    case EVENT_SANDBOX_ENDED:
        files_forget(front, m.texts[0]);
        port_cut(front, m.texts[0], 0); /* a connection would keep its network */
        quota_slept(front, m.texts[0]);
        execs_next(front);
        break;
    case EVENT_SANDBOX_FROZEN:
        quota_froze(front, m.texts[0], m.number == 1);
        if (m.number == 1)
            process_streams_cut(m.texts[0]);
        break;
    case EVENT_DENIED:
        front->count.net_refused += m.number;
        execs_denied(front, m.texts[0],
                     json_pack("{s:s, s:s, s:s, s:s, s:I}", "type", "denial", "what", m.texts[1],
                               "rule", m.texts[2], "fix", m.texts[3], "count",
                               (json_int_t)m.number));
        break;
    case EVENT_CONNECTION:
        front->count.net_connections++;
        front->count.net_bytes += m.number;
        break;
    case EVENT_PING:
        pong(front, m.number);
        break;
    default:
        break;
    }
}

/* Its result says into which plan it wrote; plans_resume sees to those that may close with it. */
static void note_plan(struct exec *exec, const struct store_exec *row, struct arena *arena)
{
    json_t *shown = json_loads(row->command, 0, NULL);
    const char *id = json_string_value(json_object_get(shown, "plan"));
    struct store_plan plan;
    struct err err;

    text_copy(exec->row_actor, sizeof(exec->row_actor), row->actor);
    if (id && store_plan_get(exec->front->store, arena, id, &plan, &err) == 1 && plan.shared)
        exec_hold(exec, plan.id, true);
    json_decref(shown);
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
    struct exec *exec = exec_new(front, m->texts[1], m->texts[0], known == 1 ? w.owner : "");
    if (exec) {
        exec_resume(exec);
        exec_run(exec, answer->fds, answer->fd_count, m->number);
        int found = store_exec_get(front->store, &arena, exec->id, &row, &err);
        if (found > 0)
            note_plan(exec, &row, &arena);
        if (found == 0) {
            if (exec->input >= 0 && !exec->input_ends)
                exec_stop(exec, CARREL_ENDED_SIGNAL); /* who knows how much of it was given */
            row = (struct store_exec){.id = exec->id,
                                      .workspace = exec->workspace,
                                      .owner = exec->owner,
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

    if (!exec_find(lost->front, row->id) && lost->n < 64) {
        text_copy(lost->ids[lost->n], sizeof(lost->ids[0]), row->id);
        lost->n++;
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

/* --- a switch that the front before this one did not finish --- */

/* The workspace whose policy has come to say "writes": "plan" since this sandbox began, in which
 * its tree can be written to: its own, or the one that its link shows. "": none. */
static void find_outdated(struct front *front, const struct plain_message *m, char ret[FRONT_ID])
{
    struct store_workspace w;
    struct arena arena;
    struct err err;

    ret[0] = '\0';
    arena_init(&arena, ARENA_BYTES);
    const char *name = m->texts[0];
    for (unsigned i = 0; i < 2 && name && !*ret; i++) {
        if (store_workspace_get(front->store, &arena, name, &w, &err) != 1)
            break; /* or it is a plan's, which writes to no tree */
        if (planned_workspace(&w) && (int64_t)m->number <= w.updated_ms)
            text_copy(ret, FRONT_ID, w.id);
        json_t *links = json_loads(w.links, 0, NULL);
        const char *ticket = json_string_value(json_object_get(links, "ticket"));
        name = ticket ? arena_copy(&arena, ticket, strlen(ticket)) : NULL;
        json_decref(links);
    }
    arena_clear(&arena);
}

static void is_quiet(void *context, struct answer *answer)
{
    (void)context;
    (void)answer;
}

static void quieten_outdated(struct front *front)
{
    struct outdated *next;

    for (struct outdated *o = front->outdated; o; o = next) {
        struct plain_message m = {.texts = {o->workspace, PLANNED_WHY}};
        uint64_t tag = broker_expect(front->channel, is_quiet, front);
        struct buf b;
        buf_init(&b, 4096);
        protocol_pack_plain(&b, tag, &m);
        broker_send(front->channel, REQUEST_TREE_QUIET, &b);
        next = o->next;
        free(o);
    }
    front->outdated = NULL;
}

static void note_outdated(struct front *front, const struct plain_message *m)
{
    char workspace[FRONT_ID];

    find_outdated(front, m, workspace);
    if (!*workspace)
        return;
    struct outdated *o = calloc(1, sizeof(*o));
    if (!o) {
        fprintf(stderr, "level=error event=resume error='out of memory'\n");
        exit(1); /* the next front asks again; NOLINT(concurrency-mt-unsafe) */
    }
    memcpy(o->workspace, workspace, sizeof(o->workspace));
    o->next = front->outdated;
    front->outdated = o;
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
        note_outdated(front, &m);
        break;
    case ANSWER_EXEC:
        take_exec(front, answer, &m);
        break;
    case ANSWER_RESUMED:
        text_copy(front->admin_hash, sizeof(front->admin_hash), m.texts[0]);
        text_copy(front->state_named, sizeof(front->state_named), m.texts[1]);
        text_copy(front->secrets_public, sizeof(front->secrets_public), m.texts[2]);
        end_lost(front);
        output_begin(front);
        quieten_outdated(front); /* before anything else is asked for */
        front->resumed = true;
        plans_resume(front);
        builds_begin(front);
        mirror_begin(front);
        broker_settle(front->channel, tag);
        fprintf(stderr, "level=info event=resumed execs=%zu sandboxes=%zu\n", front->exec_count,
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
    protocol_pack_plain(&b, broker_expect_many(front->channel, heard, front), &m);
    broker_send(front->channel, REQUEST_RESUME, &b);
}
