/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/envelope.h"

#include <stdlib.h>
#include <string.h>

ssize_t envelope_next(const char *bytes, size_t n, const char **ret_json, size_t *ret_n)
{
    const unsigned char *b = (const unsigned char *)bytes;

    if (n > 0 && b[0] != 0)
        return -1; /* compressed, or an end that no client says */
    if (n < ENVELOPE_HEAD)
        return 0;
    size_t size = (size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4];
    if (size > ENVELOPE_MOST)
        return -1;
    if (n < ENVELOPE_HEAD + size)
        return 0;
    *ret_json = bytes + ENVELOPE_HEAD;
    *ret_n = size;
    return (ssize_t)(ENVELOPE_HEAD + size);
}

void envelope_put(struct buf *b, unsigned flags, json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    size_t n = text ? strlen(text) : 0;
    const unsigned char head[ENVELOPE_HEAD] = {(unsigned char)flags, (unsigned char)(n >> 24),
                                               (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                               (unsigned char)n};

    json_decref(object);
    if (!text) {
        b->failed = true;
        return;
    }
    buf_add(b, head, sizeof(head));
    buf_add(b, text, n);
    free(text);
}

void envelope_end(struct buf *b, const char *code, const char *message)
{
    envelope_put(
        b, ENVELOPE_END,
        code ? json_pack("{s:{s:s, s:s}}", "error", "code", code, "message", message ? message : "")
             : json_object());
}
