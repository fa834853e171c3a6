/* SPDX-License-Identifier: Apache-2.0 */
/* How many connections there may be. Pure. */
#pragma once

#include <stdint.h>

#include "http/server.h"
#include "protocol/settings.h"

/* What the settings ask for, as far as `files`, the number of open files allowed, goes: connections
 * have a quarter of them, since each may need two more (a stream to a file server, a spool that is
 * read), and the last quarter is for commands, file servers, plans and the database. A quarter of
 * the connections is for those whose owner is not known yet; one owner has at most half of the
 * others, and three quarters of its own for streams. */
void room_for_connections(const struct settings *settings, uint64_t files,
                          struct http_options *ret);
