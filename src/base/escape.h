/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of others as text for people, safe on a terminal. Pure. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

/* Adds the text with everything that could drive or confuse a terminal written as \xNN or \u{N}:
 * control characters, what is not UTF-8, marks that turn the direction of writing. */
void text_escape(struct buf *b, const char *bytes, size_t n);
