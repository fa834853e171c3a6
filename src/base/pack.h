/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and texts as bytes for messages between our own processes. Failure sticks on both sides:
 * write or read everything, check once. A reader never looks beyond its bytes, whatever they say.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

void pack_u64(struct buf *b, uint64_t number);
void pack_text(struct buf *b, const char *text); /* NULL is told apart from "" */
/* NULL and "" alike, so that every message has one form only. */
void pack_string(struct buf *b, const char *text);
void pack_list(struct buf *b, const char *const *list); /* ends with NULL; NULL is an empty one */

struct unpack {
    char *at;
    char *end;
    bool failed;
};

uint64_t unpack_u64(struct unpack *u);
/* At most max; beyond that it fails. */
uint64_t unpack_upto(struct unpack *u, uint64_t max);
/* Points into the message; NULL where NULL was packed, or on failure. */
const char *unpack_text(struct unpack *u);
/* Never NULL: "" on failure and for NULL. */
const char *unpack_string(struct unpack *u);
/* Likewise, but fails for NULL, and for a text longer than `most`. */
const char *unpack_bounded(struct unpack *u, size_t most);
/* A list that ends with NULL, in `arena`, of pointers into the message; NULL on failure. */
const char **unpack_list(struct unpack *u, struct arena *arena, size_t most);
/* True when everything was read, and nothing is left over. */
bool unpack_done(const struct unpack *u);
