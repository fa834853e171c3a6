/* SPDX-License-Identifier: Apache-2.0 */
/* carrel mcp: what a client of the Model Context Protocol says on standard input goes to the
 * daemon's /mcp, line by line, and what comes back goes to standard output, as it comes. Nothing is
 * answered here but what the daemon cannot be asked. What HTTP wants in heads is read off the
 * message; the session of the older protocol is kept here, and begun anew where the daemon has
 * forgotten it.
 *
 *   line --(waits while `initialize` is under way)--> request --> lines of the answer --> gone
 *     \--404, the session is forgotten: initialize again, then the same once more--/            */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"

enum {
    LINE_MOST = 64 << 20,
    ANSWER_MOST = 96 << 20,
    AT_ONCE = 64,     /* requests; more wait for one of them to end */
    MOST_WAIT = 1024, /* more yet wait in the pipe */
    READ = 65536,
    LAST_MS = 1000, /* for answers that are under way when the client has ended */
    HEADER = 4096,
};

#define META "io.modelcontextprotocol/"

struct bridge {
    struct daemon daemon;
    struct buf path;
    struct buf in; /* of standard input, up to a line's end */
    struct request *requests;
    struct request *waiting; /* not begun: the session is being opened, or there are many */
    size_t count;
    size_t waits;
    json_t *opening;   /* the client's `initialize`, as it was */
    char session[128]; /* the header line; "": none */
    char version[64];  /* likewise */
    bool opens;        /* `initialize` is under way */
    bool broken;       /* nobody reads what we write */
};

struct request {
    struct request *next;
    struct bridge *bridge;
    struct call call;
    json_t *message;
    char *text; /* of it */
    struct buf line;
    bool events;   /* the answer is a stream of them */
    bool again;    /* it was asked before, of a daemon that knew no such session */
    bool is_quiet; /* it opens a session in the client's place, which knows nothing of it */
    char session[128];
    char method[HEADER];
    char name[HEADER];
    char version[HEADER];
};

/* --- standard output --- */

static void put(struct bridge *b, const char *bytes, size_t n)
{
    while (n > 0 && !b->broken) {
        ssize_t one = write(STDOUT_FILENO, bytes, n);
        if (one < 0 && errno == EINTR)
            continue;
        if (one <= 0)
            b->broken = true;
        else {
            bytes += one;
            n -= (size_t)one;
        }
    }
}

static void put_line(struct bridge *b, const char *bytes, size_t n)
{
    put(b, bytes, n);
    put(b, "\n", 1);
}

static void put_error(struct bridge *b, json_t *id, int code, const char *why)
{
    json_t *text = json_string(why);
    json_t *message =
        json_pack("{s:s, s:O, s:{s:i, s:o}}", "jsonrpc", "2.0", "id", id ? id : json_null(),
                  "error", "code", code, "message", text ? text : json_string("(not readable)"));
    char *line = json_dumps(message, JSON_COMPACT);

    if (line)
        put_line(b, line, strlen(line));
    free(line);
    json_decref(message);
}

/* --- one request --- */

static void drop(struct request *r)
{
    call_close(&r->call);
    json_decref(r->message);
    free(r->text);
    buf_clear(&r->line);
    free(r);
}

static json_t *member(const struct request *r, const char *name)
{
    return json_object_get(r->message, name);
}

static const char *method_of(const struct request *r)
{
    const char *method = json_string_value(member(r, "method"));

    return method ? method : "";
}

/* Whether this line of the head is of that name; its value without its end. */
static bool is_header(const char *line, size_t n, const char *name, char *value, size_t size)
{
    size_t skip = strlen(name);

    if (n <= skip || strncasecmp(line, name, skip) != 0)
        return false;
    while (skip < n && line[skip] == ' ')
        skip++;
    while (n > skip && (line[n - 1] == '\n' || line[n - 1] == '\r'))
        n--;
    snprintf(value, size, "%.*s", (int)(n - skip), line + skip);
    return true;
}

static void take_head(void *context, const char *line, size_t n)
{
    struct request *r = context;
    char value[128];

    if (is_header(line, n, "content-type:", value, sizeof(value)))
        r->events = strncmp(value, "text/event-stream", 17) == 0;
    else if (is_header(line, n, "mcp-session-id:", value, sizeof(value)))
        snprintf(r->session, sizeof(r->session), "Mcp-Session-Id: %.100s", value);
}

static void take_event_line(struct request *r)
{
    static const char data[] = "data: ";
    size_t n = r->line.n;

    while (n > 0 && r->line.p[n - 1] == '\r')
        n--;
    if (n > sizeof(data) - 1 && strncmp(r->line.p, data, sizeof(data) - 1) == 0 && !r->is_quiet)
        put_line(r->bridge, r->line.p + sizeof(data) - 1, n - (sizeof(data) - 1));
    buf_clear(&r->line);
    buf_init(&r->line, ANSWER_MOST);
}

static size_t take(void *context, const char *bytes, size_t n)
{
    struct request *r = context;

    for (size_t at = 0; at < n;) {
        const char *end = r->events ? memchr(bytes + at, '\n', n - at) : NULL;
        size_t one = end ? (size_t)(end - bytes) - at : n - at;
        buf_add(&r->line, bytes + at, one);
        at += one;
        if (r->line.failed)
            return 0;
        if (end) {
            take_event_line(r);
            at++;
        }
    }
    return n;
}

/* --- its head --- */

/* What is no plain text in a header goes there in base64. */
static void put_header(char *ret, const char *name, const char *value)
{
    size_t n = strlen(value);
    bool plain =
        n > 0 && value[0] != ' ' && value[n - 1] != ' ' && strncmp(value, "=?base64?", 9) != 0;
    struct buf b;

    for (const char *p = value; *p; p++)
        plain = plain && (unsigned char)*p >= ' ' && (unsigned char)*p <= '~';
    buf_init(&b, HEADER);
    buf_printf(&b, "%s: ", name);
    if (plain) {
        buf_add(&b, value, n);
    } else {
        buf_str(&b, "=?base64?");
        bytes_add_base64(&b, value, n);
        buf_str(&b, "?=");
    }
    snprintf(ret, HEADER, "%s", buf_done(&b) == 0 ? b.p : name);
    buf_clear(&b);
}

static void set_modern(struct request *r, const char *version)
{
    const json_t *params = member(r, "params");
    const char *method = method_of(r);
    const char *name = strcmp(method, "tools/call") == 0 || strcmp(method, "prompts/get") == 0
                           ? json_string_value(json_object_get(params, "name"))
                       : strcmp(method, "resources/read") == 0
                           ? json_string_value(json_object_get(params, "uri"))
                           : NULL;

    put_header(r->version, "MCP-Protocol-Version", version);
    put_header(r->method, "Mcp-Method", method);
    if (name)
        put_header(r->name, "Mcp-Name", name);
    r->call.lines[0] = r->version;
    r->call.lines[1] = r->method;
    r->call.lines[2] = name ? r->name : NULL;
}

static const char *modern_version(const struct request *r)
{
    const json_t *meta = json_object_get(member(r, "params"), "_meta");

    return json_string_value(json_object_get(meta, META "protocolVersion"));
}

static bool is_opening(const struct request *r)
{
    return !modern_version(r) && strcmp(method_of(r), "initialize") == 0;
}

static void set_lines(struct request *r)
{
    struct bridge *b = r->bridge;
    const char *version = modern_version(r);

    r->call.lines[0] = NULL;
    if (version) {
        set_modern(r, version);
    } else if (!is_opening(r) && *b->session) {
        r->call.lines[0] = b->session;
        r->call.lines[1] = *b->version ? b->version : NULL;
        r->call.lines[2] = NULL;
    }
}

/* --- from its begin to its end --- */

static void fail(struct request *r, const struct err *err)
{
    char text[512];

    if (r->is_quiet)
        return;
    if (member(r, "id"))
        put_error(r->bridge, member(r, "id"), -32603, err_text(err, text, sizeof(text)));
    else
        fprintf(stderr, "carrel mcp: %s\n", err_text(err, text, sizeof(text)));
}

static void begin(struct request *r)
{
    struct bridge *b = r->bridge;
    struct err err = {0};

    if (is_opening(r)) {
        b->opens = true;
        *b->session = *b->version = '\0';
        if (!r->is_quiet) {
            json_decref(b->opening);
            b->opening = json_incref(r->message);
        }
    }
    set_lines(r);
    r->call.take = take;
    r->call.head = take_head;
    r->call.context = r;
    r->call.accept = "application/json, text/event-stream";
    r->call.body = r->text;
    r->call.body_n = strlen(r->text);
    r->next = b->requests;
    b->requests = r;
    b->count++;
    if (call_start(&r->call, "POST", b->path.p, &err) < 0)
        fail(r, &err); /* it is not busy, and so taken away */
}

/* NULL: out of memory. Takes the message. */
static struct request *make(struct bridge *b, json_t *message)
{
    struct request *r = calloc(1, sizeof(*r));
    struct err err;

    if (!r) {
        json_decref(message);
        return NULL;
    }
    r->bridge = b;
    r->message = message;
    r->text = json_dumps(message, JSON_COMPACT);
    buf_init(&r->line, ANSWER_MOST);
    if (r->text && call_open(&r->call, &b->daemon, &err) == 0)
        return r;
    drop(r);
    return NULL;
}

static void wait_for_turn(struct request *r)
{
    struct request **at = &r->bridge->waiting;

    r->bridge->waits++;
    while (*at)
        at = &(*at)->next;
    r->next = NULL;
    *at = r;
}

/* The daemon has begun anew, and knows nothing of the session: so do we. Likewise where opening one
 * anew has failed, and nobody has one. */
static bool opens_again(struct request *r)
{
    struct bridge *b = r->bridge;
    bool has_none = r->call.status == 404 || (r->call.status == 400 && !r->call.lines[0]);

    if (!has_none || r->again || modern_version(r) || is_opening(r) || !b->opening)
        return false;
    struct request *same = make(b, json_incref(r->message));
    if (!same)
        return false;
    same->again = true;
    wait_for_turn(same);
    if (b->opens)
        return true;
    struct request *open = make(b, json_incref(b->opening));
    if (!open)
        return true;
    open->is_quiet = true;
    begin(open);
    return true;
}

/* An `initialize` has its answer. */
static void opened(struct request *r)
{
    struct bridge *b = r->bridge;
    json_t *answer = r->line.n ? json_loadb(r->line.p, r->line.n, 0, NULL) : NULL;
    const char *version =
        json_string_value(json_object_get(json_object_get(answer, "result"), "protocolVersion"));

    b->opens = false;
    snprintf(b->session, sizeof(b->session), "%s", r->session);
    if (version)
        snprintf(b->version, sizeof(b->version), "MCP-Protocol-Version: %.30s", version);
    json_decref(answer);
}

/* What the daemon could not read as a message it answers without its id; the client waits for it.
 */
static void put_refusal(struct request *r, json_t *answer)
{
    if (json_is_null(json_object_get(answer, "id")))
        json_object_set(answer, "id", member(r, "id"));
    char *line = json_dumps(answer, JSON_COMPACT);
    if (line)
        put_line(r->bridge, line, strlen(line));
    free(line);
}

static void finish(struct request *r)
{
    struct err err = {0};

    if (is_opening(r))
        opened(r);
    if (opens_again(r))
        return;
    if (r->call.status >= 200 && r->call.status < 300 && r->call.result == CURLE_OK) {
        if (!r->events && r->line.n > 0 && !r->is_quiet)
            put_line(r->bridge, r->line.p, r->line.n);
        return;
    }
    json_t *answer =
        r->call.answer.n ? json_loadb(r->call.answer.p, r->call.answer.n, 0, NULL) : NULL;
    if (json_object_get(answer, "jsonrpc") && member(r, "id") && !r->is_quiet)
        put_refusal(r, answer);
    else if (call_check(&r->call, &err) < 0)
        fail(r, &err);
    json_decref(answer);
}

/* Those that have ended. */
static void sweep(struct bridge *b)
{
    for (struct request **at = &b->requests; *at;) {
        struct request *r = *at;
        if (r->call.busy) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        b->count--;
        if (r->call.status || r->call.result != CURLE_OK)
            finish(r);
        drop(r);
        at = &b->requests; /* others may have begun */
    }
    while (!b->opens && b->waiting && b->count < AT_ONCE) {
        struct request *r = b->waiting;
        b->waiting = r->next;
        b->waits--;
        begin(r);
    }
}

/* --- standard input --- */

/* In the newer protocol a request is cancelled by leaving. One that has not begun never does. */
static void cancel(struct bridge *b, const json_t *id)
{
    for (struct request **at = &b->waiting; *at; at = &(*at)->next) {
        struct request *r = *at;
        if (!json_equal(member(r, "id"), id))
            continue;
        *at = r->next;
        b->waits--;
        drop(r);
        return;
    }
    for (struct request **at = &b->requests; *at; at = &(*at)->next) {
        struct request *r = *at;
        if (!modern_version(r) || !json_equal(member(r, "id"), id))
            continue;
        *at = r->next;
        b->count--;
        drop(r);
        return;
    }
}

static void take_message(struct bridge *b, const char *line, size_t n)
{
    json_error_t error;
    json_t *message = json_loadb(line, n, JSON_ALLOW_NUL, &error);
    char why[256];

    if (!json_is_object(message)) {
        snprintf(why, sizeof(why), "each line must be one JSON object: %s",
                 message ? "this is none" : error.text);
        json_decref(message);
        put_error(b, NULL, message ? -32600 : -32700, why);
        return;
    }
    const char *method = json_string_value(json_object_get(message, "method"));
    if (method && strcmp(method, "notifications/cancelled") == 0)
        cancel(b, json_object_get(json_object_get(message, "params"), "requestId"));
    struct request *r = make(b, message);
    if (!r) {
        put_error(b, NULL, -32603, "out of memory");
        return;
    }
    if (!r->call.lines[0] && !json_object_get(message, "id") && !b->opening)
        drop(r); /* a notification of the newer protocol: there is nobody to tell */
    else if ((b->opens && !modern_version(r)) ||
             (b->count >= AT_ONCE && json_object_get(r->message, "id")))
        wait_for_turn(r);
    else
        begin(r);
}

/* False: the client has ended. */
static bool read_input(struct bridge *b)
{
    char *room = buf_room(&b->in, READ);
    ssize_t n = room ? read(STDIN_FILENO, room, READ) : -1;

    if (n < 0 && room && (errno == EINTR || errno == EAGAIN))
        return true;
    if (!room)
        put_error(b, NULL, -32600, "a line is longer than 64 MiB");
    if (n <= 0)
        return false;
    b->in.n += (size_t)n;
    size_t at = 0;
    for (char *end; (end = memchr(b->in.p + at, '\n', b->in.n - at));) {
        size_t one = (size_t)(end - b->in.p) - at;
        if (one > 0 && strspn(b->in.p + at, " \t\r") < one)
            take_message(b, b->in.p + at, one);
        at += one + 1;
        if (at == b->in.n)
            break;
    }
    memmove(b->in.p, b->in.p + at, b->in.n - at);
    b->in.n -= at;
    return true;
}

static int serve(struct bridge *b, struct err *err)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    uint64_t until = 0;

    while (!b->broken && (!until || ((b->requests || b->waiting) && now_ms() < until))) {
        bool reads = !until && b->waits < MOST_WAIT;
        input.revents = 0;
        if (daemon_turn(&b->daemon, &input, reads, until ? 50 : 1000, err) < 0)
            return -1;
        sweep(b);
        if (reads && input.revents && !read_input(b))
            until = now_ms() + LAST_MS;
        sweep(b);
    }
    return 0;
}

static void leave(struct bridge *b)
{
    struct call call;
    struct err err;

    while (b->requests || b->waiting) {
        struct request **list = b->requests ? &b->requests : &b->waiting;
        struct request *r = *list;
        *list = r->next;
        drop(r);
    }
    if (*b->session && call_open(&call, &b->daemon, &err) == 0) {
        call.lines[0] = b->session;
        ignore(call_wait(&call, "DELETE", b->path.p, &err)); /* it would be forgotten anyway */
        call_close(&call);
    }
    json_decref(b->opening);
    buf_clear(&b->in);
    buf_clear(&b->path);
    daemon_close(&b->daemon);
}

static const char help[] =
    "usage: carrel mcp [--workspace WORKSPACE]\n"
    "\n"
    "Speaks the Model Context Protocol on standard input and output, for clients that start\n"
    "their servers themselves. Each line is a message; it goes to /mcp of the daemon with the\n"
    "key in CARREL_KEY. Ends when standard input ends.\n"
    "\n" HELP_OPTIONS "\n"
    "example: claude mcp add desk -- carrel mcp --workspace desk\n";

int client_mcp(char **argv)
{
    const char *workspace = NULL;
    struct args_common common = {.verb = "mcp"};
    const struct args_rule options[] = {
        {"--workspace", "WORKSPACE", "let all tools work in this workspace, and in no other",
         ARGS_TEXT, &workspace},
        {"--json", NULL, "", ARGS_FLAG, &common.json},
        {0},
    };
    const char *words[1] = {NULL};
    struct bridge b = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, options, &common, words, 0);
    if (status >= 0)
        return status;
    if (daemon_open(&b.daemon, common.state, &err) < 0)
        return client_fail(&err);
    (void)signal(SIGPIPE, SIG_IGN); /* told by the failing write */
    buf_init(&b.in, LINE_MOST);
    buf_init(&b.path, HEADER);
    buf_str(&b.path, "/mcp");
    if (workspace) {
        buf_str(&b.path, "?workspace=");
        text_url(&b.path, workspace);
    }
    if (buf_done(&b.path) < 0)
        return cli_fail("the name of the workspace is too long");
    int r = serve(&b, &err);
    leave(&b);
    return r < 0 ? client_fail(&err) : 0;
}
