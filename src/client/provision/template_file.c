/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/template_file.h"

#include <errno.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "base/near.h"

enum {
    MOST_TEXT = 4096,
    MOST_PACKAGE = 256,
    MOST_LOCK = 128,
};

struct reader {
    struct template_file *file;
    struct template_packages *packages; /* those being read */
    struct arena *arena;
    struct err *err;
};

/* `read` returns 0, -ECANCELED when the reader's error is set, any other negative number when the
 * value is not what is expected. */
struct key {
    const char *name;
    const char *expected;
    int (*read)(struct reader *, const json_t *);
};

/* --- text --- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c);
}

/* How many characters from here on are words or among `others`. */
static size_t span(const char *text, const char *others)
{
    size_t n = 0;

    while (text[n] && (is_word(text[n]) || strchr(others, text[n])))
        n++;
    return n;
}

bool template_is_name(const char *name)
{
    size_t n = span(name, "._-");

    return is_word(name[0]) && n <= TEMPLATE_NAME && name[n] == '\0';
}

/* "3", "3.11", "3.11.2". */
static bool is_version(const char *text)
{
    size_t parts = 0;
    size_t n = strlen(text);

    for (; parts < 3 && is_digit(*text); parts++) {
        while (is_digit(*text))
            text++;
        if (*text == '\0')
            return n < 16;
        if (*text++ != '.')
            return false;
    }
    return false;
}

/* A name, and what versions: no address, no path, and nothing that is read as an option. */
static bool is_python_package(const char *text)
{
    size_t n = span(text, " ._,<>=!~*;[]()'\"+-");

    return is_word(text[0]) && text[n] == '\0' && n <= MOST_PACKAGE && !strstr(text, " -");
}

/* NAME or @SCOPE/NAME, and @VERSION. A slash elsewhere would be an address. */
static bool is_node_package(const char *text)
{
    if (strlen(text) > MOST_PACKAGE)
        return false;
    if (text[0] == '@') {
        size_t scope = span(text + 1, "._-");
        if (scope == 0 || text[1 + scope] != '/')
            return false;
        text += scope + 2;
    }
    size_t name = span(text, "._-");
    if (!is_word(text[0]))
        return false;
    if (text[name] == '\0')
        return true;
    const char *version = text + name + 1;
    return text[name] == '@' && *version && version[span(version, ".^~<>=*| +-")] == '\0' &&
           *version != '-' && !strstr(version, " --");
}

/* No empty part, no "." and "..": what is written is where it is. */
static bool has_plain_parts(const char *path)
{
    for (;;) {
        size_t n = strcspn(path, "/");
        bool dots = (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.');
        if (n == 0 || n > 255 || dots)
            return false;
        if (path[n] == '\0')
            return true;
        path += n + 1;
    }
}

/* Names at the top that are somebody else's: the system's, and where packages go. */
static bool is_taken(const char *path)
{
    static const char *const names[] = {CARREL_SYSTEM_NAMES, CARREL_OWN_NAMES, CARREL_STAGED_NAMES,
                                        ".venv", "node_modules"};
    size_t n = strcspn(path, "/");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strlen(names[i]) == n && strncmp(names[i], path, n) == 0)
            return true;
    }
    return false;
}

/* --- JSON --- */

/* Text without NUL, of 1 to `most` bytes; NULL: it is not that. */
static const char *read_text(struct reader *r, const json_t *value, size_t most)
{
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);

    if (!text || n == 0 || n > most || strlen(text) != n)
        return NULL;
    return arena_copy(r->arena, text, n);
}

static int unknown_key(struct reader *r, const char *name, const struct key *keys, size_t count)
{
    char known[160] = "";
    char hint[NEAR_HINT];

    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", keys[i].name);
    }
    err_set(r->err, ERR_INVALID, 0, "unknown key \"%.40s\"; known are: %s%s", name, known,
            near_hint(hint, name, strlen(name), keys, count, sizeof(keys[0])));
    return -ECANCELED;
}

/* Every member is a key of the table, and what that key expects. */
static int read_object(struct reader *r, const json_t *object, const struct key *keys, size_t count)
{
    const char *name;
    json_t *value;

    if (!json_is_object(object))
        return -EINVAL;
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;
        while (i < count && strcmp(keys[i].name, name) != 0)
            i++;
        if (i == count)
            return unknown_key(r, name, keys, count);
        int result = keys[i].read(r, value);
        if (result == -ECANCELED)
            return result;
        if (result < 0) {
            err_set(r->err, ERR_INVALID, 0, "\"%s\" must be %s", name, keys[i].expected);
            return -ECANCELED;
        }
    }
    return 0;
}

static int read_version(struct reader *r, const json_t *value)
{
    r->packages->version = read_text(r, value, MOST_TEXT);
    return r->packages->version && is_version(r->packages->version) ? 0 : -EINVAL;
}

static int read_lock(struct reader *r, const json_t *value)
{
    const char *name = read_text(r, value, MOST_LOCK);

    r->packages->lock = name;
    return name && name[0] != '.' && name[0] != '-' && !strchr(name, '/') ? 0 : -EINVAL;
}

static int read_build(struct reader *r, const json_t *value)
{
    r->packages->build = json_is_true(value);
    return json_is_boolean(value) ? 0 : -EINVAL;
}

static int read_packages(struct reader *r, const json_t *value)
{
    bool python = r->packages == &r->file->python;
    size_t count = json_array_size(value);
    json_t *item;
    size_t i;

    if (!json_is_array(value) || count > TEMPLATE_MOST)
        return -EINVAL;
    r->packages->at = arena_alloc(r->arena, (count + 1) * sizeof(*r->packages->at));
    if (!r->packages->at)
        return -ENOMEM;
    json_array_foreach(value, i, item)
    {
        const char *text = read_text(r, item, MOST_TEXT);
        if (!text || !(python ? is_python_package(text) : is_node_package(text))) {
            err_set(r->err, ERR_INVALID, 0,
                    "\"%s.packages\": '%.80s' is no name of a package, with or without a version "
                    "(%s); addresses and paths are not taken",
                    python ? "python" : "node", text ? text : "",
                    python ? "pandas, pandas>=2,<3" : "docx, docx@9.5.1, @scope/name");
            return -ECANCELED;
        }
        r->packages->at[r->packages->count++] = text;
    }
    return 0;
}

#define VERSION "a version such as \"3.11\""
#define LIST    "a list of at most 512 names of packages"
#define LOCK    "the name of a file beside this one"
#define BUILD   "true or false: whether code of packages may run while they are installed"

static int read_python(struct reader *r, const json_t *value)
{
    static const struct key keys[] = {{"version", VERSION, read_version},
                                      {"packages", LIST, read_packages},
                                      {"lock", LOCK, read_lock},
                                      {"build", BUILD, read_build}};

    r->packages = &r->file->python;
    r->packages->wanted = true;
    return read_object(r, value, keys, sizeof(keys) / sizeof(keys[0]));
}

static int read_node(struct reader *r, const json_t *value)
{
    static const struct key keys[] = {
        {"packages", LIST, read_packages}, {"lock", LOCK, read_lock}, {"build", BUILD, read_build}};

    r->packages = &r->file->node;
    r->packages->wanted = true;
    return read_object(r, value, keys, sizeof(keys) / sizeof(keys[0]));
}

static int read_pairs(struct reader *r, const json_t *value, struct template_pairs *ret)
{
    size_t count = json_object_size(value);
    const char *name;
    json_t *item;

    if (!json_is_object(value) || count > TEMPLATE_MOST)
        return -EINVAL;
    ret->at = arena_alloc(r->arena, (count + 1) * sizeof(*ret->at));
    if (!ret->at)
        return -ENOMEM;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        const char *text = json_string_value(item);
        size_t n = json_string_length(item);
        struct template_pair *pair = &ret->at[ret->count];
        if (!text || strlen(text) != n || strlen(name) > MOST_TEXT || n > 8UL * MOST_TEXT)
            return -EINVAL;
        pair->name = arena_copy(r->arena, name, strlen(name));
        pair->value = arena_copy(r->arena, text, n);
        if (!pair->name || !pair->value)
            return -ENOMEM;
        ret->count++;
    }
    return 0;
}

static int read_files(struct reader *r, const json_t *value)
{
    struct template_pairs *files = &r->file->files;
    int result = read_pairs(r, value, files);

    for (size_t i = 0; result == 0 && i < files->count; i++) {
        const struct template_pair *f = &files->at[i];
        const char *why = f->name[0] != '/' || !has_plain_parts(f->name + 1)
                              ? "write an absolute path without '.' and '..'"
                          : is_taken(f->name + 1) ? "that is not for files of the workspace"
                          : !has_plain_parts(f->value)
                              ? "what is copied lies beside the template's file or below"
                              : NULL;
        if (!why)
            continue;
        err_set(r->err, ERR_INVALID, 0, "\"files\": '%.80s' from '%.80s': %s", f->name, f->value,
                why);
        result = -ECANCELED;
    }
    return result;
}

static int read_env(struct reader *r, const json_t *value)
{
    struct template_pairs *env = &r->file->env;
    int result = read_pairs(r, value, env);

    for (size_t i = 0; result == 0 && i < env->count; i++) {
        const char *name = env->at[i].name;
        if ((is_letter(name[0]) || name[0] == '_') && name[span(name, "_")] == '\0')
            continue;
        err_set(r->err, ERR_INVALID, 0,
                "\"env\": '%.80s' is no name of a variable: letters, digits and '_'", name);
        result = -ECANCELED;
    }
    return result;
}

static int read_name(struct reader *r, const json_t *value)
{
    r->file->name = read_text(r, value, TEMPLATE_NAME);
    return r->file->name && template_is_name(r->file->name) ? 0 : -EINVAL;
}

static int read_start(struct reader *r, const json_t *value)
{
    r->file->start = read_text(r, value, MOST_TEXT);
    return r->file->start ? 0 : -EINVAL;
}

/* Its place is kept for a system that is the template's own. */
static int read_debian(struct reader *r, const json_t *value)
{
    (void)r;
    return json_is_array(value) && json_array_size(value) == 0 ? 0 : -EINVAL;
}

static const struct key top[] = {
    {"name", "1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first", read_name},
    {"python", "an object with version, packages, lock, build", read_python},
    {"node", "an object with packages, lock, build", read_node},
    {"files", "an object: paths inside, and the paths of what is copied there", read_files},
    {"env", "an object of texts", read_env},
    {"start", "a line for the shell", read_start},
    {"debian", "an empty list: Debian packages are not installed yet", read_debian},
};

int template_parse(struct template_file *ret, struct arena *arena, const char *bytes, size_t n,
                   struct err *err)
{
    struct reader r = {.file = ret, .arena = arena, .err = err};
    json_error_t where;

    *ret = (struct template_file){0};
    if (n > TEMPLATE_MOST_BYTES)
        return err_set(err, ERR_LIMIT, 0, "a template's file has at most %d KiB",
                       TEMPLATE_MOST_BYTES / 1024);
    json_t *object = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &where);
    if (!object)
        return err_set(err, ERR_INVALID, 0, "line %d: %.160s", where.line, where.text);
    int result = read_object(&r, object, top, sizeof(top) / sizeof(top[0]));
    json_decref(object);
    if (result == -ECANCELED)
        return -1;
    if (result < 0)
        return err_set(err, ERR_INVALID, 0, "it is no JSON object");
    if (!ret->name)
        return err_set(err, ERR_INVALID, 0, "it has no \"name\"");
    return 0;
}
