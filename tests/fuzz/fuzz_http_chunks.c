/* SPDX-License-Identifier: Apache-2.0 */
/* Chunked bodies: whatever the pieces they come in, the same bytes come out, as many are taken, and
 * the same bodies are refused. The decoded bytes must be what a reader of the simplest kind finds.
 */
#include "fuzz.h"

#include <string.h>

#include "http/server.h"

enum {
    MAX = 1 << 16
};

struct outcome {
    char data[MAX];
    size_t data_n;
    size_t taken;
    bool done;
    bool refused;
};

static void decode(const uint8_t *data, size_t size, size_t piece, struct outcome *ret)
{
    struct http_chunks c = {0};
    size_t room = piece < size ? piece : size;
    char *end = (char *)malloc(room ? room : 1) + room;

    MUST(end - room);
    ret->data_n = 0;
    ret->taken = 0;
    ret->done = false;
    ret->refused = false;
    while (ret->taken < size && !ret->done && !ret->refused) {
        size_t n = size - ret->taken < piece ? size - ret->taken : piece;
        size_t decoded = 0;
        char *copy = end - n; /* to see any step over it */
        memcpy(copy, data + ret->taken, n);
        ssize_t taken = http_chunks_decode(&c, copy, n, &decoded, &ret->done);
        ret->refused = taken < 0;
        if (taken >= 0) {
            MUST((size_t)taken <= n && decoded <= (size_t)taken);
            MUST((size_t)taken == n || ret->done);
            memcpy(ret->data + ret->data_n, copy, decoded);
            ret->data_n += decoded;
            ret->taken += (size_t)taken;
        }
    }
    free(end - room);
}

/* Of a body that was taken: its sizes and data, read again by other means. */
static void must_agree(const uint8_t *data, size_t size, const struct outcome *found)
{
    size_t at = 0;
    size_t n = 0;

    for (;;) {
        char digits[20] = "";
        char *end;
        MUST(at < size);
        for (size_t i = 0; i < sizeof(digits) - 1 && at + i < size; i++)
            digits[i] = (char)data[at + i];
        size_t length = strtoul(digits, &end, 16);
        MUST(end > digits && (*end == '\r' || *end == ';'));
        const uint8_t *line = memchr(data + at, '\n', size - at);
        MUST(line);
        at = (size_t)(line + 1 - data);
        if (length == 0)
            break;
        MUST(length <= size - at && length <= found->data_n - n);
        MUST(memcmp(data + at, found->data + n, length) == 0);
        n += length;
        at += length + 2;
    }
    MUST(n == found->data_n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct outcome whole;
    static struct outcome bytes;
    static struct outcome pieces;

    if (size > MAX)
        return 0;
    decode(data, size, MAX, &whole);
    decode(data, size, 1, &bytes);
    decode(data, size, size ? 2 + data[0] % 16 : 2, &pieces);
    MUST(whole.refused == bytes.refused && whole.done == bytes.done);
    MUST(whole.refused == pieces.refused && whole.done == pieces.done);
    if (whole.refused)
        return 0;
    MUST(whole.taken == bytes.taken && whole.data_n == bytes.data_n);
    MUST(memcmp(whole.data, bytes.data, whole.data_n) == 0);
    MUST(whole.taken == pieces.taken && whole.data_n == pieces.data_n);
    MUST(memcmp(whole.data, pieces.data, whole.data_n) == 0);
    if (whole.done)
        must_agree(data, whole.taken, &whole);
    return 0;
}
