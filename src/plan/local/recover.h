/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a plain directory that were interrupted: state.json says "applying" or "undoing", and
 * nobody has the plan locked. */
#pragma once

#include "base/err.h"

/* Where the plan was interrupted: has carrel-plan take back or finish what was half done, and
 * writes the state that its journal knows. The caller has the plan locked. */
int plan_make_whole(int tree, int place, struct err *err);
/* The same for every plan of that home (plan_open_home; -1: there is none). An error when one of
 * them is in use: then its tree is being changed. */
int plans_make_whole(int tree, int home, struct err *err);
