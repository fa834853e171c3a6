/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the oldest segments may go, and their going. */
#pragma once

#include <stdint.h>

#include "audit/line.h"
#include "base/err.h"

struct audit_keep {
    uint64_t most_bytes;     /* of all segments; 0: any number */
    char before[AUDIT_TIME]; /* records older than this may go; "" : none */
};

/* The oldest segments, up to and with number `last`; those that may go together. */
struct audit_drop {
    uint32_t last; /* 0: none */
    unsigned segments;
    uint64_t bytes;
    uint64_t left; /* bytes of those that stay */
    struct audit_checkpoint checkpoint;
};

/* The newest segment always stays. `through`: nothing after this record may go. */
int audit_retain_plan(int dir, const struct audit_keep *keep, uint64_t through,
                      struct audit_drop *ret, struct err *err);
/* After the checkpoint is on record. */
int audit_retain_drop(int dir, uint32_t last, struct err *err);
/* The details of the record; `unexported`: how many of them were not exported. */
void audit_checkpoint_encode(struct buf *b, const struct audit_drop *drop, uint64_t unexported,
                             const char *head);

/* The first record of a segment; false: none can be read. */
struct audit_first {
    uint64_t seq;
    char time[AUDIT_TIME];
    char prev[AUDIT_HEX];
};

bool audit_first(int dir, uint32_t number, struct audit_first *ret);
/* A number so that no record up to it is as late as `time`. */
uint64_t audit_seq_before(const char *path, const char *time);
/* "2026-01-02", "2026-01-02T03:04", with seconds, with a fraction, with or without Z; UTC. */
bool audit_time_parse(const char *text, char ret[AUDIT_TIME]);
/* The time of some ms before now. */
void audit_time_ago(uint64_t ms, char ret[AUDIT_TIME]);
