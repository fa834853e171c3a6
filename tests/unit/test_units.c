/* SPDX-License-Identifier: Apache-2.0 */
/* policy/units: sizes and durations as people write them. */
#include "unit.h"

#include <errno.h>
#include <stdint.h>

#include "policy/units.h"

#define UNTOUCHED 77

struct reading {
    const char *text;
    int result;
    uint64_t value;
};

static const struct reading sizes[] = {
    {"1", 0, 1},
    {"4096", 0, 4096},
    {"5B", 0, 5},
    {"1K", 0, 1024},
    {"3KiB", 0, 3072},
    {"64M", 0, 67108864},
    {"2MiB", 0, 2097152},
    {"1G", 0, 1073741824},
    {"1GiB", 0, 1073741824},
    {"1T", 0, 1099511627776},
    {"1TiB", 0, 1099511627776},
    {"007", 0, 7},
    {"1152921504606846976", 0, 1ULL << 60},
    {"1048576T", 0, 1ULL << 60},
    {"1152921504606846977", -ERANGE, UNTOUCHED},
    {"1048577T", -ERANGE, UNTOUCHED},
    {"18446744073709551615", -ERANGE, UNTOUCHED},
    {"18446744073709551616", -ERANGE, UNTOUCHED}, /* 2^64 would be 0 if it wrapped */
    {"18446744073709551617", -ERANGE, UNTOUCHED}, /* ... and 1 */
    {"16777217T", -ERANGE, UNTOUCHED},            /* product is 2^64 + 2^40 */
    {"17592186044417M", -ERANGE, UNTOUCHED},      /* product is 2^64 + 2^20 */
    {"99999999999999999999999", -ERANGE, UNTOUCHED},
    {"", -EINVAL, UNTOUCHED},
    {"0", -EINVAL, UNTOUCHED},
    {"0M", -EINVAL, UNTOUCHED},
    {"M", -EINVAL, UNTOUCHED},
    {" 1", -EINVAL, UNTOUCHED},
    {"1 ", -EINVAL, UNTOUCHED},
    {"1 M", -EINVAL, UNTOUCHED},
    {"-1", -EINVAL, UNTOUCHED},
    {"+1", -EINVAL, UNTOUCHED},
    {"1.5G", -EINVAL, UNTOUCHED},
    {"0x10", -EINVAL, UNTOUCHED},
    {"1e6", -EINVAL, UNTOUCHED},
    {"1k", -EINVAL, UNTOUCHED},
    {"1m", -EINVAL, UNTOUCHED},
    {"1KB", -EINVAL, UNTOUCHED},
    {"1Mi", -EINVAL, UNTOUCHED},
    {"1P", -EINVAL, UNTOUCHED},
    {"1M1M", -EINVAL, UNTOUCHED},
    {"1s", -EINVAL, UNTOUCHED},
    {"\xd9\xa1", -EINVAL, UNTOUCHED}, /* an Arabic digit one */
};

static const struct reading durations[] = {
    {"1ms", 0, 1},
    {"1500ms", 0, 1500},
    {"30s", 0, 30000},
    {"2m", 0, 120000},
    {"1h", 0, 3600000},
    {"1152921504606846976ms", 0, 1ULL << 60},
    {"1152921504606846977ms", -ERANGE, UNTOUCHED},
    {"1152921504606847s", -ERANGE, UNTOUCHED},
    {"18446744073709552s", -ERANGE, UNTOUCHED}, /* product wraps to 384 ms */
    {"5124095576031h", -ERANGE, UNTOUCHED},     /* wraps too */
    {"99999999999999999999s", -ERANGE, UNTOUCHED},
    {"", -EINVAL, UNTOUCHED},
    {"30", -EINVAL, UNTOUCHED}, /* seconds to some, milliseconds to others */
    {"0s", -EINVAL, UNTOUCHED},
    {"0ms", -EINVAL, UNTOUCHED},
    {"s", -EINVAL, UNTOUCHED},
    {"-1s", -EINVAL, UNTOUCHED},
    {"1.5s", -EINVAL, UNTOUCHED},
    {"1S", -EINVAL, UNTOUCHED},
    {"1M", -EINVAL, UNTOUCHED},
    {"1min", -EINVAL, UNTOUCHED},
    {"1d", -EINVAL, UNTOUCHED},
    {"1h30m", -EINVAL, UNTOUCHED},
    {" 1s", -EINVAL, UNTOUCHED},
    {"1s\n", -EINVAL, UNTOUCHED},
};

TEST(sizes_are_read_as_written_or_refused_and_then_left_untouched)
{
    for (size_t i = 0; i < LENGTH(sizes); i++) {
        uint64_t value = UNTOUCHED;
        CHECK_FOR(sizes[i].text, units_parse_size(sizes[i].text, &value) == sizes[i].result);
        CHECK_FOR(sizes[i].text, value == sizes[i].value);
    }
    return 0;
}

TEST(durations_are_read_as_written_or_refused_and_then_left_untouched)
{
    for (size_t i = 0; i < LENGTH(durations); i++) {
        uint64_t value = UNTOUCHED;
        CHECK_FOR(durations[i].text,
                  units_parse_duration(durations[i].text, &value) == durations[i].result);
        CHECK_FOR(durations[i].text, value == durations[i].value);
    }
    return 0;
}

static const struct reading counts[] = {
    {"1", 0, 1},
    {"999999", 0, 999999},
    {"1000000", -ERANGE, UNTOUCHED},
    {"99999999999999999999", -ERANGE, UNTOUCHED},
    {"0", -EINVAL, UNTOUCHED},
    {"", -EINVAL, UNTOUCHED},
    {"-1", -EINVAL, UNTOUCHED},
    {"1K", -EINVAL, UNTOUCHED},
    {"1.0", -EINVAL, UNTOUCHED},
};

static const struct reading processors[] = {
    {"1", 0, 1000},
    {"1.5", 0, 1500},
    {"0.25", 0, 250},
    {"0.125", 0, 125},
    {"0.01", 0, 10},
    {"64", 0, 64000},
    {"0.009", -ERANGE, UNTOUCHED},
    {"0", -ERANGE, UNTOUCHED},
    {"0.0", -ERANGE, UNTOUCHED},
    {"10000000", -ERANGE, UNTOUCHED},
    {"99999999999999999999", -ERANGE, UNTOUCHED},
    {"", -EINVAL, UNTOUCHED},
    {".5", -EINVAL, UNTOUCHED},
    {"1.", -EINVAL, UNTOUCHED},
    {"1.5.1", -EINVAL, UNTOUCHED},
    {"0.1255", -EINVAL, UNTOUCHED},
    {"1,5", -EINVAL, UNTOUCHED},
    {"-1", -EINVAL, UNTOUCHED},
    {"1e3", -EINVAL, UNTOUCHED},
    {"50%", -EINVAL, UNTOUCHED},
};

TEST(numbers_are_written_as_people_write_them)
{
    static const struct {
        enum units_kind kind;
        uint64_t number;
        const char *text;
    } cases[] = {
        {UNITS_COUNT, 0, "0"},
        {UNITS_COUNT, 2048, "2048"},
        {UNITS_SIZE, 0, "0"},
        {UNITS_SIZE, 1023, "1023"},
        {UNITS_SIZE, 1024, "1K"},
        {UNITS_SIZE, 64 << 20, "64M"},
        {UNITS_SIZE, 1025 << 10, "1025K"},
        {UNITS_SIZE, 1ULL << 60, "1048576T"},
        {UNITS_DURATION, 1500, "1500ms"},
        {UNITS_DURATION, 90000, "90s"},
        {UNITS_DURATION, 60000, "1m"},
        {UNITS_DURATION, 7200000, "2h"},
        {UNITS_CPU, 1500, "1.5"},
        {UNITS_CPU, 10, "0.01"},
        {UNITS_CPU, 10000, "10"},
        {UNITS_CPU, 125, "0.125"},
        {UNITS_CPU, UINT64_MAX, "18446744073709551.615"},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        char text[UNITS_TEXT];
        CHECK_FOR(cases[i].text,
                  strcmp(units_text(cases[i].kind, cases[i].number, text), cases[i].text) == 0);
    }
    return 0;
}

TEST(counts_and_processors_are_read_as_written_or_refused)
{
    for (size_t i = 0; i < LENGTH(counts); i++) {
        uint64_t value = UNTOUCHED;
        CHECK_FOR(counts[i].text,
                  units_parse_count(counts[i].text, UNITS_MOST_PIDS, &value) == counts[i].result);
        CHECK_FOR(counts[i].text, value == counts[i].value);
    }
    for (size_t i = 0; i < LENGTH(processors); i++) {
        uint64_t value = UNTOUCHED;
        const char *text = processors[i].text;
        CHECK_FOR(text, units_parse_cpu(text, &value) == processors[i].result);
        CHECK_FOR(text, value == processors[i].value);
    }
    return 0;
}

TEST(a_disk_is_a_size_or_an_image_of_a_size)
{
    uint64_t bytes = 0;
    bool image = true;

    CHECK(units_parse_disk("2G", &bytes, &image) == 0 && bytes == 2ULL << 30 && !image);
    CHECK(units_parse_disk("image:1M", &bytes, &image) == 0 && bytes == 1 << 20 && image);
    CHECK(units_parse_disk("image:", &bytes, &image) < 0);
    CHECK(units_parse_disk("image:image:1M", &bytes, &image) < 0);
    CHECK(units_parse_disk("IMAGE:1M", &bytes, &image) < 0);
    CHECK(bytes == 1 << 20 && image);
    return 0;
}
