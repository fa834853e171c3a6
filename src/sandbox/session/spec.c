/* SPDX-License-Identifier: Apache-2.0 */
/* What a session was asked for, as its own: the asker's strings may go. */
#include <string.h>

#include "sandbox/session/internal.h"

#define SETUP_WITHIN_MS 30000 /* pid 1 takes its setup; a machine can be very busy */

static const char *copy(struct session *session, const char *text)
{
    return text ? arena_copy(&session->arena, text, strlen(text)) : NULL;
}

static bool copy_mounts(struct session *session, const struct carrel_spec *spec)
{
    struct carrel_mount *mounts;

    if (spec->mount_count == 0)
        return true;
    if (spec->mount_count > SETUP_MAX_OPS)
        return false;
    mounts = arena_alloc(&session->arena, spec->mount_count * sizeof(*mounts));
    for (size_t i = 0; mounts && i < spec->mount_count; i++) {
        mounts[i] = spec->mounts[i];
        mounts[i].source = copy(session, spec->mounts[i].source);
        mounts[i].target = copy(session, spec->mounts[i].target);
        mounts[i].layer = copy(session, spec->mounts[i].layer);
        if (!mounts[i].source || (spec->mounts[i].target && !mounts[i].target) ||
            (spec->mounts[i].layer && !mounts[i].layer))
            return false;
    }
    session->spec.mounts = mounts;
    return mounts != NULL;
}

static bool copy_list(struct session *session, const char *const *from, const char *const **ret)
{
    size_t n = 0;

    while (from && from[n])
        n++;
    const char **list = arena_alloc(&session->arena, (n + 1) * sizeof(*list));
    for (size_t i = 0; list && i < n; i++) {
        list[i] = copy(session, from[i]);
        if (!list[i])
            return false;
    }
    *ret = list;
    return list != NULL;
}

int session_copy_spec(struct session *session, const struct carrel_spec *spec, struct err *err)
{
    static char *const nothing[] = {(char *)(uintptr_t) "true", NULL};
    struct carrel_spec *own = &session->spec;

    *own = *spec;
    own->argv = nothing;
    own->timeout_ms = SETUP_WITHIN_MS;
    own->tty = own->capture = false;
    own->signal_fd = 0;
    own->stdin_fd = -1;
    own->net_private = NULL; /* carrel-egress is the owner's */
    own->nameservers = NULL;
    own->workspace = copy(session, spec->workspace);
    own->at = copy(session, spec->at);
    own->cwd = copy(session, spec->cwd);
    own->init_path = copy(session, spec->init_path);
    own->egress_path = copy(session, spec->egress_path);
    own->plan = copy(session, spec->plan);
    own->base = copy(session, spec->base);
    own->base_layer = copy(session, spec->base_layer);
    own->base_over = copy(session, spec->base_over);
    if ((spec->workspace && !own->workspace) || (spec->at && !own->at) ||
        (spec->cwd && !own->cwd) || (spec->init_path && !own->init_path) ||
        (spec->egress_path && !own->egress_path) || (spec->plan && !own->plan) ||
        (spec->base && !own->base) || (spec->base_layer && !own->base_layer) ||
        (spec->base_over && !own->base_over) || !copy_mounts(session, spec) ||
        !copy_list(session, spec->env, &own->env) ||
        !copy_list(session, spec->net_rules, &own->net_rules))
        return err_set(err, ERR_LIMIT, 0, "out of memory, or too many mounts");
    return 0;
}
