/* SPDX-License-Identifier: Apache-2.0 */
/* The directories of workspaces: made, moved, copied, counted, removed. */
#pragma once

#include "broker/broker.h"

/* The names of all trees of a bucket, packed as a list. */
int tree_scan(const struct broker *b, const char *bucket, struct buf *names, struct err *err);
/* Answers REQUEST_TREE_LOOK. */
void tree_look(struct broker *b, uint64_t tag, const struct plain_message *m);
/* sandbox_spec.c: answers REQUEST_TREE_POINTS, packed as a list. */
int tree_points(struct broker *b, const struct exec_message *m, struct buf *answer,
                struct err *err);
/* A tree's directory below DIR, or -1. */
int tree_open(const struct broker *broker, const char *bucket, const char *workspace,
              struct err *err);
/* The .bashrc that a new workspace gets, which names it; not one that somebody has changed. */
void tree_drop_bashrc(int tree, const char *workspace);
/* A workspace in an image begins empty; one that has nothing but what it was made with is. */
void tree_empty_for_image(const struct broker *b, int tree, const char *workspace);
void tree_make(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_trash(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_back(struct broker *broker, uint64_t tag, const struct plain_message *m);
void tree_purge(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Whether what is in it is in an image beside it, and not in the directory itself. */
bool tree_has_image(const struct broker *broker, const char *bucket, const char *workspace);
/* Makes a copy of a plan's layer, as another plan. */
void tree_copy_plan(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Copies the layer in one plan's directory to another's, both below `dir`; for a process of its
 * own. 0 or -errno. */
int tree_copy(int dir, const char *name, const char *copy);
/* Likewise, from one open directory to another: what a new workspace has of its template; the files
 * of a package cache themselves, over what is there. */
int tree_fill_from(int from, int to);
int tree_link_from(int from, int to);
/* All that is in it is on disk. */
int tree_sync(int dir);
/* `partly`: only what tree_fill_from copies. */
int tree_count(int from, bool partly, uint64_t *ret_files, uint64_t *ret_bytes);
/* tree_remove of what may hold a system's files, in a process that ends after it: they are of ids
 * that are not ours, but lent to us. */
int tree_remove_lent(int dir, const char *name);
/* Removes a plan's directory. */
void tree_drop_plan(struct broker *broker, uint64_t tag, const struct plain_message *m);
