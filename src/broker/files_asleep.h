/* SPDX-License-Identifier: Apache-2.0 */
/* Reads files of workspaces that sleep (protocol/files_asleep.h). */
#pragma once

#include "broker/broker.h"

void asleep_prepare(struct broker *broker);
void asleep_close(struct broker *broker);
/* ANSWER_FILES, or ANSWER_ERROR where only the sandbox can answer. */
void asleep_request(struct broker *broker, uint64_t tag, const struct plain_message *m);
/* Nobody reads the tree this way any more; at once, but not before asleep_is_read says so. */
void asleep_end(struct broker *broker, const char *workspace);
bool asleep_is_read(const struct broker *broker, const char *workspace);
