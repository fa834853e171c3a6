/* SPDX-License-Identifier: Apache-2.0 */
/* One thing that is done with a store, by a process of the broker's (carrel-mover), which tells how
 * far it is. */
#pragma once

#include <jansson.h>

#include "front/core/front.h"
#include "protocol/store_job.h"

struct store_work;

struct store_end {
    json_t *done; /* what it has to say; NULL: it failed */
    int status;   /* as of HTTP, of the failure */
    const char *code;
    const char *message;
};

struct store_calls {
    void (*progress)(void *owner, const json_t *progress);   /* or NULL */
    void (*ended)(void *owner, const struct store_end *end); /* the last that is told */
};

/* NULL without memory. */
struct store_work *store_work_start(struct front *front, const struct store_job *job,
                                    const struct store_calls *calls, void *owner);
/* Ends it; that is told as its end. */
void store_work_cancel(struct store_work *work);
