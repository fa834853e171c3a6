/* SPDX-License-Identifier: Apache-2.0 */
/* Takes from this process what the front has no use for: it reads what strangers send. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* First: files below the current directory only, db and execs to write, audit to read; no new
 * connections. It holds for this thread and those that it makes from here on. Without Landlock a
 * front with a uid of its own is kept from files by that, which is told on stderr; one that shares
 * its user with the broker is refused.
 * Then, for all threads: no new programs or threads, no system calls but those on a list. */
int confine_files(bool shares_user, struct err *err);
int confine_calls(struct err *err);
