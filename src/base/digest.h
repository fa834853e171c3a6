/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

enum {
    DIGEST_BYTES = 32,
    DIGEST_HEX = 2 * DIGEST_BYTES + 1 /* with its NUL */
};

/* SHA-256, in any thread; for programs that have libcrypto. 0 or -EIO, which leaves `ret` alone:
 * two failures must not pass for equal. */
int digest_bytes(const void *bytes, size_t n, unsigned char ret[DIGEST_BYTES]);
/* ... as hex digits. */
int digest_hex(const void *bytes, size_t n, char ret[DIGEST_HEX]);
