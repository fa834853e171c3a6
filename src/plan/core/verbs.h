/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of carrel-plan: one process, one job. */
#pragma once

#include <jansson.h>
#include <stddef.h>

struct err;

struct verb_call {
    int tree;   /* O_PATH; -1: the verb needs none and none was given */
    int dir;    /* the plan's directory */
    int base;   /* the directory of a snapshot (trees/kept.h), or of what a fork stands on; -1 */
    int theirs; /* ... of another; the layer of a fork; -1 */
    int steps;  /* progress as JSON lines; -1: nobody wants it */
    const json_t *job; /* an object; NULL for a verb that takes its input as text */
    const char *text;  /* what was on stdin */
    size_t n;
};

/* Fills `answer`, an empty object, which is printed when the verb succeeds and has put something
 * there; show and diff print lines to stdout themselves. Keys of the job that it does not know it
 * refuses (verb_read). */
typedef int verb_function(const struct verb_call *call, json_t *answer, struct err *err);

verb_function verb_derive, verb_submit;
verb_function verb_show, verb_diff, verb_view, verb_verify;
verb_function verb_apply, verb_undo, verb_recover, verb_journal, verb_drop;
verb_function verb_snapshot, verb_snapshots, verb_merge, verb_compare;

/* json_unpack_ex, strictly: a key that is not in the format is an error (ERR_INVALID). */
int verb_read(const struct verb_call *call, struct err *err, const char *format, ...);
