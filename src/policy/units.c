/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit sizes[] = {
    {"", 1},          {"B", 1},           {"K", 1UL << 10}, {"KiB", 1UL << 10},
    {"M", 1UL << 20}, {"MiB", 1UL << 20}, {"G", 1UL << 30}, {"GiB", 1UL << 30},
    {"T", 1UL << 40}, {"TiB", 1UL << 40},
};

static const struct unit durations[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};

/* Nothing above this: sums of a few stay far from overflow. */
#define LARGEST (1ULL << 60)

static int parse(const char *text, const struct unit *units, size_t count, uint64_t *ret)
{
    uint64_t value = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
            return -ERANGE;
    }
    if (at == text)
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(at, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(value, units[i].factor, &value) || value > LARGEST)
            return -ERANGE;
        if (value == 0)
            return -EINVAL;
        *ret = value;
        return 0;
    }
    return -EINVAL;
}

int units_parse_size(const char *text, uint64_t *ret_bytes)
{
    return parse(text, sizes, sizeof(sizes) / sizeof(sizes[0]), ret_bytes);
}

int units_parse_duration(const char *text, uint64_t *ret_ms)
{
    return parse(text, durations, sizeof(durations) / sizeof(durations[0]), ret_ms);
}

int units_parse_count(const char *text, uint64_t most, uint64_t *ret)
{
    static const struct unit none[] = {{"", 1}};
    uint64_t value;
    int r = parse(text, none, 1, &value);

    if (r < 0 || value > most)
        return r < 0 ? r : -ERANGE;
    *ret = value;
    return 0;
}

int units_parse_cpu(const char *text, uint64_t *ret_milli)
{
    uint64_t milli = 0;
    const char *at = text;
    int decimals = -1; /* not yet behind the point */

    for (; *at && decimals < 3; at++) {
        if (*at == '.' && decimals < 0 && at > text) {
            decimals = 0;
            continue;
        }
        if (*at < '0' || *at > '9')
            return -EINVAL;
        decimals += decimals >= 0;
        milli = milli * 10 + (uint64_t)(*at - '0');
        if (milli > 1000000000)
            return -ERANGE;
    }
    if (*at || at == text || decimals == 0)
        return -EINVAL;
    for (decimals = decimals < 0 ? 0 : decimals; decimals < 3; decimals++)
        milli *= 10;
    if (milli < 10 || milli > 1000000000)
        return -ERANGE;
    *ret_milli = milli;
    return 0;
}

int units_parse_disk(const char *text, uint64_t *ret_bytes, bool *ret_image)
{
    static const char image[] = "image:";
    bool is_image = strncmp(text, image, sizeof(image) - 1) == 0;
    int r = units_parse_size(text + (is_image ? sizeof(image) - 1 : 0), ret_bytes);

    if (r == 0)
        *ret_image = is_image;
    return r;
}

/* The largest unit that leaves a whole number. Later names of a unit are synonyms. */
static const char *best_unit(const struct unit *units, size_t count, uint64_t *number)
{
    const struct unit *best = &units[0];

    for (size_t i = 1; i < count; i++) {
        if (*number && units[i].factor > best->factor && *number % units[i].factor == 0)
            best = &units[i];
    }
    *number /= best->factor;
    return best->name;
}

int units_parse_flag(const char *text, bool *ret)
{
    static const char *const words[][2] = {
        {"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (size_t said = 0; said < 2; said++) {
            if (strcmp(text, words[i][said]) != 0)
                continue;
            *ret = said == 1;
            return 0;
        }
    }
    return -EINVAL;
}

const char *units_text(enum units_kind kind, uint64_t number, char *text)
{
    const char *unit = "";

    if (kind == UNITS_SIZE)
        unit = best_unit(sizes, sizeof(sizes) / sizeof(sizes[0]), &number);
    else if (kind == UNITS_DURATION)
        unit = best_unit(durations, sizeof(durations) / sizeof(durations[0]), &number);
    if (kind != UNITS_CPU) {
        snprintf(text, UNITS_TEXT, "%llu%s", (unsigned long long)number, unit);
        return text;
    }
    int n = snprintf(text, UNITS_TEXT, "%llu.%03llu", (unsigned long long)number / 1000,
                     (unsigned long long)number % 1000);
    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] == '.')
        text[n - 1] = '\0';
    return text;
}
