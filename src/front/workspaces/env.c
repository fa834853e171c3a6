/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/env: one command of Carrel's own inside, and its words as a typed answer.
 *
 *   ask --> script inside --(exit)--> answer
 *                         --(ended by a bound)--> another one cleans up --> answer
 *                         --(staged)--> sleep --> another one, in the next sandbox --> answer
 *
 * Nothing of a request becomes a part of the script: a version is an argument of it, and is looked
 * at before. */
#include "front/workspaces/env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "front/exec/start.h"
#include "front/files/servers.h"
#include "front/workspaces/env_script.h"
#include "front/workspaces/routes.h"
#include "protocol/broker.h"

enum {
    VERSION_MAX = 32,
    TIMEOUT_MS = 10 * 60 * 1000,
    SAID = 300, /* of what a tool says, in a message */
};

struct making {
    const char *argv[8];
    const char *what;
    const char *version;                                         /* "" : any */
    void (*done)(struct call *call, int status, json_t *object); /* NULL: answered here */
    char reason[16]; /* for which it was ended, while another one cleans up; "": it was not */
};

/* --- answers --- */

static json_t *error_of(const char *code, const char *message)
{
    json_t *text = json_string(message); /* NULL unless it is UTF-8 */

    return json_pack("{s:{s:s, s:o}}", "error", "code", code, "message",
                     text ? text : json_string("(not readable)"));
}

/* The end of what a tool has said: there is the reason. */
static const char *last_words(const json_t *report, char text[SAID + 8])
{
    const char *why = json_string_value(json_object_get(report, "why"));
    size_t n = why ? strlen(why) : 0;

    while (n > 0 && (why[n - 1] == '\n' || why[n - 1] == ' '))
        n--;
    size_t from = n > SAID ? n - SAID : 0;
    while (from < n && ((unsigned char)why[from] & 0xc0) == 0x80)
        from++; /* not in the middle of a character */
    snprintf(text, SAID + 8, "%s%.*s", from ? "... " : "", (int)(n - from), why ? why + from : "");
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    return text;
}

/* Whether it is one of "3.13.11, 3.11.2". */
static bool is_listed(const char *list, const char *one)
{
    size_t n = strlen(one);

    for (const char *at = list; *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ",");
        if (length == n && memcmp(at, one, n) == 0)
            return true;
        at += length;
    }
    return false;
}

static json_t *version_missing(const struct making *m, json_t *report)
{
    json_t *have = json_object_get(report, "interpreters");
    char list[256] = "";
    char words[SAID + 8];
    char message[768];

    for (size_t i = 0; i < json_array_size(have); i++) {
        const char *one = json_string_value(json_object_get(json_array_get(have, i), "version"));
        size_t used = strlen(list);
        if (one && !is_listed(list, one))
            snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", one);
    }
    if (*m->version)
        snprintf(message, sizeof(message),
                 "there is no Python %s here; there are: %s (uv fetches others where "
                 "the policy has \"network\": \"host\"; or install it on the host)",
                 m->version, *list ? list : "none");
    else
        snprintf(message, sizeof(message), "no Python suits; there are: %s; uv says: %s",
                 *list ? list : "none", last_words(report, words));
    json_t *error = error_of("version_missing", message);
    json_object_set_new(json_object_get(error, "error"), "details",
                        json_pack("{s:O}", "have", have));
    return error;
}

static json_t *refusal(const struct making *m, int end, json_t *report, int *ret_status)
{
    char words[SAID + 8];
    char message[768];
    const char *there =
        json_string_value(json_object_get(json_object_get(report, "python"), "version"));

    *ret_status = 409;
    switch (end) {
    case ENV_NO_TOOLS:
        return error_of("tools_missing",
                        "uv or bun is not there; run 'carrel env setup' on the daemon's host, and "
                        "'carrel ws sleep' for a workspace that was awake at that time");
    case ENV_NO_VERSION:
        *ret_status = 422;
        return version_missing(m, report);
    case ENV_EXISTS:
        snprintf(message, sizeof(message),
                 "/.venv has Python %.40s; ask with \"clear\" (--clear) to replace it and all that "
                 "is installed in it",
                 there ? there : "of another version");
        return error_of("env_exists", message);
    case ENV_BROKEN:
        return error_of("env_broken", "/.venv is there and does not work; ask with \"clear\" "
                                      "(--clear) to replace it, or remove it");
    case ENV_IN_THE_WAY:
        return error_of("env_broken", "/node_modules is no directory; remove it");
    case ENV_LOCKED:
        return error_of("workspace_busy",
                        "another request makes an environment in this workspace; wait for it");
    case ENV_FULL:
        *ret_status = 507;
        return error_of("disk_full", "there is no room for it, and all is as it was; remove files, "
                                     "or have the limits of the policy raised");
    default:
        *ret_status = 422;
        snprintf(message, sizeof(message), "it failed, and all is as it was: %s",
                 *last_words(report, words) ? words : "the tools said nothing");
        return error_of("env_failed", message);
    }
}

static json_t *success(const struct making *m, json_t *report, int *ret_status)
{
    json_t *python = json_object_get(report, "python");
    json_t *node = json_object_get(report, "node");

    json_object_del(report, "why");
    *ret_status = 200;
    if (strcmp(m->what, "report") == 0)
        return json_incref(report);
    if (json_is_true(json_object_get(python, "created")) ||
        json_is_true(json_object_get(node, "created")))
        *ret_status = 201;
    json_object_del(report, "tools");
    json_object_del(report, "interpreters");
    if (json_is_null(python))
        json_object_del(report, "python");
    if (json_is_null(node))
        json_object_del(report, "node");
    return json_incref(report);
}

/* Consumes the object. */
static void answer(struct call *call, const struct making *m, int status, json_t *object)
{
    if (m->done && status < 400) {
        call->refused = NULL;
        m->done(call, status, object);
    } else {
        call_json(call, status, object); /* a refusal, too, is `done`'s: it is call->refused */
    }
}

/* --- the command --- */

static void begin(struct call *call, struct making *m, exec_over *then);
static exec_over over;

/* One that had no time to do it itself. */
static void cleaned(struct call *call, json_t *result, void *context)
{
    const struct making *m = context;
    bool full = strcmp(m->reason, "disk") == 0;
    const json_t *code = json_object_get(result, "exit_code");
    bool clean = json_is_integer(code) && json_integer_value(code) == 0;
    char message[256];

    json_decref(result);
    snprintf(message, sizeof(message),
             "it was ended (%s), and %s; have the limits of the policy raised%s", m->reason,
             clean ? "all is as it was" : "what it leaves beside /.venv the next request removes",
             full ? ", or remove files" : "");
    answer(call, m, full ? 507 : 422, error_of(full ? "disk_full" : "env_failed", message));
}

static void unstaged(struct call *call, json_t *result, void *context)
{
    json_decref(result); /* what could not be removed the next one finds */
    answer(call, context, 409,
           error_of("workspace_busy",
                    "commands run in the workspace, or files of it are being sent, and the "
                    "environment of its template is replaced while it sleeps; end them (carrel ws "
                    "sleep) and ask again"));
}

/* But for what its template starts, which is started again with the next sandbox. */
static bool runs_commands(const struct call *call)
{
    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct exec *exec = call->front->execs[i]; exec; exec = exec->next) {
            if (exec->state != EXEC_ENDED && strcmp(exec->workspace, call->workspace.id) == 0 &&
                strcmp(exec->row_actor, "template") != 0)
                return true;
        }
    }
    return false;
}

static void slept(struct call *call, struct answer *heard)
{
    (void)heard; /* one that was asleep is what was asked for */
    begin(call, call->context, over);
}

/* The template's is a mount: the new one takes its place when no sandbox lives. */
static void staged(struct call *call, struct making *m)
{
    unsigned pending = call->pending;

    m->version = strcmp(m->what, "both") == 0 ? "both" : "";
    m->what = "settle";
    if (runs_commands(call) || files_are_used(call->front, call->workspace.id)) {
        m->what = "clean";
        begin(call, m, unstaged);
        return;
    }
    call->context = m;
    call_ask(call, REQUEST_SLEEP, call->workspace.id, "an environment is put into its place",
             "staged", slept);
    if (call->pending == pending)
        answer(call, m, 503, error_of("unavailable", "out of memory"));
}

static void over(struct call *call, json_t *result, void *context)
{
    struct making *m = context;
    const json_t *out = json_object_get(result, "stdout");
    const char *reason = json_string_value(json_object_get(result, "reason"));
    int end = (int)json_integer_value(json_object_get(result, "exit_code"));
    int status = 503;

    if (reason && strcmp(reason, "exit") != 0) {
        snprintf(m->reason, sizeof(m->reason), "%s", reason);
        json_decref(result);
        m->what = "clean";
        begin(call, m, cleaned);
        return;
    }
    if (end == ENV_STAGED) {
        json_decref(result);
        staged(call, m);
        return;
    }
    json_t *report =
        env_report(json_is_string(out) ? json_string_value(out) : "", json_string_length(out));
    json_t *object = !report    ? error_of("unavailable", "out of memory")
                     : end == 0 ? success(m, report, &status)
                                : refusal(m, end, report, &status);
    json_decref(report);
    json_decref(result);
    answer(call, m, status, object);
}

static void begin(struct call *call, struct making *m, exec_over *then)
{
    m->argv[0] = "/bin/sh"; /* by its place: the workspace's own programs come first in PATH */
    m->argv[1] = "-c";
    m->argv[2] = env_script;
    m->argv[3] = "carrel-env";
    m->argv[4] = m->what;
    m->argv[5] = m->version;
    const struct exec_script script = {.argv = m->argv,
                                       .shown = "carrel env",
                                       .timeout_ms = TIMEOUT_MS,
                                       .over = then,
                                       .context = m};
    execs_script(call, &script);
}

static struct making *new_making(struct call *call, const char *what)
{
    struct making *m = arena_alloc(&call->arena, sizeof(*m));

    if (!m) {
        call_error(call, 413, "too_large", "the request is too large");
        return NULL;
    }
    m->what = what;
    m->version = "";
    m->argv[6] = "";
    return m;
}

/* "3", "3.11", "3.13t", "3.14.0rc1": it is asked for as an argument, and must be no option or path.
 */
static bool is_version(const char *text)
{
    return *text >= '0' && *text <= '9' &&
           text[strspn(text, "0123456789.abcdefghijklmnopqrstuvwxyz")] == '\0';
}

static bool read_version(struct call *call, const char *field, const char **ret)
{
    const char *version = NULL;

    if (!field_text(call, call->body, field, VERSION_MAX, &version))
        return false;
    if (version && !is_version(version)) {
        call_bad_field(call, field, "a version such as \"3.11\"");
        return false;
    }
    if (!version)
        return true;
    *ret = arena_copy(&call->arena, version, strlen(version)); /* the body goes before the queue */
    if (*ret)
        return true;
    call_error(call, 413, "too_large", "the request is too large");
    return false;
}

void env_make_python(struct call *call)
{
    static const char *const known[] = {"version", "clear", NULL};
    struct making *m = new_making(call, "python");
    bool clear = false;

    if (!m || !fields_known(call, call->body, known) ||
        !read_version(call, "version", &m->version) ||
        !field_flag(call, call->body, "clear", &clear))
        return;
    m->argv[6] = clear ? "clear" : "";
    begin(call, m, over);
}

void env_make_node(struct call *call)
{
    static const char *const known[] = {NULL};
    struct making *m = new_making(call, "node");

    if (m && fields_known(call, call->body, known))
        begin(call, m, over);
}

void env_get(struct call *call)
{
    struct making *m = new_making(call, "report");

    if (m)
        begin(call, m, over);
}

/* --- at the creation of a workspace --- */

static bool wants(const struct call *call, const char *name)
{
    const json_t *value = json_object_get(call->body, name);

    return json_is_true(value) || json_is_string(value);
}

bool env_is_asked_for(const struct call *call)
{
    return wants(call, "python") || wants(call, "node");
}

bool env_request_check(struct call *call)
{
    const json_t *python = json_object_get(call->body, "python");
    const char *version = NULL;
    bool flag;

    if (json_is_string(python) && !is_version(json_string_value(python))) {
        call_bad_field(call, "python", "true, false or a version such as \"3.11\"");
        return false;
    }
    return (json_is_string(python) ? field_text(call, call->body, "python", VERSION_MAX, &version)
                                   : field_flag(call, call->body, "python", &flag)) &&
           field_flag(call, call->body, "node", &flag);
}

void env_create(struct call *call, void (*done)(struct call *call, int status, json_t *object))
{
    const char *what = !wants(call, "node") ? "python" : !wants(call, "python") ? "node" : "both";

    call->refused = done; /* whoever refuses it, here or on the way to the broker */
    struct making *m = new_making(call, what);
    if (!m || (json_is_string(json_object_get(call->body, "python")) &&
               !read_version(call, "python", &m->version)))
        return;
    m->done = done;
    begin(call, m, over);
}
