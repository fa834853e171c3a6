/* SPDX-License-Identifier: Apache-2.0 */
/* What limits/ and denial/, below this room, see of a run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "carrel.h"
#include "sandbox/identity.h"
#include "sandbox/setup.h"

struct cgroup;

/* A directory that takes what is changed of a tree (overlay.c). */
struct layer {
    const char *name; /* as the caller wrote it */
    uint32_t flags;   /* OP_PLAN, OP_SHOWN */
    int dir;          /* has upper/ and work/; locked, unless it is only shown; dry: -1 */
    int upper;
    int lower;   /* the tree */
    int over;    /* seen over it, and not changed either; -1: none */
    uint32_t op; /* the operation that mounts it */
};

struct run_view {
    const struct carrel_spec *spec;
    enum carrel_level level;
    enum carrel_net net;
    bool stays;                /* for many commands, and calls on its files */
    const struct setup *setup; /* these four as they are at any time */
    const struct identity *identity;
    struct cgroup *cgroup;
    const struct layer *layers;
    size_t layer_count;
    const struct layer *plan;   /* the one over the tree that is read-write, or NULL */
    int workspace;              /* that tree */
    const char *workspace_path; /* canonical */
};
