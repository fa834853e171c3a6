/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "front/core/front.h"

enum {
    ID_DIGITS = 26
};

/* From the kernel for several ids at a time, as asking costs more than the bytes. Each is handed
 * out once and is nowhere afterwards; nobody forks here, who would hand them out again. */
static void take_random(unsigned char *ret, size_t n)
{
    static unsigned char kept[9 * ID_DIGITS]; /* up to 256 come whole or not at all */
    static size_t left;

    if (left < n) {
        if (getrandom(kept, sizeof(kept), 0) != (ssize_t)sizeof(kept))
            abort(); /* an address that can be guessed is open to everybody */
        left = sizeof(kept);
    }
    left -= n;
    memcpy(ret, kept + left, n);
    explicit_bzero(kept + left, n);
}

void make_id(char letter, char ret[28])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[ID_DIGITS];

    take_random(bytes, sizeof(bytes));
    ret[0] = letter;
    for (size_t i = 0; i < sizeof(bytes); i++)
        ret[1 + i] = digits[bytes[i] & 31];
    ret[27] = '\0';
}

void hash_hex(const void *bytes, size_t n, char ret[FRONT_HASH])
{
    _Static_assert((int)FRONT_HASH == (int)DIGEST_HEX, "a hash is a SHA-256");
    /* Two failures would be equal: nobody may be let in by that. */
    if (digest_hex(bytes, n, ret) < 0)
        abort();
}

json_t *time_json(int64_t ms)
{
    char text[40];
    struct tm parts;
    time_t seconds = (time_t)(ms / 1000);

    if (ms <= 0 || !gmtime_r(&seconds, &parts))
        return json_null();
    size_t n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + n, sizeof(text) - n, ".%03dZ", (int)(ms % 1000));
    return json_string(text);
}
