/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the part of the setup that takes things away: namespaces, limits, Landlock, filter. */
#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/weak.h"
#include "sandbox/denial/connector.h"
#include "sandbox/filter.h"
#include "sandbox/limits/limits.h"
#include "sandbox/run.h"
#include "sys/uapi.h"

static const struct {
    const char *control; /* its name in test builds */
    uint32_t flag;
} namespaces[] = {
    {"ns-user", CLONE_NEWUSER}, {"ns-mount", CLONE_NEWNS},      {"ns-pid", CLONE_NEWPID},
    {"ns-ipc", CLONE_NEWIPC},   {"ns-uts", CLONE_NEWUTS},       {"ns-net", CLONE_NEWNET},
    {"time", CLONE_NEWTIME},    {"ns-cgroup", CLONE_NEWCGROUP},
};

void confinement_begin(struct run *run)
{
    const struct carrel_limits *asked = &run->spec->limits;

    for (size_t i = 0; i < sizeof(namespaces) / sizeof(namespaces[0]); i++) {
        if (weak(namespaces[i].control))
            continue;
        run->setup.namespaces |= namespaces[i].flag;
    }
    if (run->net == CARREL_NET_HOST)
        run->setup.namespaces &= ~(uint32_t)CLONE_NEWNET;
    if (access("/proc/self/ns/time", F_OK) < 0 && errno == ENOENT) /* before Linux 5.6 */
        run->setup.namespaces &= ~(uint32_t)CLONE_NEWTIME;
    run->pids_by_rlimit = asked->pids && !cgroup_can_hold_pids();
}

enum {
    DEFAULT_PROCESSES = 4096
};

#define LARGE_FILE (8UL << 30)

/* Bounds on what one process may hold. RLIMIT_NPROC counts per user namespace. */
static const struct {
    int which;
    uint64_t soft;
    uint64_t hard;
} limits[] = {
    {RLIMIT_CORE, 1,
     1}, /* no dumps: 0 would still start a core handler of the host's, 1 does not */
    {RLIMIT_NOFILE, 1024, 65536},
    {RLIMIT_NPROC, DEFAULT_PROCESSES, DEFAULT_PROCESSES},
    {RLIMIT_MEMLOCK, 65536, 65536},
    {RLIMIT_RTPRIO, 0, 0},
    {RLIMIT_NICE, 0, 0},
    {RLIMIT_MSGQUEUE, 204800, 204800},
    {RLIMIT_SIGPENDING, 4096, 4096},
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void write_limit(struct run *run, int which, uint64_t most)
{
    run->setup.limit_mask |= 1U << which;
    run->setup.limits[which].hard = run->setup.limits[which].soft = most;
}

/* The limits somebody asked for, as far as they are kept process by process. A limit on processes
 * is a cgroup's where there is one: it counts the failures, too. */
static int write_asked_limits(struct run *run, struct err *err)
{
    const struct carrel_limits *asked = &run->spec->limits;
    struct rlimit now;

    if (syscall(SYS_prlimit64, 0, RLIMIT_NPROC, NULL, &now) < 0)
        return err_set(err, ERR_IO, errno, "read resource limit %d", RLIMIT_NPROC);
    uint64_t with_pid_1 = asked->pids + 1;
    if (!weak("pids") && (run->pids_by_rlimit || with_pid_1 > DEFAULT_PROCESSES))
        write_limit(run, RLIMIT_NPROC, least(with_pid_1, now.rlim_max));
    /* Counting ends a run that adds too much. This is for when it comes too late: a bound that no
     * file which was there before, or is in /tmp, comes near. */
    if (asked->disk_bytes && !asked->disk_image && !weak("disk"))
        write_limit(run, RLIMIT_FSIZE,
                    asked->disk_bytes + limits_tmp_bytes(run->spec) + LARGE_FILE);
    return 0;
}

static int write_limits(struct run *run, struct err *err)
{
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit now;
        int which = limits[i].which;
        if (syscall(SYS_prlimit64, 0, which, NULL, &now) < 0)
            return err_set(err, ERR_IO, errno, "read resource limit %d", which);
        run->setup.limit_mask |= 1U << which;
        run->setup.limits[which].hard = least(limits[i].hard, now.rlim_max);
        run->setup.limits[which].soft = least(limits[i].soft, run->setup.limits[which].hard);
    }
    return write_asked_limits(run, err);
}

/* With the host's network the engine makes the connections (connector.h). */
static int write_guard(struct run *run, struct filter_options *filter, struct err *err)
{
    if (run->net != CARREL_NET_HOST || weak("net-guard"))
        return 0;
    if (!run->host.can_notify || !host_can_guard())
        return err_set(err, ERR_KERNEL, 0,
                       "--net host refuses metadata addresses, and this host cannot: it needs "
                       "Linux 5.6, pidfd_getfd and process_vm_readv not filtered away, and "
                       "kernel.yama.ptrace_scope below 3; use --net none");
    filter->guard = true;
    run->setup.flags |= SETUP_GUARD;
    return 0;
}

int confinement_write(struct run *run, struct err *err)
{
    struct filter_options filter = {0};

    if (write_limits(run, err) < 0 || write_guard(run, &filter, err) < 0)
        return -1;
    if (run->host.landlock_abi >= CARREL_LANDLOCK_ABI_SCOPES)
        run->setup.flags |= SETUP_SCOPE_SOCKETS | SETUP_SCOPE_SIGNALS;
    filter.walled = filter.guard && run->setup.flags & SETUP_SCOPE_SOCKETS;
    if (!(run->setup.flags & SETUP_SCOPE_SOCKETS) && run->net == CARREL_NET_HOST)
        filter.no_unix_sockets = true; /* the host's abstract sockets are in its network */
    filter.redirect = (run->setup.flags & SETUP_REDIRECT) != 0;
    const struct carrel_limits *asked = &run->spec->limits;
    filter.no_fallocate = asked->disk_bytes && !asked->disk_image && !weak("disk");
    filter.notify = run->host.can_notify;
    if (filter.notify)
        run->setup.flags |= SETUP_NOTIFY;
    filter_build(&run->setup, &filter);
    return 0;
}
