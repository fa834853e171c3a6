/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Answers calls until the other ends of the socket are closed, and then ends the process. Returns
 * only -errno. */
struct files_joined;
int files_serve(int socket, const struct files_joined *joined);
/* The same for a tree without its sandbox (protocol/files_asleep.h); ends the process also when no
 * calls come for a while, and at once when the leash says so. */
int files_serve_asleep(int socket, int leash);
/* Goes through a call for nobody: what a new process meets for the first time takes its time. */
void files_serve_rehearse(void);
/* The same in this thread alone, for one client: when that has gone, what it left is cleared up
 * before this returns. 0 or -errno. */
int files_serve_one_by_one(int socket);
