/* SPDX-License-Identifier: Apache-2.0 */
#include "json/encode.h"

#include <stdio.h>
#include <stdlib.h>

static char *base64(const char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = (const unsigned char *)bytes;
    char *text = malloc((n + 2) / 3 * 4 + 1);
    char *out = text;

    for (size_t i = 0; text && in && i < n; i += 3) {
        unsigned long group = (unsigned long)in[i] << 16;
        group |= i + 1 < n ? (unsigned long)in[i + 1] << 8 : 0;
        group |= i + 2 < n ? in[i + 2] : 0;
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = i + 1 < n ? digits[group >> 6 & 63] : '=';
        *out++ = i + 2 < n ? digits[group & 63] : '=';
    }
    if (text)
        *out = '\0';
    return text;
}

void encode_bytes(json_t *object, const char *name, const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes ? bytes : "", n); /* NULL unless it is UTF-8 */
    char key[32];

    if (text) {
        json_object_set_new(object, name, text);
        return;
    }
    char *encoded = base64(bytes, n);
    snprintf(key, sizeof(key), "%s_b64", name);
    json_object_set_new(object, key, encoded ? json_string(encoded) : json_null());
    free(encoded);
}
