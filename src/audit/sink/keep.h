/* SPDX-License-Identifier: Apache-2.0 */
/* The key, and the heads that were signed with it. */
#pragma once

#include "audit/head.h"

struct keep {
    EVP_PKEY *pair;
    int heads; /* heads/heads.jsonl */
    int file;  /* the sink's own; -1: none */
    char sink[AUDIT_SINK];
    struct audit_head last; /* seq 0: none yet */
    uint64_t signed_seq;    /* of the newest that was ever signed, when this was opened */
};

/* Reads or makes the key; reads the last head. `sink` is for struct audit_head. */
int keep_open(struct keep *keep, const char *sink, int file, struct err *err);
/* Heads that were signed are gone. */
int keep_check(const struct keep *keep, struct err *err);
void keep_close(struct keep *keep);
/* Signs, and keeps: in the state directory and the sink's file, on disk. */
int keep_head(struct keep *keep, uint64_t seq, const char hash[AUDIT_HEX], struct err *err);
/* Takes away the heads of records before `seq`. */
int keep_forget(struct keep *keep, uint64_t seq, struct err *err);
