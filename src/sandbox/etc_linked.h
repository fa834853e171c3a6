/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of the host's /etc that links below /usr lead to: a program in /usr is not whole
 * without them. They are shown by a list, and what not everybody on the host may read is covered.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
    ETC_LINKED_MAX = 32
};

/* Their names below /etc, in order; how many this host has. */
size_t etc_linked_find(struct arena *arena, const char *names[ETC_LINKED_MAX]);
/* Calls `found` for each entry below the directory /etc/NAME that is to be covered, with its path
 * from / without the slash. 0, the first other answer of `found`, or -E2BIG: too much to look
 * through. */
int etc_linked_closed(const char *name, int (*found)(void *context, const char *path, mode_t mode),
                      void *context);
