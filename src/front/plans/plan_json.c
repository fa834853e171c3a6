/* SPDX-License-Identifier: Apache-2.0 */
#include "front/plans/routes.h"

#include <string.h>

static void take(json_t *to, const char *name, const json_t *from, const char *as)
{
    json_t *value = json_object_get(from, name);

    if (value)
        json_object_set(to, as, value);
}

/* Times are numbers in the row, and texts to everybody else. */
static void take_time(json_t *to, const char *name, const json_t *from, const char *as)
{
    const json_t *value = json_object_get(from, name);

    if (value)
        json_object_set_new(to, as, time_json(json_integer_value(value)));
}

static json_t *approval_json(const struct store_plan *row, const json_t *details)
{
    const json_t *given = json_object_get(details, "approval");
    bool pending = row->state == PLAN_PENDING;
    json_t *object = json_pack("{s:b}", "required", pending || given != NULL);

    take(object, "by", given, "by");
    take(object, "rejected_by", given, "rejected_by");
    take(object, "principal", given, "principal");
    take(object, "comment", given, "comment");
    take(object, "operations", given, "operations");
    take_time(object, "at_ms", given, "at");
    if (pending)
        json_object_set_new(object, "expires", time_json(row->due_ms));
    return object;
}

/* "apply" and "undo": what was asked for, and how it went. */
static json_t *doing_json(const json_t *kept, uint64_t steps, bool is_busy)
{
    json_t *object = json_deep_copy(kept);

    json_object_del(object, "asked_ms");
    json_object_del(object, "ended_ms");
    take_time(object, "asked_ms", kept, "asked");
    take_time(object, "ended_ms", kept, "ended");
    if (is_busy)
        json_object_set_new(object, "steps_done", json_integer((json_int_t)steps));
    return object;
}

json_t *plan_json(const struct front *front, const struct store_plan *row)
{
    json_t *details = plan_details(row);
    bool is_busy = plan_is_busy(front, row->id);
    uint64_t steps = plan_steps_done(front, row->id);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:s, s:s}", "id", row->id, "workspace",
        row->workspace, "state", plan_state_name(row->state), "origin", row->origin, "hash",
        *row->hash ? json_string(row->hash) : json_null(), "operations",
        *row->hash ? json_integer(row->operations) : json_null(), "bytes", (json_int_t)row->bytes,
        "disk_bytes", (json_int_t)row->disk_bytes, "created", time_json(row->created_ms), "updated",
        time_json(row->updated_ms), "created_by", row->actor, "principal", row->principal);

    if (row->shared)
        json_object_set_new(object, "shared", json_true());
    if (*row->exec_id)
        json_object_set_new(object, "exec_id", json_string(row->exec_id));
    take(object, "command", details, "command");
    take(object, "counts", details, "counts");
    take(object, "copied_bytes", details, "copied_bytes");
    take(object, "flaw_count", details, "flaw_count");
    take(object, "flaws", details, "flaws");
    take(object, "merge", details, "merge");
    take(object, "verdict", details, "verdict");
    take(object, "findings_count", details, "findings_count");
    take(object, "findings", details, "findings");
    take_time(object, "verified_ms", details, "verified");
    if (row->dropped)
        json_object_set_new(object, "dropped", json_true());
    take(object, "check", details, "check");
    if (json_array_size(json_object_get(details, "failed_checks")) > 0)
        take(object, "failed_checks", details, "failed_checks");
    json_object_set_new(object, "approval", approval_json(row, details));
    if (json_object_get(details, "apply"))
        json_object_set_new(object, "apply",
                            doing_json(json_object_get(details, "apply"), steps, is_busy));
    if (json_object_get(details, "undo"))
        json_object_set_new(object, "undo",
                            doing_json(json_object_get(details, "undo"), steps, is_busy));
    if (row->state == PLAN_QUEUED || row->attempts)
        json_object_set_new(object, "attempts", json_integer(row->attempts));
    json_decref(details);
    return object;
}

json_t *plan_short_json(const struct front *front, const struct store_plan *row)
{
    json_t *object = plan_json(front, row);

    json_object_del(object, "findings");
    json_object_del(object, "flaws");
    json_object_del(json_object_get(object, "merge"), "conflicts");
    json_object_del(object, "failed_checks");
    return object;
}
