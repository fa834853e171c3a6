/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/near.h"
#include "front/core/call.h"

static const json_t *member(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return value && !json_is_null(value) ? value : NULL;
}

bool field_text(struct call *call, const json_t *object, const char *name, size_t max,
                const char **ret)
{
    const json_t *value = member(object, name);
    const char *text = json_string_value(value);

    if (!value)
        return true;
    /* A system call would cut it at a NUL. */
    if (!text || json_string_length(value) > max || strlen(text) != json_string_length(value)) {
        char expected[64];
        snprintf(expected, sizeof(expected), "a text of at most %zu bytes, without NUL", max);
        call_bad_field(call, name, expected);
        return false;
    }
    *ret = text;
    return true;
}

bool field_number(struct call *call, const json_t *object, const char *name, uint64_t min,
                  uint64_t max, uint64_t *ret)
{
    const json_t *value = member(object, name);
    char expected[96];

    if (!value)
        return true;
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        snprintf(expected, sizeof(expected), "a whole number from %ju to %ju", (uintmax_t)min,
                 (uintmax_t)max);
        call_bad_field(call, name, expected);
        return false;
    }
    *ret = (uint64_t)number;
    return true;
}

bool field_flag(struct call *call, const json_t *object, const char *name, bool *ret)
{
    const json_t *value = member(object, name);

    if (!value)
        return true;
    if (!json_is_boolean(value)) {
        call_bad_field(call, name, "true or false");
        return false;
    }
    *ret = json_is_true(value);
    return true;
}

bool field_object(struct call *call, const json_t *object, const char *name, json_t **ret)
{
    json_t *value = json_object_get(object, name);

    if (!value || json_is_null(value))
        return true;
    if (!json_is_object(value)) {
        call_bad_field(call, name, "an object");
        return false;
    }
    *ret = value;
    return true;
}

bool fields_known(struct call *call, const json_t *object, const char *const *names)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;
        while (names[i] && strcmp(names[i], name) != 0)
            i++;
        if (!names[i]) {
            char known[256] = "";
            char hint[NEAR_HINT];
            size_t k = 0;
            for (; names[k]; k++) {
                size_t used = strlen(known);
                snprintf(known + used, sizeof(known) - used, "%s%s", k ? ", " : "", names[k]);
            }
            call_error(call, 400, "invalid_request", "unknown member \"%.40s\"; known are: %s%s",
                       name, known,
                       near_hint(hint, name, strlen(name), names, k, sizeof(names[0])));
            return false;
        }
    }
    return true;
}

json_t *json_parsed(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);

    return object ? object : json_object();
}

char *json_compact(struct arena *arena, const json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    char *copy = arena_copy(arena, text ? text : "{}", text ? strlen(text) : 2);

    free(text);
    return copy;
}
