/* SPDX-License-Identifier: Apache-2.0 */
/* What the searches share. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "files/core/call.h"

/* What Carrel provides at the root of a sandbox and no tenant wrote: NULL at the end. Who wants to
 * look there asks for it by name. */
extern const char *const search_passed[];
bool search_is_passed(const char *name);
/* Whether a walk from `root` has no business in a directory directly in it: one of these. */
bool search_passes(const char *root, const struct tree_entry *entry);
/* The absolute path of what a walk from `root` met. NULL: no memory. */
const char *search_path(struct buf *b, const char *root, const char *path);
/* Answers for a pattern that glob_make did not take. */
void search_refuse(struct files_call *call, const char *pattern, const char *why);
