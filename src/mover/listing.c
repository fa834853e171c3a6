/* SPDX-License-Identifier: Apache-2.0 */
/* What a store says that it has is anybody's text. Only names that a tree can have, once each, and
 * none that is both a file and a directory, are taken; the others are counted, and stay there. */
#include <errno.h>
#include <string.h>

#include "base/names.h"
#include "mover/tree.h"

#define LINK_END ".rclonelink"

enum {
    LONGEST_PATH = 4000,
    LONGEST_NAME = 255,
    MOST_ENTRIES = 5000000,
};

bool raw_name_is_good(const char *path)
{
    size_t n = strlen(path);

    if (n == 0 || n > LONGEST_PATH)
        return false;
    for (const char *part = path;;) {
        size_t length = strcspn(part, "/");
        bool dots = part[0] == '.' && (length == 1 || (length == 2 && part[1] == '.'));
        if (length == 0 || length > LONGEST_NAME || dots)
            return false;
        if (part == path && name_kind_n(part, length) != NAME_FREE)
            return false; /* Carrel's own mount points */
        if (!part[length])
            break;
        part += length + 1;
    }
    return true;
}

/* What the mirror would have written under this very name. Others are listed by rclone as what they
 * are not: "../x" with signs that look like dots. */
bool listing_name_is_good(const char *path)
{
    return raw_name_is_good(path) && name_is_plain(path);
}

/* Without the end that stands for a symlink, which *ret_kind then says. */
static bool take_name(const char *name, char *path, enum entry_kind *ret_kind)
{
    size_t n = strlen(name);
    size_t end = sizeof(LINK_END) - 1;
    bool is_link = n > end && strcmp(name + n - end, LINK_END) == 0;

    if (n > LONGEST_PATH + end)
        return false;
    memcpy(path, name, n + 1);
    path[n - (is_link ? end : 0)] = '\0';
    *ret_kind = is_link ? ENTRY_LINK : ENTRY_FILE;
    return listing_name_is_good(path);
}

/* A file of that name, too, or one above it. */
static bool clashes(const struct tree *tree, const struct entry *e)
{
    char path[LONGEST_PATH + 1];

    memcpy(path, e->path, strlen(e->path) + 1);
    for (char *slash = strrchr(path, '/'); slash; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (tree_find(tree, path))
            return true;
    }
    return e > tree->entries && strcmp(e[-1].path, e->path) == 0;
}

int listing_take(const json_t *list, struct tree *ret, size_t *ret_refused, struct err *err)
{
    char path[LONGEST_PATH + sizeof(LINK_END)];
    struct tree all;
    const json_t *one;
    size_t i;
    int r = 0;

    tree_init(ret);
    tree_init(&all);
    *ret_refused = 0;
    if (!json_is_array(list) || json_array_size(list) > MOST_ENTRIES)
        return err_set(err, ERR_LIMIT, 0, "the store lists more than %d objects", MOST_ENTRIES);
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "Path"));
        json_int_t size = json_integer_value(json_object_get(one, "Size"));
        struct entry e = {.path = path, .size = (uint64_t)size};
        if (!name || size < 0 || !take_name(name, path, &e.kind))
            ++*ret_refused;
        else if (r == 0)
            r = tree_add(&all, &e);
    }
    tree_sort(&all);
    for (size_t k = 0; r == 0 && k < all.count; k++) {
        if (clashes(&all, &all.entries[k]))
            ++*ret_refused;
        else
            r = tree_add(ret, &all.entries[k]);
    }
    tree_clear(&all);
    return r < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "keep what the store lists") : 0;
}
