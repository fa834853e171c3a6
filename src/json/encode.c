/* SPDX-License-Identifier: Apache-2.0 */
#include "json/encode.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/bytes.h"

void encode_bytes(json_t *object, const char *name, const char *bytes, size_t n)
{
    json_t *text = json_stringn(bytes ? bytes : "", n); /* NULL unless it is UTF-8 */
    char key[32];

    if (text) {
        json_object_set_new(object, name, text);
        return;
    }
    scoped_buf struct buf encoded;
    buf_init(&encoded, (n + 2) / 3 * 4 + 1);
    if (bytes)
        bytes_add_base64(&encoded, bytes, n);
    snprintf(key, sizeof(key), "%s_b64", name);
    json_object_set_new(object, key,
                        buf_done(&encoded) == 0
                            ? json_stringn(encoded.p ? encoded.p : "", encoded.n)
                            : json_null());
}
