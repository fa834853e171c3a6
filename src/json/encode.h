/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in JSON: text as text, anything else as base64 under NAME_b64. */
#pragma once

#include <jansson.h>
#include <stddef.h>

void encode_bytes(json_t *object, const char *name, const char *bytes, size_t n);
