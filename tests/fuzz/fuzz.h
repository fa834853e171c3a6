/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target takes any bytes; what must hold for them all is a MUST. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
