/* SPDX-License-Identifier: Apache-2.0 */
#include "base/near.h"

#include <stdio.h>
#include <string.h>

enum {
    LONGEST = 40
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many letters have to be put in, left out, changed, or exchanged with the next one. */
static size_t distance(const char *a, size_t a_n, const char *b, size_t b_n)
{
    size_t rows[3][LONGEST + 1];

    for (size_t j = 0; j <= b_n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_n; j++) {
            row[j] = least(above[j], row[j - 1]) + 1;
            row[j] = least(row[j], above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], rows[(i + 1) % 3][j - 2] + 1);
        }
    }
    return rows[a_n % 3][b_n];
}

const char *near_hint(char hint[NEAR_HINT], const char *word, size_t n, const void *rows,
                      size_t count, size_t size)
{
    /* Of a short word nearly all is another. */
    size_t nearest = n < 3 ? 0 : n < 6 ? 1 : 2;

    hint[0] = '\0';
    for (size_t i = 0; i < count && n <= LONGEST; i++) {
        const char *name;
        memcpy(&name, (const char *)rows + i * size, sizeof(name));
        size_t far = strlen(name) <= LONGEST ? distance(word, n, name, strlen(name)) : LONGEST;
        if (far > nearest || (far == nearest && *hint))
            continue;
        nearest = far;
        snprintf(hint, NEAR_HINT, "; did you mean '%s'?", name);
    }
    return hint;
}
