/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker tells: first all that lives, then what happens. */
#pragma once

#include "front/core/front.h"

/* Asks; front->resumed is set when all has been told and the rows agree with it. */
void resume_ask(struct front *front);
/* Everything that was not asked for, and ANSWER_RAN. */
broker_heard resume_event;
