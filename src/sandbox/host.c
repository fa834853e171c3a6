/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/host.h"

#include <errno.h>
#include <linux/landlock.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "sandbox/denial/denial.h"
#include "sandbox/identity.h"
#include "sys/path.h"

/* In a container's user namespace root may not hand out ids that are not its own. */
static bool leases_are_mapped(void)
{
    char text[256];
    char *at = text;

    if (path_read_small("/proc/self/uid_map", text, sizeof(text)) <= 0)
        return true; /* not to be known: if so, writing the maps fails, in words */
    unsigned long inside = strtoul(at, &at, 10);
    (void)strtoul(at, &at, 10); /* outside */
    return inside == 0 && strtoul(at, NULL, 10) >= IDENTITY_LEASE_END;
}

void host_ask(struct host *ret)
{
    struct sysinfo info = {0};
    cpu_set_t cpus;

    ret->uid = geteuid();
    ret->gid = getegid();
    ret->can_lease = ret->uid == 0 && leases_are_mapped();
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    ret->landlock_abi = abi > 0 ? (int)abi : 0;
    ret->can_notify = host_can_notify();
    ret->cpus = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? (unsigned)CPU_COUNT(&cpus) : 1;
    (void)sysinfo(&info);
    ret->memory_bytes = (uint64_t)info.totalram * info.mem_unit;
}

static bool reads(const char *path, char wanted)
{
    char text[16];

    return path_read_small(path, text, sizeof(text)) > 0 && text[0] == wanted;
}

const char *host_userns_remedy(int os_errno)
{
    if (os_errno == ENOSPC || os_errno == EUSERS)
        return "sysctl -w user.max_user_namespaces=65536";
    if (reads("/proc/sys/kernel/unprivileged_userns_clone", '0'))
        return "sysctl -w kernel.unprivileged_userns_clone=1";
    if (reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", '1'))
        return "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
    return "a chroot, a container's filter or the kernel's configuration forbids it: run Carrel on "
           "the host itself";
}
