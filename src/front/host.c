/* SPDX-License-Identifier: Apache-2.0 */
/* How the daemon is: health, readiness, metrics, and its own description. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "front/core/call.h"
#include "front/routes.h"
#include "front/stores/mirror.h"
#include "sys/path.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

/* The file as it is in the repository, between two symbols. */
__asm__(".section .rodata\n"
        ".global openapi_text\n"
        "openapi_text:\n"
        ".incbin \"docs/openapi.json\"\n"
        ".global openapi_end\n"
        "openapi_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char openapi_text[];
extern const char openapi_end[];

void openapi_get(struct call *call)
{
    call_bytes(call, "application/json", openapi_text, (size_t)(openapi_end - openapi_text));
}

void health_get(struct call *call)
{
    call_json(call, 200, json_pack("{s:s, s:s}", "status", "ok", "version", CARREL_VERSION));
}

/* Which interface this is. API goes up by one when a client could need to know that something is
 * there; OLDEST follows when something that clients of that number use is there no more. */
enum {
    API = 1,
    OLDEST = 1
};

void version_get(struct call *call)
{
    call_json(
        call, 200,
        json_pack("{s:s, s:i, s:i}", "version", CARREL_VERSION, "api", API, "api_oldest", OLDEST));
}

void ready_get(struct call *call)
{
    if (call->front->resumed && !call->front->draining)
        call_json(call, 200, json_pack("{s:s}", "status", "ready"));
    else
        call_error(call, 503, "unavailable", "the daemon is starting or stopping");
}

void host_get(struct call *call)
{
    struct front *front = call->front;
    const struct settings *s = front->settings;
    uint64_t workspaces = 0;
    struct err err;

    if (store_count_workspaces(front->store, NULL, &workspaces, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    const struct http_options *room = &front->room;
    struct http_stats http;
    http_stats(front->http, &http);
    json_t *limits =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "max_sandboxes", (json_int_t)s->max_sandboxes,
                  "max_execs", (json_int_t)s->max_execs, "max_memory", (json_int_t)s->max_memory,
                  "max_pids", (json_int_t)s->max_pids, "max_output", (json_int_t)s->max_output,
                  "disk_floor", (json_int_t)s->disk_floor);
    /* As they are kept here, where fewer files may be open than the settings ask for. */
    json_t *connections = json_pack("{s:I, s:I, s:I, s:I}", "max_connections",
                                    (json_int_t)room->max_connections + room->max_unknown,
                                    "owner_connections", (json_int_t)room->owner_connections,
                                    "owner_streams", (json_int_t)room->owner_streams,
                                    "address_connections", (json_int_t)room->address_connections);
    json_object_update(limits, connections);
    json_decref(connections);
    call_json(call, 200,
              json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "version", CARREL_VERSION,
                        "uptime_ms", (json_int_t)(now_ms() - front->began_ms), "workspaces",
                        (json_int_t)workspaces, "sandboxes", (json_int_t)front->awake_count,
                        "execs", (json_int_t)front->exec_count, "queued", (json_int_t)front->queued,
                        "connections", (json_int_t)http.connections, "streams",
                        (json_int_t)http.streams, "limits", limits));
}

static uint64_t resident_bytes(void)
{
    char text[256];
    unsigned long size;
    unsigned long resident = 0;

    if (path_read_small("/proc/self/statm", text, sizeof(text)) <= 0 ||
        sscanf(text, "%lu %lu", &size, &resident) != 2) /* NOLINT(cert-err34-c): our kernel's */
        return 0;
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void put(struct buf *b, const char *name, const char *type, const char *help)
{
    buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_one(struct buf *b, const char *name, const char *type, const char *help,
                    double value)
{
    put(b, name, type, help);
    buf_printf(b, "%s %.17g\n", name, value);
}

static void put_counters(struct buf *b, const struct counters *c)
{
    static const char *const outcomes[] = {"exit", "signal", "timeout", "output",
                                           "oom",  "pids",   "disk"};

    put(b, "carrel_http_requests_total", "counter", "Answered requests by class of status.");
    for (unsigned i = 1; i < 6; i++)
        buf_printf(b, "carrel_http_requests_total{code=\"%uxx\"} %ju\n", i,
                   (uintmax_t)c->requests[i]);
    put_one(b, "carrel_http_request_seconds_total", "counter", "Time spent on requests.",
            (double)c->request_us / 1e6);
    put(b, "carrel_exec_total", "counter", "Commands that ended, by outcome.");
    for (unsigned i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
        buf_printf(b, "carrel_exec_total{outcome=\"%s\"} %ju\n", outcomes[i],
                   (uintmax_t)c->execs_ended[i]);
    put_one(b, "carrel_exec_seconds_total", "counter", "How long commands ran, in all.",
            (double)c->exec_us / 1e6);
    put_one(b, "carrel_exec_started_total", "counter", "Commands that were started.",
            (double)c->execs_started);
    put_one(b, "carrel_sandbox_starts_total", "counter", "Sandboxes that were started.",
            (double)c->sandboxes_started);
    put_one(b, "carrel_output_bytes_total", "counter", "Output of commands.",
            (double)c->output_bytes);
    put_one(b, "carrel_stream_stalls_total", "counter", "Times a command waited for its reader.",
            (double)c->stalls);
    put_one(b, "carrel_denials_total", "counter", "What sandboxes did not allow.",
            (double)c->denials);
}

static void put_file_counters(struct buf *b, const struct counters *c)
{
    static const char *const names[FILES_OP_COUNT_] = {
        [FILES_READ] = "read",
        [FILES_TEXT] = "text",
        [FILES_STAT] = "stat",
        [FILES_LIST] = "list",
        [FILES_WRITE] = "write",
        [FILES_APPEND] = "append",
        [FILES_EDIT] = "edit",
        [FILES_REMOVE] = "delete",
        [FILES_MOVE] = "move",
        [FILES_COPY] = "copy",
        [FILES_MKDIR] = "mkdir",
        [FILES_CHMOD] = "chmod",
        [FILES_SYMLINK] = "symlink",
        [FILES_GLOB] = "glob",
        [FILES_GREP] = "grep",
        [FILES_WATCH] = "watch",
        [FILES_INVENTORY] = "inventory",
        [FILES_BATCH_READ] = "read_many",
        [FILES_BATCH_WRITE] = "write_many",
        [FILES_PACK] = "pack",
        [FILES_UNPACK] = "unpack",
        [FILES_REPAIR] = "repair",
        [FILES_CONNECT] = "connect",
    };

    put(b, "carrel_file_calls_total", "counter",
        "Calls on files by operation and class of status.");
    for (unsigned op = 1; op < FILES_OP_COUNT_; op++) {
        for (unsigned i = 2; i < 6; i++) {
            if (c->file_calls[op][i]) /* those there were: the table is large */
                buf_printf(b, "carrel_file_calls_total{operation=\"%s\",code=\"%uxx\"} %ju\n",
                           names[op], i, (uintmax_t)c->file_calls[op][i]);
        }
    }
    put_one(b, "carrel_file_bytes_in_total", "counter", "Bodies of calls on files.",
            (double)c->file_bytes_in);
    put_one(b, "carrel_file_bytes_out_total", "counter", "Answers to calls on files.",
            (double)c->file_bytes_out);
}

/* How far the record was exported; nothing where it is not. */
static void put_export(struct buf *b)
{
    char text[4096];
    ssize_t n = path_read_small("export/status.json", text, sizeof(text));
    json_t *status = n > 0 ? json_loadb(text, (size_t)n, 0, NULL) : NULL;

    static const struct {
        const char *member;
        const char *name;
        const char *type;
        const char *help;
    } rows[] = {
        {"seq", "carrel_audit_exported_sequence", "gauge", "The last record that was exported."},
        {"sent", "carrel_audit_exported_total", "counter", "Records that were exported."},
        {"dead", "carrel_audit_dead_letters_total", "counter", "Records that were not taken."},
        {"retries", "carrel_audit_export_retries_total", "counter", "Tries that failed."},
    };

    if (!json_is_object(status)) {
        json_decref(status);
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        put_one(b, rows[i].name, rows[i].type, rows[i].help,
                (double)json_integer_value(json_object_get(status, rows[i].member)));
    json_int_t since = json_integer_value(json_object_get(status, "behind_since"));
    double now = (double)time(NULL);
    put_one(b, "carrel_audit_export_lag_seconds", "gauge",
            "How long the oldest record that is not exported waits.",
            since > 0 && now > (double)since ? now - (double)since : 0);
    json_decref(status);
}

static void put_plan_counters(struct buf *b, const struct counters *c)
{
    const struct {
        const char *outcome;
        uint64_t n;
    } outcomes[] = {{"made", c->plans_made},
                    {"applied", c->plans_applied},
                    {"undone", c->plans_undone},
                    {"refused", c->plans_refused},
                    {"stale", c->plans_stale}};

    put(b, "carrel_plans_total", "counter", "Plans by what became of them.");
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
        buf_printf(b, "carrel_plans_total{outcome=\"%s\"} %ju\n", outcomes[i].outcome,
                   (uintmax_t)outcomes[i].n);
    put_one(b, "carrel_plan_steps_total", "counter", "Steps of plans that were carried out.",
            (double)c->plan_steps);
}

static void put_mirrors(struct buf *b, const struct front *front)
{
    const struct mirror_sums sums = mirror_sums(front);

    put_one(b, "carrel_mirrors", "gauge", "Workspaces that are mirrored to a store.",
            (double)sums.workspaces);
    put_one(b, "carrel_mirrors_failing", "gauge", "... whose last try has failed.",
            (double)sums.failing);
    put_one(b, "carrel_unsynced_bytes", "gauge", "Bytes that are not in their store yet.",
            (double)sums.unsynced_bytes);
    put_one(b, "carrel_unsynced_age_seconds", "gauge",
            "Age of the oldest change that is not in its store yet.",
            (double)sums.unsynced_seconds);
}

void metrics_get(struct call *call)
{
    struct front *front = call->front;
    struct http_stats http;
    scoped_buf struct buf b;

    buf_init(&b, 64UL << 10);
    http_stats(front->http, &http);
    put(&b, "carrel_build_info", "gauge", "The version that runs.");
    buf_printf(&b, "carrel_build_info{version=\"%s\"} 1\n", CARREL_VERSION);
    put_counters(&b, &front->count);
    put_file_counters(&b, &front->count);
    put_plan_counters(&b, &front->count);
    put_one(&b, "carrel_net_connections_total", "counter", "Connections by name that have ended.",
            (double)front->count.net_connections);
    put_one(&b, "carrel_net_bytes_total", "counter", "Bytes that they have carried, both ways.",
            (double)front->count.net_bytes);
    put_one(&b, "carrel_net_refused_total", "counter", "Names and connections that were refused.",
            (double)front->count.net_refused);
    put_mirrors(&b, front);
    put(&b, "carrel_sandboxes", "gauge", "Sandboxes by state.");
    buf_printf(&b, "carrel_sandboxes{state=\"live\"} %zu\n", front->awake_count);
    put_one(&b, "carrel_execs", "gauge", "Commands that run.", (double)front->exec_count);
    put_one(&b, "carrel_http_connections", "gauge", "Open connections.", (double)http.connections);
    put_one(&b, "carrel_http_streams", "gauge", "... of these, answers that last.",
            (double)http.streams);
    put_one(&b, "carrel_http_evicted_total", "counter", "Connections closed to make room.",
            (double)http.evicted);
    put_one(&b, "carrel_http_turned_away_total", "counter", "Connections that found no room.",
            (double)http.turned_away);
    put_one(&b, "carrel_http_body_bytes", "gauge", "Bodies of requests that are kept in memory.",
            (double)http.body_bytes);
    put_one(&b, "carrel_execs_waiting", "gauge", "Requests that wait until there is room.",
            (double)front->queued);
    put_one(&b, "carrel_http_refused_total", "counter", "Requests that were malformed or too slow.",
            (double)http.refused);
    put_export(&b);
    put_one(&b, "process_resident_memory_bytes", "gauge", "Memory of the front.",
            (double)resident_bytes());
    if (buf_done(&b) < 0)
        call_error(call, 500, "internal", "out of memory");
    else
        call_bytes(call, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
}
