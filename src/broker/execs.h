/* SPDX-License-Identifier: Apache-2.0 */
/* The commands in the sandboxes, and what the front is told of them. */
#pragma once

#include "broker/broker.h"

struct broker_exec *broker_exec_find(const struct broker *broker, const char *id);
void broker_exec_request(struct broker *broker, uint64_t tag, const struct exec_message *m);
void broker_exec_forget(struct broker_exec *exec);
/* Now, or with what is in the backlog. */
void broker_exec_end_input(struct broker_exec *exec, bool after_backlog);
/* Whether the front has written down the end of every one. */
bool broker_execs_are_told(const struct broker *broker);
/* At the very end. */
void broker_execs_clear(struct broker *broker);
/* All that is known of it, to a new front. */
void broker_exec_tell(struct broker_exec *exec, uint64_t resume_tag);
bool broker_exec_is_starting(const struct broker_exec *exec);
/* For struct session_calls. */
void broker_exec_started(void *owner, struct exec *exec, int fds[3]);
void broker_exec_ended(void *owner, struct exec *exec, const struct carrel_result *result);
void broker_exec_gone(void *owner, struct exec *exec);
void broker_exec_root(void *owner, const char *command);
