/* SPDX-License-Identifier: Apache-2.0 */
#include "front/code/line.h"

#include <string.h>

enum type {
    TEXT,
    NUMBER,
    FLAG,
    OBJECT,
    ANY,
};

struct member {
    const char *name;
    enum type type;
    bool must;
};

static const struct member none[] = {{NULL, TEXT, false}};
static const struct member text[] = {{"text", TEXT, true}, {NULL, TEXT, false}};
static const struct member count[] = {{"execution_count", NUMBER, true}, {NULL, TEXT, false}};
static const struct member error[] = {
    {"name", TEXT, true}, {"value", TEXT, true}, {"traceback", TEXT, true}, {NULL, TEXT, false}};
static const struct member result[] = {
    {"is_main_result", FLAG, true}, {"text", TEXT, false},    {"html", TEXT, false},
    {"markdown", TEXT, false},      {"svg", TEXT, false},     {"png", TEXT, false},
    {"jpeg", TEXT, false},          {"pdf", TEXT, false},     {"latex", TEXT, false},
    {"javascript", TEXT, false},    {"json", ANY, false},     {"data", OBJECT, false},
    {"chart", OBJECT, false},       {"extra", OBJECT, false}, {NULL, TEXT, false},
};

static const struct {
    const char *type;
    enum code_line kind;
    const struct member *members;
} kinds[] = {
    {"ready", LINE_READY, none},
    {"failed", LINE_FAILED, text},
    {"number_of_executions", LINE_COUNT, count},
    {"stdout", LINE_OUTPUT, text},
    {"stderr", LINE_OUTPUT, text},
    {"result", LINE_RESULT, result},
    {"error", LINE_ERROR, error},
    {"end_of_execution", LINE_END, none},
};

static bool is_of(const json_t *value, enum type type)
{
    switch (type) {
    case TEXT:
        return json_is_string(value);
    case NUMBER:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case FLAG:
        return json_is_boolean(value);
    case OBJECT:
        return json_is_object(value);
    case ANY:
        return true;
    }
    return false;
}

/* NULL: one is missing, or is something else. */
static json_t *copy_members(json_t *from, const char *type, const struct member *members)
{
    json_t *copy = json_pack("{s:s}", "type", type);

    for (; copy && members->name; members++) {
        json_t *value = json_object_get(from, members->name);
        if (json_is_null(value) && !members->must)
            continue;
        if (value ? !is_of(value, members->type) : members->must) {
            json_decref(copy);
            return NULL;
        }
        if (value && json_object_set(copy, members->name, value) < 0) {
            json_decref(copy);
            return NULL;
        }
    }
    return copy;
}

enum code_line code_line_read(const char *bytes, size_t n, uint64_t *ret_run, json_t **ret)
{
    json_t *line = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const char *type = json_string_value(json_object_get(line, "type"));
    const json_t *run = json_object_get(line, "run");
    enum code_line kind = LINE_BAD;

    *ret = NULL;
    if (type && json_is_integer(run) && json_integer_value(run) >= 0) {
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            if (strcmp(type, kinds[i].type) != 0)
                continue;
            *ret = copy_members(line, kinds[i].type, kinds[i].members);
            kind = *ret ? kinds[i].kind : LINE_BAD;
        }
        *ret_run = (uint64_t)json_integer_value(run);
    }
    json_decref(line);
    return kind;
}
