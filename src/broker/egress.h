/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name: carrel-egress, one for all sandboxes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/pack.h"
#include "broker/broker.h"
#include "sandbox/denial/denied.h"

enum {
    EGRESS_MOST_PRIVATE = 32, /* hosts of the setting network_private */
};

/* At the start: those about names. */
int egress_check_settings(const struct broker *broker, struct err *err);
/* Whether the rules are rules, and within what the settings allow. */
int egress_check(const struct broker *broker, const struct spec_message *m, struct err *err);
/* In place of sets the rules that they stand for; what comes of it is in `arena`. */
int egress_expand(const struct broker *broker, struct spec_message *m, struct arena *arena,
                  struct err *err);
/* REQUEST_NETWORK. */
void egress_request(struct broker *broker, uint64_t tag, const struct exec_message *m);
/* Whether a sandbox made for the ones will do for the others. */
bool egress_is_alike(const char *const *was, const char *const *is);
/* "a, b c": at most `most` words of it, cut up in place. */
size_t egress_split(char *text, const char **words, size_t most);
/* What a sandbox keeps of it. */
void egress_pack_network(struct buf *b, const struct spec_message *m);
/* The sockets that the sandbox's pid 1 has made; borrowed. */
void egress_add(struct sandbox *sandbox, const int *fds, size_t count);
/* Other rules for a sandbox that lives, from now on; false: for all that they allow another one is
 * needed. */
bool egress_change(struct sandbox *sandbox, const struct spec_message *m);
void egress_drop(struct sandbox *sandbox);
/* Holds for the next request; value "": it is none any more. */
void egress_secret(struct broker *broker, const char *owner, const char *name, const char *value);
/* What was refused by now is told. */
void egress_hear(struct broker *broker);
void egress_stop(struct broker *broker);
