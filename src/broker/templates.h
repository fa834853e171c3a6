/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that were frozen, and the package cache: what workspaces share, below DIR/.carrel. */
#pragma once

#include "broker/broker.h"

/* --- templates.c */
/* The directory of a part of its tree (".venv"), -ENOENT when it has none, or -errno. */
int template_open_part(const struct broker *b, const char *id, const char *part);
/* What it has changed of its base: the layer of the workspace that it was. -ENOENT when it stands
 * on none, or -errno. */
int template_open_system(const struct broker *b, const char *id);
void template_fill(struct broker *b, uint64_t tag, const struct plain_message *m);
void template_freeze(struct broker *b, uint64_t tag, const struct plain_message *m);
void template_erase(struct broker *b, uint64_t tag, const struct plain_message *m);

/* --- package_cache.c */
/* At the start: what is left of one that was killed goes. */
void cache_begin(struct broker *b);
/* When a generation was added: which is the newest. */
void cache_look(struct broker *b);
/* The directory of all generations, or -1. */
int cache_open_all(const struct broker *b, struct err *err);
/* The newest generation's directory for "uv", "bun" or "python", made if there is none at all; or
 * -1. */
int cache_open(struct broker *b, const char *kind, struct err *err);
/* Removes a generation that nobody uses, and then the next. */
void cache_tidy(struct broker *b);
/* For a process of its own: makes a generation that also has what this workspace, which nobody can
 * use any more, has added. 0 or -errno. */
int cache_add_layers(int cache, int workspaces, const char *workspace);
