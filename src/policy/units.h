/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and durations as people write them. Strict: a number and a unit, nothing else; zero and
 * what does not fit are refused. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* "64M", "1G", "4096", "512KiB" (powers of 1024); 0 or -EINVAL, -ERANGE. */
int units_parse_size(const char *text, uint64_t *ret_bytes);
#define UNITS_MOST_PIDS  999999ULL
#define UNITS_MOST_FILES 1000000000ULL

/* "20": a whole number from 1 to `most`. */
int units_parse_count(const char *text, uint64_t most, uint64_t *ret);
/* "1.5", "2", "0.25" processors, in thousandths; at least 0.01. */
int units_parse_cpu(const char *text, uint64_t *ret_milli);
/* "2G", or "image:2G". */
int units_parse_disk(const char *text, uint64_t *ret_bytes, bool *ret_image);
/* "30s", "1500ms", "2m", "1h"; 0 or -EINVAL, -ERANGE. A bare number is refused: seconds to some,
 * milliseconds to others. */
int units_parse_duration(const char *text, uint64_t *ret_ms);

/* "yes" or "no"; also true/false, on/off, 1/0. Small letters. */
int units_parse_flag(const char *text, bool *ret);

enum units_kind {
    UNITS_COUNT,
    UNITS_SIZE,     /* bytes */
    UNITS_DURATION, /* milliseconds */
    UNITS_CPU,      /* thousandths */
};

enum {
    UNITS_TEXT = 32
};

/* The number as people write it: "64M", "30s", "1.5". Returns `text`, which has room for UNITS_TEXT
 * bytes. */
const char *units_text(enum units_kind kind, uint64_t number, char *text);
