/* SPDX-License-Identifier: Apache-2.0 */
/* From here to the command: input in order, one request after the other; signals and sizes beside
 * it, so that they arrive also when the command does not read. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/core/terminal.h"
#include "client/exec/attach.h"

enum {
    SEND_AGAIN_MS = 200,
    FULL_AGAIN_MS = 20 /* the command does not read: there is nothing to wait on */
};

int attach_signals_open(struct attach *s, struct err *err)
{
    static const int taken[] = {SIGINT,  SIGTERM,  SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGWINCH, SIGCONT, SIGUSR2};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        sigaddset(&set, taken[i]);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    s->takes_signals = true;
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signal_fd < 0 ? err_set(err, ERR_IO, errno, "signalfd") : 0;
}

void attach_queue_signal(struct attach *s, int number)
{
    if (s->takes_signals && s->signal_count < SESSION_SIGNALS)
        s->signals[s->signal_count++] = number;
}

static void leave(struct attach *s, int number)
{
    s->left = true;
    s->left_by = number;
}

/* The first Ctrl-C asks, the second ends the command, the third leaves it alone. With a terminal
 * Ctrl-C is a character like others, and who sends a signal from elsewhere wants us gone. */
static void take_signal(struct attach *s, int number)
{
    if (number == SIGWINCH || number == SIGCONT) {
        if (number == SIGCONT)
            terminal_raw_again();
        s->resize = s->terminal;
        return;
    }
    if (s->terminal && (number == SIGTERM || number == SIGHUP || number == SIGINT)) {
        attach_queue_signal(s, SIGHUP);
        leave(s, number);
        return;
    }
    if (number == SIGINT && ++s->interrupts > 1)
        number = SIGKILL;
    attach_queue_signal(s, number);
    if (s->interrupts > 2)
        leave(s, SIGINT);
}

void attach_take_signals(struct attach *s)
{
    struct signalfd_siginfo info;

    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        take_signal(s, (int)info.ssi_signo);
}

bool attach_wants_input(const struct attach *s)
{
    return s->input_fd >= 0 && s->exec_id[0] && !s->input_eof && !s->input_closed &&
           s->filled < SESSION_INPUT;
}

int attach_read_input(struct attach *s, struct err *err)
{
    ssize_t n = read(s->input_fd, s->filling + s->filled, SESSION_INPUT - s->filled);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n > 0) {
        s->filled += (size_t)n;
        return 0;
    }
    s->input_eof = true;
    if (s->terminal && isatty(s->input_fd)) { /* it is gone */
        attach_queue_signal(s, SIGHUP);
        leave(s, SIGHUP);
        return 0;
    }
    return n < 0 ? err_set(err, ERR_IO, errno, "standard input cannot be read") : 0;
}

static int post(struct attach *s, struct call *call, const char *what, struct err *err)
{
    struct buf path;

    attach_path(s, &path, what);
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                                : call_start(call, "POST", path.p, err);
    buf_clear(&path);
    return r;
}

static int send_again(struct attach *s, struct err *err)
{
    s->input.body = s->sending;
    s->input.body_n = s->sent;
    return post(s, &s->input, s->sends_eof ? "/stdin?eof=1" : "/stdin", err);
}

/* Looks at what came of the last piece. Input that may have arrived is never sent again: a command
 * must not get bytes twice, and a program's input must not have a hole either. */
static int settle_input(struct attach *s, uint64_t now, struct err *err)
{
    const struct call *call = &s->input;
    bool refused = call->result == CURLE_OK && call->status / 100 != 2;

    if (call_was_not_sent(call) || (refused && (call->status == 429 || call->status >= 502))) {
        s->input_again_ms = now + (call->status == 429 ? FULL_AGAIN_MS : SEND_AGAIN_MS);
        return 0;
    }
    if (refused && call->status >= 400 && call->status != 404 && call->status != 409 &&
        call->status != 410)
        return call_check(call, err);
    if (call->result != CURLE_OK && !s->terminal) {
        attach_queue_signal(s, SIGKILL);
        leave(s, SIGKILL);
        return err_set(err, ERR_IO, 0,
                       "the daemon stopped while input was being sent, and how much arrived is "
                       "unknown; the command was ended");
    }
    s->input_closed = refused || s->sends_eof;
    s->sent = 0;
    return 0;
}

static int send_input(struct attach *s, uint64_t now, struct err *err)
{
    if (s->input.busy || s->input_closed || !s->exec_id[0])
        return 0;
    if (s->input_again_ms) {
        if (now < s->input_again_ms)
            return 0;
        s->input_again_ms = 0;
        return send_again(s, err);
    }
    if (s->sent > 0 || s->sends_eof) {
        if (settle_input(s, now, err) < 0)
            return -1;
        if (s->input_again_ms || s->input_closed)
            return 0;
    }
    if (s->filled == 0 && !(s->input_eof && s->input_fd >= 0))
        return 0;
    memcpy(s->sending, s->filling, s->filled);
    s->sent = s->filled;
    s->filled = 0;
    s->sends_eof = s->input_eof;
    return send_again(s, err);
}

/* The next signal or size. A failure means that the command has ended, or that the daemon is away:
 * then the person tries again. */
int attach_send_control(struct attach *s, struct err *err)
{
    const char *what = "/signal";
    int columns;
    int rows;

    if (s->control.busy || !s->exec_id[0] || (s->signal_count == 0 && !s->resize))
        return 0;
    if (s->signal_count > 0) {
        int number = s->signals[0];
        memmove(s->signals, s->signals + 1, --s->signal_count * sizeof(s->signals[0]));
        what = number == SIGKILL ? "/kill" : "/signal";
        snprintf(s->control_body, sizeof(s->control_body), "{\"signal\":%d}", number);
    } else {
        s->resize = false;
        what = "/resize";
        terminal_size(&columns, &rows);
        snprintf(s->control_body, sizeof(s->control_body), "{\"cols\":%d,\"rows\":%d}", columns,
                 rows);
    }
    s->control.body = strcmp(what, "/kill") == 0 ? NULL : s->control_body;
    s->control.body_n = s->control.body ? strlen(s->control_body) : 0;
    return post(s, &s->control, what, err);
}

int attach_send(struct attach *s, uint64_t now, struct err *err)
{
    if (s->over)
        return 0;
    return send_input(s, now, err) < 0 ? -1 : attach_send_control(s, err);
}
