/* SPDX-License-Identifier: Apache-2.0 */
#include "json/result.h"

#include <string.h>

#include "base/bytes.h"
#include "json/encode.h"

static const char *const reasons[] = {
    [CARREL_ENDED_EXIT] = "exit",       [CARREL_ENDED_SIGNAL] = "signal",
    [CARREL_ENDED_TIMEOUT] = "timeout", [CARREL_ENDED_OUTPUT] = "output",
    [CARREL_ENDED_OOM] = "oom",         [CARREL_ENDED_PIDS] = "pids",
    [CARREL_ENDED_DISK] = "disk",
};

static json_t *known(uint64_t number)
{
    return number == CARREL_UNKNOWN ? json_null() : json_integer((json_int_t)number);
}

static json_t *usage_json(const struct carrel_usage *usage)
{
    return json_pack(
        "{s:f, s:f, s:o, s:o, s:o, s:o, s:o}", "cpu_user_ms", usage->cpu_user_ms, "cpu_system_ms",
        usage->cpu_system_ms, "peak_rss_bytes", known(usage->peak_rss_bytes), "peak_memory_bytes",
        known(usage->peak_memory_bytes), "processes", known(usage->processes), "written_bytes",
        known(usage->written_bytes), "added_bytes", known(usage->added_bytes));
}

static json_t *denials_json(const struct carrel_result *result)
{
    static const char *const sources[] = {
        [CARREL_SOURCE_KERNEL] = "kernel", [CARREL_SOURCE_INFERRED] = "inferred"};
    json_t *list = json_array();

    for (size_t i = 0; i < result->denial_count; i++) {
        const struct carrel_denial *d = &result->denials[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:I}", "what", d->what, "rule",
                                              d->rule, "fix", d->fix, "source", sources[d->source],
                                              "count", (json_int_t)d->count));
    }
    return list;
}

static void add_output(json_t *object, const struct carrel_result *result)
{
    size_t out = result->out_size;
    size_t err = result->err_size;

    if (result->truncated) {
        out -= utf8_cut(result->out, out);
        err -= utf8_cut(result->err, err);
    }
    encode_bytes(object, "stdout", result->out, out);
    if (result->note[0])
        encode_bytes(object, "stderr", result->note, strlen(result->note));
    else
        encode_bytes(object, "stderr", result->err, err);
}

const char *result_reason(const struct carrel_result *result)
{
    return reasons[result->reason];
}

json_t *result_json(const struct carrel_result *result, bool with_output)
{
    json_t *object = json_pack("{s:i}", "exit_code", result->exit_code);

    json_object_set_new(object, "signal",
                        result->signal ? json_integer(result->signal) : json_null());
    json_object_set_new(object, "reason", json_string(reasons[result->reason]));
    json_object_set_new(object, "timed_out", json_boolean(result->reason == CARREL_ENDED_TIMEOUT));
    json_object_set_new(object, "oom_killed", json_boolean(result->reason == CARREL_ENDED_OOM));
    if (with_output)
        add_output(object, result);
    else if (result->note[0])
        encode_bytes(object, "note", result->note, strlen(result->note));
    json_object_set_new(object, "truncated", json_boolean(result->truncated));
    json_object_set_new(object, "duration_ms", json_real(result->duration_ms));
    json_object_set_new(object, "usage", usage_json(&result->usage));
    json_object_set_new(object, "level",
                        json_string(result->level == CARREL_LEVEL_DIR ? "dir" : "ns"));
    json_object_set_new(object, "denials", denials_json(result));
    json_object_set_new(object, "denials_dropped", json_integer(result->denials_dropped));
    if (result->disk_method)
        json_object_set_new(object, "disk",
                            json_pack("{s:s, s:o}", "method", result->disk_method,
                                      "overshoot_bytes", known(result->usage.overshoot_bytes)));
    return object;
}
