/* SPDX-License-Identifier: Apache-2.0 */
/* Where a daemon keeps its state when nobody says: one rule for it and for those who look for it.
 */
#pragma once

#include <stddef.h>

/* /var/lib/carrel for root; otherwise $XDG_STATE_HOME/carrel or ~/.local/state/carrel. 0, or
 * -ENOENT without a home, -ENAMETOOLONG. */
int state_dir_default(char *path, size_t size);
