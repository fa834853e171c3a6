/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/mask.h"

#include <stdlib.h>
#include <string.h>

void mask_begin(struct mask *m)
{
    buf_init(&m->held, MASK_WORD + (64UL << 10));
    buf_init(&m->done, MASK_WORD + (64UL << 10));
}

void mask_clear(struct mask *m)
{
    buf_clear(&m->held);
    buf_clear(&m->done);
    while (m->count > 0) {
        explicit_bzero(m->words[m->count - 1], m->lengths[m->count - 1]);
        free(m->words[--m->count]);
    }
}

bool mask_add(struct mask *m, const char *word, size_t n)
{
    if (n < MASK_BEGINNING)
        return true;
    for (size_t i = 0; i < m->count; i++) {
        if (m->lengths[i] == n && memcmp(m->words[i], word, n) == 0)
            return true;
    }
    if (m->count == MASK_WORDS || n > MASK_WORD)
        return false;
    char *copy = malloc(n);
    if (!copy)
        return false;
    memcpy(copy, word, n);
    m->words[m->count] = copy;
    m->lengths[m->count++] = n;
    return true;
}

/* Looks in `bytes`, and writes into `to`, which is a copy of it. */
static void take_out(const struct mask *m, const char *bytes, size_t n, char *to)
{
    for (size_t i = 0; i < m->count; i++) {
        size_t at = 0;
        const char *found;
        while (n - at >= m->lengths[i] &&
               (found = memmem(bytes + at, n - at, m->words[i], m->lengths[i]))) {
            at = (size_t)(found - bytes);
            memset(to + at, '*', m->lengths[i]);
            at++; /* it may overlap itself */
        }
    }
}

/* How many bytes at the end are the beginning of a word. */
static size_t beginning(const struct mask *m, const char *bytes, size_t n)
{
    size_t most = 0;

    for (size_t i = 0; i < m->count; i++) {
        size_t some = m->lengths[i] - 1 < n ? m->lengths[i] - 1 : n;
        const char *at = bytes + n - some;
        /* The longest first: the first byte says where one can begin. */
        while (some > most && (at = memchr(at, m->words[i][0], some))) {
            some = (size_t)(bytes + n - at);
            if (some > most && memcmp(at, m->words[i], some) == 0)
                most = some;
            at++;
            some--;
        }
    }
    return most;
}

void mask_bytes(struct mask *m, const char *bytes, size_t n, bool last, struct buf *out)
{
    buf_add(&m->held, bytes, n);
    buf_add(&m->done, bytes, n);
    if (m->held.failed || m->done.failed) {
        out->failed = true;
        return;
    }
    if (m->held.n == 0)
        return;
    take_out(m, m->held.p, m->held.n, m->done.p);
    size_t keep = beginning(m, m->held.p, m->held.n);
    if (last && keep >= MASK_BEGINNING)
        memset(m->done.p + m->done.n - keep, '*', keep);
    keep = last ? 0 : keep;
    size_t ready = m->held.n - keep;
    buf_add(out, m->done.p, ready);
    memmove(m->held.p, m->held.p + ready, keep);
    memmove(m->done.p, m->done.p + ready, keep);
    m->held.n = m->done.n = keep;
}

void mask_whole(const struct mask *m, char *bytes, size_t n)
{
    for (size_t i = 0; i < m->count; i++) {
        size_t at = 0;
        const char *found;
        while (n - at >= m->lengths[i] &&
               (found = memmem(bytes + at, n - at, m->words[i], m->lengths[i]))) {
            at = (size_t)(found - bytes);
            memset(bytes + at, '*', m->lengths[i]);
        }
    }
}
