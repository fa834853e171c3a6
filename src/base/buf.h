/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer with a ceiling. Failure sticks: add all, check once with buf_done. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char *p;
    size_t n;
    size_t cap;
    size_t max;
    bool failed; /* past max, or no memory */
};

void buf_init(struct buf *b, size_t max);
void buf_clear(struct buf *b);
void buf_add(struct buf *b, const void *bytes, size_t n);
void buf_str(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns where n bytes and a NUL can be written; the caller adds what it has written to b->n.
 * NULL: failed. */
char *buf_room(struct buf *b, size_t n);
/* 0, or -1 when something did not fit. The bytes are also NUL-terminated. */
int buf_done(struct buf *b);

#define scoped_buf __attribute__((cleanup(buf_clear)))

/* Strings that live as long as the arena; freed together. */
struct arena {
    struct arena_block *blocks;
    size_t used; /* bytes handed out */
    size_t max;
};

void arena_init(struct arena *a, size_t max);
void arena_clear(struct arena *a);
void *arena_alloc(struct arena *a, size_t n); /* zeroed; NULL past max or without memory */
char *arena_copy(struct arena *a, const char *text, size_t n);
char *arena_printf(struct arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));
