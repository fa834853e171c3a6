/* SPDX-License-Identifier: Apache-2.0 */
/* The file servers of sandboxes. */
#pragma once

#include "broker/broker.h"

/* One is started ahead, soon. */
void files_prepare(struct broker *broker);
void files_close(struct broker *broker);
/* Wakes the workspace; ANSWER_FILES when they can be asked for. */
void files_request(struct broker *broker, uint64_t tag, const struct exec_message *m);
void files_sandbox_lives(struct sandbox *sandbox);
/* With its sandbox. */
void files_server_end(struct sandbox *sandbox);
/* Before that: who still waits for it gets the next sandbox's. */
void files_put_off(struct sandbox *sandbox);
/* Those that still finish something in its tree, their own or shown to them: it is about to go. */
void files_end_leaving(struct broker *broker, const char *workspace);
/* Tells its file server what may still be added to the disk. */
void files_tell_disk(struct sandbox *sandbox);
/* Whether its files were asked for since the last time, or are being. */
bool files_is_busy(struct sandbox *sandbox);
/* Its file server stands still, or goes on. 0; 1: not yet, to be asked again; -1: it cannot. */
int files_stop(struct sandbox *sandbox, bool stop);
/* Whether a call on them is being done. */
bool files_under_way(const struct sandbox *sandbox);
/* Likewise, whether there are any. */
bool files_are_leaving(const struct broker *broker, const char *workspace, uint64_t last);

/* What a file server is, to the one that started it. */
struct files_process {
    pid_t pid;
    int pidfd;
    int socket; /* to it */
};

/* `how`: its argument, or NULL. 0, or -1 with errno set. */
int files_spawn(const struct broker *broker, const char *how, struct files_process *ret);
