/* SPDX-License-Identifier: Apache-2.0 */
/* What broker and carrel-sink say to each other, over a socket that keeps messages apart. */
#pragma once

#include <stdint.h>

enum {
    SINK_SOCKET = 3,
    SINK_FILE = 4, /* where heads go besides the state directory; or /dev/null */
    SINK_TEXT = 480,
};

/* From the broker. */
struct sink_order {
    uint64_t seq;    /* records up to this one are on disk: sign the last; 0: only get ready */
    uint64_t forget; /* heads of records before this one are of no more use; 0: keep all */
};

enum sink_status {
    SINK_SIGNED,
    SINK_FAILED,   /* not now: no room, say */
    SINK_MISMATCH, /* the record is not the one that was signed: never */
};

/* To the broker, one for each order. */
struct sink_answer {
    uint64_t seq; /* of the newest head */
    uint32_t status;
    char text[SINK_TEXT]; /* why not */
};
