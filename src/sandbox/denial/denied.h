/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what was denied, found from untrusted bytes. Pure: bytes in, texts out. */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>

#include "carrel.h"
#include "sandbox/denial/outbound.h"

struct run_view;

/* "network none": denials of it that the kernel told are not inferred a second time. */
#define DENIED_BY_NETWORK "network none"
#define DENIED_BY_NAMES   "network by name"
#define DENIED_BY_NETWORK_FIX                                                                      \
    "--allow HOST lets it reach that name (in a policy: \"network\": {\"allow\": [\"HOST\"]}); "   \
    "--net host gives it the host's network"

#define DENIED_BY_NAMES_FIX                                                                        \
    "only names are reached, not addresses: connect to a name, and --allow HOST it (in a "         \
    "policy: \"network\": {\"allow\": [\"HOST\"]})"

/* What to answer to a call that the filter asks about: the error, or 0 to let it go on, which only
 * calls that the kernel itself refuses are. Anything not known is EPERM. */
int denied_call_answer(const struct seccomp_data *call);
/* Fills all of *ret but `count`. */
void denied_call(const struct seccomp_data *call, struct carrel_denial *ret);
/* What the kernel refused for want of a network, whatever it was. */
void denied_refusal(enum carrel_net net, struct carrel_denial *ret);
/* What carrel-egress refused: a name (port 0) or a connection, by which rule or "", why, and what
 * to do about it, "" for what follows from these. */
void denied_name(const char *host, unsigned port, const char *rule, const char *why,
                 const char *fix, struct carrel_denial *ret);
/* Set-id bits that were left out of a file's mode. */
void denied_bits(uint32_t mode, struct carrel_denial *ret);
/* A connection that was refused with the host's network. */
void denied_connection(enum outbound why, const void *address, size_t n, struct carrel_denial *ret);
/* The same for a line of error output; false when there is nothing to tell. */
bool denied_line(const struct run_view *run, const char *line, size_t n, struct carrel_denial *ret);
/* Appends `n` bytes to the text in `to`, which has room for `size` with its end: other than
 * printable ASCII is escaped, what does not fit left out. */
void denied_append(char *to, size_t size, const char *bytes, size_t n);
