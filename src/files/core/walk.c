/* SPDX-License-Identifier: Apache-2.0 */
/* What the operations do with each entry below a directory. */
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "files/core/call.h"

int files_walk(const char *path, unsigned depth,
               enum walk_answer (*each)(void *, const struct tree_entry *),
               void (*failed)(void *, const char *path, int error), void *context)
{
    enum walk_answer answer = WALK_ON;
    struct tree_walk walk;
    struct tree_entry entry;
    int next = 1;
    /* A link here is the caller's own word, not something met on the way. */
    scoped_fd int top = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);

    if (top < 0)
        return -errno;
    int r = tree_walk_begin(&walk, top, TREE_STAT | TREE_SORTED);
    while (r == 0 && depth > 0 && answer != WALK_STOP &&
           (next = tree_walk_next(&walk, &entry)) != 0) {
        if (next < 0) {
            if (failed && next != -ENOENT) /* gone since its name was read */
                failed(context, entry.path, -next);
            continue;
        }
        answer = each(context, &entry);
        if (answer == WALK_PAST || entry.depth >= depth)
            tree_walk_skip(&walk);
    }
    tree_walk_end(&walk);
    return r < 0 ? r : answer == WALK_STOP;
}
