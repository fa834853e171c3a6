/* SPDX-License-Identifier: Apache-2.0 */
/* What the answer to a _bulk request says of each document. Pure: bytes from the network in. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum bulk_verdict {
    BULK_RETRY, /* not now */
    BULK_DONE,  /* made, or there already */
    BULK_DEAD,  /* it will never be taken as it is */
};

enum {
    BULK_REASON = 200,
    BULK_ID = 96,
};

struct bulk_item {
    char id[BULK_ID];
    size_t at; /* of its document in the batch */
    size_t n;
    enum bulk_verdict verdict;
    char reason[BULK_REASON]; /* "" : good */
};

/* An HTTP 200. `items` are those that were sent, in order. False: the answer is not to this
 * request; then all of it is to be sent again, which does no harm. */
bool bulk_judge(const char *answer, size_t n, struct bulk_item **items, size_t count);
/* Whether another status was said by the service itself, of this very document: JSON with the same
 * status and an error. A proxy's page is not. */
bool bulk_is_own_error(const char *answer, size_t n, long status);
