/* SPDX-License-Identifier: Apache-2.0 */
/* The process that sends the record elsewhere. */
#pragma once

#include "broker/broker.h"

void export_start(struct broker *broker);
void export_stop(struct broker *broker);
