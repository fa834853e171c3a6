/* SPDX-License-Identifier: Apache-2.0 */
/* Set-id bits: directories may have them, files never. A filter does not see what a chmod(2) is of,
 * and to look at it and then let the call go on would be a race; so the listener does such calls in
 * their callers' place, by a descriptor of which it knows what it is open on. A file gets the mode
 * without the bits. It is done with the caller's rights, by a thread that has no others: what the
 * caller could not have changed is refused by the kernel. */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>

struct identity;

/* Makes this thread one that reaches as far into files as the user inside. -errno: it must not do
 * their calls. */
int setid_become_caller(const struct identity *id);
/* Whether it is one of these calls; *ret_mode: what it asks for. */
bool setid_is_chmod(const struct seccomp_data *call, uint32_t *ret_mode);
/* Does it: 0 or -errno, to be answered. *ret_dropped: it was of a file, and the bits were left out.
 * `of_base`: callers have different ids and rights (system.h), so it is done with those of this
 * one, in its user namespace. */
int setid_chmod(int listener, const struct seccomp_notif *ask, bool of_base, bool *ret_dropped);
