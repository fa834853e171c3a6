/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel counts of a network namespace. */
#pragma once

#include <stdint.h>

/* How often no way was found for a connection or a datagram, over IPv4 or IPv6, in the network
 * whose files are in the directory `net`, "/proc/net" for one's own. What cannot be read counts 0.
 */
uint64_t network_refusals(const char *net);
