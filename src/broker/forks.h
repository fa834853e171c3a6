/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that stand on a snapshot of another: that is the lower layer of their sandboxes, and
 * what they change lies in a layer of their own,
 *
 *   DIR/<bucket>/.carrel/workspaces/<fork>/fork/base    "<workspace>/<snapshot>"
 *   DIR/<bucket>/.carrel/workspaces/<fork>/fork/layer   as sandbox/overlay.h has it
 *
 * Their own tree stays empty. That there is a `base` is what makes a workspace a fork: everybody
 * who would take the tree for the workspace asks here first. */
#pragma once

#include "broker/broker.h"

struct fork_base {
    char workspace[PROTOCOL_ID + 1];
    char snapshot[PROTOCOL_EXEC_ID + 1];
};

/* 1: it is a fork; 0: it is none; -1: it could not be found out. */
int fork_find(const struct broker *b, const char *bucket, const char *workspace,
              struct fork_base *ret, struct err *err);
/* -1 and SAID_IS_A_FORK for one, as what cannot be done with it. */
int fork_refuse(const struct broker *b, const char *bucket, const char *workspace, const char *what,
                struct err *err);
/* "WORKSPACE/SNAPSHOT"; false: it is no such text. */
bool fork_base_parse(const char *text, struct fork_base *ret);
/* The directory of a snapshot, with all that is kept of it; -1. */
int fork_open_kept(const struct broker *b, const char *bucket, const struct fork_base *base,
                   struct err *err);
/* The tree of a snapshot (O_PATH); -1. */
int fork_open_snapshot(const struct broker *b, const char *bucket, const struct fork_base *base,
                       struct err *err);
/* Where its layer is, for the engine. */
void fork_path(const struct broker *b, const char *bucket, const char *workspace, char *path,
               size_t size);
/* The layer of a fork, open for reading; -1. */
int fork_open_layer(const struct broker *b, const char *bucket, const char *workspace,
                    struct err *err);
/* Makes a workspace, whose tree has just been made, a fork; answers REQUEST_FORK. */
void fork_make(struct broker *b, uint64_t tag, const struct plain_message *m);
