/* SPDX-License-Identifier: Apache-2.0 */
/* A workspace as one archive, and back. tar runs inside, like any command: what a hostile tree
 * makes of it stays there. */
#include <string.h>

#include "front/core/call.h"
#include "front/core/links.h"
#include "front/exec/routes.h"
#include "front/exec/start.h"

/* Names in the root that are Carrel's own mounts, on the same device as the tree for all tar knows.
 */
static const char *const pack[] = {
    "tar",
    "--create",
    "--file=-",
    "--format=pax",
    "--directory=/",
    "--anchored",
    "--no-wildcards",
    "--exclude=./usr",
    "--exclude=./bin",
    "--exclude=./sbin",
    "--exclude=./lib",
    "--exclude=./lib32",
    "--exclude=./lib64",
    "--exclude=./libx32",
    "--exclude=./etc",
    "--exclude=./proc",
    "--exclude=./dev",
    "--exclude=./tmp",
    "--exclude=./.cache",
    "--exclude=./opt/carrel",
    "--exclude=./opt/carrel-ca.pem",
};

enum {
    FIXED = sizeof(pack) / sizeof(pack[0]),
    MOUNTS_MAX = 64,
};

static const char *const unpack[] = {
    "tar", "--extract", "--file=-", "--directory=/", "--no-same-owner", "--keep-directory-symlink",
    NULL};

static char *exclude(struct call *call, const char *place)
{
    return arena_printf(&call->arena, "--exclude=./%s", *place == '/' ? place + 1 : place);
}

/* What is linked or mounted from elsewhere is not the workspace's. */
static size_t exclude_mounts(struct call *call, const struct shared_link links[LINK_COUNT_],
                             const char **argv)
{
    size_t n = 0;

    for (size_t i = 0; i < LINK_COUNT_; i++) {
        if (*links[i].at && (*links[i].source || i != LINK_TICKET))
            argv[n++] = exclude(call, links[i].at);
        if (*links[i].place)
            argv[n++] = exclude(call, links[i].place);
    }
    json_t *policy = json_loads(call->workspace.policy, 0, NULL);
    json_t *mounts = json_object_get(policy, "mounts");
    json_t *mount;
    size_t at;
    json_array_foreach(mounts, at, mount)
    {
        const char *target = json_string_value(json_object_get(mount, "target"));
        const char *source = json_string_value(json_object_get(mount, "source"));
        if (n < MOUNTS_MAX && (target || source))
            argv[n++] = exclude(call, target ? target : source);
    }
    json_decref(policy);
    return n;
}

void workspaces_backup(struct call *call)
{
    const char **argv = arena_alloc(&call->arena, (FIXED + MOUNTS_MAX + 4) * sizeof(*argv));
    struct shared_link links[LINK_COUNT_];

    if (http_request_of(call->x)->method == HTTP_HEAD) {
        call->allow = "Allow: GET\r\n";
        call_error(call, 405, "method_not_allowed", "an archive is made when it is asked for");
        return;
    }
    json_t *settings = json_parsed(call->workspace.links);
    bool read = argv && links_read(&call->arena, settings, links);
    json_decref(settings);
    if (!read) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    memcpy(argv, pack, sizeof(pack));
    size_t n = FIXED + exclude_mounts(call, links, argv + FIXED);
    argv[n] = ".";
    execs_own(call, argv, NULL);
}

static void room(void *context)
{
    struct call *call = context;

    if (call->x)
        http_continue_body(call->x);
}

static size_t take_piece(struct call *call, const char *bytes, size_t n)
{
    struct exec *exec = exec_of_call(call);

    if (!exec)
        return 0; /* it has not started yet */
    int r = exec_input(exec, bytes, n);
    if (r == 0)
        return n;
    /* A tar that has ended or closed its input says why in its result. */
    return exec->input < 0 || exec->state == EXEC_ENDED ? n : 0;
}

static void end_of_body(struct call *call)
{
    struct exec *exec = exec_of_call(call);

    call->piece = NULL;
    if (exec)
        exec_end_input(exec);
}

static void left(struct call *call)
{
    struct exec *exec = exec_of_call(call);

    if (exec && exec->room == room) {
        exec->room = NULL;
        exec_end_input(exec); /* half an archive is an error for tar, which says so */
    }
}

static void runs(struct call *call)
{
    struct exec *exec = exec_of_call(call);

    exec->room = room;
    exec->room_context = call;
    call->leaving = left;
    if (call->piece)
        http_continue_body(call->x);
    else
        exec_end_input(exec);
}

void workspaces_restore(struct call *call)
{
    call->piece = take_piece;
    call->whole = end_of_body;
    execs_own(call, unpack, runs);
}
