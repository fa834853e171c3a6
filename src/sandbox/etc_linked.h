/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of the host's /etc that links below /usr lead to: a program in /usr is not whole
 * without them. They are shown by a list, and what not everybody on the host may read is covered.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
    ETC_LINKED_MAX = 32
};

/* Their names below /etc, in order; how many this host has, or -errno: that cannot be said. */
int etc_linked_find(struct arena *arena, const char *names[ETC_LINKED_MAX]);
typedef int etc_linked_found(void *context, const char *path, const struct stat *st);

/* Calls `found` for each entry below the directory /etc/NAME that is to be covered, with its path
 * from / without the slash: pipes, sockets and the like; and what not everybody may read, unless
 * modes keep whoever is inside from it, because he is nobody on the host. 0, the first other answer
 * of `found`, or -E2BIG: too much to look through. */
int etc_linked_closed(const char *name, bool modes_hold, etc_linked_found *found, void *context);
/* Whether there is something that this user or group may read and not everybody: 0, or not 0 and
 * where, also where it cannot be said. */
int etc_linked_show_to(uid_t uid, gid_t gid, char *path, size_t size);
