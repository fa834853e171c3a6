/* SPDX-License-Identifier: Apache-2.0 */
/* A message of one of Connect's streams: a byte of flags, four of its length (the first is the
 * highest), and JSON. Pure. */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/buf.h"

enum {
    ENVELOPE_HEAD = 5,
    ENVELOPE_MOST = 4 << 20,
    ENVELOPE_END = 2, /* flag: the last one, which says how it went */
};

/* >0: how long the first message of the bytes is, with its head, and its JSON; 0: it is not whole
 * yet; -1: it is none that we read. */
ssize_t envelope_next(const char *bytes, size_t n, const char **ret_json, size_t *ret_n);
/* Takes the object. */
void envelope_put(struct buf *b, unsigned flags, json_t *object);
/* The last message: an error, or, with code NULL, that all is well. */
void envelope_end(struct buf *b, const char *code, const char *message);
