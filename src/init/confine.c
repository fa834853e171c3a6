/* SPDX-License-Identifier: Apache-2.0 */
/* The stages that take privilege away, one function each. Order and reasons: the table in main.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "init/init.h"
#include "sys/path.h"
#include "sys/process.h"
#include "sys/uapi.h"

/* Situation: the uid is the host's, unmapped where a range is leased; all capabilities in the new
 * user namespace. Files made from here on need an owner that exists inside. */
int stage_become_builder(struct sandbox *sandbox, struct err *err)
{
    if (!(sandbox->setup->flags & SETUP_UID_RANGE))
        return 0;
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "take an id of the leased range");
    return 0;
}

/* The values are those of the writer's user namespace; the host keeps its own. What is counted here
 * is counted for the namespace's owner too: a sandbox must not use up all of it. */
int stage_namespace_limits(struct sandbox *sandbox, struct err *err)
{
    static const char *const inotify = "/proc/sys/user/max_inotify_instances";
    int r = path_write_text(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0");

    (void)sandbox;
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "forbid nested user namespaces");
    r = path_write_text(AT_FDCWD, inotify, "32");
    if (r < 0 && r != -ENOENT)
        return err_set(err, ERR_KERNEL, -r, "limit inotify instances");
    return 0;
}

/* Namespaces do not cut keyrings: the caller's session keys would be readable. */
int stage_new_keyring(struct sandbox *sandbox, struct err *err)
{
    (void)sandbox;
    if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
        return err_set(err, ERR_IO, errno, "make a session keyring");
    return 0;
}

int stage_hostname(struct sandbox *sandbox, struct err *err)
{
    if (sethostname(sandbox->setup->hostname, strlen(sandbox->setup->hostname)) < 0 ||
        setdomainname("", 0) < 0)
        return err_set(err, ERR_IO, errno, "set the host name");
    return 0;
}

int stage_loopback(struct sandbox *sandbox, struct err *err)
{
    struct ifreq request = {.ifr_name = "lo"};

    if (!(sandbox->setup->namespaces & CLONE_NEWNET))
        return 0;
    scoped_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &request) < 0)
        return err_set(err, ERR_IO, errno, "look up the loopback interface");
    request.ifr_flags |= IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
        return err_set(err, ERR_IO, errno, "bring the loopback interface up");
    return 0;
}

/* What /proc/self/cgroup shows as / is the group this process is in now, its sandbox's own. */
int stage_cgroup_root(struct sandbox *sandbox, struct err *err)
{
    if ((sandbox->setup->namespaces & CLONE_NEWCGROUP) && unshare(CLONE_NEWCGROUP) < 0)
        return err_set(err, ERR_KERNEL, errno, "make a cgroup namespace");
    return 0;
}

/* Commands live in a time namespace whose clocks start now: uptime is the sandbox's own. */
int stage_clock(struct sandbox *sandbox, struct err *err)
{
    struct timespec monotonic;
    struct timespec boot;
    char text[96];

    if (!(sandbox->setup->namespaces & CLONE_NEWTIME))
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    snprintf(text, sizeof(text), "monotonic -%ld 0\nboottime -%ld 0\n", (long)monotonic.tv_sec,
             (long)boot.tv_sec);
    int r = path_write_text(sandbox->proc_self, "timens_offsets", text);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "set the sandbox's clock");
    /* Before Linux 6.2 no child may share our memory while it would be in another time namespace
     * than we are: join it. */
    int fd = openat(sandbox->proc_self, "ns/time_for_children", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWTIME) < 0)
        return err_set(err, ERR_KERNEL, errno, "enter the sandbox's time namespace");
    (void)close(fd);
    return 0;
}

int stage_limits(struct sandbox *sandbox, struct err *err)
{
    for (int i = 0; i < RLIM_NLIMITS; i++) {
        if (!(sandbox->setup->limit_mask & (1U << i)))
            continue;
        struct rlimit limit = {sandbox->setup->limits[i].soft, sandbox->setup->limits[i].hard};
        if (syscall(SYS_prlimit64, 0, i, &limit, NULL) < 0)
            return err_set(err, ERR_IO, errno, "set resource limit %d", i);
    }
    /* When memory runs out the sandbox goes first; refused only where it would go earlier already.
     */
    ignore(path_write_text(AT_FDCWD, "/proc/self/oom_score_adj", "500") == 0);
    return 0;
}

static int keep_file(int fd, unsigned *first, const char *what, struct err *err)
{
    if (fd < 0)
        return 0;
    if (dup3(fd, (int)*first, O_CLOEXEC) < 0 && errno != EINVAL)
        return err_set(err, ERR_IO, errno, "keep %s", what);
    (*first)++;
    return 0;
}

/* Only stdio (/dev/null), the engine's socket, the lease of our uids and the socket that stage_sudo
 * has made stay open. */
int stage_close_files(struct sandbox *sandbox, struct err *err)
{
    unsigned first = 4;

    if (keep_file(sandbox->lease, &first, "the lease of our uids", err) < 0 ||
        keep_file(sandbox->sudo, &first, "the socket of sudo", err) < 0)
        return -1;
    sandbox->sudo = sandbox->sudo < 0 ? -1 : (int)first - 1;
    sandbox->root = sandbox->frame = sandbox->prepared = -1;
    sandbox->lease = sandbox->proc_self = -1;
    sandbox->tree_count = sandbox->trees_used = 0;
    if (process_close_from(first, CLOSE_NOW) < 0)
        return err_set(err, ERR_IO, errno, "close inherited files");
    return 0;
}

int stage_drop_ids(struct sandbox *sandbox, struct err *err)
{
    gid_t gid = sandbox->setup->gid;
    uid_t uid = sandbox->setup->uid;

    if (sandbox->setup->flags & SETUP_UID_RANGE) {
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            return err_set(err, ERR_IO, errno, "become the user inside");
    }
    if (getuid() != uid || geteuid() != uid || getgid() != gid || getegid() != gid)
        return err_set(err, ERR_KERNEL, 0, "the user inside is not the expected one");
    return 0;
}

int stage_no_new_privileges(struct sandbox *sandbox, struct err *err)
{
    (void)sandbox;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "set no_new_privs");
    return 0;
}

/* Pid 1 cannot be traced, nor its memory, environment or program file opened from inside. */
int stage_undumpable(struct sandbox *sandbox, struct err *err)
{
    (void)sandbox;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "make pid 1 undumpable");
    return 0;
}

/* Landlock for what mounts and namespaces do not cut: with the host's network, its abstract
 * sockets. File rules are left to the mounts (they would cost every open). */
int stage_scopes(struct sandbox *sandbox, struct err *err)
{
    struct carrel_landlock_ruleset rules = {0};

    if (sandbox->setup->flags & SETUP_SCOPE_SOCKETS)
        rules.scoped |= CARREL_LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET;
    if (sandbox->setup->flags & SETUP_SCOPE_SIGNALS)
        rules.scoped |= CARREL_LANDLOCK_SCOPE_SIGNAL;
    if (sandbox->setup->flags & SETUP_GUARD && rules.scoped) /* the engine makes them, out here */
        rules.handled_access_net = CARREL_LANDLOCK_ACCESS_NET_CONNECT_TCP;
    if (!rules.scoped)
        return 0;
    scoped_fd int fd = (int)syscall(SYS_landlock_create_ruleset, &rules, sizeof(rules), 0);
    if (fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0) < 0)
        return err_set(err, ERR_KERNEL, errno, "enter the Landlock domain");
    return 0;
}

/* After the last change of ids, which would clear it. An engine that died before this line has
 * closed its end of the socket. */
int stage_die_with_parent(struct sandbox *sandbox, struct err *err)
{
    struct pollfd engine = {.fd = sandbox->socket, .events = 0};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "bind the sandbox's life to its engine's");
    if (poll(&engine, 1, 0) != 0)
        _exit(1);
    return 0;
}

/* What would be asked is answered instead: with the error the filter has beside the question, or,
 * where there is none, by letting the call go on. */
static void answer_without_listener(struct sock_filter *filter, unsigned length)
{
    for (unsigned i = 0; i < length; i++) {
        unsigned error = filter[i].k & SECCOMP_RET_DATA;
        if (filter[i].code == (BPF_RET | BPF_K) &&
            (filter[i].k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
            filter[i].k = error ? SECCOMP_RET_ERRNO | error : SECCOMP_RET_ALLOW;
    }
}

int stage_filter(struct sandbox *sandbox, struct err *err)
{
    struct sock_fprog program = {.len = (unsigned short)sandbox->setup->filter_length,
                                 .filter = (struct sock_filter *)(uintptr_t)sandbox->setup->filter};

    _Static_assert(sizeof(sandbox->setup->filter[0]) == sizeof(struct sock_filter), "same layout");
    if (!(sandbox->setup->flags & SETUP_NOTIFY)) {
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
            return err_set(err, ERR_KERNEL, errno, "install the system call filter");
        return 0;
    }
    /* A caller that was heard is not interrupted by signals; before Linux 5.19 it is. */
    unsigned flags = SECCOMP_FILTER_FLAG_NEW_LISTENER | CARREL_SECCOMP_WAIT_KILLABLE_RECV;
    sandbox->listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    if (sandbox->listener < 0 && errno == EINVAL)
        sandbox->listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                         SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (sandbox->listener >= 0)
        return 0;
    if (errno == EBUSY && sandbox->setup->flags & SETUP_GUARD)
        return err_set(err, ERR_KERNEL, errno,
                       "another program listens to the system calls here (a container's "
                       "manager), and --net host needs that to refuse metadata addresses; use "
                       "--net none, or run Carrel on the host itself");
    if (errno == EBUSY && sandbox->setup->flags & SETUP_REDIRECT)
        return err_set(err, ERR_KERNEL, errno,
                       "another program listens to the system calls here (a container's "
                       "manager), and rules of the network with ports from 1024 on need that; run "
                       "Carrel on the host itself");
    if (errno == EBUSY) { /* a container's manager listens already, and there can be only one */
        answer_without_listener(program.filter, program.len);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0)
            return 0;
    }
    return err_set(err, ERR_KERNEL, errno, "install the system call filter");
}
