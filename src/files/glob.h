/* SPDX-License-Identifier: Apache-2.0 */
/* What a search needs of a pattern beside matching; the matcher itself is in call.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct glob;

/* "*", "?" and "**" take names that begin with a dot too, as the globs of a grep do. */
void glob_take_dots(struct glob *glob);
/* How many patterns without braces it stands for. */
size_t glob_count(const struct glob *glob);
/* The i-th of them as ripgrep's -g reads it. True: exactly; otherwise it takes more than the glob
 * does. False: there is none. */
bool glob_write(const struct glob *glob, size_t i, struct buf *b, bool *ret_exact);
