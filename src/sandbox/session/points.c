/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox would add to a tree, without starting one. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/fd.h"
#include "sandbox/run.h"
#include "sandbox/session/session.h"
#include "sys/path.h"

/* A mount that was asked for, at a place that is not there. */
static bool is_made(const struct run *run, const struct op *op)
{
    if (!op_has_tree(op) || !(op->flags & OP_OWNED) || !(op->flags & OP_TOP))
        return false;
    scoped_fd int fd = path_open_beneath(run->workspace, op->target, O_PATH, 1);
    return fd == -ENOENT;
}

static int tell(const struct run *run, void (*each)(void *context, const char *place),
                void *context, struct err *err)
{
    bool missing[SETUP_MAX_OPS] = {false};

    if (workspace_check_mount_points(run, missing, err) < 0)
        return -1;
    for (uint32_t i = 0; i < run->setup.op_count; i++) {
        if (missing[i] || is_made(run, &run->setup.ops[i]))
            each(context, run->setup.ops[i].target);
    }
    return 0;
}

int session_points(const struct carrel_spec *spec, void (*each)(void *context, const char *place),
                   void *context, struct err *err)
{
    char word[] = "true";
    char *const any[] = {word, NULL};
    struct carrel_spec copy = *spec;
    struct run *run = malloc(sizeof(*run));

    if (!run)
        return err_set(err, ERR_LIMIT, ENOMEM, "look at the mount points");
    copy.argv = any; /* it is not run */
    int r = run_prepare(run, &copy, true, NULL, err);
    if (r == 0)
        r = tell(run, each, context, err);
    run_clear(run);
    free(run);
    return r;
}
