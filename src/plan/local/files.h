/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a plain directory, as `carrel run --plan` and `carrel plan --dir` both know them. They
 * lie beside it, in DIR.carrel-plans/ID:
 *
 *   upper/, work/   the run's layer         manifest   what carrel-plan derives of it
 *   state.json      what has become of it
 *   .lock           held by who runs in it and derives, changes or removes it */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "base/err.h"
#include "plan/core/state.h"

enum {
    PLAN_ID_SIZE = 28, /* 'p', 26 digits, NUL */
};

/* --- where they are --- */

/* The directory's canonical path, and that of its plans. */
int plan_name_home(const char *dir, char ret_dir[PATH_MAX], char ret_home[PATH_MAX],
                   struct err *err);
/* Opens where plans are kept, which nobody else may look into or have made. *ret is -1 when there
 * is none. */
int plan_open_home(const char *path, int *ret, struct err *err);
/* As above, and makes it where there is none: then *ret_made. */
int plan_make_home(const char *path, bool *ret_made, int *ret, struct err *err);

/* Of the time first, so that names sort by it. */
int plan_make_id(char id[PLAN_ID_SIZE], struct err *err);
/* Names that end up in paths: no more than letters, digits and a few signs. */
bool plan_is_id(const char *id);

/* The descriptor of a plan's directory, or -1 with errno. */
int plan_open_place(int home, const char *id);
/* Makes it, of this name. */
int plan_make_place(int home, const char *id, struct err *err);
/* Takes .lock, until the descriptor that is returned is closed. */
int plan_lock(int place, const char *id, struct err *err);
/* Locks the directory itself as well: the sandbox does while something of it can write to the
 * layer, and a carrel-plan has a copy of `place` and with it this lock, also when who started it
 * was killed. */
int plan_lock_layer(int place, const char *id, struct err *err);

/* --- state.json --- */

/* NULL: there is none that can be read. */
json_t *plan_read_state(int place);
/* Whole or not at all, and on the disk. */
int plan_write_state(int place, const json_t *state, struct err *err);
/* What it says; PLAN_NONE: nothing that is known. */
enum plan_state plan_state_of(const json_t *state);
/* The event happens to it (plan_state_after), and what it says now is written. */
int plan_change_state(int place, json_t *state, enum plan_event event, uint64_t in_force,
                      struct err *err);
json_t *plan_time_now(void);
