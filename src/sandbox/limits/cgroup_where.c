/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/limits/cgroup_where.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/cgroup.h"

const struct cgroup_kind cgroup_kinds[CGROUP_LIMIT_COUNT_] = {
    [CGROUP_MEMORY] = {"--memory", "memory", "memory"},
    [CGROUP_PIDS] = {"--pids", "pids", "pids"},
    [CGROUP_CPU] = {"--cpu", "cpu", "cpu"},
    [CGROUP_IO] = {"--io", "blkio", "io"},
};

static const char no_controller[] = "the kernel offers no such cgroup controller here";
static const char no_buffered[] = "cgroup v1 does not bound writes that go through memory";
static const char not_writable[] = "this process may not make cgroups";
static const char get_controller[] = "boot with the cgroup controllers enabled, cgroup v2 mounted";
static const char get_v2[] = "boot with systemd.unified_cgroup_hierarchy=1";
static const char get_root[] = "run it as root, or boot with cgroup v2";
static const char get_writable[] = "mount the cgroups of v1 writable, or boot with cgroup v2";
static const char get_scope[] = "systemd-run --scope -p Delegate=yes carrel run ...";
static const char get_user_scope[] =
    "systemd-run --user --scope -p Delegate=yes carrel run ... (or run it as root)";

static int open_group(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static bool may_write(int dir, const char *file)
{
    return faccessat(dir, file, W_OK, AT_EACCESS) == 0;
}

bool cgroup_is_alone(int group, bool also_empty)
{
    char text[64];
    char own[32];
    ssize_t n = cgroup_read(group, "cgroup.procs", text, sizeof(text));

    snprintf(own, sizeof(own), "%d\n", (int)getpid());
    return n >= 0 && ((also_empty && n == 0) || strcmp(text, own) == 0);
}

/* What the kernel asks of a v2 group before it has children with these controllers: that they are
 * on, or can be switched on, which needs a group without processes of its own (the root apart). */
static int can_take_children(int group, unsigned wanted, bool own, bool *ret_move)
{
    bool all_on = true;
    bool is_root = faccessat(group, "cgroup.events", F_OK, 0) < 0;

    *ret_move = false;
    if (!may_write(group, ".") || !may_write(group, "cgroup.procs"))
        return -EACCES;
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        if (!(wanted & 1U << i) ||
            cgroup_lists(group, "cgroup.subtree_control", cgroup_kinds[i].v2))
            continue;
        all_on = false;
        if (!cgroup_lists(group, "cgroup.controllers", cgroup_kinds[i].v2))
            return -ENOENT;
    }
    if (all_on)
        return 0;
    if (!may_write(group, "cgroup.subtree_control"))
        return -EACCES;
    if (is_root || (!own && cgroup_is_alone(group, true) && !cgroup_is_alone(group, false)))
        return 0;
    if (!own || !cgroup_is_alone(group, false))
        return -EBUSY;
    *ret_move = true;
    return 0;
}

static void cut_last_name(char *path, size_t mount_length)
{
    char *slash = strrchr(path, '/');

    if (slash && (size_t)(slash - path) >= mount_length)
        *slash = '\0';
}

int cgroup_choose_parent(const struct cgroup_spot *spot, unsigned wanted, bool *ret_move)
{
    struct cgroup_spot at = *spot;
    const char *name = strrchr(at.path, '/');
    size_t tried = SIZE_MAX;
    int worst = -ENOENT;

    if (name && strcmp(name + 1, CGROUP_MAIN) == 0)
        cut_last_name(at.path, at.mount_length); /* where an earlier run has put us */
    bool own = strcmp(at.path, spot->path) == 0;
    for (int i = 0; i < 3; i++, own = false) {
        if (i == 1)
            cut_last_name(at.path, at.mount_length);
        else if (i == 2)
            at.path[at.mount_length] = '\0';
        if (strlen(at.path) == tried)
            continue;
        tried = strlen(at.path);
        scoped_fd int group = open_group(at.path);
        int r = group < 0 ? group : can_take_children(group, wanted, own, ret_move);
        if (r == 0)
            return take_fd(&group);
        if (r != -ENOENT)
            worst = r;
    }
    return worst;
}

unsigned cgroup_with_companions(unsigned wanted)
{
    return wanted & cgroup_bit(CGROUP_IO) ? wanted | cgroup_bit(CGROUP_MEMORY) : wanted;
}

int cgroup_choose_v1(enum cgroup_limit which)
{
    struct cgroup_spot spot;
    int r = cgroup_find(cgroup_kinds[which].v1, &spot);

    if (r < 0)
        return r;
    scoped_fd int group = open_group(spot.path);
    if (group < 0)
        return group;
    return may_write(group, ".") ? take_fd(&group) : -EACCES;
}

void cgroup_ask_one(enum cgroup_limit which, struct cgroup_offer *ret)
{
    struct cgroup_spot spot;
    bool move;
    bool root = geteuid() == 0;
    bool on_v1 = cgroup_find(cgroup_kinds[which].v1, &spot) == 0;
    scoped_fd int group = -1;

    *ret = (struct cgroup_offer){0};
    if (on_v1 && which == CGROUP_IO) {
        ret->why = no_buffered;
        ret->fix = get_v2;
        return;
    }
    if (on_v1)
        group = cgroup_choose_v1(which);
    else
        group = cgroup_find("", &spot) < 0
                    ? -ENOENT
                    : cgroup_choose_parent(&spot, cgroup_with_companions(cgroup_bit(which)), &move);
    if (group >= 0) {
        ret->version = on_v1 ? 1 : 2;
        return;
    }
    /* A delegated tree shows only what was delegated: then it is not the kernel that lacks it. */
    bool lacking = group == -ENOENT && root;
    ret->why = lacking ? no_controller : not_writable;
    if (lacking)
        ret->fix = get_controller;
    else if (on_v1) /* systemd delegates no controllers of v1 */
        ret->fix = root ? get_writable : get_root;
    else
        ret->fix = root ? get_scope : get_user_scope;
}

void cgroup_ask(struct cgroup_offer ret[CGROUP_LIMIT_COUNT_])
{
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++)
        cgroup_ask_one((enum cgroup_limit)i, &ret[i]);
}

bool cgroup_can_hold_pids(void)
{
    struct cgroup_offer offer;

    cgroup_ask_one(CGROUP_PIDS, &offer);
    return offer.version != 0;
}
