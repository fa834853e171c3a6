/* SPDX-License-Identifier: Apache-2.0 */
/* A process that needs few files, and no or few TCP ports, gives up the rest. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LANDLOCK_ANY_PORT = 65536 /* for port_count: to all of them; listening stays refused */
};

struct landlock_place {
    const char *path;
    bool writes;   /* else to be read only */
    bool makes;    /* with writes: directories and symlinks, too, and files are moved and linked */
    bool may_lack; /* it need not exist */
    bool runs;     /* programs there may be started */
    bool unasked;  /* a directory, and who serves it may not answer yet */
};

/* After no_new_privs. Only these places, and below; TCP connections to these ports only, where the
 * kernel can say so. 0, -ENOSYS where there is no Landlock, or -errno. */
int landlock_confine(const struct landlock_place *places, size_t count, const uint16_t *ports,
                     size_t port_count);
