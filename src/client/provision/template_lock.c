/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provision/template_lock.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

#define FIRST_LINE                                                                                 \
    "# Packages of a Carrel template. To make it anew: carrel template build --update-lock\n"

static json_t *asked_for(const struct template_packages *packages)
{
    json_t *list = json_array();

    for (size_t i = 0; i < packages->count; i++)
        json_array_append_new(list, json_string(packages->at[i]));
    return list;
}

/* --- Python --- */

static void packages_line(struct buf *b, const struct template_packages *packages)
{
    json_t *list = asked_for(packages);
    char *text = json_dumps(list, JSON_ENSURE_ASCII);

    buf_printf(b, "# packages %s\n", text ? text : "?");
    free(text);
    json_decref(list);
}

void lock_python_head(struct buf *b, const struct template_packages *packages, const char *python)
{
    buf_printf(b, FIRST_LINE "# python %s\n", python);
    packages_line(b, packages);
}

static bool begins(const char *text, const struct buf *with)
{
    return strncmp(text, with->p, with->n) == 0;
}

enum lock_fit lock_python_fit(const struct template_packages *packages, const char *python,
                              const char *text)
{
    scoped_buf struct buf head = {0};
    scoped_buf struct buf line = {0};
    size_t first = strlen(FIRST_LINE);
    enum lock_fit fit = LOCK_OTHER_PACKAGES;

    buf_init(&head, 8UL * TEMPLATE_MOST_BYTES);
    buf_init(&line, 8UL * TEMPLATE_MOST_BYTES);
    lock_python_head(&head, packages, python);
    packages_line(&line, packages);
    if (strncmp(text, FIRST_LINE, first) != 0)
        return LOCK_FOREIGN;
    if (buf_done(&head) < 0 || buf_done(&line) < 0)
        return LOCK_OTHER_PACKAGES;
    const char *third = strchr(text + first, '\n');
    if (begins(text, &head))
        fit = LOCK_FITS;
    else if (third && begins(third + 1, &line))
        fit = LOCK_OTHER_PYTHON;
    return fit;
}

/* A requirement begins a line, what belongs to it is indented: "name==version \". */
json_t *lock_python_list(const char *text)
{
    json_t *list = json_array();

    while (*text) {
        size_t line = strcspn(text, "\n");
        size_t n = strcspn(text, " \t\\;\r\n");
        if (n > 0 && text[0] != '#' && text[0] != '-')
            json_array_append_new(list, json_stringn(text, n));
        text += line + (text[line] == '\n');
    }
    return list;
}

void lock_python_project(struct buf *b, const char *text, const struct template_packages *packages)
{
    static const char none[] = "\ndependencies = []\n";
    const char *at = strstr(text, none);

    buf_add(b, text, at ? (size_t)(at - text) : strlen(text));
    if (!at)
        return;
    buf_str(b, "\ndependencies = [\n");
    for (size_t i = 0; i < packages->count; i++) {
        buf_str(b, "    ");
        bytes_add_json(b, packages->at[i], strlen(packages->at[i]));
        buf_str(b, ",\n");
    }
    buf_printf(b, "]\n%s", at + strlen(none));
}

/* --- Node --- */

/* Whether nothing but blanks is between here and a closing bracket. */
static bool closes(const char *bytes, size_t n)
{
    size_t i = 0;

    while (i < n && strchr(" \t\r\n", bytes[i]) && bytes[i])
        i++;
    return i < n && (bytes[i] == ']' || bytes[i] == '}');
}

/* bun writes a comma behind the last member, which JSON has not. */
static void drop_commas(struct buf *b, const char *bytes, size_t n)
{
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        if (quoted && bytes[i] == '\\' && i + 1 < n) {
            buf_add(b, bytes + i++, 1);
        } else if (bytes[i] == '"') {
            quoted = !quoted;
        } else if (!quoted && bytes[i] == ',' && closes(bytes + i + 1, n - i - 1)) {
            continue;
        }
        buf_add(b, bytes + i, 1);
    }
}

/* Of a package from a registry the second member is that registry's address; "" is the one that is
 * set where it is installed. */
static void forget_registry(const json_t *bun)
{
    const char *name;
    json_t *package;

    json_object_foreach(json_object_get(bun, "packages"), name, package)
    {
        if (json_array_size(package) == 4 && json_is_string(json_array_get(package, 1)))
            json_array_set_new(package, 1, json_string(""));
    }
}

int lock_read_bun(const char *bytes, size_t n, json_t **ret, struct err *err)
{
    scoped_buf struct buf plain = {0};
    json_error_t where;

    buf_init(&plain, LOCK_MOST_BYTES);
    drop_commas(&plain, bytes, n);
    if (buf_done(&plain) < 0)
        return err_set(err, ERR_LIMIT, 0, "bun.lock is too large");
    json_t *bun = json_loadb(plain.p, plain.n, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(json_object_get(bun, "packages"))) {
        err_set(err, ERR_INVALID, 0, "bun.lock cannot be read: %.120s",
                bun ? "it has no packages" : where.text);
        json_decref(bun);
        return -1;
    }
    forget_registry(bun);
    *ret = bun;
    return 0;
}

json_t *lock_node_make(const struct template_packages *packages, json_t *bun)
{
    return json_pack("{s:o, s:O}", "packages", asked_for(packages), "lock", bun);
}

int lock_node_read(const char *bytes, size_t n, const struct template_packages *packages,
                   enum lock_fit *ret_fit, json_t **ret_bun, struct err *err)
{
    json_error_t where;
    json_t *object = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &where);
    json_t *bun = json_object_get(object, "lock");
    json_t *listed = json_object_get(object, "packages");
    json_t *asked = asked_for(packages);
    int r = 0;

    if (!json_is_object(json_object_get(bun, "packages")) || !json_is_array(listed)) {
        r = err_set(err, ERR_INVALID, 0,
                    "the lock cannot be read%s%.120s; --update-lock makes it anew",
                    object ? "" : ": ", object ? "" : where.text);
    } else {
        forget_registry(bun);
        *ret_fit = json_equal(listed, asked) ? LOCK_FITS : LOCK_OTHER_PACKAGES;
        *ret_bun = json_incref(bun);
    }
    json_decref(asked);
    json_decref(object);
    return r;
}

json_t *lock_node_list(const json_t *bun)
{
    json_t *list = json_array();
    const char *name;
    json_t *package;

    json_object_foreach(json_object_get(bun, "packages"), name, package)
    {
        json_t *id = json_array_get(package, 0);
        if (json_is_string(id))
            json_array_append(list, id);
    }
    return list;
}

static json_t *root_of(const json_t *bun)
{
    return json_object_get(json_object_get(bun, "workspaces"), "");
}

json_t *lock_node_dependencies(const json_t *bun)
{
    json_t *dependencies = json_object_get(root_of(bun), "dependencies");

    return json_is_object(dependencies) ? dependencies : NULL;
}

int lock_node_set_dependencies(json_t *bun, json_t *dependencies)
{
    return json_object_set(root_of(bun), "dependencies", dependencies);
}
