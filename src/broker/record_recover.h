/* SPDX-License-Identifier: Apache-2.0 */
/* Ends, in the record, of what a killed daemon had begun. */
#pragma once

#include "broker/broker.h"

/* What the daemon before this one had begun when it was killed ended with it: adds that to the
 * record. To be called before the start of this one is in it. */
int record_recover(struct broker *broker, struct err *err);
