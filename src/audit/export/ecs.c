/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/export/ecs.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/line.h"

/* The first that fits; the last fits all. */
static const struct kind {
    const char *operation; /* whole, or up to a final dot */
    const char *category;
    const char *type;
} kinds[] = {
    {"exec.start", "process", "start"},
    {"exec.end", "process", "end"},
    {"exec.", "process", "change"},
    {"sandbox.start", "process", "start"},
    {"sandbox.end", "process", "end"},
    {"daemon.start", "process", "start"},
    {"daemon.stop", "process", "end"},
    {"front.", "process", "info"},
    {"denial", "process", "denied"},
    {"file.delete", "file", "deletion"},
    {"file.mkdir", "file", "creation"},
    {"file.symlink", "file", "creation"},
    {"file.", "file", "change"},
    {"plan.approve", "file", "allowed"},
    {"plan.reject", "file", "denied"},
    {"plan.", "file", "change"},
    {"port.open", "network", "start"},
    {"port.close", "network", "end"},
    {"port.", "network", "info"},
    {"key.create", "authentication", "creation"},
    {"key.revoke", "authentication", "deletion"},
    {"key.", "authentication", "info"},
    {"workspace.create", "file", "creation"},
    {"workspace.purge", "file", "deletion"},
    {"workspace.", "file", "change"},
    {"policy.", "configuration", "change"},
    {"", "configuration", "info"},
};

static bool fits(const char *pattern, const char *operation)
{
    size_t n = strlen(pattern);
    bool is_prefix = n == 0 || pattern[n - 1] == '.';

    return is_prefix ? strncmp(operation, pattern, n) == 0 : strcmp(operation, pattern) == 0;
}

static const struct kind *kind_of(const char *operation)
{
    size_t i = 0;

    while (!fits(kinds[i].operation, operation))
        i++;
    return &kinds[i];
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    return text ? text : "";
}

/* Members that say nothing are left out. */
static void set_text(json_t *object, const char *name, const char *text)
{
    if (*text)
        json_object_set_new(object, name, json_string(text));
}

static void set_object(json_t *doc, const char *name, json_t *object)
{
    if (json_object_size(object))
        json_object_set_new(doc, name, object);
    else
        json_decref(object);
}

#define SUCCESS "success"
#define FAILURE "failure"
#define UNKNOWN "unknown" /* it has only been asked for */

/* The first that fits; what is not in it has failed. */
static const struct outcome {
    const char *operation; /* as in kinds */
    const char *result;    /* NULL: any */
    const char *outcome;
} outcomes[] = {
    {"", "ok", SUCCESS},
    {"", "asked", UNKNOWN},
    {"plan.apply", "queued", UNKNOWN},
    {"plan.step", NULL, SUCCESS}, /* its result says what it was part of */
    {"plan.verify", "clean", SUCCESS},
    {"plan.verify", "review", SUCCESS},
    {"plan.finding", "review", SUCCESS},
    {"plan.expire", "rejected", SUCCESS},
    {"plan.", "done", SUCCESS},
    {"sandbox.start", "plan", SUCCESS},
};

static const char *outcome_of(const char *operation, const char *result, const json_t *details)
{
    if (strcmp(operation, "exec.end") == 0)
        return strcmp(result, "exit") == 0 &&
                       json_integer_value(json_object_get(details, "exit_code")) == 0
                   ? SUCCESS
                   : FAILURE;
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++)
        if (fits(outcomes[i].operation, operation) &&
            (!outcomes[i].result || strcmp(outcomes[i].result, result) == 0))
            return outcomes[i].outcome;
    return FAILURE;
}

static json_t *process_of(const json_t *details)
{
    json_t *process = json_object();
    const json_t *argv = json_object_get(details, "argv");
    const json_t *code = json_object_get(details, "exit_code");
    struct buf line;
    const json_t *one;
    size_t i;

    set_text(process, "entity_id", text_of(details, "exec"));
    if (json_is_integer(code))
        json_object_set_new(process, "exit_code", json_integer(json_integer_value(code)));
    if (!json_is_array(argv))
        return process;
    buf_init(&line, 1 << 20);
    json_t *args = json_array();
    json_array_foreach(argv, i, one)
    {
        if (!json_is_string(one))
            continue;
        json_array_append_new(args, json_string(json_string_value(one)));
        buf_str(&line, i ? " " : "");
        buf_str(&line, json_string_value(one));
    }
    json_object_set_new(process, "args", args);
    if (buf_done(&line) == 0)
        set_text(process, "command_line", line.p);
    buf_clear(&line);
    return process;
}

static json_t *file_of(const json_t *details)
{
    json_t *file = json_object();
    const char *path = text_of(details, "path");

    /* That of a step of a plan is one deeper. */
    set_text(file, "path", *path ? path : text_of(json_object_get(details, "step"), "path"));
    set_text(file, "target_path", text_of(details, "target"));
    return file;
}

static json_t *event_of(const json_t *record, const struct ecs_facts *facts, const char *original)
{
    const struct kind *kind = kind_of(facts->operation);
    const json_t *details = json_object_get(record, "details");
    const json_t *ms = json_object_get(details, "duration_ms");
    json_t *event =
        json_pack("{s:s, s:s, s:[s], s:[s], s:s, s:s, s:I, s:s, s:s, s:s}", "id", facts->id, "kind",
                  "event", "category", kind->category, "type", kind->type, "action",
                  facts->operation, "outcome", facts->outcome, "sequence", (json_int_t)facts->seq,
                  "module", "carrel", "dataset", "carrel.audit", "hash", facts->hash);

    if (json_is_number(ms))
        json_object_set_new(event, "duration",
                            json_integer((json_int_t)(json_number_value(ms) * 1e6)));
    set_text(event, "reason", text_of(record, "result"));
    if (original)
        json_object_set_new(event, "original", json_string(original));
    return event;
}

static json_t *document_of(const json_t *record, const struct ecs_facts *facts, const char *host,
                           const char *original)
{
    const json_t *details = json_object_get(record, "details");
    const char *workspace = text_of(record, "workspace");
    json_t *doc = json_pack("{s:s, s:{s:s}, s:o, s:{s:s}, s:{s:s}}", "@timestamp", facts->time,
                            "ecs", "version", "8.11.0", "event", event_of(record, facts, original),
                            "user", "id", text_of(record, "actor"), "host", "name", host);

    if (!doc)
        return NULL;
    set_object(doc, "process", process_of(details));
    set_object(doc, "file", file_of(details));
    if (*text_of(details, "owner"))
        json_object_set_new(doc, "organization",
                            json_pack("{s:s}", "id", text_of(details, "owner")));
    if (*text_of(record, "request"))
        json_object_set_new(doc, "trace", json_pack("{s:s}", "id", text_of(record, "request")));
    if (*workspace) {
        json_object_set_new(doc, "container", json_pack("{s:s}", "id", workspace));
        json_object_set_new(doc, "labels", json_pack("{s:s}", "thread", workspace));
        json_object_set_new(doc, "orchestrator",
                            json_pack("{s:s, s:{s:s, s:s}}", "type", "carrel", "resource", "type",
                                      "workspace", "name", workspace));
    }
    return doc;
}

static bool find_facts(const char *line, size_t n, const json_t *record, struct ecs_facts *ret)
{
    struct audit_line parsed;

    *ret = (struct ecs_facts){0};
    if (!audit_parse(line, n, &parsed) || audit_hash(line, n, ret->hash) < 0)
        return false;
    ret->seq = parsed.seq;
    memcpy(ret->time, parsed.time, sizeof(ret->time) - 1);
    snprintf(ret->id, sizeof(ret->id), "%ju-%s", (uintmax_t)ret->seq, ret->hash);
    snprintf(ret->operation, sizeof(ret->operation), "%s", text_of(record, "operation"));
    ret->outcome =
        outcome_of(ret->operation, text_of(record, "result"), json_object_get(record, "details"));
    ret->failed = strcmp(ret->outcome, FAILURE) == 0;
    return true;
}

int ecs_encode(const char *line, size_t n, const char *host, bool whole, struct buf *doc,
               struct ecs_facts *ret)
{
    json_t *record = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    char *copy = whole ? strndup(line, n) : NULL;
    json_t *made = NULL;
    char *text = NULL;

    if ((copy || !whole) && find_facts(line, n, record, ret))
        made = document_of(record, ret, host, copy);
    if (made)
        text = json_dumps(made, JSON_COMPACT);
    if (text)
        buf_str(doc, text);
    int r = text && !doc->failed ? 0 : -1;
    free(text);
    free(copy);
    json_decref(made);
    json_decref(record);
    return r;
}
