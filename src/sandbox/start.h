/* SPDX-License-Identifier: Apache-2.0 */
/* Makes pid 1 of a sandbox and gives it its setup. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "sandbox/run.h"

struct live {
    pid_t pid; /* -1: none */
    int pidfd;
    int socket; /* to pid 1 */
    struct child_start *start;
    char *bytes;       /* room for a message, or NULL */
    bool asked_to_end; /* level dir: once in words, then by force */
};

void live_init(struct live *live);
/* Kills what is left, waits for it, and frees everything. Safe to call at any point. */
void live_clear(struct live *live);
/* Gives back the room for messages: when there will be none for a while. */
void live_release(struct live *live);
/* Pid 1 as a process in its cgroup, making its namespaces, then waiting for the frame. Needs what
 * confinement_begin writes. */
int live_begin(struct live *live, struct run *run, struct err *err);
/* Where carrel-init is. */
const char *live_init_path(const struct run *run);
/* Starts carrel-init and sends it the frame; it answers when that failed, and with SETUP_SAY_READY
 * when it stands. */
int live_start_frame(struct live *live, struct run *run, struct err *err);
/* The same with the root, or, if it was begun, only these; or, where the pool gave one whose frame
 * stands, only the root. */
int live_start(struct live *live, struct run *run, struct err *err);
/* As root, for a tree whose files cannot be mapped: the user inside is its owner. Before the frame
 * is sent. */
int live_use_owner_directly(struct run *run, struct err *err);
/* Sends the command with its three files (none with a terminal). */
int live_command(struct live *live, const struct run *run, const int fds[3], struct err *err);
/* Ends the whole tree: by killing pid 1, at level dir by asking it to. */
void live_kill(struct live *live, const struct run *run);
/* What to say when pid 1 went away without a word. */
int live_explain_death(const struct live *live, struct err *err);
