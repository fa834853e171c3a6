/* SPDX-License-Identifier: Apache-2.0 */
/* Takes from this process what the front has no use for: it reads what strangers send. */
#pragma once

#include "base/err.h"

/* Files below `state` only: db and execs to write, audit to read; no new connections, no new
 * programs, no system calls but those on a list. What the kernel does not have is left out, and
 * told on stderr; the list of system calls is never left out. */
int confine_front(const char *state, struct err *err);
