/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/tree.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PATHS (4UL << 30)

void tree_init(struct tree *tree)
{
    *tree = (struct tree){.entries = NULL};
    arena_init(&tree->paths, MOST_PATHS);
}

void tree_clear(struct tree *tree)
{
    arena_clear(&tree->paths);
    free(tree->entries);
    *tree = (struct tree){.entries = NULL};
}

int tree_add(struct tree *tree, const struct entry *entry)
{
    if (tree->count == tree->room) {
        size_t room = tree->room ? tree->room * 2 : 1024;
        struct entry *more = reallocarray(tree->entries, room, sizeof(*more));
        if (!more)
            return -1;
        tree->entries = more;
        tree->room = room;
    }
    struct entry *to = &tree->entries[tree->count];
    *to = *entry;
    to->path = arena_copy(&tree->paths, entry->path, strlen(entry->path));
    tree->count += to->path != NULL;
    return to->path ? 0 : -1;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

void tree_sort(struct tree *tree)
{
    if (tree->count)
        qsort(tree->entries, tree->count, sizeof(*tree->entries), by_path);
}

struct entry *tree_find(const struct tree *tree, const char *path)
{
    const struct entry wanted = {.path = path};

    if (!tree->count)
        return NULL;
    return bsearch(&wanted, tree->entries, tree->count, sizeof(*tree->entries), by_path);
}

bool entry_is_as(const struct entry *a, const struct entry *b)
{
    return a->kind == b->kind && !a->dirty && !b->dirty && a->size == b->size && a->ino == b->ino &&
           a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}
