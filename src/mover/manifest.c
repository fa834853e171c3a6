/* SPDX-License-Identifier: Apache-2.0 */
/* The object .carrel/WS/manifest.json: one small document for what plain objects cannot hold. What
 * is usual is not in it, so that it stays small in a large tree.
 *
 *   dirs       [path, mode] of those that are empty, or whose mode is not 0755
 *   modes      [path, mode] of files whose mode is not 0644
 *   hardlinks  [path, path, ...]: names of one file, each of which has an object
 *   raw        [path, hash]: kept as the object raw/HASH, as the path cannot be a name
 *
 * A path is a text, or {"b64": ...} where it is no UTF-8. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "mover/tree.h"

#define MOST_MANIFEST (1UL << 30)

enum {
    USUAL_FILE = 0644,
    USUAL_DIR = 0755,
};

static void add_path(struct buf *b, const char *path)
{
    size_t n = strlen(path);

    if (bytes_are_utf8(path, n)) {
        bytes_add_json(b, path, n);
        return;
    }
    buf_str(b, "{\"b64\":\"");
    bytes_add_base64(b, path, n);
    buf_str(b, "\"}");
}

static void add_mode(struct buf *b, const struct entry *e, bool *ret_first)
{
    buf_str(b, *ret_first ? "\n[" : ",\n[");
    *ret_first = false;
    add_path(b, e->path);
    buf_printf(b, ",%u]", e->mode);
}

/* What is in a directory follows it in the list, though not at once: "a.b" is before "a/b". */
static bool is_empty(const struct tree *tree, size_t at)
{
    const char *path = tree->entries[at].path;
    size_t n = strlen(path);

    for (size_t i = at + 1; i < tree->count; i++) {
        const char *next = tree->entries[i].path;
        if (strncmp(next, path, n) != 0 || (unsigned char)next[n] > '/')
            return true;
        if (next[n] == '/')
            return false;
    }
    return true;
}

static void add_dirs(const struct tree *tree, struct buf *b)
{
    bool first = true;

    for (size_t i = 0; i < tree->count; i++) {
        const struct entry *e = &tree->entries[i];
        if (e->kind == ENTRY_DIR && (e->mode != USUAL_DIR || is_empty(tree, i)))
            add_mode(b, e, &first);
    }
}

static void add_modes(const struct tree *tree, struct buf *b)
{
    bool first = true;

    for (size_t i = 0; i < tree->count; i++) {
        if (tree->entries[i].kind == ENTRY_FILE && tree->entries[i].mode != USUAL_FILE)
            add_mode(b, &tree->entries[i], &first);
    }
}

static int by_file(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a;
    const struct entry *y = *(const struct entry *const *)b;

    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return strcmp(x->path, y->path);
}

static int add_hardlinks(const struct tree *tree, struct buf *b)
{
    const struct entry **linked = calloc(tree->count + 1, sizeof(const struct entry *));
    bool first = true;
    size_t n = 0;

    if (!linked)
        return -1;
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->entries[i].kind == ENTRY_FILE && tree->entries[i].links > 1)
            linked[n++] = &tree->entries[i];
    }
    qsort(linked, n, sizeof(const struct entry *), by_file);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && linked[end]->ino == linked[i]->ino; end++)
            continue;
        if (end == i + 1)
            continue; /* its other names are elsewhere, or not mirrored */
        buf_str(b, first ? "\n[" : ",\n[");
        first = false;
        for (size_t k = i; k < end; k++) {
            buf_str(b, k > i ? "," : "");
            add_path(b, linked[k]->path);
        }
        buf_str(b, "]");
    }
    free(linked);
    return 0;
}

static int add_raw(const struct tree *tree, struct buf *b)
{
    bool first = true;
    char hash[DIGEST_HEX];

    for (size_t i = 0; i < tree->count; i++) {
        const struct entry *e = &tree->entries[i];
        if (e->kind == ENTRY_DIR || name_is_plain(e->path))
            continue;
        if (digest_hex(e->path, strlen(e->path), hash) < 0)
            return -1;
        buf_str(b, first ? "\n[" : ",\n[");
        first = false;
        add_path(b, e->path);
        buf_printf(b, ",\"%s\",\"%s\"]", hash, e->kind == ENTRY_LINK ? "link" : "file");
    }
    return 0;
}

int manifest_write(const struct mover *m, const struct tree *tree, struct buf *ret, struct err *err)
{
    buf_init(ret, MOST_MANIFEST);
    buf_printf(ret, "{\"carrel\":1,\"workspace\":\"%s\",\n\"dirs\":[", m->workspace);
    add_dirs(tree, ret);
    buf_str(ret, "],\n\"modes\":[");
    add_modes(tree, ret);
    buf_str(ret, "],\n\"hardlinks\":[");
    int r = add_hardlinks(tree, ret);
    buf_str(ret, "],\n\"raw\":[");
    r = r < 0 ? r : add_raw(tree, ret);
    buf_str(ret, "]}\n");
    if (r < 0 || buf_done(ret) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "write the manifest of the mirror");
    return 0;
}
