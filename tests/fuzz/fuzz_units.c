/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and durations: any text in, a number above zero and within bounds out, or nothing. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

#include "policy/units.h"

#define LARGEST   (1ULL << 60)
#define UNTOUCHED 0x5555555555555555ULL

static void try_parser(int (*parse)(const char *, uint64_t *), const char *text, const char *unit)
{
    uint64_t value = UNTOUCHED;
    uint64_t again = 0;
    char plain[32];

    if (parse(text, &value) < 0) {
        MUST(value == UNTOUCHED);
        return;
    }
    MUST(value > 0 && value <= LARGEST);
    snprintf(plain, sizeof(plain), "%lu%s", (unsigned long)value, unit);
    MUST(parse(plain, &again) == 0 && again == value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    try_parser(units_parse_size, text, "");
    try_parser(units_parse_duration, text, "ms");
    free(text);
    return 0;
}
