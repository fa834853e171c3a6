/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox for each workspace that is awake. */
#pragma once

#include "broker/broker.h"

/* The one that writes to the workspace's tree. */
struct sandbox *sandbox_find(const struct broker *broker, const char *workspace);
/* The one of a plan; "": as above. */
struct sandbox *sandbox_find_plan(const struct broker *broker, const char *workspace,
                                  const char *plan);
/* Any of the workspace's. */
struct sandbox *sandbox_find_any(const struct broker *broker, const char *workspace);
/* 1: the sandbox is ending, and the message, of that kind, was kept for later. */
int sandbox_find_or_start(struct broker *broker, uint32_t kind, const struct exec_message *m,
                          uint64_t tag, struct sandbox **ret, struct err *err);
void sandbox_end(struct sandbox *sandbox, const char *why);
/* The same where nothing is to be done to its tree: calls on files that are under way may finish.
 */
void sandbox_put_to_sleep(struct sandbox *sandbox, const char *why);
/* ANSWER_SANDBOX or EVENT_SANDBOX_LIVE. */
void sandbox_tell(const struct sandbox *sandbox, uint32_t kind, uint64_t tag);
/* A request, as packed, is looked at again when it is over. Returns 1. */
int sandbox_put_off(struct sandbox *sandbox, uint32_t kind, struct buf *request, uint64_t tag,
                    const char *shown, struct err *err);
/* ANSWER_OK to this tag when it is over. */
int sandbox_await_end(struct sandbox *sandbox, uint64_t tag, struct err *err);
/* The rules of the network are those of the message, where no more than that has changed. */
void sandbox_change_network(struct broker *broker, const struct exec_message *m);
/* Reports a refused call to the front, which passes it to the commands' followers. */
void sandbox_deny(struct sandbox *sandbox, const struct carrel_denial *denial);
/* Adds what is told of the one that writes to the workspace's tree: see REQUEST_USAGE. */
void sandbox_usage(struct broker *broker, const char *workspace, struct buf *numbers);
/* After any call into its session. */
void sandbox_rearm(struct sandbox *sandbox);
/* Frees the sandboxes that are over, and goes on with what waited for their end. */
void sandbox_sweep(struct broker *broker);
void sandbox_end_all(struct broker *broker, const char *why);
/* Whether the workspace's tree appears in it: as its own, or as another's that is shown. */
bool sandbox_shows(const struct sandbox *sandbox, const char *workspace);
/* Commands that came while it was ending, of those that would show this workspace's tree, are
 * refused. */
void sandbox_refuse_deferred(struct sandbox *sandbox, const char *workspace, const char *why);
