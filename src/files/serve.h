/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Answers calls until the other ends of the socket are closed, and then ends the process. Returns
 * only -errno. */
struct files_activity;
int files_serve(int socket, int hidden, struct files_activity *activity);
/* The same in this thread alone, for one client: when that has gone, what it left is cleared up
 * before this returns. 0 or -errno. */
int files_serve_one_by_one(int socket);
