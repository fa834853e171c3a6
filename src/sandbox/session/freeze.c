/* SPDX-License-Identifier: Apache-2.0 */
/* All commands of a sandbox stand still, each tree in the group that is made to end it. Pid 1 and
 * keepers that wait are ours, and write nothing. */
#include <errno.h>

#include "sandbox/session/internal.h"

/* A command that is about to start would start in a keeper that is not frozen. */
static bool is_starting(const struct session *session)
{
    for (const struct exec *exec = session->execs; exec; exec = exec->next) {
        if (exec->state == EXEC_QUEUED || exec->state == EXEC_ASKED)
            return true;
    }
    return session->state == SESSION_STARTING;
}

int session_freeze(struct session *session)
{
    int left = 0;

    if (is_starting(session))
        return 1;
    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (!k->exec)
            continue;
        if (!k->group)
            return -ENOTSUP;
        int r = group_freeze(k->group);
        if (r < 0)
            return r;
        left += r;
    }
    return left > 0;
}

void session_thaw(struct session *session)
{
    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (k->group)
            group_thaw(k->group);
    }
}
