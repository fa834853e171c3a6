/* SPDX-License-Identifier: Apache-2.0 */
/* The value of a Range header. One that is taken names bytes that can be, and is what the plainest
 * way of writing it says. */
#include "fuzz.h"

#include <inttypes.h>
#include <string.h>

#include "http/server.h"

/* Without zeroes ahead, the same text comes out. */
static void write_again(const struct http_range *r, char *text, size_t size)
{
    if (r->from == HTTP_RANGE_MOST)
        snprintf(text, size, "bytes=-%" PRIu64, r->to);
    else if (r->to == HTTP_RANGE_MOST)
        snprintf(text, size, "bytes=%" PRIu64 "-", r->from);
    else
        snprintf(text, size, "bytes=%" PRIu64 "-%" PRIu64, r->from, r->to - 1);
}

static void must_make_sense(const char *text, const struct http_range *r)
{
    struct http_range again;
    char plain[64];

    MUST(strspn(text, "bytes=0123456789-") == strlen(text) && strlen(text) >= 8);
    MUST(r->from <= HTTP_RANGE_MOST && r->to <= HTTP_RANGE_MOST);
    MUST(r->from == HTTP_RANGE_MOST || r->from < r->to);
    write_again(r, plain, sizeof(plain));
    MUST(http_read_range(plain, &again) && again.from == r->from && again.to == r->to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    struct http_range r;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (http_read_range(text, &r))
        must_make_sense(text, &r);
    free(text);
    return 0;
}
