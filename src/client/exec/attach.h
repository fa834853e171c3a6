/* SPDX-License-Identifier: Apache-2.0 */
/* One command of the daemon, followed from here: its output to our output as it comes and byte by
 * byte, our input and signals to it. The daemon's front may go and come back meanwhile: every piece
 * of output has its place, so what was seen is known and the rest is asked for.
 *
 *   start | attach --pieces--> ... --"end"--> over
 *              ^          |broken
 *              +--again---+  for 30 s
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/core/http.h"

enum {
    SESSION_INPUT = 65536,
    SESSION_SIGNALS = 8
};

struct attach {
    struct daemon *daemon;
    const char *workspace;
    char exec_id[72];   /* "" : not yet known */
    bool follow;        /* until the command ends */
    bool terminal;      /* it has ours */
    bool lines;         /* JSON lines as they come, instead of what is in them */
    bool takes_signals; /* ours go to the command */
    bool says_plan;     /* tells into which plan it writes, if it does */

    struct call output;
    char *request;       /* what it was asked with */
    bool paused;         /* the daemon waits until we have written */
    struct buf received; /* not yet read */
    size_t read_at;
    uint64_t next;    /* place of the first byte of output not yet had */
    struct buf piece; /* being written */
    size_t piece_at;
    int piece_fd;
    bool closed[3]; /* nobody reads our standard output, or error */
    json_t *end;    /* what the daemon said at the end */
    bool over;
    uint64_t lost_ms;  /* since when it is broken; 0: it is not */
    bool reached;      /* there was a daemon */
    uint64_t again_ms; /* when to try again; 0: not */

    struct call input;
    int input_fd; /* -1: none */
    bool input_eof;
    bool input_closed; /* nothing more can be sent */
    uint64_t input_again_ms;
    char filling[SESSION_INPUT];
    size_t filled;
    char sending[SESSION_INPUT];
    size_t sent;
    bool sends_eof;

    struct call control;
    int signal_fd;
    int signals[SESSION_SIGNALS]; /* to be passed on */
    size_t signal_count;
    bool resize;
    int interrupts;
    bool left; /* the person went away before the command ended */
    int left_by;
    char control_body[64];
};

/* The calls are opened; signals come in through signal_fd only with takes_signals. */
int attach_open(struct attach *s, struct daemon *daemon, const char *workspace, struct err *err);
void attach_close(struct attach *s);
/* Asks for the command; `request` is consumed. */
int attach_post(struct attach *s, json_t *request, struct err *err);
/* Asks for the output of a command that is there, from s->next on. */
int attach_attach(struct attach *s, struct err *err);
/* Until it is over, or the person has left. */
int attach_run(struct attach *s, struct err *err);

/* attach_output.c */
/* Reads and writes what can be without waiting. */
int attach_pump(struct attach *s, struct err *err);
bool attach_has_piece(const struct attach *s);
size_t attach_take(void *attach, const char *bytes, size_t n);
/* For one that has not asked for a plan: where its changes are, on standard error. */
void attach_say_plan(const char *workspace, const char *plan);

/* attach_input.c */
int attach_signals_open(struct attach *s, struct err *err);
void attach_take_signals(struct attach *s);
void attach_queue_signal(struct attach *s, int number);
int attach_read_input(struct attach *s, struct err *err);
/* Starts what waits to be sent, and looks at what came of the last. */
int attach_send(struct attach *s, uint64_t now, struct err *err);
int attach_send_control(struct attach *s, struct err *err);
bool attach_wants_input(const struct attach *s);
void attach_path(const struct attach *s, struct buf *path, const char *what);

/* attach_end.c */
/* Says on standard error why it ended, if that needs saying, and returns the exit status. */
int attach_end_status(const json_t *end);
