/* SPDX-License-Identifier: Apache-2.0 */
#include "front/openai/routes.h"

#include <string.h>

#include "base/bytes.h"
#include "front/exec/attach.h"
#include "front/exec/follow.h"
#include "front/exec/routes.h"
#include "front/files/call.h"
#include "front/files/routes.h"
#include "front/openai/create.h"
#include "front/workspaces/routes.h"

#define SANDBOX "/v1/sandbox/{ws}"
#define ROOT    "/workspace"

static void sandbox_delete(struct call *call);
static void running_get(struct call *call);
static void exec_post(struct call *call);
static void file_read(struct call *call);
static void file_write(struct call *call);
static void persist(struct call *call);
static void hydrate(struct call *call);
static void mount(struct call *call);
static void pty(struct call *call);

const struct route sandbox_routes[] = {
    {HTTP_POST, "/v1/sandbox", WORKERS, BODY_SMALL, FOREIGN, sandbox_create, "", NOT_IN_PLAN},
    {HTTP_DELETE, SANDBOX, OWNERS, 0, FOREIGN, sandbox_delete, "", NOT_IN_PLAN},
    {HTTP_GET, SANDBOX "/running", READERS, 0, FOREIGN, running_get, "", IN_PLAN},
    {HTTP_POST, SANDBOX "/exec", WORKERS, BODY_EXEC, FOREIGN, exec_post, "", IN_PLAN},
    {HTTP_GET, SANDBOX "/file/{*}", READERS, 0, FOREIGN, file_read, "", IN_PLAN},
    {HTTP_PUT, SANDBOX "/file/{*}", WORKERS, HTTP_BODY_STREAM, RAW | FOREIGN, file_write, "",
     IN_PLAN},
    {HTTP_POST, SANDBOX "/persist", READERS, BODY_SMALL, FOREIGN, persist, "excludes", IN_PLAN},
    {HTTP_POST, SANDBOX "/hydrate", WORKERS, HTTP_BODY_STREAM, RAW | FOREIGN, hydrate, "", IN_PLAN},
    {HTTP_POST, SANDBOX "/mount", WORKERS, BODY_SMALL, FOREIGN, mount, "", IN_PLAN},
    {HTTP_POST, SANDBOX "/unmount", WORKERS, BODY_SMALL, FOREIGN, mount, "", IN_PLAN},
    {HTTP_GET, SANDBOX "/pty", WORKERS, HTTP_BODY_STREAM, RAW | NO_HEAD | FOREIGN, pty, "cols rows",
     IN_PLAN},
    ROUTES_END,
};

/* --- words --- */

json_t *sandbox_translate(struct call *call, int *status, json_t *object)
{
    json_t *error = json_object_get(object, "error");

    (void)call;
    if (*status < 400) {
        *status = 200; /* the only one that clients know */
        return object;
    }
    if (!json_is_object(error))
        return object;
    json_t *said =
        json_pack("{s:O?, s:O?, s:O*}", "error", json_object_get(error, "message"), "code",
                  json_object_get(error, "code"), "details", json_object_get(error, "details"));
    json_decref(object);
    return said;
}

/* --- commands --- */

static void put_output(struct buf *out, enum spool_stream stream, const char *bytes, size_t n)
{
    buf_printf(out, "event: %s\ndata: ", stream == SPOOL_ERR ? "stderr" : "stdout");
    bytes_add_base64(out, bytes, n);
    buf_str(out, "\n\n");
}

/* Why it was ended, if it did not end by itself, is told where a client looks: in its errors. */
static void put_end(struct buf *out, const json_t *result)
{
    const char *reason = json_string_value(json_object_get(result, "reason"));
    const char *note = json_string_value(json_object_get(result, "note"));
    scoped_buf struct buf why;

    buf_init(&why, 8192);
    if (reason && strcmp(reason, "exit") != 0 && strcmp(reason, "signal") != 0)
        buf_printf(&why, "carrel: the command was ended: %s%s%.4000s\n", reason, note ? ": " : "",
                   note ? note : "");
    if (why.n && buf_done(&why) == 0)
        put_output(out, SPOOL_ERR, why.p, why.n);
    buf_printf(out, "event: exit\ndata: {\"exit_code\":%lld}\n\n",
               (long long)json_integer_value(json_object_get(result, "exit_code")));
}

static void put_error(struct buf *out, const json_t *error)
{
    const char *message = json_string_value(json_object_get(error, "message"));

    buf_str(out, "event: error\ndata: {\"error\":");
    bytes_add_json(out, message ? message : "", message ? strlen(message) : 0);
    buf_str(out, "}\n\n");
}

/* A worker's commands begin in its directory, which a workspace made otherwise has not. */
#define ENTER "cd " ROOT " 2>/dev/null || { mkdir -p " ROOT " && cd " ROOT "; } || exit 126; "

static const char *const in_root[] = {"sh", "-c", ENTER "exec \"$@\"", "sh", NULL};
static const struct exec_manner command = {.before = in_root,
                                           .output = put_output,
                                           .end = put_end,
                                           .error = put_error,
                                           .ends_with_client = true};
static const struct exec_manner terminal = {
    .before = in_root, .runs = attach_terminal, .ends_with_client = true};

static void run(struct call *call, const struct exec_manner *manner, json_t *body)
{
    json_decref(call->body);
    call->body = body;
    call->manner = manner;
    if (body)
        execs_create(call);
    else
        call_error(call, 503, "unavailable", "out of memory");
}

static void exec_post(struct call *call)
{
    static const char *const known[] = {"argv", "timeout_ms", NULL};

    if (!fields_known(call, call->body, known))
        return;
    run(call, &command,
        json_pack("{s:O?, s:O?, s:s}", "argv", json_object_get(call->body, "argv"), "timeout_ms",
                  json_object_get(call->body, "timeout_ms"), "stream", "sse"));
}

static void pty(struct call *call)
{
    static const char shell[] = "if command -v bash >/dev/null 2>&1; "
                                "then exec bash --norc --noprofile -i; else exec sh -i; fi";
    /* Clients type one command, and want to hear of its end: with it the shell ends, too. What it
     * starts does not get this from it. */
    static const char once[] = "declare +x PROMPT_COMMAND PS1; "
                               "bind 'set enable-bracketed-paste off' 2>/dev/null; "
                               "PROMPT_COMMAND='exit $? 2>/dev/null'";
    uint64_t columns;
    uint64_t rows;

    if (!attach_is_asked(call) || !call_number(call, "cols", 4096, 80, &columns) ||
        !call_number(call, "rows", 4096, 24, &rows))
        return;
    run(call, &terminal,
        json_pack("{s:[s,s,s], s:{s:s, s:s}, s:{s:I, s:I}, s:b, s:b}", "argv", "sh", "-c", shell,
                  "env", "PROMPT_COMMAND", once, "PS1", "$ ", "pty", "cols", (json_int_t)columns,
                  "rows", (json_int_t)rows, "stdin_open", 1, "background", 1));
}

/* --- files --- */

static bool is_in_root(const char *path)
{
    size_t n = sizeof(ROOT) - 1;

    return strncmp(path, ROOT, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A worker has nothing but its directory. A link out of that leads no further than a command. */
static bool stays_in_root(struct call *call)
{
    char *path = arena_alloc(&call->arena, strlen(call->rest) + 2);

    if (path && http_decode_path(call->rest, path) && is_in_root(path))
        return true;
    call_error(call, 403, "forbidden", "only files below %s can be reached this way", ROOT);
    return false;
}

static void file_read(struct call *call)
{
    if (stays_in_root(call))
        file_get(call);
}

static void file_write(struct call *call)
{
    if (stays_in_root(call))
        file_put(call);
}

/* Relative paths with commas between; false: answered. */
static bool read_excludes(struct call *call, const char *const **ret)
{
    const char **list = arena_alloc(&call->arena, (FILES_GLOBS + 1) * sizeof(*list));
    const char *text = NULL;
    size_t count = 0;

    if (!list) {
        call_error(call, 503, "unavailable", "out of memory");
        return false;
    }
    if (!call_text(call, "excludes", &text))
        return false;
    while (text && *text && count < FILES_GLOBS) {
        size_t n = strcspn(text, ",");
        size_t skip = strncmp(text, "./", 2) == 0 ? 2 : 0;
        const char *path = n > skip ? arena_copy(&call->arena, text + skip, n - skip) : NULL;
        if (path)
            list[count++] = path;
        text += n + (text[n] == ',');
    }
    *ret = list;
    if (!text || !*text)
        return true;
    call_bad_field(call, "excludes", "at most 64 relative paths, with commas between");
    return false;
}

static void persist(struct call *call)
{
    struct files_message m = {.op = FILES_PACK, .path = ROOT, .to = FILES_MOST, .mode = FILES_MOST};

    if (read_excludes(call, &m.globs) && file_call_begin(call, &m, NULL))
        file_call_go(call, false);
}

static void hydrate(struct call *call)
{
    const struct files_message m = {
        .op = FILES_UNPACK, .path = ROOT, .to = FILES_MOST, .mode = FILES_MOST};

    if (file_call_begin(call, &m, "file.unpack"))
        file_call_go(call, true);
}

/* --- the rest --- */

static void running_get(struct call *call)
{
    /* One that sleeps wakes with the next call; one in the trash does not. */
    call_json(call, 200, json_pack("{s:b}", "running", call->workspace.deleted_ms == 0));
}

/* A client that deletes again wants to hear that there is none. */
static void sandbox_delete(struct call *call)
{
    if (call->workspace.deleted_ms)
        call_error(call, 404, "not_found", "the workspace '%s' is in the trash",
                   call->workspace.id);
    else
        workspaces_delete(call);
}

static void mount(struct call *call)
{
    call_error(call, 400, "unsupported",
               "buckets cannot be mounted; a workspace's policy says what is mounted in it");
}
