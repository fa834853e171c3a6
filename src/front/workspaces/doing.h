/* SPDX-License-Identifier: Apache-2.0 */
/* A change of a workspace that is under way: creation, update, deletion and undeletion.
 *
 * Every change is recorded before anything of it is done; a record of one that then fails is
 * followed by another that says so. A front may die at any instant:
 *
 *   create    record, tree, row     a tree without a row may be left; who creates that id takes it
 *   ... on a template   record, tree, row that is on its way out, files, row that is not
 *   delete    record, row, tree     the row says where the tree belongs: the sweep moves it there
 *   undelete  record, tree, row     likewise, which is back into the trash
 *   purge     record, row, tree, row gone     the sweep goes on with what is on its way out
 *
 * So no row is without its tree, in the threads or in the trash. Of a workspace there is one change
 * at a time; it is finished also when its client has gone. */
#pragma once

#include <jansson.h>

#include "front/core/call.h"
#include "front/core/live.h"
#include "front/core/quota.h"
#include "front/workspaces/find_links.h"
#include "front/workspaces/trash.h"

/* The context of its call. */
struct doing {
    struct change change;
    struct change name;        /* of the template that it builds */
    struct change parent;      /* of the workspace that it is a fork of */
    struct front *front;       /* while a tree of it is copied or removed: */
    struct owner_use *at_work; /* ... one of whose trees that is */
    const char *operation;     /* as in its record */
    int64_t was_deleted_ms;
    bool was_planned; /* before an update, */
    bool is_redrawn;  /* which changes what is mounted in it */
    bool wakes;       /* and may say that it is not paused any more */
    struct links_look look;
    struct err failed;
    int status; /* with `refusal`, the answer that `failed` stands for */
    const char *refusal;
    const char *from_store; /* that its files come from; NULL: it begins empty */
};

/* Returns NULL after answering. From here on every answer is given after the change has ended. */
struct doing *doing_begin(struct call *call, const char *workspace, const char *operation);
/* Takes one of the places for copying or removing a whole tree of the owner's. False: answered. */
bool doing_begin_chore(struct call *call, struct doing *doing);
void doing_end(struct call *call);
/* For call->abandoned: answered, or the client has gone. What is still under way ends the change
 * itself. */
void doing_left(struct call *call);

/* Writes the record, then calls `heard`. */
void doing_record(struct call *call, const char *result, json_t *details, call_heard *heard);
/* Asks the broker something about the workspace's tree. */
void doing_ask_tree(struct call *call, uint32_t kind, call_heard *heard);
/* After a question, with call->pending of before it: answers 503 if it was not asked, for want of
 * memory. */
void doing_check_asked(struct call *call, unsigned pending);

/* Answers with an error: before anything was changed, ... */
void doing_fail(struct call *call, const struct err *err);
/* ... or after the record that said that it was done, which gets one of the failure behind it. */
void doing_fail_recorded(struct call *call, const struct err *err);
