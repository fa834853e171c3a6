/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of paths; pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* "**" spans directories, "*" and "?" do not; [a-z], [!a]; {a,b}, nested. Bytes, not
 * characters. NULL: malformed, *ret_why says it. */
struct glob;
struct glob *glob_make(const char *pattern, const char **ret_why);
bool glob_match(const struct glob *glob, const char *path); /* relative, without a leading / */
/* Whether anything below this directory could still match: else a walk need not go there. */
bool glob_may_match_below(const struct glob *glob, const char *directory);
void glob_free(struct glob *glob);

/* "*", "?" and "**" take names that begin with a dot too, as the globs of a grep do. */
void glob_take_dots(struct glob *glob);
/* How many patterns without braces it stands for. */
size_t glob_count(const struct glob *glob);
/* The i-th of them as ripgrep's -g reads it. True: exactly; otherwise it takes more than the glob
 * does. False: there is none. */
bool glob_write(const struct glob *glob, size_t i, struct buf *b, bool *ret_exact);
