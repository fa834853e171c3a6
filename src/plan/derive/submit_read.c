/* SPDX-License-Identifier: Apache-2.0 */
/* Written plans as text. Two forms mean the same:
 *
 *   {"moves":[…], "deletions":[…], "creations":[…], "validations":[…]}
 *   [{"op":"move","src":"a","dest":"b"}, {"op":"delete","path":"c"}, …]
 *
 * Paths are in the tree, "/" is its top; "path_b64" and the like take names that are no text. A
 * move may say "source" and "destination" in full. */
#include "plan/derive/submit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "plan/core/plan.h"
#include "plan/core/validations.h"

enum {
    MOST_OBJECTS = PLAN_MAX_OPERATIONS + 10000, /* with the validations */
    MOST_MEMBERS = 10 * PLAN_MAX_OPERATIONS,
    MOST_TEXT = 192 << 20,
    MOST_NAMES = 512, /* in a path */
    MOST_KEYS = 8,    /* of one kind of operation */
    FILE_MODE = 0644,
    DIRECTORY_MODE = 0755,
};

struct reader {
    struct submission *submission;
    json_t *validations;
    struct err *err;
};

/* What each kind is called, and the keys that it may have beside "op". */
static const struct shape {
    const char *name;
    const char *keys[MOST_KEYS];
} shapes[SUBMITTED_KIND_COUNT_] = {
    [SUBMITTED_MOVE] = {"move",
                        {"src", "src_b64", "source", "source_b64", "dest", "dest_b64",
                         "destination", "destination_b64"}},
    [SUBMITTED_DELETE] = {"delete", {"path", "path_b64", "recursive"}},
    [SUBMITTED_CREATE] = {"create", {"path", "path_b64", "content", "content_b64", "mode"}},
    [SUBMITTED_WRITE] = {"write", {"path", "path_b64", "content", "content_b64", "mode"}},
    [SUBMITTED_MKDIR] = {"mkdir", {"path", "path_b64", "mode"}},
    [SUBMITTED_SYMLINK] = {"symlink", {"path", "path_b64", "target", "target_b64"}},
    [SUBMITTED_CHMOD] = {"chmod", {"path", "path_b64", "mode"}},
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "read the written plan");
}

static bool has_key(const struct shape *shape, const char *key)
{
    for (size_t i = 0; i < MOST_KEYS && shape->keys[i]; i++) {
        if (strcmp(shape->keys[i], key) == 0)
            return true;
    }
    return false;
}

static int unknown_key(const struct shape *shape, const char *key, struct err *err)
{
    char known[160] = "";

    for (size_t i = 0; i < MOST_KEYS && shape->keys[i]; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s'%s'", i ? ", " : "", shape->keys[i]);
    }
    return err_set(err, ERR_INVALID, 0, "the key '%.60s' of a '%s' is unknown; it may have %s", key,
                   shape->name, known);
}

static int check_keys(const json_t *object, const struct shape *shape, const char *also,
                      struct err *err)
{
    const char *key;
    const json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (strcmp(key, also) != 0 && !has_key(shape, key))
            return unknown_key(shape, key, err);
    }
    return 0;
}

/* --- values --- */

/* Bytes under NAME, or in base64 under NAME_b64: exactly one of them. */
static const char *read_bytes(struct reader *r, const json_t *object, const char *what,
                              const char *name, size_t *ret_n)
{
    char coded[32];

    snprintf(coded, sizeof(coded), "%s_b64", name);
    const json_t *text = json_object_get(object, name);
    const json_t *base64 = json_object_get(object, coded);
    const json_t *given = text ? text : base64;
    if ((text && base64) || !json_is_string(given)) {
        (void)err_set(r->err, ERR_INVALID, 0,
                      text && base64 ? "a '%s' has '%s' and '%s'; give one of them"
                      : given        ? "in a '%s' the value of '%s' or '%s' must be a text"
                                     : "a '%s' lacks '%s' (or '%s', for what is no text)",
                      what, name, coded);
        return NULL;
    }
    size_t n = json_string_length(given);
    *ret_n = n;
    if (text)
        return json_string_value(text);
    char *bytes = arena_alloc(&r->submission->arena, n + 1);
    ssize_t made = bytes ? bytes_from_base64(json_string_value(base64), n, bytes) : -1;
    if (made < 0) {
        (void)err_set(r->err, bytes ? ERR_INVALID : ERR_LIMIT, 0, "'%s' of a '%s' is no base64",
                      coded, what);
        return NULL;
    }
    bytes[made] = '\0';
    *ret_n = (size_t)made;
    return bytes;
}

/* Every directory on the way is an operation and is looked at. */
static int check_depth(const char *path, size_t n, struct err *err)
{
    size_t names = 1;

    for (size_t i = 0; i < n; i++)
        names += path[i] == '/';
    return names <= MOST_NAMES
               ? 0
               : err_set(err, ERR_INVALID, 0, "the path '%.40s…' is more than %d names deep", path,
                         MOST_NAMES);
}

/* A path as the tree has it. With `into`: one slash at the end is taken off, and told. */
static const char *read_path(struct reader *r, const json_t *object, const char *what,
                             const char *name, bool *into)
{
    size_t n = 0;
    const char *given = read_bytes(r, object, what, name, &n);

    if (!given)
        return NULL;
    if (n > 0 && given[0] == '/') {
        given++;
        n--;
    }
    if (into && n > 0 && given[n - 1] == '/') {
        *into = true;
        n--;
    } else if (into && n == 0) {
        *into = true; /* the top of the tree */
        return "";
    }
    if (plan_check_path(given, n, r->err) < 0 || check_depth(given, n, r->err) < 0)
        return NULL;
    const char *copy = arena_copy(&r->submission->arena, given, n);
    if (!copy)
        (void)no_memory(r->err);
    return copy;
}

static int read_mode(struct reader *r, const json_t *object, const char *what, uint32_t *mode)
{
    const json_t *given = json_object_get(object, "mode");
    const char *text = json_string_value(given);
    char *end = NULL;

    if (!given)
        return 0;
    unsigned long value = text && strlen(text) <= 4 && strspn(text, "01234567") == strlen(text)
                              ? strtoul(text, &end, 8)
                              : 010000;
    if (!text || !*text || value > 0777)
        return err_set(
            r->err, ERR_INVALID, 0,
            "the 'mode' of a '%s' is text like \"0644\", without setuid, setgid or sticky", what);
    *mode = (uint32_t)value;
    return 0;
}

/* --- operations --- */

static struct submitted *add_submitted(struct reader *r, enum submitted_kind kind)
{
    struct submission *w = r->submission;

    if (w->count >= PLAN_MAX_OPERATIONS) {
        (void)err_set(r->err, ERR_LIMIT, 0, "a plan has at most %d operations",
                      PLAN_MAX_OPERATIONS);
        return NULL;
    }
    if (w->count % 1024 == 0) {
        struct submitted *all = reallocarray(w->all, w->count + 1024, sizeof(all[0]));
        if (!all) {
            (void)no_memory(r->err);
            return NULL;
        }
        w->all = all;
    }
    w->all[w->count] = (struct submitted){.kind = kind};
    return &w->all[w->count++];
}

/* The one of two names for the same that is used; NULL: both are. */
static const char *one_name(struct reader *r, const json_t *object, const char *brief,
                            const char *full)
{
    const char *names[] = {brief, full};
    bool used[2];

    for (size_t i = 0; i < 2; i++) {
        char coded[32];
        snprintf(coded, sizeof(coded), "%s_b64", names[i]);
        used[i] = json_object_get(object, names[i]) || json_object_get(object, coded);
    }
    if (used[0] && used[1]) {
        (void)err_set(r->err, ERR_INVALID, 0,
                      "a 'move' has '%s' and '%s', which mean the same; give one of them", brief,
                      full);
        return NULL;
    }
    return used[1] ? full : brief;
}

static int read_move(struct reader *r, const json_t *object, struct submitted *submitted)
{
    const char *from = one_name(r, object, "src", "source");
    const char *to = from ? one_name(r, object, "dest", "destination") : NULL;

    submitted->source = to ? read_path(r, object, "move", from, NULL) : NULL;
    submitted->path = submitted->source ? read_path(r, object, "move", to, &submitted->into) : NULL;
    return submitted->path ? 0 : -1;
}

static int read_content(struct reader *r, const json_t *object, const char *what,
                        struct submitted *submitted)
{
    submitted->content = read_bytes(r, object, what, "content", &submitted->size);
    return submitted->content ? 0 : -1;
}

static int read_target(struct reader *r, const json_t *object, struct submitted *submitted)
{
    size_t n = 0;

    submitted->target = read_bytes(r, object, "symlink", "target", &n);
    if (submitted->target && (n == 0 || n > PLAN_MAX_PATH || memchr(submitted->target, '\0', n)))
        return err_set(r->err, ERR_INVALID, 0, "the target of the symlink '%s' is none",
                       submitted->path);
    return submitted->target ? 0 : -1;
}

/* `also`: the key that named the operation. */
static int read_submitted(struct reader *r, const json_t *object, enum submitted_kind kind,
                          const char *also)
{
    const struct shape *shape = &shapes[kind];
    const json_t *recursive = json_object_get(object, "recursive");

    if (check_keys(object, shape, also, r->err) < 0)
        return -1;
    struct submitted *submitted = add_submitted(r, kind);
    if (!submitted)
        return -1;
    if (kind == SUBMITTED_MOVE)
        return read_move(r, object, submitted);
    submitted->mode = kind == SUBMITTED_MKDIR ? DIRECTORY_MODE : FILE_MODE;
    submitted->path = read_path(r, object, shape->name, "path", NULL);
    if (!submitted->path || read_mode(r, object, shape->name, &submitted->mode) < 0)
        return -1;
    if (recursive && !json_is_boolean(recursive))
        return err_set(r->err, ERR_INVALID, 0, "'recursive' of the delete of '%s' is true or false",
                       submitted->path);
    submitted->recursive = json_is_true(recursive);
    if (kind == SUBMITTED_CHMOD && !json_object_get(object, "mode"))
        return err_set(r->err, ERR_INVALID, 0, "the chmod of '%s' has no 'mode'", submitted->path);
    if (kind == SUBMITTED_CREATE || kind == SUBMITTED_WRITE)
        return read_content(r, object, shape->name, submitted);
    return kind == SUBMITTED_SYMLINK ? read_target(r, object, submitted) : 0;
}

/* --- the flat form --- */

static int read_validation(struct reader *r, const json_t *object)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)object);

    if (!copy || json_object_del(copy, "op") < 0 || json_array_append(r->validations, copy) < 0) {
        json_decref(copy);
        return no_memory(r->err);
    }
    json_decref(copy);
    return 0;
}

static int read_operation(struct reader *r, const json_t *object)
{
    const char *op = json_string_value(json_object_get(object, "op"));

    if (!op)
        return err_set(r->err, ERR_INVALID, 0, "an operation is an object with the text 'op'");
    if (strcmp(op, "validate") == 0)
        return read_validation(r, object);
    for (size_t i = 0; i < SUBMITTED_KIND_COUNT_; i++) {
        if (strcmp(op, shapes[i].name) == 0)
            return read_submitted(r, object, (enum submitted_kind)i, "op");
    }
    return err_set(r->err, ERR_INVALID, 0, "there is no operation '%.60s'", op);
}

/* --- the form by sections --- */

static int read_one_move(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return err_set(r->err, ERR_INVALID, 0, "one of the 'moves' is no object");
    return read_submitted(r, value, SUBMITTED_MOVE, "");
}

static int read_deletion(struct reader *r, const json_t *value)
{
    json_t *object = NULL;

    if (json_is_object(value))
        return read_submitted(r, value, SUBMITTED_DELETE, "");
    if (!json_is_string(value))
        return err_set(r->err, ERR_INVALID, 0, "one of the 'deletions' is no path and no object");
    object = json_pack("{s:O}", "path", value);
    if (!object)
        return no_memory(r->err);
    int result = read_submitted(r, object, SUBMITTED_DELETE, "");
    json_decref(object);
    return result;
}

static int read_creation(struct reader *r, const json_t *value)
{
    static const struct {
        const char *name;
        enum submitted_kind kind;
    } kinds[] = {
        {"file", SUBMITTED_CREATE}, {"mkdir", SUBMITTED_MKDIR}, {"symlink", SUBMITTED_SYMLINK}};

    const json_t *given = json_object_get(value, "kind");
    const char *name = given ? json_string_value(given) : "file";

    if (!json_is_object(value) || !name)
        return err_set(r->err, ERR_INVALID, 0, "one of the 'creations' is no object with a 'kind'");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(name, kinds[i].name) == 0)
            return read_submitted(r, value, kinds[i].kind, "kind");
    }
    return err_set(r->err, ERR_INVALID, 0,
                   "a creation is of the kind \"file\", \"mkdir\" or \"symlink\", not '%.60s'",
                   name);
}

static int read_one_validation(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return err_set(r->err, ERR_INVALID, 0, "one of the 'validations' is no object");
    return json_array_append(r->validations, (json_t *)(uintptr_t)value) < 0 ? no_memory(r->err)
                                                                             : 0;
}

static const struct section {
    const char *name;
    int (*read)(struct reader *, const json_t *);
} sections[] = {
    {"moves", read_one_move},
    {"deletions", read_deletion},
    {"creations", read_creation},
    {"validations", read_one_validation},
};

static int read_list(struct reader *r, const char *name, const json_t *list,
                     int (*read)(struct reader *, const json_t *))
{
    if (!json_is_array(list))
        return err_set(r->err, ERR_INVALID, 0, "'%s' is no list", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (read(r, json_array_get(list, i)) < 0)
            return err_wrap(r->err, "%s[%zu]", name, i);
    }
    return 0;
}

static int read_sections(struct reader *r, const json_t *object)
{
    const char *key;
    const json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const struct section *found = NULL;
        for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++) {
            if (strcmp(key, sections[i].name) == 0)
                found = &sections[i];
        }
        if (!found)
            return err_set(r->err, ERR_INVALID, 0,
                           "a plan has 'moves', 'deletions', 'creations' and 'validations', not "
                           "'%.60s'",
                           key);
        if (read_list(r, found->name, value, found->read) < 0)
            return -1;
    }
    return 0;
}

/* --- all of it --- */

/* Before it is parsed, which takes many times the memory of the text. */
static int check_size(const char *text, size_t n, struct err *err)
{
    size_t objects = 0;
    size_t members = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted && text[i] == '{')
            objects++;
        else if (!quoted && text[i] == ',')
            members++;
    }
    if (objects > MOST_OBJECTS || members > MOST_MEMBERS)
        return err_set(err, ERR_LIMIT, 0, "a plan has at most %d operations", PLAN_MAX_OPERATIONS);
    return 0;
}

static int keep_validations(struct reader *r)
{
    if (json_array_size(r->validations) == 0)
        return 0;
    if (validations_check(r->validations, r->err) < 0)
        return -1;
    r->submission->validations = json_dumps(r->validations, JSON_COMPACT | JSON_SORT_KEYS);
    return r->submission->validations ? 0 : no_memory(r->err);
}

static int read_all(struct reader *r, const char *text, size_t n)
{
    json_error_t why;
    struct submission *w = r->submission;

    if (check_size(text, n, r->err) < 0)
        return -1;
    w->json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    r->validations = json_array();
    if (!r->validations)
        return no_memory(r->err);
    if (!w->json)
        return err_set(r->err, ERR_INVALID, 0, "line %d: %.200s", why.line, why.text);
    if (json_is_array(w->json) ? read_list(r, "operation", w->json, read_operation) < 0
                               : read_sections(r, w->json) < 0)
        return -1;
    return keep_validations(r);
}

int submission_read(struct submission *ret, const char *text, size_t n, struct err *err)
{
    struct reader r = {.submission = ret, .err = err};

    *ret = (struct submission){0};
    arena_init(&ret->arena, MOST_TEXT);
    int result = read_all(&r, text, n);
    json_decref(r.validations);
    if (result == 0)
        return 0;
    submission_clear(ret);
    return err_wrap(err, "the written plan");
}

void submission_clear(struct submission *submission)
{
    free(submission->all);
    free(submission->validations);
    json_decref(submission->json);
    arena_clear(&submission->arena);
    *submission = (struct submission){0};
}
