/* SPDX-License-Identifier: Apache-2.0 */
/* Input of a command that did not fit into its pipe yet. It is in a file without a name, made by
 * the broker, which keeps a copy of the descriptor: both have one position in it, the kernel's.
 *
 *   backlog_add --> at the end --backlog_move (splice: into the pipe, past it in one call)--> gone
 *
 * So at every instant each byte is in the file, behind the position, or in the pipe, and a front
 * that is killed loses none and repeats none. A terminal cannot be spliced into: there it is
 * written, then passed, and one that is killed in between writes it again. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct backlog {
    int fd; /* -1: none */
    uint64_t at;
    uint64_t end;
    uint64_t freed; /* before that it is a hole */
};

/* What there is in it. Takes the descriptor, also when it fails; 0 or -errno. */
int backlog_open(struct backlog *b, int *fd);
void backlog_close(struct backlog *b);
/* All or nothing: 0 or -errno. */
int backlog_add(struct backlog *b, const char *bytes, size_t n);
/* As much as `to` takes now: how much, or -errno; -EAGAIN: nothing. To be called while there is
 * some. */
ssize_t backlog_move(struct backlog *b, int to, bool terminal);

static inline uint64_t backlog_left(const struct backlog *b)
{
    return b->end - b->at;
}
