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

/* One whose command began before it had a group gets one now. */
static int take_late(struct keeper *k)
{
    if (!k->late)
        k->late = group_make_late(&k->session->home, k->pid, k->pidfd);
    if (!k->late || group_state(k->late, NULL) == GROUP_FAILED)
        return -ENOTSUP;
    if (group_state(k->late, NULL) != GROUP_IN)
        return 1;
    k->group = k->late;
    k->late = NULL;
    return 0;
}

void session_hear_late(struct session *session)
{
    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (k->late && !k->group && take_late(k) == 0 && !session->stands_still)
            group_thaw(k->group);
    }
}

int session_freeze(struct session *session)
{
    int left = 0;

    session->stands_still = true;
    if (is_starting(session))
        return 1;
    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (!k->exec)
            continue;
        int r = k->group ? 0 : take_late(k);
        if (r == 0)
            r = group_freeze(k->group);
        if (r < 0)
            return r;
        left += r;
    }
    return left > 0;
}

void session_thaw(struct session *session)
{
    session->stands_still = false;
    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (k->group)
            group_thaw(k->group);
    }
}
