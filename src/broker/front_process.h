/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the front, and again when it dies. */
#pragma once

#include "broker/broker.h"

int front_start(struct broker *broker, struct err *err);
/* For one that breaks the rules. */
void front_kill(struct broker *broker);
/* front_pid is 0 once it has. */
void front_ask_to_end(struct broker *broker);
