/* SPDX-License-Identifier: Apache-2.0 */
#include "front/files/asleep.h"

#include <string.h>

#include "base/names.h"
#include "protocol/broker.h"
#include "protocol/files.h"

/* Whether two paths, with or without slashes before them, begin with the same name. An empty one
 * names nothing. */
static bool same_top(const char *path, const char *other)
{
    path += strspn(path, "/");
    other += strspn(other, "/");
    size_t n = strcspn(path, "/");

    return n > 0 && n == strcspn(other, "/") && memcmp(path, other, n) == 0;
}

/* Below these something is mounted in every workspace, or in those on a template, or with a system
 * of their own. */
static bool is_carrels(const char *path, bool on_template, bool has_system)
{
    static const char *const shared[] = {".venv", "node_modules"};
    static const char *const parts[] = {CARREL_LAYER_NAMES};

    if (name_kind(path + strspn(path, "/")) != NAME_FREE || same_top(path, "opt"))
        return true;
    for (size_t i = 0; has_system && i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (same_top(path, parts[i]))
            return true;
    }
    for (size_t i = 0; on_template && i < sizeof(shared) / sizeof(shared[0]); i++) {
        if (same_top(path, shared[i]))
            return true;
    }
    return false;
}

bool asleep_may_answer(const struct files_message *m, const struct exec_message *wake)
{
    const struct spec_message *b = &wake->spec;
    const char *const *const lists[] = {b->shared, b->mounts};

    if (!files_reads_one(m->op) || *wake->plan || m->path[1] == '\0' || b->limits.disk_image ||
        is_carrels(m->path, *b->template != '\0', *b->base != '\0'))
        return false;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        for (const char *const *three = lists[i]; three && *three; three += 3) {
            if (same_top(m->path, three[1]))
                return false;
        }
    }
    return true;
}
