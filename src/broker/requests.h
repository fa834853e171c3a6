/* SPDX-License-Identifier: Apache-2.0 */
/* The table of what a front may ask for. */
#pragma once

#include "broker/broker.h"

/* `bytes` are changed. */
void request_handle(struct broker *broker, uint32_t kind, char *bytes, size_t n);
/* Logs, records, and ends the front. */
void request_refuse(struct broker *broker, uint32_t kind, const char *why);
/* Answers a RESUME once nothing that another front asked for is being started. */
void request_try_resume(struct broker *broker);
