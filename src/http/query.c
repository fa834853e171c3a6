/* SPDX-License-Identifier: Apache-2.0 */
/* Percent-decoding, and parameters of a query. A plus is a plus: the blank of forms is %20 here,
 * as in the rest of the address. */
#include "http/head.h"

#include <string.h>
#include <strings.h>

bool http_decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = http_hex_digit(from[1]);
        int low = high < 0 ? -1 : http_hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high << 4 | low);
        from += 2;
    }
    *to = '\0';
    return true;
}

bool http_decode_path(const char *encoded, char *path)
{
    /* Who encodes every slash of a path encodes also the one that it begins with. */
    const char *from = encoded + (strncasecmp(encoded, "/%2f", 4) == 0);

    memcpy(path, from, strlen(from) + 1);
    if (!http_decode(path))
        return false;
    size_t n = strlen(path);
    if (n > 1 && path[n - 1] == '/')
        path[n - 1] = '\0';
    return true;
}

static bool has_word(const char *words, const char *word, size_t n)
{
    for (size_t part; *words; words += part + (words[part] == ' ')) {
        part = strcspn(words, " ");
        if (part == n && memcmp(words, word, n) == 0)
            return true;
    }
    return false;
}

const char *http_query_other(const char *query, const char *known, size_t *ret_n)
{
    for (size_t n; *query; query += n + (query[n] == '&')) {
        n = strcspn(query, "&");
        *ret_n = strcspn(query, "&=");
        if (n > 0 && !has_word(known, query, *ret_n))
            return query;
    }
    return NULL;
}

int http_query(const char *query, const char *name, char *text, size_t size)
{
    size_t name_n = strlen(name);
    int found = 0;

    while (*query) {
        size_t n = strcspn(query, "&");
        const char *next = query + n + (query[n] == '&');
        const char *equals = memchr(query, '=', n);
        size_t key_n = equals ? (size_t)(equals - query) : n;
        if (key_n == name_n && memcmp(query, name, name_n) == 0) {
            const char *value = equals ? equals + 1 : query + n;
            size_t value_n = (size_t)(query + n - value);
            if (found || value_n >= size)
                return -1;
            memcpy(text, value, value_n);
            text[value_n] = '\0';
            if (!http_decode(text))
                return -1;
            found = 1;
        }
        query = next;
    }
    return found;
}
