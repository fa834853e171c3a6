/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input, output and errors of one command: the caller's ends, the command's ends, and what
 * is relayed between them. */
#pragma once

#include <termios.h>

#include "carrel.h"
#include "sandbox/identity.h"
#include "sandbox/stream.h"

enum {
    IN,
    OUT,
    ERR,
    STREAMS
};

struct command_streams {
    const struct carrel_spec *spec;
    struct stream of[STREAMS];
    struct budget budget;
    bool bounded;
    bool errors_in_output; /* one stream for both */
    int fds[STREAMS];      /* the command's ends; closed once sent */
    bool close[STREAMS];
    int stdin_pipe; /* the command's input pipe again, where stdin is a file; or -1 */
    bool raw;       /* the caller's terminal is in raw mode */
    struct termios cooked;
};

/* Of zeroed memory. */
void command_streams_init(struct command_streams *s);
void command_streams_clear(struct command_streams *s);
/* With a terminal there is nothing yet: command_streams_adopt_terminal. */
int command_streams_open(struct command_streams *s, const struct carrel_spec *spec,
                         struct err *err);
/* As root our pipes are root's: the user inside could not open /dev/stdout. */
void command_streams_give(struct command_streams *s, const struct identity *id);
/* The command's ends have been sent. */
void command_streams_close(struct command_streams *s);
/* The master of the terminal made inside, consumed on success. 0 or -errno. */
int command_streams_adopt_terminal(struct command_streams *s, int master);
/* The size of the caller's terminal becomes that of the command's. */
void command_streams_copy_size(const struct command_streams *s, int master);
/* A file or a pipe on stdin is left where the command stopped reading, as if it had been its own.
 * The command can fill its pipe by itself: what is taken back never goes beyond what it was given.
 */
void command_streams_return_input(struct command_streams *s);
