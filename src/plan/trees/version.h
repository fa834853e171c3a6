/* SPDX-License-Identifier: Apache-2.0 */
/* All that a tree holds, as a list; and what two trees have in common. A snapshot knows which files
 * of the live tree are still what it copied (seen.h), and shares its copies with others: of those
 * nothing has to be read. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "plan/core/plan.h"
#include "plan/trees/seen.h"

enum {
    VERSION_MOST = 2000000, /* files and directories of one tree */
};

struct version_entry {
    const char *path;
    struct plan_identity st;
};

struct version {
    int root;
    struct version_entry *at; /* in canonical order */
    size_t count;
    bool is_live;     /* others may be changing it */
    struct seen seen; /* of a snapshot: what it is a copy of */
    struct arena arena;
};

/* `root` is borrowed. Names that Carrel keeps for itself, and what is neither a file nor a
 * directory nor a symlink, are left out. */
int version_read(struct version *ret, int root, struct err *err);
/* Of a snapshot: its directory (kept.h). The descriptor of its tree is the caller's to close. */
int version_read_kept(struct version *ret, int home, int *ret_tree, struct err *err);
void version_clear(struct version *version);
const struct version_entry *version_find(const struct version *version, const char *path);

/* One of a tree's entries; `entry` NULL: it has none of that path. */
struct version_at {
    const struct version *of;
    const struct version_entry *entry;
};

/* What of two files is compared. */
struct version_parts {
    bool content; /* is the same */
    bool attributes;
};

/* Both are files: 0, -1 where one cannot be read. */
int version_compare_files(struct version_at a, struct version_at b, struct version_parts *ret,
                          struct err *err);
/* 1: the same, with mode, content and attributes; 0; -1. */
int version_is_same(struct version_at a, struct version_at b, struct err *err);
/* The regular file for reading, and that it is still the one that was listed; -1. */
int version_open(struct version_at a, struct err *err);
/* The target of a symlink into target[PLAN_MAX_PATH + 1]. */
int version_target(struct version_at a, char *target, struct err *err);
/* What A and B have different, as a list of objects, at most `most` of them; the number of all. */
int version_diff(const struct version *a, const struct version *b, size_t most, json_t *ret,
                 size_t *ret_count, struct err *err);
/* Names are any bytes: those that are no text go as base64. */
int version_set_path(json_t *object, const char *path);
