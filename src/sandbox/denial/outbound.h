/* SPDX-License-Identifier: Apache-2.0 */
/* Where a sandbox with the host's network still may not connect to: addresses at which clouds hand
 * out the host's credentials, and Carrel's own port. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "carrel.h"

enum outbound {
    OUTBOUND_FREE,
    OUTBOUND_METADATA,
    OUTBOUND_OWN_PORT,
};

/* `address` is a sockaddr of `n` bytes, as connect(2) takes it; what is no internet address is
 * free. `ports` are Carrel's, until the first 0; none at all: the one a daemon has by default. */
enum outbound outbound_judge(const void *address, size_t n, const uint16_t ports[CARREL_MAX_PORTS]);
