/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/files.h"

#include <string.h>

#include "base/pack.h"

static void put(struct buf *b, const char *text)
{
    pack_text(b, text ? text : "");
}

bool files_reads_one(enum files_op op)
{
    return op == FILES_READ || op == FILES_TEXT || op == FILES_STAT || op == FILES_LIST;
}

void files_pack(struct buf *b, const struct files_message *m)
{
    pack_u64(b, m->op);
    pack_u64(b, m->flags);
    put(b, m->path);
    put(b, m->other);
    put(b, m->pattern);
    pack_list(b, m->globs);
    put(b, m->cursor);
    put(b, m->if_match);
    put(b, m->if_none_match);
    pack_u64(b, m->from);
    pack_u64(b, m->to);
    pack_u64(b, m->offset);
    pack_u64(b, m->limit);
    pack_u64(b, m->depth);
    pack_u64(b, m->context);
    pack_u64(b, m->mode);
}

static const char *get(struct unpack *u, size_t size)
{
    const char *text = unpack_string(u);

    if (strlen(text) >= size) {
        u->failed = true;
        return "";
    }
    return text;
}

bool files_path_is_valid(const char *path)
{
    if (path[0] != '/' || strlen(path) >= FILES_PATH)
        return false;
    for (const char *part = path + 1; path[1];) {
        size_t n = strcspn(part, "/");
        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        if (part[n] == '\0')
            break;
        part += n + 1;
    }
    return true;
}

bool files_unpack(char *bytes, size_t n, struct arena *arena, struct files_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    ret->op = (enum files_op)unpack_upto(&u, FILES_OP_COUNT_ - 1);
    ret->flags = unpack_upto(&u, FILES_FLAGS_);
    ret->path = get(&u, FILES_PATH);
    ret->other = get(&u, FILES_PATH);
    ret->pattern = get(&u, FILES_PATTERN);
    ret->globs = unpack_list(&u, arena, FILES_GLOBS);
    ret->cursor = get(&u, FILES_CURSOR);
    ret->if_match = get(&u, FILES_ETAG);
    ret->if_none_match = get(&u, FILES_ETAG);
    ret->from = unpack_upto(&u, FILES_MOST);
    ret->to = unpack_upto(&u, FILES_MOST);
    ret->offset = unpack_upto(&u, FILES_MOST);
    ret->limit = unpack_upto(&u, FILES_MOST);
    ret->depth = unpack_upto(&u, FILES_MOST);
    ret->context = unpack_upto(&u, FILES_MOST);
    ret->mode = unpack_upto(&u, FILES_MOST);
    return unpack_done(&u) && ret->op > 0 && ret->globs && files_path_is_valid(ret->path);
}
