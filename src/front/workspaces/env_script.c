/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/env_script.h"

#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"

/* env.sh as it is in the repository; NUL ends it. */
__asm__(".section .rodata\n"
        ".global env_script\n"
        "env_script:\n"
        ".incbin \"src/front/workspaces/env.sh\"\n"
        ".byte 0\n"
        ".previous\n");

enum {
    FIELDS = 5, /* a key, and values */
    LONGEST = 4096,
    MOST_INTERPRETERS = 64,
};

struct field {
    const char *p;
    size_t n;
};

/* Text, or null where there is none or it is no text. */
static json_t *text_of(const struct field *f)
{
    return f->n > 0 && f->n <= LONGEST && bytes_are_utf8(f->p, f->n) ? json_stringn(f->p, f->n)
                                                                     : json_null();
}

static size_t split(const char *line, size_t n, struct field fields[FIELDS])
{
    size_t count = 0;

    memset(fields, 0, FIELDS * sizeof(fields[0]));
    while (count < FIELDS) {
        const char *tab = memchr(line, '\t', n);
        size_t length = tab ? (size_t)(tab - line) : n;
        fields[count++] = (struct field){line, length};
        if (!tab)
            break;
        line += length + 1;
        n -= length + 1;
    }
    return count;
}

static bool is(const struct field *f, const char *word)
{
    return f->n == strlen(word) && memcmp(f->p, word, f->n) == 0;
}

static void take_tools(json_t *report, const struct field *f)
{
    struct field uv = f[1];

    /* "uv 0.1.2 (of a day)" */
    if (uv.n > 3 && memcmp(uv.p, "uv ", 3) == 0) {
        uv = (struct field){uv.p + 3, uv.n - 3};
        const char *blank = memchr(uv.p, ' ', uv.n);
        uv.n = blank ? (size_t)(blank - uv.p) : uv.n;
    }
    json_object_set_new(report, "tools",
                        json_pack("{s:o, s:o}", "uv", text_of(&uv), "bun", text_of(&f[2])));
}

static void take_python(json_t *report, const struct field *f)
{
    json_object_set_new(report, "python",
                        json_pack("{s:o, s:o, s:s, s:o, s:o, s:b}", "state", text_of(&f[1]),
                                  "version", text_of(&f[2]), "path", "/.venv/bin/python",
                                  "interpreter", text_of(&f[3]), "pip", text_of(&f[4]), "created",
                                  is(&f[1], "new")));
}

static void take_node(json_t *report, const struct field *f)
{
    json_object_set_new(report, "node",
                        json_pack("{s:o, s:o, s:o, s:s, s:b}", "bun", text_of(&f[2]), "node",
                                  text_of(&f[3]), "npm", text_of(&f[4]), "path", "/node_modules",
                                  "created", is(&f[1], "new")));
}

/* "cpython-3.11.2-linux-x86_64-gnu" and where it is. */
static void take_have(json_t *report, const struct field *f)
{
    const char *dash = memchr(f[1].p, '-', f[1].n);
    json_t *list = json_object_get(report, "interpreters");
    struct field version = {f[1].p, f[1].n};

    if (json_array_size(list) == MOST_INTERPRETERS)
        return;
    if (dash) {
        version.p = dash + 1;
        version.n = f[1].n - (size_t)(version.p - f[1].p);
        const char *end = memchr(version.p, '-', version.n);
        version.n = end ? (size_t)(end - version.p) : version.n;
    }
    json_array_append_new(
        list, json_pack("{s:o, s:o}", "version", text_of(&version), "path", text_of(&f[2])));
}

json_t *env_report(const char *text, size_t n)
{
    static const struct {
        const char *key;
        void (*take)(json_t *report, const struct field *fields);
    } keys[] = {
        {"tools", take_tools}, {"python", take_python}, {"node", take_node}, {"have", take_have}};

    json_t *report = json_pack("{s:n, s:n, s:n, s:[]}", "tools", "python", "node", "interpreters");
    struct field fields[FIELDS];

    while (report && n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t length = end ? (size_t)(end - text) : n;
        if (length >= 4 && memcmp(text, "why\t", 4) == 0) { /* all the rest */
            struct field why = {text + 4, n - 4};
            while (why.n > LONGEST || (why.n > 0 && ((unsigned char)*why.p & 0xc0) == 0x80)) {
                why.p++; /* the end is what matters, from the start of a character on */
                why.n--;
            }
            json_object_set_new(report, "why", text_of(&why));
            break;
        }
        size_t count = split(text, length, fields);
        for (size_t i = 0; count >= 3 && i < sizeof(keys) / sizeof(keys[0]); i++) {
            if (is(&fields[0], keys[i].key))
                keys[i].take(report, fields);
        }
        n -= end ? length + 1 : length;
        text += end ? length + 1 : length;
    }
    return report;
}
