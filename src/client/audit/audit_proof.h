/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "audit/head.h"
#include "client/audit/audit_verify.h"

/* What a record is held against, and where that is from. */
struct proof {
    struct audit_keys keys;
    struct audit_anchors anchors;
    const char *hash;
    bool has_key;      /* it was given, not read beside the record */
    bool has_heads;    /* likewise */
    bool has_signer;   /* a daemon that signs has kept this record, here */
    bool has_own_key;  /* its key is beside the record */
    uint64_t own;      /* of the newest head beside the record; 0: there is none */
    uint64_t kept;     /* of the newest that was given */
    uint64_t last;     /* of the newest that the sink has signed, where it can be read */
    bool is_behind;    /* the trouble may be that the record went on while it was read */
    char trouble[400]; /* what is wrong with the heads themselves; "" : nothing */
};

int proof_read_keys(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                    struct err *err);
int proof_read(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
               struct err *err);
/* Once the chain was held against them: what is missing of the heads becomes the trouble. */
void proof_judge(struct proof *proof, const struct audit_report *report);
/* What a verification that found nothing could not rule out, and the remedy. */
void proof_rest(const struct proof *proof, const struct audit_report *report, struct buf *b);
