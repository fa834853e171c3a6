/* SPDX-License-Identifier: Apache-2.0 */
/* Commands stand still by the groups that they are in, file servers by a signal: those are ours. A
 * call on files that is stopped half way has made some of its changes and not others, each of them
 * whole (INV-12). The sandboxes of plans only read the tree. */
#include "broker/tree_freeze.h"

#include "broker/files.h"
#include "broker/sandboxes.h"

static bool writes_to(const struct sandbox *s, const char *workspace)
{
    return !*s->plan && !s->over && sandbox_shows(s, workspace);
}

bool tree_has_writers(const struct broker *b, const char *workspace)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (writes_to(s, workspace))
                return true;
        }
    }
    return false;
}

void tree_thaw(struct broker *b, const char *workspace)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (!writes_to(s, workspace))
                continue;
            if (s->pause.state != PAUSE_FROZEN)
                session_thaw(s->session);
            files_stop(s, false);
        }
    }
}

int tree_freeze(struct broker *b, const char *workspace)
{
    int left = files_are_leaving(b, workspace, UINT64_MAX);

    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (!writes_to(s, workspace))
                continue;
            if (s->ending) { /* whatever is left of it is being killed */
                left = 1;
                continue;
            }
            int r = session_freeze(s->session);
            if (r == 0)
                r = files_stop(s, true);
            if (r < 0) {
                tree_thaw(b, workspace);
                return -1;
            }
            left |= r;
        }
    }
    return left;
}
