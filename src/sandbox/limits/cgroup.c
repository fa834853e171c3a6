/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/limits/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sys/cgroup.h"

#define PERIOD_US     100000ULL
#define TCP_MAX_BYTES (16ULL << 20)
#define INNER_NAME    "carrel-%d-inner" /* as our others, so that it is swept like them */

enum {
    NAME_TRIES = 64,
    LOCK_TRIES = 200, /* a millisecond each */
    REMOVE_TRIES = 11 /* 1, 2, 4 ... ms between them: two seconds in all */
};

static unsigned limits_to_keep(const struct carrel_limits *limits)
{
    unsigned wanted = 0;

    wanted |= limits->memory_bytes ? cgroup_bit(CGROUP_MEMORY) : 0;
    wanted |= limits->pids ? cgroup_bit(CGROUP_PIDS) : 0;
    wanted |= limits->cpu_milli ? cgroup_bit(CGROUP_CPU) : 0;
    wanted |= limits->io_bytes ? cgroup_bit(CGROUP_IO) : 0;
    return wanted;
}

/* --- making them -------------------------------------------------------------------------------
 */

void cgroup_init(struct cgroup *cgroup)
{
    static const struct cgroup_place nowhere = {.parent = -1, .dir = -1};

    *cgroup = (struct cgroup){.oom_event = -1, .inner = -1, .v2 = nowhere};
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++)
        cgroup->v1[i] = nowhere;
}

static void remove_empty(int parent, const char *name)
{
    ignore(unlinkat(parent, name, AT_REMOVEDIR) == 0); /* not empty: not ours */
}

/* Calls `remove` for each of our groups whose engine has gone. */
static void sweep(int parent, void (*remove)(int parent, const char *name))
{
    int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;

    if (!dir) {
        scope_close(&fd);
        return;
    }
    while ((entry = readdir(dir))) { // NOLINT(concurrency-mt-unsafe): a stream of our own
        char *end;
        if (strncmp(entry->d_name, "carrel-", 7) != 0)
            continue;
        long pid = strtol(entry->d_name + 7, &end, 10);
        if (pid > 0 && *end == '-' && kill((pid_t)pid, 0) < 0 && errno == ESRCH)
            remove(parent, entry->d_name);
    }
    (void)closedir(dir);
}

/* A sandbox that stayed has groups below its own. */
static void remove_with_those_below(int parent, const char *name)
{
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno != EBUSY)
        return;
    scoped_fd int group = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (group >= 0) {
        sweep(group, remove_empty);
        /* Killed while it was frozen: what is in it can die now, and the next one removes it. */
        (void)cgroup_write(group, "freezer.state", "THAWED");
    }
    remove_empty(parent, name);
}

void cgroup_sweep(int parent)
{
    sweep(parent, remove_with_those_below);
}

static int make_group(struct cgroup_place *place)
{
    static atomic_uint counter;

    for (int i = 0; i < NAME_TRIES; i++) {
        snprintf(place->name, sizeof(place->name), "carrel-%d-%u", (int)getpid(),
                 atomic_fetch_add(&counter, 1));
        if (mkdirat(place->parent, place->name, 0755) == 0) {
            place->dir = openat(place->parent, place->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            int saved = errno;
            if (place->dir < 0)
                ignore(unlinkat(place->parent, place->name, AT_REMOVEDIR) == 0);
            return place->dir < 0 ? -saved : 0;
        }
        if (errno != EEXIST) /* another Carrel's, of another pid namespace */
            return -errno;
    }
    return -EEXIST;
}

/* This process goes one down: a v2 group has either processes or children with controllers. */
static int move_down(int group)
{
    if (mkdirat(group, CGROUP_MAIN, 0755) < 0 && errno != EEXIST)
        return -errno;
    return cgroup_write(group, CGROUP_MAIN "/cgroup.procs", "0");
}

static int switch_on(int group, unsigned wanted)
{
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        char text[16];
        if (!(wanted & 1U << i) ||
            cgroup_lists(group, "cgroup.subtree_control", cgroup_kinds[i].v2))
            continue;
        snprintf(text, sizeof(text), "+%s", cgroup_kinds[i].v2);
        int r = cgroup_write(group, "cgroup.subtree_control", text);
        if (r < 0)
            return r;
    }
    return 0;
}

/* What limits of single commands may need in the sandbox's group, as far as it can be had. */
static void switch_on_for_nesting(int group)
{
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        if (i != CGROUP_IO && cgroup_lists(group, "cgroup.controllers", cgroup_kinds[i].v2))
            ignore(switch_on(group, 1U << i) == 0); /* then they are refused */
    }
}

/* Whether carrel-main is the only child of the group, and this process all there is in it. */
static bool only_main_is_left(int group)
{
    int fd = openat(group, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool only = dir != NULL;

    if (!dir) {
        scope_close(&fd);
        return false;
    }
    while ((entry = readdir(dir))) // NOLINT(concurrency-mt-unsafe): a stream of our own
        only = only && (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
                        strcmp(entry->d_name, CGROUP_MAIN) == 0);
    (void)closedir(dir);
    scoped_fd int main = openat(group, CGROUP_MAIN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return only && main >= 0 && cgroup_is_alone(main, false);
}

/* Takes move_down back. It had no children with controllers before: all that is on was switched on
 * since. */
static void move_up(int group)
{
    if (!only_main_is_left(group))
        return;
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        char text[16];
        snprintf(text, sizeof(text), "-%s", cgroup_kinds[i].v2);
        if (cgroup_lists(group, "cgroup.subtree_control", cgroup_kinds[i].v2))
            (void)cgroup_write(group, "cgroup.subtree_control", text);
    }
    if (cgroup_write(group, "cgroup.procs", "0") == 0)
        ignore(unlinkat(group, CGROUP_MAIN, AT_REMOVEDIR) == 0); /* a name in their own group */
}

/* Keeps one run from switching off what another has just counted on. Anybody who may read the
 * directory can hold the lock for ever, so nobody waits long for it. */
static void lock_briefly(int group)
{
    for (int i = 0; i < LOCK_TRIES && flock(group, LOCK_EX | LOCK_NB) < 0; i++)
        (void)poll(NULL, 0, 1);
}

/* One down: a group with processes of its own could not give controllers to others below it. */
static int make_inner(struct cgroup *cgroup)
{
    char name[48];

    snprintf(name, sizeof(name), INNER_NAME, (int)getpid());
    if (mkdirat(cgroup->v2.dir, name, 0755) < 0)
        return -errno;
    cgroup->inner = openat(cgroup->v2.dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return cgroup->inner < 0 ? -errno : 0;
}

static int make_v2(struct cgroup *cgroup, unsigned wanted)
{
    struct cgroup_spot spot;
    bool move = false;
    int r = cgroup_find("", &spot);

    if (r < 0)
        return r;
    unsigned controllers = cgroup_with_companions(wanted);
    cgroup->v2.parent = cgroup_choose_parent(&spot, controllers, &move);
    if (cgroup->v2.parent < 0)
        return cgroup->v2.parent;
    lock_briefly(cgroup->v2.parent);
    cgroup_sweep(cgroup->v2.parent);
    r = move ? move_down(cgroup->v2.parent) : 0;
    if (r == 0)
        r = switch_on(cgroup->v2.parent, controllers);
    if (r == 0 && cgroup->nest)
        switch_on_for_nesting(cgroup->v2.parent);
    if (r == 0)
        r = make_group(&cgroup->v2);
    (void)flock(cgroup->v2.parent, LOCK_UN);
    cgroup->unified = wanted;
    return r == 0 && cgroup->nest ? make_inner(cgroup) : r;
}

/* -EBUSY: pid 1 is in the group above itself, which therefore has no controllers to give. */
static int make_v2_below(struct cgroup *cgroup, const struct cgroup *above, unsigned wanted)
{
    if (above->v2.dir < 0)
        return make_v2(cgroup, wanted);
    if (above->inner < 0)
        return -EBUSY;
    cgroup->v2.parent = fcntl(above->v2.dir, F_DUPFD_CLOEXEC, 3);
    if (cgroup->v2.parent < 0)
        return -errno;
    int r = switch_on(cgroup->v2.parent, wanted);
    if (r == 0)
        r = make_group(&cgroup->v2);
    cgroup->unified = wanted;
    return r;
}

static int make_v1(struct cgroup *cgroup, const struct cgroup *above, enum cgroup_limit which)
{
    struct cgroup_place *place = &cgroup->v1[which];

    if (above && above->v1[which].dir >= 0) {
        place->parent = fcntl(above->v1[which].dir, F_DUPFD_CLOEXEC, 3);
        return place->parent < 0 ? -errno : make_group(place);
    }
    place->parent = cgroup_choose_v1(which);
    if (place->parent < 0)
        return place->parent;
    cgroup_sweep(place->parent);
    return make_group(place);
}

static int dir_of(const struct cgroup *cgroup, enum cgroup_limit which)
{
    if (!(cgroup->wanted & cgroup_bit(which)))
        return -1;
    return cgroup->unified & cgroup_bit(which) ? cgroup->v2.dir : cgroup->v1[which].dir;
}

/* --- the limits themselves ---------------------------------------------------------------------
 */

static int write_number(int dir, const char *file, uint64_t number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    return cgroup_write(dir, file, text);
}

static bool host_swaps(void)
{
    char text[1024];

    return cgroup_read(AT_FDCWD, "/proc/swaps", text, sizeof(text)) > 0 && strchr(text, '\n') &&
           strchr(text, '\n')[1] != '\0';
}

/* Without swap accounting a limit on memory only pushes the rest out to the disk. */
static int no_swap_accounting(int r, struct err *err)
{
    if (r == -ENOENT && !host_swaps())
        return 0;
    if (r == -ENOENT)
        return err_set(err, ERR_KERNEL, 0,
                       "--memory cannot be kept: this kernel does not count swap, and the host "
                       "swaps; swapoff -a, or boot with swapaccount=1");
    return err_set(err, ERR_IO, -r, "write the limit on swap for --memory");
}

static int limit_memory_v2(int dir, uint64_t bytes, struct err *err)
{
    int r = write_number(dir, "memory.max", bytes);

    if (r == 0)
        r = cgroup_write(dir, "memory.oom.group", "1");
    if (r < 0)
        return err_set(err, ERR_IO, -r, "write the limit for --memory");
    r = cgroup_write(dir, "memory.swap.max", "0");
    return r < 0 ? no_swap_accounting(r, err) : 0;
}

/* The kernel writes to the event's descriptor when memory has run out: v1 kills one process, and we
 * the others. */
static void watch_for_oom(struct cgroup *cgroup, int dir)
{
    scoped_fd int control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
    char text[32];

    cgroup->oom_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(text, sizeof(text), "%d %d", cgroup->oom_event, control);
    if (control < 0 || cgroup->oom_event < 0 || cgroup_write(dir, "cgroup.event_control", text) < 0)
        scope_close(&cgroup->oom_event); /* cgroup_needs_looks */
}

/* v1 counts the buffers of network sockets apart: they get a small share of the whole. It is soft,
 * see cgroup_is_beyond_memory. */
static int limit_memory_v1(struct cgroup *cgroup, int dir, uint64_t bytes, struct err *err)
{
    uint64_t tcp = bytes / 16 < TCP_MAX_BYTES ? bytes / 16 : TCP_MAX_BYTES;
    int r = write_number(dir, "memory.kmem.tcp.limit_in_bytes", tcp);

    if (r == -ENOENT || r == -EOPNOTSUPP)
        tcp = 0; /* a kernel without these buffers, or that does not count them at all */
    else if (r < 0)
        return err_set(err, ERR_IO, -r, "write the limit on socket buffers for --memory");
    r = write_number(dir, "memory.limit_in_bytes", bytes - tcp);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "write the limit for --memory");
    r = write_number(dir, "memory.memsw.limit_in_bytes", bytes - tcp);
    if (r < 0 && no_swap_accounting(r, err) < 0)
        return -1;
    watch_for_oom(cgroup, dir);
    cgroup->memory_v1 = bytes;
    cgroup->tcp_v1 = tcp;
    return 0;
}

static int limit_memory(struct cgroup *cgroup, const struct carrel_limits *limits, struct err *err)
{
    int dir = dir_of(cgroup, CGROUP_MEMORY);

    if (dir < 0 || weak("cgroup-memory"))
        return 0;
    return cgroup->unified & cgroup_bit(CGROUP_MEMORY)
               ? limit_memory_v2(dir, limits->memory_bytes, err)
               : limit_memory_v1(cgroup, dir, limits->memory_bytes, err);
}

/* Pid 1 is Carrel's own and comes on top. */
static int limit_pids(struct cgroup *cgroup, const struct carrel_limits *limits, struct err *err)
{
    int dir = dir_of(cgroup, CGROUP_PIDS);

    if (dir < 0 || weak("pids"))
        return 0;
    int r = write_number(dir, "pids.max", limits->pids + 1);
    return r < 0 ? err_set(err, ERR_IO, -r, "write the limit for --pids") : 0;
}

static int limit_cpu(struct cgroup *cgroup, const struct carrel_limits *limits, struct err *err)
{
    int dir = dir_of(cgroup, CGROUP_CPU);
    uint64_t quota = limits->cpu_milli * PERIOD_US / 1000;
    char text[64];
    int r;

    if (dir < 0)
        return 0;
    if (cgroup->unified & cgroup_bit(CGROUP_CPU)) {
        snprintf(text, sizeof(text), "%llu %llu", (unsigned long long)quota, PERIOD_US);
        r = cgroup_write(dir, "cpu.max", text);
    } else {
        r = write_number(dir, "cpu.cfs_period_us", PERIOD_US);
        if (r == 0)
            r = write_number(dir, "cpu.cfs_quota_us", quota);
    }
    if (r == -EINVAL)
        return err_set(err, ERR_INVALID, 0,
                       "--cpu is more than Carrel itself may use here, or less than 0.01");
    return r < 0 ? err_set(err, ERR_IO, -r, "write the limit for --cpu") : 0;
}

/* The disk a file system is on: limits are on whole disks, not on partitions. */
static int disk_of(int fd, dev_t *ret)
{
    char path[128];
    char text[32];
    char *colon;
    struct stat st;

    *ret = 0;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = st.st_dev;
    if (major(st.st_dev) == 0)
        return -ENODEV; /* tmpfs, overlay, network */
    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/partition", major(*ret), minor(*ret));
    if (access(path, F_OK) < 0)
        return 0;
    snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../dev", major(*ret), minor(*ret));
    if (cgroup_read(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return -ENODEV;
    unsigned long major_number = strtoul(text, &colon, 10);
    if (*colon != ':')
        return -ENODEV;
    *ret = makedev((unsigned)major_number, (unsigned)strtoul(colon + 1, NULL, 10));
    return 0;
}

static int limit_io(struct cgroup *cgroup, const struct carrel_limits *limits, int workspace_fd,
                    struct err *err)
{
    int dir = dir_of(cgroup, CGROUP_IO);
    unsigned long long bytes = limits->io_bytes;
    char text[128];
    dev_t disk;

    if (dir < 0)
        return 0;
    int r = disk_of(workspace_fd, &disk);
    if (r < 0)
        return err_set(err, ERR_KERNEL, 0,
                       "--io cannot be kept: the workspace's file system is on no disk of its own; "
                       "keep the workspace on ext4 or xfs");
    snprintf(text, sizeof(text), "%u:%u rbps=%llu wbps=%llu", major(disk), minor(disk), bytes,
             bytes);
    r = cgroup_write(dir, "io.max", text);
    cgroup->io_disk = r < 0 ? 0 : disk;
    return r < 0 ? err_set(err, ERR_IO, -r, "write the limit for --io") : 0;
}

/* Files that were written in here are written back in its name for a while after it is gone: later
 * runs must not wait for its limit. */
static void lift_io(const struct cgroup *cgroup)
{
    char text[64];
    int dir = dir_of(cgroup, CGROUP_IO);

    if (dir < 0 || !cgroup->io_disk)
        return;
    snprintf(text, sizeof(text), "%u:%u rbps=max wbps=max", major(cgroup->io_disk),
             minor(cgroup->io_disk));
    ignore(cgroup_write(dir, "io.max", text) == 0); /* then they wait */
}

/* --- putting it together -----------------------------------------------------------------------
 */

static int refuse(enum cgroup_limit which, const struct cgroup_offer *offer, struct err *err)
{
    return err_set(err, ERR_KERNEL, 0, "%s cannot be kept: %s; %s", cgroup_kinds[which].option,
                   offer->why, offer->fix);
}

static int make_all(struct cgroup *cgroup, const struct cgroup *above,
                    const struct cgroup_offer *offers, struct err *err)
{
    unsigned unified = 0;
    int r = 0;

    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        enum cgroup_limit which = (enum cgroup_limit)i;
        if (!(cgroup->wanted & cgroup_bit(which)))
            continue;
        if (offers[i].version == 2)
            unified |= cgroup_bit(which);
        else
            r = make_v1(cgroup, above, which);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "make a cgroup for %s", cgroup_kinds[i].option);
    }
    if (unified)
        r = above ? make_v2_below(cgroup, above, unified) : make_v2(cgroup, unified);
    return r < 0 ? err_set(err, ERR_IO, -r, "make a cgroup for this run") : 0;
}

static int make(struct cgroup *cgroup, const struct cgroup *above,
                const struct carrel_limits *limits, int workspace_fd, struct err *err)
{
    struct cgroup_offer offers[CGROUP_LIMIT_COUNT_];

    cgroup->wanted = limits_to_keep(limits);
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        enum cgroup_limit which = (enum cgroup_limit)i;
        if (!(cgroup->wanted & cgroup_bit(which)))
            continue;
        cgroup_ask_one(which, &offers[i]);
        if (offers[i].version == 0)
            return refuse(which, &offers[i], err);
    }
    if (!cgroup->wanted)
        return 0;
    if (make_all(cgroup, above, offers, err) == 0 && limit_memory(cgroup, limits, err) == 0 &&
        limit_pids(cgroup, limits, err) == 0 && limit_cpu(cgroup, limits, err) == 0 &&
        limit_io(cgroup, limits, workspace_fd, err) == 0)
        return 0;
    cgroup_clear(cgroup);
    return -1;
}

int cgroup_make(struct cgroup *cgroup, const struct carrel_limits *limits, int workspace_fd,
                struct err *err)
{
    return make(cgroup, NULL, limits, workspace_fd, err);
}

int cgroup_make_below(struct cgroup *cgroup, const struct cgroup *above,
                      const struct carrel_limits *limits, struct err *err)
{
    return make(cgroup, above, limits, -1, err);
}

bool cgroup_can_nest(const struct cgroup *above, enum cgroup_limit which)
{
    return above->v2.dir < 0 ||
           (above->inner >= 0 &&
            cgroup_lists(above->v2.dir, "cgroup.controllers", cgroup_kinds[which].v2));
}

int cgroup_clone_fd(const struct cgroup *cgroup)
{
    return cgroup->inner >= 0 ? cgroup->inner : cgroup->v2.dir;
}

void cgroup_cloned(struct cgroup *cgroup)
{
    cgroup->cloned = true;
}

int cgroup_attach(struct cgroup *cgroup, pid_t pid, struct err *err)
{
    int dirs[1 + CGROUP_LIMIT_COUNT_] = {cgroup->cloned ? -1 : cgroup_clone_fd(cgroup)};

    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++)
        dirs[1 + i] = cgroup->v1[i].dir;
    for (unsigned i = 0; i < 1 + CGROUP_LIMIT_COUNT_; i++) {
        int r = dirs[i] < 0 ? 0 : write_number(dirs[i], "cgroup.procs", (uint64_t)pid);
        if (r < 0)
            return err_set(err, ERR_IO, -r, "put the sandbox into its cgroup");
    }
    return 0;
}

void cgroup_set_pids(const struct cgroup *cgroup, uint64_t pids, uint64_t own)
{
    int dir = dir_of(cgroup, CGROUP_PIDS);

    if (dir >= 0 && !weak("pids"))
        ignore(write_number(dir, "pids.max", pids + 1 + own) == 0); /* then it is a few less */
}

/* --- what they tell ----------------------------------------------------------------------------
 */

int cgroup_oom_fd(const struct cgroup *cgroup)
{
    return cgroup->oom_event;
}

void cgroup_take_oom_event(const struct cgroup *cgroup)
{
    uint64_t times;

    ignore(read(cgroup->oom_event, &times, sizeof(times)) > 0);
}

bool cgroup_needs_looks(const struct cgroup *cgroup)
{
    return (cgroup->wanted & (cgroup_bit(CGROUP_PIDS) | cgroup_bit(CGROUP_MEMORY))) != 0;
}

bool cgroup_is_beyond_memory(const struct cgroup *cgroup)
{
    int dir = cgroup->v1[CGROUP_MEMORY].dir;
    uint64_t used = 0;
    uint64_t sockets = 0;
    uint64_t active = 0;
    uint64_t inactive = 0;

    if (!cgroup->memory_v1 ||
        cgroup_number(dir, "memory.kmem.tcp.usage_in_bytes", NULL, &sockets) < 0 ||
        sockets < cgroup->tcp_v1 || cgroup_number(dir, "memory.usage_in_bytes", NULL, &used) < 0 ||
        cgroup_number(dir, "memory.stat", "active_file", &active) < 0 ||
        cgroup_number(dir, "memory.stat", "inactive_file", &inactive) < 0)
        return false;
    /* Files that are only cached give way by themselves. */
    uint64_t cached = active + inactive;
    return (used > cached ? used - cached : 0) + sockets > cgroup->memory_v1;
}

bool cgroup_ran_out_of_memory(const struct cgroup *cgroup)
{
    int dir = dir_of(cgroup, CGROUP_MEMORY);
    bool v2 = cgroup->unified & cgroup_bit(CGROUP_MEMORY);
    uint64_t kills = 0;

    return dir >= 0 &&
           cgroup_number(dir, v2 ? "memory.events" : "memory.oom_control", "oom_kill", &kills) ==
               0 &&
           kills > 0;
}

bool cgroup_holds_pids(const struct cgroup *cgroup)
{
    return dir_of(cgroup, CGROUP_PIDS) >= 0;
}

uint64_t cgroup_new_fork_failures(struct cgroup *cgroup)
{
    int dir = dir_of(cgroup, CGROUP_PIDS);
    uint64_t before = cgroup->fork_failures;
    uint64_t now = 0;

    if (dir < 0)
        return 0;
    if (cgroup_number(dir, "pids.current", NULL, &now) == 0 && now > cgroup->most_tasks)
        cgroup->most_tasks = now;
    if (cgroup_number(dir, "pids.events", "max", &now) == 0)
        cgroup->fork_failures = now;
    return cgroup->fork_failures - before;
}

static void memory_usage(const struct cgroup *cgroup, struct carrel_usage *usage)
{
    int dir = dir_of(cgroup, CGROUP_MEMORY);
    bool v2 = cgroup->unified & cgroup_bit(CGROUP_MEMORY);
    uint64_t n;

    if (dir >= 0 &&
        cgroup_number(dir, v2 ? "memory.peak" : "memory.max_usage_in_bytes", NULL, &n) == 0)
        usage->peak_memory_bytes = n;
}

static void pids_usage(const struct cgroup *cgroup, struct carrel_usage *usage)
{
    int dir = dir_of(cgroup, CGROUP_PIDS);
    uint64_t n = cgroup->most_tasks;

    if (dir < 0)
        return;
    if (cgroup_number(dir, "pids.peak", NULL, &n) == 0 || n > 0)
        usage->processes = n > 1 ? n - 1 : 1; /* without pid 1 */
}

/* The lines of io.stat: "8:0 rbytes=1 wbytes=2 ...", one per device. */
static uint64_t bytes_written(const char *text)
{
    uint64_t sum = 0;

    for (const char *at = text; (at = strstr(at, " wbytes=")); at++)
        sum += strtoull(at + strlen(" wbytes="), NULL, 10);
    return sum;
}

void cgroup_usage(const struct cgroup *cgroup, struct carrel_usage *usage)
{
    char text[4096];
    uint64_t n;

    memory_usage(cgroup, usage);
    pids_usage(cgroup, usage);
    if (cgroup->v2.dir < 0)
        return;
    /* Counted for every v2 group, and also for those who were never waited for. */
    if (cgroup_number(cgroup->v2.dir, "cpu.stat", "user_usec", &n) == 0)
        usage->cpu_user_ms = (double)n / 1000;
    if (cgroup_number(cgroup->v2.dir, "cpu.stat", "system_usec", &n) == 0)
        usage->cpu_system_ms = (double)n / 1000;
    if (cgroup_read(cgroup->v2.dir, "io.stat", text, sizeof(text)) > 0)
        usage->written_bytes = bytes_written(text);
}

/* --- the end -----------------------------------------------------------------------------------
 */

static void kill_listed(int dir)
{
    char text[4096];
    char *at = text;

    if (cgroup_read(dir, "cgroup.procs", text, sizeof(text)) <= 0)
        return;
    for (long pid; (pid = strtol(at, &at, 10)) > 0 && *at == '\n';) /* not one that was cut off */
        (void)kill((pid_t)pid, SIGKILL);
}

void cgroup_kill(const struct cgroup *cgroup)
{
    if (cgroup->v2.dir >= 0)
        (void)cgroup_write(cgroup->v2.dir, "cgroup.kill",
                           "1"); /* before 5.14: pid 1's end will do */
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        if (cgroup->v1[i].dir >= 0)
            kill_listed(cgroup->v1[i].dir);
    }
}

/* The dying may be in it for a moment after pid 1 has been waited for. */
static void remove_place(const struct cgroup *cgroup, struct cgroup_place *place)
{
    for (int i = 0; place->dir >= 0 && i < REMOVE_TRIES; i++) {
        struct timespec pause = {.tv_nsec = 1000000L << i};
        if (pause.tv_nsec > 999999999L)
            pause.tv_nsec = 999999999L;
        if (unlinkat(place->parent, place->name, AT_REMOVEDIR) == 0 || errno != EBUSY)
            break;
        cgroup_kill(cgroup);
        (void)nanosleep(&pause, NULL);
    }
    scope_close(&place->dir);
    scope_close(&place->parent);
}

static void remove_inner(struct cgroup *cgroup)
{
    struct cgroup_place inner = {.parent = fcntl(cgroup->v2.dir, F_DUPFD_CLOEXEC, 3),
                                 .dir = cgroup->inner};

    snprintf(inner.name, sizeof(inner.name), INNER_NAME, (int)getpid());
    remove_place(cgroup, &inner);
    cgroup->inner = -1;
}

void cgroup_clear(struct cgroup *cgroup)
{
    lift_io(cgroup);
    if (cgroup->inner >= 0)
        remove_inner(cgroup);
    if (cgroup->v2.parent >= 0) {
        scoped_fd int parent = fcntl(cgroup->v2.parent, F_DUPFD_CLOEXEC, 3);
        remove_place(cgroup, &cgroup->v2);
        if (parent >= 0) {
            lock_briefly(parent); /* closing the last descriptor unlocks */
            move_up(parent);
        }
    }
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++)
        remove_place(cgroup, &cgroup->v1[i]);
    scope_close(&cgroup->oom_event);
    cgroup_init(cgroup);
}
