/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox uses, and what ran in it: GET …/usage and …/exec of the workspace, in their words.
 * There is one sample, of now; the processor's is since the one before. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "front/e2b/sandbox.h"

enum {
    LOGS_MOST = 1000,
};

static double number(const json_t *object, const char *name)
{
    return json_number_value(json_object_get(object, name));
}

static void refuse_or(struct e2b *e, int status, json_t *object, json_t *answer)
{
    if (status >= 400) {
        json_decref(answer);
        e2b_refuse(e, status, object);
    } else {
        call_json(e->call, status, answer);
    }
}

/* --- metrics --- */

static double used_percent(const json_t *usage)
{
    double cpus = number(usage, "cpus");

    return cpus > 0 ? number(usage, "cpus_used") * 100 / cpus : 0;
}

static void told_metrics(struct e2b *e, int status, json_t *object)
{
    double total = number(object, "disk_total_bytes");

    json_t *sample = json_pack(
        "{s:o, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "timestamp", time_json(wall_ms()),
        "timestampUnix", (json_int_t)(wall_ms() / 1000), "cpuCount",
        (json_int_t)number(object, "cpus"), "cpuUsedPct", used_percent(object), "memUsed",
        (json_int_t)number(object, "memory_bytes"), "memTotal",
        (json_int_t)number(object, "memory_total_bytes"), "memCache", (json_int_t)0, "diskUsed",
        (json_int_t)(total - number(object, "disk_free_bytes")), "diskTotal", (json_int_t)total);
    refuse_or(e, status, object, json_pack("[o]", sample));
}

void e2b_metrics(struct call *call)
{
    struct lifetime l;
    struct e2b *e = e2b_find(call, &l) ? e2b_begin(call, NULL) : NULL;

    if (e)
        e2b_ask(e, HTTP_GET, NULL, told_metrics, "/v1/workspaces/%s/usage", call->workspace.id);
}

static void told_inside(struct e2b *e, int status, json_t *object)
{
    json_int_t total = (json_int_t)number(object, "memory_total_bytes");
    json_int_t used = (json_int_t)number(object, "memory_bytes");
    json_int_t disk = (json_int_t)number(object, "disk_total_bytes");

    refuse_or(e, status, object,
              json_pack("{s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "ts",
                        (json_int_t)(wall_ms() / 1000), "cpu_count",
                        (json_int_t)number(object, "cpus"), "cpu_used_pct", used_percent(object),
                        "mem_total", total, "mem_used", used, "mem_total_mib", total >> 20,
                        "mem_used_mib", used >> 20, "mem_cache", (json_int_t)0, "disk_total", disk,
                        "disk_used", disk - (json_int_t)number(object, "disk_free_bytes")));
}

void e2b_metrics_inside(struct call *call)
{
    struct e2b *e = e2b_begin(call, NULL);

    if (e)
        e2b_ask(e, HTTP_GET, NULL, told_inside, "/v1/workspaces/%s/usage", call->workspace.id);
}

/* --- logs --- */

struct wanted {
    uint64_t limit;
    const char *search;
    const char *level;
    bool forward;
};

/* "echo hi", or the arguments, a space between two. */
static json_t *command_of(const json_t *exec)
{
    const json_t *command = json_object_get(exec, "command");
    char text[1024] = "";
    json_t *arg;
    size_t i;

    if (json_is_string(command))
        return json_string(json_string_value(command));
    json_array_foreach(json_object_get(exec, "argv"), i, arg)
    {
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "", json_string_value(arg));
    }
    return json_string(text) ? json_string(text) : json_string("");
}

static void add(json_t *list, const struct wanted *w, json_t *entry)
{
    const char *message = json_string_value(json_object_get(entry, "message"));
    const char *level = json_string_value(json_object_get(entry, "level"));
    bool fits = message && (!w->search || strstr(message, w->search)) &&
                (!w->level || strcasecmp(w->level, level) == 0);

    if (fits)
        json_array_append(list, entry);
    json_decref(entry);
}

/* A line for its start, and one for its end. */
static void add_exec(json_t *list, const struct wanted *w, const json_t *exec)
{
    json_t *command = command_of(exec);
    const json_t *result = json_object_get(exec, "result");
    json_t *ended = json_object_get(exec, "ended");
    json_int_t code = json_integer_value(json_object_get(result, "exit_code"));
    const char *reason = json_string_value(json_object_get(result, "reason"));

    add(list, w,
        json_pack("{s:O, s:s, s:o, s:{s:O*, s:O*}}", "timestamp", json_object_get(exec, "started"),
                  "level", "info", "message",
                  json_sprintf("started: %s", json_string_value(command)), "fields", "exec_id",
                  json_object_get(exec, "exec_id"), "actor", json_object_get(exec, "actor")));
    if (json_is_string(ended) && result)
        add(list, w,
            json_pack("{s:O, s:s, s:o, s:{s:O*, s:I}}", "timestamp", ended, "level",
                      code ? "error" : "info", "message",
                      json_sprintf("ended (%s, exit code %lld): %s", reason ? reason : "exit",
                                   (long long)code, json_string_value(command)),
                      "fields", "exec_id", json_object_get(exec, "exec_id"), "exit_code", code));
    json_decref(command);
}

static const char *time_of(json_t *entry)
{
    return json_string_value(json_object_get(entry, "timestamp"));
}

/* Those of one millisecond stay as they are: a start is before its end. Nearly sorted they come. */
static void sort(json_t **all, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        json_t *entry = all[i];
        size_t at = i;
        for (; at > 0 && strcmp(time_of(all[at - 1]), time_of(entry)) > 0; at--)
            all[at] = all[at - 1];
        all[at] = entry;
    }
}

/* By time; the first `limit` of them. */
static json_t *sorted(json_t *list, const struct wanted *w)
{
    size_t n = json_array_size(list);
    json_t **all = calloc(n + 1, sizeof(json_t *));
    json_t *result = json_array();

    for (size_t i = 0; all && i < n; i++)
        all[i] = json_array_get(list, i);
    if (all)
        sort(all, n);
    for (size_t i = 0; all && i < n && i < w->limit; i++)
        json_array_append(result, all[w->forward ? i : n - 1 - i]);
    free(all);
    json_decref(list);
    return result;
}

static void told_logs(struct e2b *e, int status, json_t *object)
{
    const struct wanted *w = e->data;
    json_t *all = json_array();
    json_t *lines = json_array();
    json_t *exec;
    size_t i;

    const json_t *execs = json_object_get(object, "execs"); /* the newest first */
    for (i = json_array_size(execs); i-- > 0;)
        add_exec(all, w, json_array_get(execs, i));
    all = sorted(all, w);
    bool is_v2 = strncmp(e->call->route->path, "/v2", 3) == 0;
    json_array_foreach(all, i, exec)
    {
        json_array_append_new(lines, json_pack("{s:O, s:O}", "timestamp",
                                               json_object_get(exec, "timestamp"), "line",
                                               json_object_get(exec, "message")));
    }
    refuse_or(e, status, object,
              is_v2 ? json_pack("{s:O}", "logs", all)
                    : json_pack("{s:O, s:O}", "logs", lines, "logEntries", all));
    json_decref(all);
    json_decref(lines);
}

void e2b_logs(struct call *call)
{
    struct wanted *w = arena_alloc(&call->arena, sizeof(*w));
    const char *direction = NULL;
    struct lifetime l;

    if (!w) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    *w = (struct wanted){.forward = true};
    if (!e2b_find(call, &l) || !e2b_query(call, "search", &w->search) ||
        !e2b_query(call, "level", &w->level) || !e2b_query(call, "direction", &direction) ||
        !call_number(call, "limit", LOGS_MOST, LOGS_MOST, &w->limit))
        return;
    w->forward = !direction || strcmp(direction, "backward") != 0;
    struct e2b *e = e2b_begin(call, w);
    if (e)
        e2b_ask(e, HTTP_GET, NULL, told_logs, "/v1/workspaces/%s/exec?limit=%d", call->workspace.id,
                LOGS_MOST / 2);
}
