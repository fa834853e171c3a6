/* SPDX-License-Identifier: Apache-2.0 */
/* One line of a kernel's output, pure. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum code_line {
    LINE_BAD, /* no line of a kernel */
    LINE_READY,
    LINE_FAILED, /* it cannot start; "text" says why */
    LINE_COUNT,
    LINE_OUTPUT,
    LINE_RESULT,
    LINE_ERROR,
    LINE_END,
    LINE_KINDS,
};

/* What it says of which run, and an object with no members but those that its kind has, each of its
 * type; NULL with LINE_BAD. */
enum code_line code_line_read(const char *bytes, size_t n, uint64_t *ret_run, json_t **ret);
