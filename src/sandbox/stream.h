/* SPDX-License-Identifier: Apache-2.0 */
/* One direction of standard input or output between the caller and the command.
 *
 * Everything is relayed through a pipe of ours. Whatever the caller has there, inside the sandbox
 * it could be reopened (a file, and a pipe too), reconnected (a socket), typed into (a terminal),
 * or set to non-blocking under the caller's feet. Only the null device is handed over as it is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    STREAM_CHUNK = 65536
};

struct stream {
    int from; /* read here; -1: ended, or not relayed */
    int to;   /* write here; -1: captured, or reader gone */
    bool own_from;
    bool own_to;
    bool capturing;
    bool polite;     /* `to` is a pipe shared with others: write what it takes without blocking */
    bool socket;     /* `to` is a socket: send without waiting */
    int write_errno; /* a write failed, and not because the reader left */
    uint64_t taken;  /* bytes read from `from` */
    bool copying;    /* `from` is a pipe: what the command does not read stays in it */
    size_t copied;   /* bytes at its front that the command can see and has not all read yet */
    size_t at;       /* data[at..n) waits to be written */
    size_t n;
    struct buf captured;
    char data[STREAM_CHUNK];
};

struct budget {
    uint64_t left; /* bytes that may still be delivered */
    bool exceeded;
};

void stream_init(struct stream *s);
void stream_clear(struct stream *s);
/* Whether a descriptor may be handed to the command as it is. */
bool stream_can_pass(int fd);
/* Whether this is the master of a terminal: a sandbox's word is not taken for it. */
bool stream_is_terminal(int fd);
/* Refuses what must not be given to a command at all (directories); 0 or -1. */
int stream_check(int fd, const char *name, struct err *err);
/* Sets where a stream leads so that no write to it can block, whoever shares it. `fd` is borrowed.
 */
void stream_set_sink(struct stream *s, int fd);
bool stream_wants_read(const struct stream *s);
bool stream_wants_write(const struct stream *s);
bool stream_is_done(const struct stream *s);
/* Makes a stream from the pipe `from` into the pipe `to`, one page at a time and without taking
 * anything the command does not read. 0 or -errno. */
int stream_copy_pipe(struct stream *s, int from, int to);
/* Takes from the source what the command has read of the last page; `unread` is what it has not. */
void stream_settle(struct stream *s, size_t unread);
/* Move what can be moved now. With \`last\`, nothing to read means there will be nothing more. */
void stream_read(struct stream *s, struct budget *budget, bool last);
void stream_write(struct stream *s);
