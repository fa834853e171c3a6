/* SPDX-License-Identifier: Apache-2.0 */
/* carrel run --plan: where the plan of a plain directory lies, and what becomes of a run in it. */
#pragma once

#include <jansson.h>
#include <limits.h>

#include "cli/cli.h"

struct cli_plan {
    char dir[PATH_MAX];   /* the tree, canonical */
    char plans[PATH_MAX]; /* its plans: DIR.carrel-plans */
    char path[PATH_MAX];  /* this one: PLANS/ID */
    const char *id;       /* ends the path */
    bool made;            /* by this run */
    bool made_plans;
    int tree;                /* descriptors */
    int place;               /* of the plan's directory */
    int lock;                /* held in it */
    json_t *state;           /* of one that goes on; or NULL */
    struct run_options *run; /* what was asked for */
};

/* Finds the open plan that is named, or makes one, and lets the run go there. Only named, and
 * nothing made, for an explanation. */
int cli_plan_begin(struct cli_plan *plan, struct run_options *options, struct err *err);
/* The command has run: makes the plan of what it changed. *ret, the caller's: the plan's facts for
 * the result. */
int cli_plan_end(struct cli_plan *plan, const struct carrel_result *result, json_t **ret,
                 struct err *err);
/* It has not: a plan made for it is taken back. */
void cli_plan_abandon(struct cli_plan *plan);
/* One line for people. */
void cli_plan_say(const struct cli_plan *plan, const json_t *told);
void cli_plan_clear(struct cli_plan *plan);
