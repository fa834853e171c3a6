/* SPDX-License-Identifier: Apache-2.0 */
/* Single files out of an archive (zip, tar.gz). Nothing in the archive says where anything goes:
 * a member is taken by its name, if it is asked for, to the place that is asked for. */
#pragma once

#include <stddef.h>

#include "base/err.h"

struct unpack_member {
    const char *name; /* in the archive, whole */
    const char *to;   /* below the directory, which must not have it yet */
};

/* All of them, as programs (mode 0755), or an error; what was written by then is left. `archive` is
 * the name for messages. */
int unpack_members(int fd, const char *archive, const struct unpack_member *members, size_t count,
                   int dir, struct err *err);
