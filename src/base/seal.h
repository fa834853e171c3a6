/* SPDX-License-Identifier: Apache-2.0 */
/* A text that only one process can read: sealed for a key whose other half that process has
 * (X25519, HKDF-SHA256, AES-256-GCM, a fresh pair of keys for each text). Who seals cannot open.
 * For programs that have libcrypto. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

struct buf;

enum {
    SEAL_KEY = 32,
    SEAL_MOST = 8 << 10, /* longest text */
    SEAL_MORE = 1 + SEAL_KEY + 16,
    SEAL_HEX = 2 * (SEAL_MOST + SEAL_MORE) + 1,
};

/* Has libcrypto read what it needs, before a process gives up its files. 0 or -EIO. */
int seal_prepare(void);
/* The half that may be known, of the one that may not. 0 or -EIO. */
int seal_public(const unsigned char secret[SEAL_KEY], unsigned char ret[SEAL_KEY]);
/* Adds it as hex digits; it opens only together with the same `about`. 0, -E2BIG or -EIO. */
int seal(const unsigned char public[SEAL_KEY], const char *about, const char *text, size_t n,
         struct buf *ret);
/* Into `ret`, with room for SEAL_MOST + 1, and a NUL behind it; its length, or -EBADMSG. */
ssize_t seal_open(const unsigned char secret[SEAL_KEY], const char *about, const char *sealed,
                  char *ret);
