/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/outcome.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

enum {
    MOST_TEXT = 64 << 20
};

int outcome_init(struct outcome *outcome, const struct plan *plan, struct err *err)
{
    *outcome = (struct outcome){.plan = plan};
    arena_init(&outcome->arena, MOST_TEXT);
    outcome->why = calloc(plan->count + 1, sizeof(outcome->why[0]));
    outcome->messages = calloc(plan->count + 1, sizeof(outcome->messages[0]));
    outcome->not_chosen = calloc(plan->count + 1, sizeof(outcome->not_chosen[0]));
    if (!outcome->why || !outcome->messages || !outcome->not_chosen)
        return err_set(err, ERR_LIMIT, 0, "no memory for a plan of %zu operations", plan->count);
    return 0;
}

void outcome_clear(struct outcome *outcome)
{
    free(outcome->why);
    free(outcome->messages);
    free(outcome->not_chosen);
    arena_clear(&outcome->arena);
    *outcome = (struct outcome){0};
}

void outcome_fail(struct outcome *outcome, size_t operation, const struct err *why)
{
    char text[sizeof(why->msg) + 128];

    err_text(why, text, sizeof(text));
    outcome->messages[operation] = arena_copy(&outcome->arena, text, strlen(text));
    if (!outcome->messages[operation])
        outcome->messages[operation] = "cannot be carried out";
}

void outcome_not_chosen(struct outcome *outcome, size_t operation)
{
    outcome->not_chosen[operation] = true;
}

/* Names are any bytes; JSON is text. */
static json_t *text_of(const char *bytes)
{
    size_t n = strlen(bytes);
    struct buf b;

    if (bytes_are_utf8(bytes, n))
        return json_stringn(bytes, n);
    buf_init(&b, 2 * n + 16);
    for (size_t i = 0; i < n; i++)
        buf_add(&b, (unsigned char)bytes[i] < 0x80 ? &bytes[i] : "?", 1);
    json_t *text = buf_done(&b) < 0 ? NULL : json_stringn(b.p, b.n);
    buf_clear(&b);
    return text;
}

static json_t *base64_of(const char *bytes)
{
    struct buf b;

    buf_init(&b, 2 * strlen(bytes) + 16);
    bytes_add_base64(&b, bytes, strlen(bytes));
    json_t *text = buf_done(&b) < 0 ? NULL : json_stringn(b.p, b.n);
    buf_clear(&b);
    return text;
}

json_t *outcome_entry(const struct plan *plan, size_t operation, const char *outcome,
                      const char *message)
{
    const char *path = plan->operations[operation].path;
    bool is_text = bytes_are_utf8(path, strlen(path));
    json_t *entry =
        json_pack("{s:I, s:o, s:s}", "index", (json_int_t)operation, is_text ? "path" : "path_b64",
                  is_text ? json_string(path) : base64_of(path), "outcome", outcome);

    if (entry && message)
        json_object_set_new(entry, "message", text_of(message));
    return entry;
}

static json_t *left_out(const struct outcome *outcome, size_t i)
{
    const struct plan *plan = outcome->plan;
    char text[PLAN_MAX_PATH + 64];

    if (outcome->messages[i])
        return outcome_entry(plan, i, "failed", outcome->messages[i]);
    if (outcome->not_chosen[i])
        return outcome_entry(plan, i, "not_chosen", NULL);
    snprintf(text, sizeof(text), "makes no sense without operation %u, '%s'", outcome->why[i],
             plan->operations[outcome->why[i]].path);
    return outcome_entry(plan, i, "left_out", text);
}

static int tell_counts(const struct outcome *outcome, const char *in_force, json_t *answer)
{
    json_int_t applied = 0;
    json_int_t failed = 0;
    json_int_t not_chosen = 0;
    json_int_t count = (json_int_t)outcome->plan->count;

    for (size_t i = 0; i < outcome->plan->count; i++) {
        applied += in_force[i] ? 1 : 0;
        failed += !in_force[i] && outcome->messages[i];
        not_chosen += !in_force[i] && !outcome->messages[i] && outcome->not_chosen[i];
    }
    json_t *told =
        json_pack("{s:I, s:I, s:I, s:I}", "applied", applied, "failed", failed, "not_chosen",
                  not_chosen, "left_out", count - applied - failed - not_chosen);
    int r = told ? json_object_update(answer, told) : -1;
    json_decref(told);
    return r;
}

int outcome_tell(const struct outcome *outcome, const char *in_force, bool all, json_t *answer,
                 struct err *err)
{
    json_t *list = json_array();
    size_t untold = 0;
    int r = list ? 0 : -1;

    for (int applied = 0; applied < (all ? 2 : 1); applied++) {
        for (size_t i = 0; i < outcome->plan->count && r == 0; i++) {
            if ((in_force[i] != 0) != applied)
                continue;
            if (json_array_size(list) >= OUTCOMES_TOLD)
                untold++;
            else
                r = json_array_append_new(list,
                                          applied ? outcome_entry(outcome->plan, i, "applied", NULL)
                                                  : left_out(outcome, i));
        }
    }
    if (json_object_set_new(answer, "operations", list) < 0 || r < 0 ||
        json_object_set_new(answer, "operations_untold", json_integer((json_int_t)untold)) < 0 ||
        tell_counts(outcome, in_force, answer) < 0)
        return err_set(err, ERR_LIMIT, 0, "no memory for the answer");
    return 0;
}
