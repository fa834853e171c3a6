/* SPDX-License-Identifier: Apache-2.0 */
/* Words for what was denied, found from untrusted bytes. Pure: bytes in, texts out. */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>

#include "carrel.h"
#include "sandbox/outbound.h"

struct run;

/* "network none": denials of it that the kernel told are not inferred a second time. */
#define DENIED_BY_NETWORK "network none"

/* What to answer to a call that the filter asks about: the error, or 0 to let it go on, which only
 * calls that the kernel itself decides about are. Anything not known is EPERM. */
int denied_call_answer(const struct seccomp_data *call);
/* Where the address of a call that has one lies in its caller's memory, and how much of it to read;
 * 0: it has none. */
size_t denied_call_address(const struct seccomp_data *call, uint64_t *ret_at);
/* A connection that was refused with the host's network. */
void denied_connection(enum outbound why, const void *address, size_t n, struct carrel_denial *ret);
/* Fills all of *ret but `count`. False when there is nothing to tell: an address in the sandbox
 * itself. `n` bytes of `address` could be read, maybe 0. */
bool denied_call(const struct seccomp_data *call, const void *address, size_t n,
                 struct carrel_denial *ret);
/* The same for a line of error output. */
bool denied_line(const struct run *run, const char *line, size_t n, struct carrel_denial *ret);
/* Appends `n` bytes to the text in `to`, which has room for `size` with its end: other than
 * printable ASCII is escaped, what does not fit left out. */
void denied_append(char *to, size_t size, const char *bytes, size_t n);
