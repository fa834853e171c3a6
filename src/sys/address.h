/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of network interfaces. */
#pragma once

#include <stdint.h>

/* Gives the loopback interface of this network that IPv4 address, in the host's order of bytes.
 * What its prefix covers is local from then on, all of it. 0 or -errno. */
int address_add_to_loopback(uint32_t address, unsigned prefix);
