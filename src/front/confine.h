/* SPDX-License-Identifier: Apache-2.0 */
/* Takes from this process what the front has no use for: it reads what strangers send. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Files below the current directory only: db and execs to write, audit to read; no new connections,
 * no new programs, no system calls but those on a list. Without Landlock a front with a uid of its
 * own is kept from files by that, which is told on stderr; one that shares its user with the broker
 * is refused. */
int confine_front(bool shares_user, struct err *err);
