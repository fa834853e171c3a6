/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes, durations, counts, processors and disks: any text in, a number above zero and within
 * bounds out, or nothing. What is written for people is read again as the same. */
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

static int parse_count(const char *text, uint64_t *ret)
{
    return units_parse_count(text, UNITS_MOST_PIDS, ret);
}

static int parse_disk(const char *text, uint64_t *ret)
{
    bool is_image = false;
    int r = units_parse_disk(text, ret, &is_image);

    MUST(r < 0 || is_image == (strncmp(text, "image:", 6) == 0));
    return r;
}

static void try_cpu(const char *text)
{
    uint64_t value = UNTOUCHED;
    uint64_t again = 0;
    char written[UNITS_TEXT];

    if (units_parse_cpu(text, &value) < 0) {
        MUST(value == UNTOUCHED);
        return;
    }
    MUST(value >= 10 && value <= LARGEST);
    MUST(units_parse_cpu(units_text(UNITS_CPU, value, written), &again) == 0 && again == value);
}

static void try_writing(const char *text, int (*parse)(const char *, uint64_t *),
                        enum units_kind kind)
{
    uint64_t value;
    uint64_t again = 0;
    char written[UNITS_TEXT];

    if (parse(text, &value) == 0)
        MUST(parse(units_text(kind, value, written), &again) == 0 && again == value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    try_parser(units_parse_size, text, "");
    try_parser(units_parse_duration, text, "ms");
    try_parser(parse_count, text, "");
    try_parser(parse_disk, text, "");
    try_cpu(text);
    try_writing(text, units_parse_size, UNITS_SIZE);
    try_writing(text, units_parse_duration, UNITS_DURATION);
    try_writing(text, parse_count, UNITS_COUNT);
    free(text);
    return 0;
}
