/* SPDX-License-Identifier: Apache-2.0 */
/* Where the content of a plan lies that was not made by a command: files below upper/ in the plan's
 * directory, each where it will be in the tree. No tenant has access to it. */
#pragma once

/* upper/, made where it is missing; a descriptor or -errno. */
int staged_open(int dir);
/* The new file of that path, open for both, with the directories that it needs; or -errno. */
int staged_make(int upper, const char *path);
