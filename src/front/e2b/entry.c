/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));

    return value ? value : "";
}

static unsigned long mode_of(const json_t *entry)
{
    return strtoul(text(entry, "mode"), NULL, 8);
}

/* As Go writes it: "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx", "dtrwxrwxrwx". */
static void put_permissions(const json_t *entry, char ret[16])
{
    static const char bits[] = "rwxrwxrwx";

    static const struct {
        const char *type;
        char letter;
    } letters[] = {
        {"directory", 'd'}, {"symlink", 'L'}, {"fifo", 'p'}, {"socket", 'S'}, {"device", 'D'}};

    unsigned long mode = mode_of(entry);
    size_t at = 0;
    for (size_t i = 0; i < sizeof(letters) / sizeof(letters[0]); i++) {
        if (strcmp(text(entry, "type"), letters[i].type) == 0)
            ret[at++] = letters[i].letter;
    }
    if (mode & 04000)
        ret[at++] = 'u';
    if (mode & 02000)
        ret[at++] = 'g';
    if (mode & 01000)
        ret[at++] = 't';
    if (at == 0)
        ret[at++] = '-';
    for (unsigned i = 0; i < 9; i++)
        ret[at++] = mode & 0400UL >> i ? bits[i] : '-';
    ret[at] = '\0';
}

static json_t *name_of(const json_t *entry, const char *which)
{
    json_int_t id = json_integer_value(json_object_get(entry, which));

    return id == 0       ? json_string("root")
           : id == 1000  ? json_string("user")
           : id == 65534 ? json_string(strcmp(which, "uid") == 0 ? "nobody" : "nogroup")
                         : json_sprintf("%lld", (long long)id);
}

static const char *type_of(const json_t *entry)
{
    const char *type = text(entry, "type");

    return strcmp(type, "file") == 0        ? "FILE_TYPE_FILE"
           : strcmp(type, "directory") == 0 ? "FILE_TYPE_DIRECTORY"
                                            : "FILE_TYPE_UNSPECIFIED";
}

/* Without a slash it lies beside the link. */
static json_t *target_of(const char *path, const char *target)
{
    const char *slash = strrchr(path, '/');
    int above = slash ? (int)(slash - path) : 0;

    return *target == '/' ? json_string(target) : json_sprintf("%.*s/%s", above, path, target);
}

json_t *entry_told(const json_t *entry, const json_t *target)
{
    const char *path = text(entry, "path");
    const char *slash = strrchr(path, '/');
    const json_t *mtime = json_object_get(entry, "mtime");
    bool is_link = strcmp(text(entry, "type"), "symlink") == 0;
    char permissions[16];

    put_permissions(entry, permissions);
    json_t *told = json_pack(
        "{s:s, s:s, s:s, s:o, s:I, s:s, s:o, s:o}", "name", slash ? slash + 1 : path, "type",
        target ? type_of(target) : "FILE_TYPE_UNSPECIFIED", "path", path, "size",
        json_sprintf("%lld", (long long)json_integer_value(json_object_get(entry, "size"))), "mode",
        (json_int_t)(target ? mode_of(target) & 0777 : 0), "permissions", permissions, "owner",
        name_of(entry, "uid"), "group", name_of(entry, "gid"));
    if (json_is_string(mtime))
        json_object_set_new(told, "modifiedTime", json_string(json_string_value(mtime)));
    if (is_link) {
        json_object_set_new(told, "symlinkTarget", target_of(path, text(entry, "target")));
        json_object_set_new(told, "isSymlink", json_true());
    }
    return told;
}
