/* SPDX-License-Identifier: Apache-2.0 */
/* Which paths can be names of objects. Those that rclone or a store would write in another way, or
 * not at all, have an object by the hash of the path, and the manifest says which. */
#include <fnmatch.h>
#include <string.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/names.h"
#include "mover/tree.h"

#define LINK_END ".rclonelink" /* rclone's, of an object that holds where a symlink leads */

enum {
    LONGEST_NAME = 800, /* in bytes; S3 has 1024, with the path of the store */
};

/* With these rclone spells out what a store cannot have: as they are, it would take them back. */
static bool is_rclones(uint32_t c)
{
    return c == 0x201b || (c >= 0x2400 && c <= 0x2426) || (c >= 0xff01 && c <= 0xff5e);
}

static bool is_edge(char c)
{
    return c == ' ' || c == '.' || c == '~';
}

bool name_is_plain(const char *path)
{
    const char *at = path;
    size_t n = strlen(path);
    char before = '/';

    if (n > LONGEST_NAME)
        return false;
    if (n >= sizeof(LINK_END) - 1 && strcmp(path + n - (sizeof(LINK_END) - 1), LINK_END) == 0)
        return false;
    while (*at) {
        uint32_t c;
        size_t bytes = utf8_next(at, n - (size_t)(at - path), &c);
        if (bytes == 0 || c < ' ' || c == 0x7f || c == '\\' || is_rclones(c))
            return false;
        if ((c == '/' && (before == ' ' || before == '.')) || (before == '/' && c == ' '))
            return false; /* some stores take blanks and dots at the ends of names away */
        before = c < 0x80 ? (char)c : 'x'; /* any other */
        at += bytes;
    }
    return !is_edge(before);
}

const char *name_of_object(const struct mover *m, struct arena *arena, const struct entry *entry)
{
    char hash[DIGEST_HEX];

    if (name_is_plain(entry->path))
        return arena_printf(arena, "threads/%s/%s%s", m->workspace, entry->path,
                            entry->kind == ENTRY_LINK ? LINK_END : "");
    if (digest_hex(entry->path, strlen(entry->path), hash) < 0)
        return NULL;
    return arena_printf(arena, ".carrel/%s/raw/%s", m->workspace, hash);
}

bool name_is_excluded(const struct mover *m, const char *path, const char *name)
{
    if (name_kind(path) != NAME_FREE && !strchr(path, '/'))
        return true; /* what Carrel mounts on */
    if (strncmp(name, CARREL_UNFINISHED, sizeof(CARREL_UNFINISHED) - 1) == 0)
        return true;
    for (size_t i = 0; m->exclude[i]; i++) {
        const char *against = strchr(m->exclude[i], '/') ? path : name;
        if (fnmatch(m->exclude[i], against, FNM_PATHNAME) == 0)
            return true;
    }
    return false;
}
