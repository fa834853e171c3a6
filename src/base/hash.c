/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t key[2];

/* Ahead of any thread. So few bytes are never refused once the machine has started. */
__attribute__((constructor)) static void draw_key(void)
{
    if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
        abort();
}

static uint64_t turn(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

static void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = turn(v[1], 13) ^ v[0];
    v[3] = turn(v[3], 16) ^ v[2];
    v[0] = turn(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = turn(v[1], 17) ^ v[2];
    v[3] = turn(v[3], 21) ^ v[0];
    v[2] = turn(v[2], 32);
}

static void take(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    mix(v);
    v[0] ^= word;
}

uint64_t hash_bytes(const void *bytes, size_t n)
{
    uint64_t v[4] = {key[0] ^ 0x736f6d6570736575U, key[1] ^ 0x646f72616e646f6dU,
                     key[0] ^ 0x6c7967656e657261U, key[1] ^ 0x7465646279746573U};
    const unsigned char *at = bytes;
    uint64_t word;

    for (size_t left = n; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        take(v, word);
    }
    word = 0;
    memcpy(&word, at, n % 8);
    take(v, word | (uint64_t)n << 56);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t hash_text(const char *text)
{
    return hash_bytes(text, strlen(text));
}
