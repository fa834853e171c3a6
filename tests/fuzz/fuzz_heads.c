/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads, public keys, times and checkpoints, as they come from files and other hosts. What
 * is taken for a head is written again as the same bytes, and is signed by nobody we know. */
#include "fuzz.h"

#include <string.h>

#include "audit/head.h"
#include "audit/retain.h"

static void try_head(const char *text, size_t n)
{
    struct audit_head head;
    struct audit_key key = {.bytes = {1}};
    char again[AUDIT_HEAD];

    if (!audit_head_parse(text, n, &head))
        return;
    audit_head_encode(&head, again);
    MUST(strlen(again) == n && memcmp(again, text, n) == 0);
    memcpy(key.id, head.key, sizeof(key.id));
    MUST(!audit_head_is_signed_by(&head, &key));
}

static void try_list(const char *text, size_t n)
{
    struct audit_anchors anchors = {0};
    struct audit_keys keys = {.count = 1};
    struct err err;

    int r = audit_anchors_add(&anchors, text, n, &keys, true, &err);
    MUST(anchors.count == 0 && (r < 0 || !memchr(text, '\n', n)));
    audit_anchors_clear(&anchors);
}

static void try_keys(const char *text)
{
    struct audit_keys keys;
    struct err err;
    char line[AUDIT_KEY_TEXT];

    if (audit_keys_parse(text, &keys, &err) < 0)
        return;
    for (size_t i = 0; i < keys.count; i++) {
        audit_key_text(&keys.items[i], line);
        MUST(strstr(text, line));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct audit_checkpoint checkpoint;
    char time[AUDIT_TIME];
    char *text = malloc(size + 1);
    char *exact = malloc(size ? size : 1);

    memcpy(text, data, size);
    memcpy(exact, data, size);
    text[size] = '\0';
    try_head(exact, size);
    try_list(exact, size);
    try_keys(text);
    (void)audit_checkpoint_parse(exact, size, &checkpoint);
    if (audit_time_parse(text, time))
        MUST(strlen(time) == AUDIT_TIME - 1 && strncmp(time, text, 10) == 0);
    free(text);
    free(exact);
    return 0;
}
