/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of carrel-plan about snapshots, for a call: it is done to its end, also when the
 * client has gone. */
#pragma once

#include <jansson.h>

#include "front/core/call.h"
#include "protocol/broker.h"

/* It went well; `answer` is borrowed. `frozen_ms`: for how long commands stood still. */
typedef void job_done(struct call *call, json_t *answer, uint64_t frozen_ms);
/* It did not, before the client is told. NULL: there is nothing to do. */
typedef void job_failed(struct call *call);

struct job_calls {
    job_done *done;
    job_failed *failed;
};

struct job_wish {
    const struct store_workspace *of; /* NULL: the call's */
    enum plan_verb verb;
    const char *base; /* as in struct plan_message */
    const char *theirs;
    json_t *job; /* taken */
};

/* Every refusal is answered. */
void job_start(struct call *call, const struct job_wish *wish, const struct job_calls *calls);
/* Whether the workspace is in the trash, or its owner has too many under way: answered. */
bool job_refused(struct call *call);
