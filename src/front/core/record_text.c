/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/record_text.h"

#include <stdlib.h>
#include <string.h>

#include "front/core/front.h"

#define HOW (JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY)

enum {
    SHORT = 256, /* nothing is won by leaving out less */
};

static json_t *summary_of(const json_t *value)
{
    char *text = json_dumps(value, HOW);
    char hash[FRONT_HASH];

    if (!text)
        return NULL;
    hash_hex(text, strlen(text), hash);
    json_t *summary =
        json_pack("{s:s, s:s, s:I}", "omitted", "too long for the record", "sha256", hash,
                  json_is_array(value) ? "count" : "bytes",
                  (json_int_t)(json_is_array(value) ? json_array_size(value) : strlen(text)));
    free(text);
    return summary;
}

/* The longest member, of the longest object: its key, and the object it is in. */
static const char *find_longest(json_t *object, json_t **ret_in)
{
    const char *found = NULL;

    for (json_t *in = object; in;) {
        const char *longest = NULL;
        const char *key;
        json_t *value;
        size_t most = SHORT;
        json_object_foreach(in, key, value)
        {
            size_t n = json_dumpb(value, NULL, 0, HOW); /* its length; 0 without memory */
            if (n > most) {
                most = n;
                longest = key;
            }
        }
        if (!longest)
            break; /* all of it is short: the object itself goes */
        found = longest;
        *ret_in = in;
        in = json_object_get(in, longest);
        if (!json_is_object(in))
            break;
    }
    return found;
}

char *record_text(json_t *details, size_t most)
{
    char *text = details ? json_dumps(details, HOW) : NULL;

    while (text && strlen(text) > most) {
        json_t *in = NULL;
        const char *key = find_longest(details, &in);
        json_t *summary = key ? summary_of(json_object_get(in, key)) : NULL;
        free(text);
        /* Thousands of short members are nothing that we write. */
        text = summary ? NULL : strdup("{\"omitted\":\"too long for the record\"}");
        if (!summary)
            break;
        if (json_object_set_new(in, key, summary) == 0)
            text = json_dumps(details, HOW);
    }
    json_decref(details);
    return text;
}
