/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Removes what has this name in `dir`, with all that is in it: any names, any depth, no
 * permissions, and others may be renaming in it. Follows no link and crosses no mount (-EBUSY,
 * before anything is lost where it is the top). Only system calls. 0, also when there is nothing of
 * that name, or -errno. */
int tree_remove(int dir, const char *name);
