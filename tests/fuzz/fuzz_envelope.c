/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of Connect, as E2B's clients send them: each that is taken lies in the bytes, and is
 * found again however many bytes come behind it; of one that is not whole yet nothing is. */
#include "fuzz.h"

#include <string.h>

#include "front/e2b/envelope.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    size_t at = 0;

    while (at < size) {
        const char *json = NULL;
        size_t n = 0;
        ssize_t taken = envelope_next(bytes + at, size - at, &json, &n);
        if (taken <= 0)
            break;
        MUST((size_t)taken <= size - at && n + ENVELOPE_HEAD == (size_t)taken);
        MUST(json == bytes + at + ENVELOPE_HEAD);
        const char *other;
        size_t other_n;
        MUST(envelope_next(bytes + at, (size_t)taken, &other, &other_n) == taken);
        MUST(envelope_next(bytes + at, (size_t)taken - 1, &other, &other_n) == 0);
        at += (size_t)taken;
    }
    return 0;
}
