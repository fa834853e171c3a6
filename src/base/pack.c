/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pack.h"

#include <string.h>

#define NO_TEXT UINT32_MAX

static void pack_u32(struct buf *b, uint32_t number)
{
    buf_add(b, &number, sizeof(number));
}

void pack_u64(struct buf *b, uint64_t number)
{
    buf_add(b, &number, sizeof(number));
}

void pack_text(struct buf *b, const char *text)
{
    if (!text) {
        pack_u32(b, NO_TEXT);
        return;
    }
    size_t n = strlen(text);
    if (n >= NO_TEXT) {
        b->failed = true;
        return;
    }
    pack_u32(b, (uint32_t)n);
    buf_add(b, text, n + 1); /* with its end: the reader points into the message */
}

void pack_string(struct buf *b, const char *text)
{
    pack_text(b, text ? text : "");
}

void pack_list(struct buf *b, const char *const *list)
{
    uint32_t count = 0;

    while (list && list[count])
        count++;
    pack_u32(b, count);
    for (uint32_t i = 0; i < count; i++)
        pack_text(b, list[i]);
}

static bool take(struct unpack *u, void *to, size_t n)
{
    if (u->failed || (size_t)(u->end - u->at) < n) {
        u->failed = true;
        return false;
    }
    memcpy(to, u->at, n);
    u->at += n;
    return true;
}

static uint32_t unpack_u32(struct unpack *u)
{
    uint32_t number = 0;

    return take(u, &number, sizeof(number)) ? number : 0;
}

uint64_t unpack_u64(struct unpack *u)
{
    uint64_t number = 0;

    return take(u, &number, sizeof(number)) ? number : 0;
}

uint64_t unpack_upto(struct unpack *u, uint64_t max)
{
    uint64_t number = unpack_u64(u);

    if (number > max)
        u->failed = true;
    return u->failed ? 0 : number;
}

const char *unpack_text(struct unpack *u)
{
    uint32_t n = unpack_u32(u);

    if (u->failed || n == NO_TEXT)
        return NULL;
    /* Exactly one NUL, at its end: what is looked at is what is used. */
    if ((size_t)(u->end - u->at) <= n || memchr(u->at, '\0', (size_t)n + 1) != u->at + n) {
        u->failed = true;
        return NULL;
    }
    const char *text = u->at;
    u->at += (size_t)n + 1;
    return text;
}

const char *unpack_string(struct unpack *u)
{
    const char *text = unpack_text(u);

    return text ? text : "";
}

const char *unpack_bounded(struct unpack *u, size_t most)
{
    const char *text = unpack_text(u);

    if (!text || strlen(text) > most) {
        u->failed = true;
        return "";
    }
    return text;
}

const char **unpack_list(struct unpack *u, struct arena *arena, size_t most)
{
    uint32_t count = unpack_u32(u);

    if (u->failed || count > most) {
        u->failed = true;
        return NULL;
    }
    const char **list = arena_alloc(arena, ((size_t)count + 1) * sizeof(*list));
    for (uint32_t i = 0; list && i < count; i++) {
        list[i] = unpack_text(u);
        if (!list[i])
            u->failed = true;
    }
    if (!list)
        u->failed = true;
    return u->failed ? NULL : list;
}

bool unpack_done(const struct unpack *u)
{
    return !u->failed && u->at == u->end;
}
