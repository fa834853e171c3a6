/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* For tables in memory: SipHash-1-3 with a key that each process draws when it starts, so that a
 * tenant who chooses names cannot choose names with the same slot. */
uint64_t hash_text(const char *text);
uint64_t hash_bytes(const void *bytes, size_t n);
