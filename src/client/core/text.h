/* SPDX-License-Identifier: Apache-2.0 */
/* Text for people: safe on a terminal, times and sizes that can be read. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/escape.h"

/* How many columns such text takes: one for each character. */
size_t text_width(const char *text);

/* Adds the text for use as one segment of a path or one value of a query. */
void text_url(struct buf *b, const char *text);

/* Milliseconds since 1970 of "2026-01-02T03:04:05.678Z"; -1 when it is none. */
int64_t text_parse_time(const char *text);

enum {
    TEXT_SHORT = 32
};

/* "12s ago", "3m ago", "5h ago", "9d ago"; beyond 60 days "2026-01-02". `ret` has room for
 * TEXT_SHORT bytes and is returned. */
const char *text_ago(int64_t now_ms, int64_t then_ms, char *ret);
/* "0", "812", "1.5K", "12M". */
const char *text_bytes(uint64_t bytes, char *ret);

/* The number of a signal by its name, with or without SIG; 0: none. */
int text_signal(const char *name);
