/* SPDX-License-Identifier: Apache-2.0 */
/* What pid 1 knows while it builds the sandbox around itself. Everything is static: nothing in this
 * program allocates, opens a locale or asks a name service. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "sandbox/setup.h"
#include "sandbox/wire.h"
#include "sys/message.h"

struct sandbox {
    const struct setup *setup;
    int socket;                 /* to the engine; its end means: end */
    int trees[MESSAGE_MAX_FDS]; /* of the message at hand */
    uint32_t tree_count;
    uint32_t trees_used;
    int lease;     /* of our uids, or -1 */
    int listener;  /* of the filter, for the engine; or -1 */
    int proc_self; /* the host's /proc/self, for as long as it is needed */
    int frame;     /* where the frame is built */
    int root;      /* the new root; before it is there, the frame */
    int prepared;  /* the file system that holds our /etc, /dev and /proc files */
    int leaver;    /* the child that takes the host's root away, or not above 0 */
    int sudo;      /* where commands ask for one of root's, or -1 */
    uint64_t mount_ids[SETUP_MAX_OPS];
};

/* Stages; the table in main.c says in which order and why. Each returns 0, or -1 with *err set. */
int stage_become_builder(struct sandbox *sandbox, struct err *err);
int stage_namespace_limits(struct sandbox *sandbox, struct err *err);
int stage_new_keyring(struct sandbox *sandbox, struct err *err);
int stage_hostname(struct sandbox *sandbox, struct err *err);
int stage_loopback(struct sandbox *sandbox, struct err *err);
int stage_clock(struct sandbox *sandbox, struct err *err);
int stage_cgroup_root(struct sandbox *sandbox, struct err *err);
int stage_build_frame(struct sandbox *sandbox, struct err *err);
int stage_build_root(struct sandbox *sandbox, struct err *err);
int stage_enter_root(struct sandbox *sandbox, struct err *err);
int stage_left_root(struct sandbox *sandbox, struct err *err);
int stage_verify_mounts(struct sandbox *sandbox, struct err *err);
int stage_network(struct sandbox *sandbox, struct err *err);
int stage_sudo(struct sandbox *sandbox, struct err *err);
int stage_limits(struct sandbox *sandbox, struct err *err);
int stage_close_files(struct sandbox *sandbox, struct err *err);
int stage_lock_capabilities(struct sandbox *sandbox, struct err *err);
int stage_drop_ids(struct sandbox *sandbox, struct err *err);
int stage_drop_capabilities(struct sandbox *sandbox, struct err *err);
int stage_no_new_privileges(struct sandbox *sandbox, struct err *err);
int stage_undumpable(struct sandbox *sandbox, struct err *err);
int stage_scopes(struct sandbox *sandbox, struct err *err);
int stage_die_with_parent(struct sandbox *sandbox, struct err *err);
int stage_filter(struct sandbox *sandbox, struct err *err);

/* In the child that will be the command: gives up what only pid 1 keeps, or becomes root inside. 0,
 * or -1 with errno set. */
int rights_for_command(bool as_root);

/* Starts the command; fds are its stdin, stdout and stderr. On success *ret_pid is running; on
 * failure *ret_status is a shell's 126 or 127 where the command itself is at fault. */
int command_start(const struct command *command, const int fds[3], int *ret_pid, int *ret_status,
                  struct err *err);
/* Opens a terminal pair inside; the caller's. */
int command_open_terminal(const struct command *command, int *ret_master, int *ret_slave,
                          struct err *err);

/* --- talk.c: messages of the engine and answers to it --- */

struct message {
    struct message_head head;
    int fds[MESSAGE_MAX_FDS];
    char *bytes; /* a mapping of its own */
    size_t room; /* its size, 0: none. The next message may have it, if it is left there */
};

/* False at the end of the conversation. */
bool talk_receive(int socket, struct message *message);
/* Gives the bytes back, not the descriptors. */
void talk_release(struct message *message);
/* An engine that is gone takes the sandbox with it, so a failure needs no word. */
void talk_answer(int socket, const struct reply *reply, int fd);
/* Starts the command of a message, with a terminal where that is asked for. On failure *ret_status
 * is 125, 126 or 127. */
int talk_start(int socket, struct message *message, int *ret_pid, int *ret_status, struct err *err);
/* The same in two steps: what the message says, in `ret`, and its start. */
int talk_decode(const struct message *message, struct command *ret, struct err *err);
int talk_start_decoded(int socket, const struct message *message, const struct command *command,
                       int *ret_pid, int *ret_status, struct err *err);
/* What came with the message is of no more use here; while it is open, nobody sees the end of the
 * command's output. */
void talk_close_files(struct message *message);

/* --- keeper.c --- */

/* One pass over the children of this process: kills each, and `group` where the kernel lists none.
 * `tracers`: those who trace them as well. */
void keeper_kill_children(pid_t group, bool tracers);
/* All signals default and blocked; children unblock. */
void keeper_take_over_signals(void);
/* A descriptor that tells of ended children, or -1. */
int keeper_watch_children(void);
/* Serves commands on the socket until its end; in a process of its own. */
_Noreturn void keeper_serve(int socket);

/* --- sudo.c --- */

/* Milliseconds until another may ask; 0: now. */
int sudo_pause_ms(void);
/* A connection of who asks; or -1. */
int sudo_accept(int listener);
/* Takes the connection, and does what is asked on it in a process of its own. `engine` hears of it.
 */
void sudo_serve(int asker, int engine);
/* That process has ended, if `pid` was one. */
void sudo_ended(int pid);
