/* SPDX-License-Identifier: Apache-2.0 */
/* The symlinks of trees that were there before Carrel: .solven/skills/system, .solven/skills/user
 * and .ticket led, by absolute or relative paths of the host, to the bucket's skills and to another
 * thread. Inside, such a path leads into the workspace itself; what it names is mounted there, if
 * the workspace's settings give it.
 *
 * What a tenant has written into a link chooses nothing: a link is taken only if it names one of
 * the bucket's own directories, and the place inside is then the end of that directory's path. */
#pragma once

#include <stdbool.h>

#include "protocol/broker.h"

enum {
    OLDLINK_PATH = 2048,
};

struct oldlink {
    char names[PROTOCOL_ID + 16]; /* "skills/NAME" or "threads/NAME" */
    char place[OLDLINK_PATH];     /* inside, without its first slash: where the link leads */
};

/* By its text alone, without looking at any file. `bucket` is the bucket's path on the host, `at`
 * where the link is in the workspace ("a/b"). False: it names nothing of the bucket. */
bool oldlink_read(const char *bucket, const char *workspace, const char *at, const char *target,
                  struct oldlink *ret);
