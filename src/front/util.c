/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/fd.h"
#include "front/front.h"

int64_t wall_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void make_id(char letter, char ret[28])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char bytes[26];

    memset(bytes, 0, sizeof(bytes));
    ignore(getrandom(bytes, sizeof(bytes), 0)); /* cannot fail for so few, once the kernel is up */
    ret[0] = letter;
    for (size_t i = 0; i < sizeof(bytes); i++)
        ret[1 + i] = digits[bytes[i] & 31];
    ret[27] = '\0';
}

void hash_hex(const void *bytes, size_t n, char ret[FRONT_HASH])
{
    unsigned char digest[32] = {0};

    /* Two failures would be equal: nobody may be let in by that. */
    if (EVP_Digest(bytes, n, digest, NULL, EVP_sha256(), NULL) != 1)
        abort();
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
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
