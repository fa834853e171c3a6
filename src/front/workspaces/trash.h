/* SPDX-License-Identifier: Apache-2.0 */
/* Forgets what is older than it is to be kept: ended commands with their output, the trash. And
 * finishes what was begun and not ended, by a request or by a front that died: the row of a
 * workspace says what is to become of its tree. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "front/core/front.h"

void sweep_begin(struct front *front);
/* A change of a workspace has failed half way: the next turn looks after it. */
void sweep_look_again(void);

/* One change of a workspace at a time. Embedded in what makes it. */
struct change {
    struct change *next;
    const char *workspace; /* NULL: not under way */
};

/* False: another one is under way. */
bool change_begin(struct change *change, const char *workspace);
/* Nothing happens for one that is not under way. */
void change_end(struct change *change);

/* The output of all commands of a workspace that goes for good. */
int sweep_drop_output(struct front *front, const char *workspace, struct err *err);

/* Does what the row of a deleted workspace says: puts it to sleep and its tree into the trash; if
 * it is to go for good, removes the output of its commands, the tree, and at last the row. All of
 * it may be repeated. Calls `then`, at once or later, with NULL or what went wrong. */
typedef void sweep_moved(void *context, const struct err *failed);
void sweep_move(struct front *front, const struct store_workspace *w, sweep_moved *then,
                void *context);
