/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cli/cli.h"
#include "client/core/lines.h"
#include "client/core/text.h"
#include "client/exec/attach.h"

enum {
    ENOUGH = 256 * 1024 /* waiting to be read; beyond that the daemon waits */
};

bool attach_has_piece(const struct attach *s)
{
    return s->piece_at < s->piece.n;
}

size_t attach_take(void *attach, const char *bytes, size_t n)
{
    struct attach *s = attach;

    if (attach_has_piece(s) && s->received.n - s->read_at > ENOUGH) {
        s->paused = true;
        return CALL_PAUSE;
    }
    if (s->read_at > 0) {
        memmove(s->received.p, s->received.p + s->read_at, s->received.n - s->read_at);
        s->received.n -= s->read_at;
        s->read_at = 0;
    }
    buf_add(&s->received, bytes, n);
    s->lost_ms = 0;
    s->reached = true;
    return s->received.failed ? 0 : n;
}

/* Writes only what a pipe takes without making us wait: signals must not wait for a reader. */
static int write_piece(struct attach *s, struct err *err)
{
    while (attach_has_piece(s)) {
        struct pollfd ready = {.fd = s->piece_fd, .events = POLLOUT};
        size_t n = s->piece.n - s->piece_at;
        if (s->closed[s->piece_fd]) {
            s->piece_at = s->piece.n;
            break;
        }
        if (poll(&ready, 1, 0) < 1)
            return 0;
        ssize_t wrote = write(s->piece_fd, s->piece.p + s->piece_at, n < PIPE_BUF ? n : PIPE_BUF);
        if (wrote > 0)
            s->piece_at += (size_t)wrote;
        else if (wrote < 0 && errno == EPIPE) {
            s->closed[s->piece_fd] = true;
            attach_queue_signal(s, SIGPIPE); /* as if it had written there itself */
            s->over = s->over || !s->takes_signals;
        } else if (wrote < 0 && errno != EINTR && errno != EAGAIN)
            return err_set(err, ERR_IO, errno, "standard %s cannot be written",
                           s->piece_fd == STDERR_FILENO ? "error" : "output");
    }
    return 0;
}

/* Keeps what is new of it. */
static int take_piece(struct attach *s, const json_t *line, int fd, struct err *err)
{
    json_t *text = json_object_get(line, "data");
    json_t *encoded = json_object_get(line, "data_b64");
    uint64_t offset = (uint64_t)json_integer_value(json_object_get(line, "offset"));
    char note[96];

    s->piece.n = 0;
    s->piece_at = 0;
    s->piece_fd = fd;
    if (text)
        buf_add(&s->piece, json_string_value(text), json_string_length(text));
    else if (bytes_add_decoded(&s->piece, json_string_value(encoded), json_string_length(encoded)) <
             0)
        return err_set(err, ERR_IO, 0, "the daemon sent output that is not base64");
    if (buf_done(&s->piece) < 0)
        return err_set(err, ERR_LIMIT, 0, "out of memory for the output");
    if (offset > s->next) {
        snprintf(note, sizeof(note), "%llu bytes of output are missing here",
                 (unsigned long long)(offset - s->next));
        cli_say(note);
        s->next = offset;
    }
    uint64_t had = s->next - offset;
    s->piece_at = had < s->piece.n ? (size_t)had : s->piece.n;
    if (offset + s->piece.n > s->next)
        s->next = offset + s->piece.n;
    return 0;
}

void attach_say_plan(const char *workspace, const char *plan)
{
    char text[320];

    if (!plan)
        return;
    snprintf(text, sizeof(text),
             "what it writes goes into plan %.64s; when all is done: carrel plan close %.64s %.64s",
             plan, workspace, plan);
    cli_say(text);
}

static int take_line(struct attach *s, const char *bytes, size_t n, struct err *err)
{
    json_t *line = json_loadb(bytes, n, JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    const char *id = json_string_value(json_object_get(line, "exec_id"));
    int r = 0;

    if (!type) {
        json_decref(line);
        return err_set(err, ERR_IO, 0, "the daemon sent a line that cannot be read");
    }
    if (id && !s->exec_id[0])
        snprintf(s->exec_id, sizeof(s->exec_id), "%s", id);
    if (strcmp(type, "stdout") == 0 || strcmp(type, "pty") == 0)
        r = take_piece(s, line, STDOUT_FILENO, err);
    else if (strcmp(type, "stderr") == 0)
        r = take_piece(s, line, STDERR_FILENO, err);
    else if (strcmp(type, "error") == 0)
        r = lines_check(bytes, n, err) < 0 ? -1
                                           : err_set(err, ERR_IO, 0, "the daemon ended the stream");
    else if (strcmp(type, "end") == 0 && !s->end)
        s->end = json_incref(line);
    else if (strcmp(type, "start") == 0 && s->says_plan)
        attach_say_plan(s->workspace, json_string_value(json_object_get(line, "plan")));
    json_decref(line);
    if (r == 0 && s->lines && (attach_has_piece(s) || s->end || strcmp(type, "start") == 0)) {
        s->piece.n = 0;
        s->piece_at = 0;
        s->piece_fd = STDOUT_FILENO;
        buf_add(&s->piece, bytes, n);
        buf_str(&s->piece, "\n");
        r = buf_done(&s->piece) < 0 ? err_set(err, ERR_LIMIT, 0, "no memory for a line") : 0;
    }
    return r;
}

int attach_pump(struct attach *s, struct err *err)
{
    for (;;) {
        if (write_piece(s, err) < 0)
            return -1;
        if (attach_has_piece(s))
            return 0;
        if (s->end) {
            s->over = true;
            return 0;
        }
        const char *at = s->received.p + s->read_at;
        size_t left = s->received.n - s->read_at;
        const char *newline = left ? memchr(at, '\n', left) : NULL;
        if (!newline && s->paused) {
            s->paused = false;
            call_resume(&s->output);
            continue;
        }
        if (!newline)
            return 0;
        s->read_at += (size_t)(newline - at) + 1;
        if (newline > at && take_line(s, at, (size_t)(newline - at), err) < 0)
            return -1;
    }
}
