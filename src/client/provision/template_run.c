/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/template_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/lines.h"
#include "client/core/text.h"
#include "client/provision/template_remedy.h"
#include "json/encode.h"

enum {
    TURN_MS = 1000,
    TIMEOUT_MS = 3600 * 1000, /* of one command */
    LINE_MOST = 64 * 1024,
    TAIL = 32 * 1024,
};

/* --- what is told --- */

int build_open(struct build *b, struct err *err)
{
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;

    buf_init(&b->line, LINE_MOST);
    buf_init(&b->tail, 4UL * TAIL);
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        sigaddset(&set, taken[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    b->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return b->signal_fd < 0 ? err_set(err, ERR_IO, errno, "signalfd") : 0;
}

void build_close(struct build *b)
{
    buf_clear(&b->line);
    buf_clear(&b->tail);
    if (b->signal_fd >= 0)
        (void)close(b->signal_fd);
    b->signal_fd = -1;
    (void)files_end(&b->f, 0);
}

void build_tell(const struct build *b, json_t *event)
{
    if (b->json)
        (void)client_print(event); /* who does not listen is told by the exit status */
    else
        json_decref(event);
}

void build_say(const struct build *b, const char *message)
{
    if (b->json)
        build_tell(b, json_pack("{s:s, s:s}", "type", "note", "message", message));
    else if (!b->quiet)
        cli_say(message);
}

void build_begin(struct build *b, const char *step, unsigned number, unsigned of)
{
    char line[128];

    b->step = step;
    b->tail.n = 0;
    if (b->json) {
        build_tell(b, json_pack("{s:s, s:s, s:i, s:i}", "type", "step", "step", step, "number",
                                (int)number, "of", (int)of));
    } else if (!b->quiet) {
        snprintf(line, sizeof(line), "%u/%u %s", number, of, step);
        cli_say(line);
    }
}

/* A whole line of a tool's, for a person: whatever it holds, it does not drive the terminal. */
static void show_line(const char *bytes, size_t n)
{
    scoped_buf struct buf text = {0};

    buf_init(&text, 8UL * LINE_MOST);
    buf_str(&text, "  ");
    text_escape(&text, bytes, n);
    buf_str(&text, "\n");
    if (buf_done(&text) == 0)
        ignore(write(STDERR_FILENO, text.p, text.n) > 0); /* nobody reads it, then */
}

static void show_lines(struct build *b, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *newline = memchr(bytes, '\n', n);
        size_t part = newline ? (size_t)(newline - bytes) : n;
        buf_add(&b->line, bytes, part);
        if (newline || b->line.failed) {
            show_line(b->line.p, b->line.n);
            b->line.n = 0;
            b->line.failed = false;
        }
        part += newline != NULL;
        bytes += part;
        n -= part;
    }
}

static void take_output(struct build *b, const char *bytes, size_t n)
{
    if (b->tail.n + n > 2UL * TAIL) {
        size_t keep = b->tail.n < TAIL ? b->tail.n : TAIL;
        if (keep > 0)
            memmove(b->tail.p, b->tail.p + b->tail.n - keep, keep);
        b->tail.n = keep;
    }
    buf_add(&b->tail, n > TAIL ? bytes + n - TAIL : bytes, n > TAIL ? TAIL : n);
    if (b->json) {
        json_t *event = json_pack("{s:s, s:s}", "type", "output", "step", b->step ? b->step : "");
        encode_bytes(event, "data", bytes, n);
        build_tell(b, event);
    } else if (!b->quiet) {
        show_lines(b, bytes, n);
    }
}

/* --- requests --- */

int build_stopped(struct build *b, struct err *err)
{
    struct signalfd_siginfo info;

    if (!b->stopped_by && read(b->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        b->stopped_by = (int)info.ssi_signo;
    return b->stopped_by ? err_set(err, ERR_CONFLICT, 0, "stopped") : 0;
}

/* As call_wait, but a signal ends it. */
static int follow(struct build *b, struct call *call, const char *method, struct buf *path,
                  struct err *err)
{
    int r = buf_done(path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long") : 0;

    if (r == 0)
        r = build_stopped(b, err);
    if (r == 0)
        r = call_start(call, method, path->p, err);
    buf_clear(path);
    while (r == 0 && call->busy) {
        struct pollfd signals = {.fd = b->signal_fd, .events = POLLIN};
        r = daemon_turn(&b->f.daemon, &signals, 1, TURN_MS, err);
        if (r == 0 && call->busy)
            r = build_stopped(b, err);
    }
    return r < 0 ? -1 : call_check(call, err);
}

int build_ask(struct build *b, const char *method, const char *what, json_t *body, json_t **ret,
              struct err *err)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct call call;
    struct buf path;

    json_decref(body);
    client_workspace_path(&path, b->workspace, what);
    int r = call_open(&call, &b->f.daemon, err);
    call.body = text;
    call.body_n = text ? strlen(text) : 0;
    if (r == 0)
        r = follow(b, &call, method, &path, err);
    else
        buf_clear(&path);
    if (r == 0 && ret) {
        *ret = json_loadb(call.answer.p, call.answer.n, JSON_ALLOW_NUL, NULL);
        r = *ret ? 0 : err_set(err, ERR_IO, 0, "the daemon's answer is not JSON");
    }
    call_close(&call);
    free(text);
    return r;
}

long build_look(struct build *b, const char *path, json_t **ret)
{
    struct err unheard = {0};
    struct call call;
    long status = 0;

    *ret = NULL;
    if (call_open(&call, &b->f.daemon, &unheard) == 0) {
        (void)call_wait(&call, "GET", path, &unheard);
        status = call.result == CURLE_OK ? call.status : 0;
    }
    if (status == 200)
        *ret = json_loadb(call.answer.p, call.answer.n, 0, NULL);
    call_close(&call);
    return *ret || status == 404 ? status : 0;
}

/* On a connection of its own: if one breaks that was used before, libcurl asks again by itself, and
 * is told of a conflict with what it has asked for. */
int build_post(struct build *b, const char *path, const char *text, json_t **ret, struct err *err)
{
    struct call call;

    if (call_open(&call, &b->f.daemon, err) < 0)
        return -1;
    curl_easy_setopt(call.easy, CURLOPT_FRESH_CONNECT, 1L);
    call.body = text;
    call.body_n = strlen(text);
    int r = call_wait(&call, "POST", path, err);
    bool heard = call.result == CURLE_OK && call.status != 0;
    if (r == 0)
        *ret = json_loadb(call.answer.p, call.answer.n, 0, NULL);
    if (r == 0 ? !*ret : !heard && !call_was_not_sent(&call))
        r = 1;
    call_close(&call);
    return r;
}

/* --- commands --- */

struct running {
    struct build *b;
    struct buf *output;
    json_t *end;
};

static int take_event(void *context, char *line)
{
    struct running *running = context;
    json_t *event = json_loads(line, JSON_ALLOW_NUL, NULL);
    const char *type = client_text(event, "type");
    scoped_buf struct buf bytes = {0};

    buf_init(&bytes, CALL_MOST_ANSWER);
    if (type && strcmp(type, "end") == 0 && !running->end) {
        running->end = json_incref(event);
    } else if (type && (strcmp(type, "stdout") == 0 || strcmp(type, "stderr") == 0)) {
        bool some = files_bytes(event, "data", &bytes) && bytes.n > 0;
        if (some && running->output && strcmp(type, "stdout") == 0)
            buf_add(running->output, bytes.p, bytes.n);
        else if (some)
            take_output(running->b, bytes.p, bytes.n);
    }
    json_decref(event);
    return 0;
}

/* PATH has neither /.venv/bin nor /node_modules/.bin: a package could have put a `bun` there. */
static json_t *request_of(const struct build_command *command)
{
    json_t *argv = json_array();
    json_t *env = json_pack("{s:s, s:s, s:s}", "NO_COLOR", "1", "UV_COMPILE_BYTECODE", "0", "PATH",
                            "/opt/carrel/bin:/usr/local/bin:/usr/bin:/bin");
    json_t *request = json_pack("{s:o, s:s, s:i, s:o}", "argv", argv, "stream", "ndjson",
                                "timeout_ms", TIMEOUT_MS, "env", env);

    for (size_t i = 0; command->argv[i]; i++)
        json_array_append_new(argv, json_string(command->argv[i]));
    if (command->input)
        encode_bytes(request, "stdin", command->input, strlen(command->input));
    return request;
}

static int start_and_follow(struct build *b, const struct build_command *command,
                            struct running *running, struct err *err)
{
    json_t *request = request_of(command);
    char *text = json_dumps(request, JSON_COMPACT);
    struct lines lines;
    struct call call;
    struct buf path;

    json_decref(request);
    if (!text)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    client_workspace_path(&path, b->workspace, "/exec");
    lines_open(&lines, take_event, running);
    int r = call_open(&call, &b->f.daemon, err);
    call.take = lines_take;
    call.context = &lines;
    call.accept = "application/x-ndjson";
    call.body = text;
    call.body_n = strlen(text);
    if (r == 0)
        r = follow(b, &call, "POST", &path, err);
    else
        buf_clear(&path);
    call_close(&call);
    lines_close(&lines);
    free(text);
    return r;
}

/* What a person has not seen yet. */
static void show_tail(struct build *b)
{
    if (b->json)
        return;
    if (b->quiet)
        show_lines(b, b->tail.p, b->tail.n);
    if (b->line.n > 0)
        show_line(b->line.p, b->line.n);
    b->line.n = 0;
}

static int explain(struct build *b, const char *tool, const json_t *end, struct err *err)
{
    const char *reason = client_text(end, "reason");
    const char *note = client_text(end, "note");
    int code = (int)json_integer_value(json_object_get(end, "exit_code"));

    show_tail(b);
    buf_add(&b->tail, "", 1); /* ends it */
    const char *remedy = b->tail.failed ? NULL : template_remedy(b->tail.p, code);
    if (remedy)
        return err_set(err, ERR_INVALID, 0, "%s", remedy);
    if (note && *note)
        return err_set(err, ERR_LIMIT, 0, "%s: %.280s", tool, note);
    if (reason && strcmp(reason, "exit") != 0)
        return err_set(err, ERR_LIMIT, 0,
                       "%s was ended (%.40s): raise that limit of the daemon, and build again",
                       tool, reason);
    return err_set(err, ERR_INVALID, 0, "%s failed with status %d; what it said is above", tool,
                   code);
}

int build_run(struct build *b, const struct build_command *command, struct err *err)
{
    struct running running = {.b = b, .output = command->output};
    json_t *code;
    int r = start_and_follow(b, command, &running, err);

    if (r == 0 && !running.end)
        r = err_set(err, ERR_IO, 0, "the daemon went away while it was built; build again");
    code = json_object_get(running.end, "exit_code");
    if (r == 0 && !(json_is_integer(code) && json_integer_value(code) == 0))
        r = explain(b, command->argv[0], running.end, err);
    if (r == 0 && command->output && buf_done(command->output) < 0)
        r = err_set(err, ERR_LIMIT, 0, "%s has said too much", command->argv[0]);
    if (r == 0 && b->line.n > 0)
        show_tail(b);
    json_decref(running.end);
    return r;
}

/* --- files --- */

static int place_of(const struct build *b, const char *path, struct place *ret, struct err *err)
{
    *ret = (struct place){0};
    if (strlen(path) >= sizeof(ret->path))
        return err_set(err, ERR_INVALID, 0, "'%.80s...' is too long", path);
    snprintf(ret->workspace, sizeof(ret->workspace), "%s", b->workspace);
    snprintf(ret->path, sizeof(ret->path), "%s", path);
    return 0;
}

struct source {
    const char *text;
    size_t left;
    int fd;
    int os_errno;
};

static ssize_t give(void *context, char *bytes, size_t size)
{
    struct source *s = context;
    ssize_t n;

    if (s->fd < 0) {
        size_t part = s->left < size ? s->left : size;
        memcpy(bytes, s->text, part);
        s->text += part;
        s->left -= part;
        return (ssize_t)part;
    }
    do {
        n = read(s->fd, bytes, size);
    } while (n < 0 && errno == EINTR);
    s->os_errno = n < 0 ? errno : 0;
    return n;
}

static int push(struct build *b, const char *path, struct source *s, uint64_t mode, struct err *err)
{
    struct files_message m = {.op = FILES_WRITE, .mode = mode};
    json_t *answer = NULL;
    struct place place;

    if (build_stopped(b, err) < 0 || place_of(b, path, &place, err) < 0)
        return -1;
    int r = files_push(&b->f, &place, &m, &(struct files_source){give, s}, &answer, err);
    json_decref(answer);
    return r;
}

int build_put(struct build *b, const char *path, const char *text, struct err *err)
{
    struct source s = {.text = text, .left = strlen(text), .fd = -1};

    return push(b, path, &s, FILES_MOST, err);
}

int build_put_file(struct build *b, const char *path, const char *from, struct err *err)
{
    scoped_fd int fd = open(from, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct source s = {.fd = fd};
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "'%.200s' cannot be read", from);
    int r = push(b, path, &s, st.st_mode & 0777, err);
    return s.os_errno ? err_set(err, ERR_IO, s.os_errno, "'%.200s' cannot be read", from) : r;
}

static size_t collect(void *context, const char *bytes, size_t n)
{
    struct buf *ret = context;

    buf_add(ret, bytes, n);
    return ret->failed ? 0 : n;
}

int build_get(struct build *b, const char *path, struct buf *ret, struct err *err)
{
    struct files_message m = {.op = FILES_READ, .to = FILES_MOST};
    struct place place;

    if (build_stopped(b, err) < 0 || place_of(b, path, &place, err) < 0)
        return -1;
    if (files_pull(&b->f, &place, &m, collect, ret, err) < 0)
        return -1;
    return buf_done(ret) < 0 ? err_set(err, ERR_LIMIT, 0, "'%.80s' is too large", path) : 0;
}
