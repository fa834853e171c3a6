/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* What envd's EntryInfo says of an entry of ours. `target`: what a link leads to, itself for all
 * others; NULL: it leads nowhere. NULL without memory. */
json_t *entry_told(const json_t *entry, const json_t *target);
