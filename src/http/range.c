/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <string.h>

/* HTTP_RANGE_MOST for all that are too large for a file. False: none. */
static bool take_number(const char **text, uint64_t *ret)
{
    const char *at = *text;

    *ret = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(*ret, 10, ret) ||
            __builtin_add_overflow(*ret, (uint64_t)(*at - '0'), ret) || *ret > HTTP_RANGE_MOST)
            *ret = HTTP_RANGE_MOST;
    }
    if (at == *text)
        return false;
    *text = at;
    return true;
}

bool http_read_range(const char *text, struct http_range *ret)
{
    uint64_t from;
    uint64_t to;

    if (strncmp(text, "bytes=", 6) != 0)
        return false;
    text += 6;
    bool first = take_number(&text, &from);
    if (*text++ != '-')
        return false;
    bool last = take_number(&text, &to);
    if (*text != '\0' || (!first && !last) || (first && last && to < from))
        return false;
    *ret = (struct http_range){.from = first ? from : HTTP_RANGE_MOST, .to = HTTP_RANGE_MOST};
    if (!first)
        ret->to = to;
    else if (from == HTTP_RANGE_MOST)
        ret->to = 0; /* behind the end of any file: as the last none of it */
    else if (last && to < HTTP_RANGE_MOST)
        ret->to = to + 1;
    return true;
}
