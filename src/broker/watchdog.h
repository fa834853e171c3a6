/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the front still answers. */
#pragma once

#include "broker/broker.h"

void watchdog_begin(struct broker *broker);
void watchdog_end(struct broker *broker);
void watchdog_answered(struct broker *broker, uint64_t number);
/* Whether there is a front that answers, or one may yet. */
bool watchdog_is_content(const struct broker *broker);
