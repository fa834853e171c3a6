/* SPDX-License-Identifier: Apache-2.0 */
#include "client/exec/attach.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "client/core/text.h"

enum {
    LOST_MS = 30000,
    AGAIN_MS = 200,
    RECEIVED_MAX = 8 * 1024 * 1024, /* one line is far shorter */
    TURN_MS = 1000,
    GOODBYE_MS = 2000, /* for a daemon to take the last signals of who leaves */
    GOODBYES = 4,      /* how often a command is told that its terminal has gone */
    REMIND_MS = 500
};

int attach_open(struct attach *s, struct daemon *daemon, const char *workspace, struct err *err)
{
    *s = (struct attach){.daemon = daemon, .workspace = workspace, .input_fd = -1};
    s->signal_fd = -1;
    s->piece_fd = STDOUT_FILENO;
    buf_init(&s->received, RECEIVED_MAX);
    buf_init(&s->piece, RECEIVED_MAX);
    if (call_open(&s->output, daemon, err) < 0 || call_open(&s->input, daemon, err) < 0 ||
        call_open(&s->control, daemon, err) < 0)
        return -1;
    s->output.take = attach_take;
    s->output.context = s;
    s->output.accept = "application/x-ndjson";
    s->input.type = "application/octet-stream";
    return 0;
}

void attach_close(struct attach *s)
{
    call_close(&s->output);
    call_close(&s->input);
    call_close(&s->control);
    buf_clear(&s->received);
    buf_clear(&s->piece);
    json_decref(s->end);
    s->end = NULL;
    free(s->request);
    s->request = NULL;
    if (s->signal_fd >= 0)
        (void)close(s->signal_fd);
    s->signal_fd = -1;
}

void attach_path(const struct attach *s, struct buf *path, const char *what)
{
    buf_init(path, 16384);
    buf_str(path, "/v1/workspaces/");
    text_url(path, s->workspace);
    buf_str(path, "/exec");
    if (s->exec_id[0]) {
        buf_str(path, "/");
        text_url(path, s->exec_id);
    }
    buf_str(path, what);
}

static int start(struct call *call, const char *method, struct buf *path, struct err *err)
{
    int r = buf_done(path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                               : call_start(call, method, path->p, err);

    buf_clear(path);
    return r;
}

int attach_post(struct attach *s, json_t *request, struct err *err)
{
    char *text = json_dumps(request, JSON_COMPACT);
    struct buf path;

    json_decref(request);
    if (!text)
        return err_set(err, ERR_INVALID, 0, "the request cannot be written as JSON: is it UTF-8?");
    s->request = text;
    s->output.body = text;
    s->output.body_n = strlen(text);
    s->follow = true;
    attach_path(s, &path, "");
    return start(&s->output, "POST", &path, err);
}

int attach_attach(struct attach *s, struct err *err)
{
    char query[96];
    struct buf path;

    snprintf(query, sizeof(query), "/output?from=%llu&format=ndjson%s", (unsigned long long)s->next,
             s->follow ? "&follow=1" : "");
    s->output.body = NULL;
    s->output.body_n = 0;
    attach_path(s, &path, query);
    return start(&s->output, "GET", &path, err);
}

/* The place of the first byte that is still kept, when the one asked for is gone. */
static bool skip_what_is_gone(struct attach *s)
{
    json_t *answer = json_loadb(s->output.answer.p, s->output.answer.n, 0, NULL);
    json_int_t first = -1;
    char text[128];

    (void)json_unpack(answer, "{s:{s:{s:I}}}", "error", "details", "first", &first);
    json_decref(answer);
    if (first < 0 || (uint64_t)first <= s->next)
        return false;
    snprintf(text, sizeof(text), "%llu bytes of its output are no longer kept",
             (unsigned long long)first - s->next);
    cli_say(text);
    s->next = (uint64_t)first;
    return true;
}

/* The stream has ended without the end of the command: was it broken, or is it an answer? */
static int judge(struct attach *s, uint64_t now, struct err *err)
{
    const struct call *call = &s->output;
    bool broken = call->status / 100 == 2 || call->result != CURLE_OK || call->status == 502 ||
                  call->status == 503;

    if (call->result == CURLE_OK && call->status / 100 == 2 && !s->follow) {
        s->over = true;
        return 0;
    }
    if (call->result == CURLE_OK && call->status == 410 && skip_what_is_gone(s))
        return attach_attach(s, err);
    s->reached = s->reached || !call_was_not_sent(call);
    if (!s->exec_id[0] || !broken || !s->reached)
        return call_check(call, err) < 0 ? -1 : err_set(err, ERR_IO, 0, "the daemon sent nothing");
    s->lost_ms = s->lost_ms ? s->lost_ms : now;
    if (now - s->lost_ms > LOST_MS)
        return err_set(
            err, ERR_IO, 0,
            "the daemon has not answered for 30 s; when it runs again, see 'carrel logs -f %s "
            "%s'",
            s->workspace, s->exec_id);
    s->again_ms = now + AGAIN_MS;
    return 0;
}

/* The answer to POST broke off before its first line: the command may or may not have begun. */
static int explain_start(const struct attach *s, struct err *err)
{
    const struct call *call = &s->output;

    if (s->exec_id[0] || call->busy || call->result == CURLE_OK || call_was_not_sent(call))
        return -1;
    return err_set(err, ERR_IO, 0,
                   "the connection broke before the daemon answered, and the command may have "
                   "started; see 'carrel ps %s'",
                   s->workspace);
}

static int step_output(struct attach *s, uint64_t now, struct err *err)
{
    if (attach_pump(s, err) < 0)
        return -1;
    if (s->over || s->output.busy || attach_has_piece(s))
        return 0;
    if (s->again_ms) {
        if (now < s->again_ms)
            return 0;
        s->again_ms = 0;
        return attach_attach(s, err);
    }
    s->received.n = 0; /* half a line: it comes again, whole */
    s->read_at = 0;
    if (judge(s, now, err) < 0)
        return explain_start(s, err);
    return 0;
}

static int wait_ms(const struct attach *s, uint64_t now)
{
    uint64_t due = s->again_ms && (!s->input_again_ms || s->again_ms < s->input_again_ms)
                       ? s->again_ms
                       : s->input_again_ms;

    if (!due || due > now + TURN_MS)
        return TURN_MS;
    return due > now ? (int)(due - now) : 0;
}

/* What to wait for besides the calls; the order is that of `step`. */
static int turn(struct attach *s, struct err *err)
{
    struct pollfd fds[3];
    size_t count = 0;
    size_t signal_at = 3;
    size_t input_at = 3;

    if (s->signal_fd >= 0) {
        signal_at = count;
        fds[count++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    }
    if (attach_wants_input(s)) {
        input_at = count;
        fds[count++] = (struct pollfd){.fd = s->input_fd, .events = POLLIN};
    }
    if (attach_has_piece(s))
        fds[count++] = (struct pollfd){.fd = s->piece_fd, .events = POLLOUT};
    if (daemon_turn(s->daemon, fds, count, wait_ms(s, now_ms()), err) < 0)
        return -1;
    if (signal_at < 3 && fds[signal_at].revents)
        attach_take_signals(s);
    if (input_at < 3 && fds[input_at].revents)
        return attach_read_input(s, err);
    return 0;
}

/* Somebody who leaves a terminal takes it with them: the command is told, as soon as it is known
 * what it is called, and again until it ends. Once is not enough: a shell that is about to read a
 * key has looked for signals already, and sees this one only when another wakes it. A daemon that
 * is slow to start the command, or to take what it is told, is waited for. */
static void say_goodbye(struct attach *s)
{
    uint64_t until = now_ms() + (s->terminal ? LOST_MS : GOODBYE_MS);
    uint64_t again_ms = 0;
    int told = 1;
    struct err unheard;

    s->closed[STDOUT_FILENO] = s->closed[STDERR_FILENO] = true; /* nobody looks */
    while (!s->over && now_ms() < until) {
        bool is_told = !s->control.busy && s->signal_count == 0;
        if (is_told && (!s->terminal || !s->output.busy))
            break;
        if (!is_told || !again_ms) {
            again_ms = now_ms() + REMIND_MS;
        } else if (now_ms() >= again_ms) {
            if (told++ == GOODBYES)
                break;
            attach_queue_signal(s, SIGHUP);
        }
        if (attach_send_control(s, &unheard) < 0 ||
            daemon_turn(s->daemon, NULL, 0, 50, &unheard) < 0 || attach_pump(s, &unheard) < 0)
            break;
    }
}

int attach_run(struct attach *s, struct err *err)
{
    int r = 0;

    while (r == 0 && !s->over && !s->left) {
        r = turn(s, err);
        if (r == 0)
            r = step_output(s, now_ms(), err);
        if (r == 0)
            r = attach_send(s, now_ms(), err);
    }
    if (s->left)
        say_goodbye(s);
    return r;
}
