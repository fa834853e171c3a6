/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf){.max = max};
}

void buf_clear(struct buf *b)
{
    free(b->p);
    *b = (struct buf){.max = b->max};
}

char *buf_room(struct buf *b, size_t n)
{
    size_t need;

    if (b->failed || __builtin_add_overflow(b->n, n, &need) || need > b->max) {
        b->failed = true;
        return NULL;
    }
    if (need + 1 > b->cap) {
        size_t cap = b->cap ? b->cap : 256;
        while (cap < need + 1)
            cap *= 2;
        char *p = realloc(b->p, cap);
        if (!p) {
            b->failed = true;
            return NULL;
        }
        b->p = p;
        b->cap = cap;
    }
    return b->p + b->n;
}

void buf_add(struct buf *b, const void *bytes, size_t n)
{
    char *at = buf_room(b, n);

    if (!at)
        return;
    if (n)
        memcpy(at, bytes, n);
    at[n] = '\0';
    b->n += n;
}

void buf_str(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;
    va_list again;
    char *at = buf_room(b, 0);
    size_t room = at ? b->cap - b->n : 0;

    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(at, room, format, args); /* mostly it fits */
    va_end(args);
    at = n >= 0 ? buf_room(b, (size_t)n) : NULL;
    if (at && (size_t)n >= room)
        vsnprintf(at, (size_t)n + 1, format, again);
    if (at)
        b->n += (size_t)n;
    else if (room)
        b->p[b->n] = '\0'; /* a buffer that refuses keeps what it has */
    b->failed |= !at;
    va_end(again);
}

int buf_done(struct buf *b)
{
    char *end = buf_room(b, 0);

    if (!end)
        return -1;
    *end = '\0'; /* nothing may have been added at all */
    return 0;
}

struct arena_block {
    struct arena_block *next;
    max_align_t bytes[];
};

void arena_init(struct arena *a, size_t max)
{
    *a = (struct arena){.max = max};
}

void arena_clear(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    a->used = 0;
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t used;
    size_t size;

    if (__builtin_add_overflow(a->used, n, &used) || used > a->max ||
        __builtin_add_overflow(sizeof(struct arena_block), n, &size))
        return NULL;
    struct arena_block *block = calloc(1, size);
    if (!block)
        return NULL;
    block->next = a->blocks;
    a->blocks = block;
    a->used = used;
    return block->bytes;
}

char *arena_copy(struct arena *a, const char *text, size_t n)
{
    char *copy = arena_alloc(a, n + 1);

    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args;
    va_list again;

    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}
