/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/denial/setid.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/view.h"
#include "sys/path.h"
#include "sys/process.h"

enum {
    FCHMODAT2 = 452, /* Linux 6.6 */
    PAGE_BYTES = 4096,
    TRIES = 32 /* of a way in which somebody renames directories */
};

/* --- rights --- */

/* Those that reach into the files of others; in a user namespace root has them without being it. */
static int drop_file_capabilities(void)
{
    const uint32_t files = 1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_DAC_READ_SEARCH |
                           1U << CAP_FOWNER | 1U << CAP_FSETID | 1U << CAP_LINUX_IMMUTABLE |
                           1U << CAP_MKNOD;
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];

    if (syscall(SYS_capget, &head, sets) < 0)
        return -errno;
    sets[0].effective &= ~files;
    sets[0].permitted &= ~files;
    sets[0].inheritable &= ~files;
    return syscall(SYS_capset, &head, sets) < 0 ? -errno : 0;
}

/* Ids are a thread's own to the kernel. Rootless they are the caller's already. */
int setid_become_caller(const struct identity *id)
{
    struct process_marks marks;
    int r = 0;

    process_keep_marks(&marks);
    if (id->range) {
        uid_t uid = identity_outside_uid(id);
        gid_t gid = identity_outside_gid(id);
        if (syscall(SYS_setgroups, 0, NULL) < 0)
            r = -errno;
        (void)setfsgid(gid);
        (void)setfsuid(uid);
        if (r == 0 && (setfsgid((gid_t)-1) != (int)gid || setfsuid((uid_t)-1) != (int)uid))
            r = -EPERM;
    }
    if (r == 0)
        r = drop_file_capabilities();
    process_restore_marks(&marks);
    return r;
}

/* --- the call --- */

struct chmod_call {
    int dir; /* or the file itself, without a path */
    bool has_path;
    uint64_t path; /* in the caller's memory */
    uint32_t mode;
    uint32_t flags;
};

static bool read_call(const struct seccomp_data *call, struct chmod_call *ret)
{
    const __u64 *a = call->args;

    switch (call->nr) {
#ifdef __NR_chmod
    case __NR_chmod:
        *ret = (struct chmod_call){AT_FDCWD, true, a[0], (uint32_t)a[1], 0};
        return true;
#endif
    case __NR_fchmod:
        *ret = (struct chmod_call){(int)a[0], false, 0, (uint32_t)a[1], 0};
        return true;
    case __NR_fchmodat:
        *ret = (struct chmod_call){(int)a[0], true, a[1], (uint32_t)a[2], 0};
        return true;
    case FCHMODAT2:
        *ret = (struct chmod_call){(int)a[0], true, a[1], (uint32_t)a[2], (uint32_t)a[3]};
        return true;
    default:
        return false;
    }
}

bool setid_is_chmod(const struct seccomp_data *call, uint32_t *ret_mode)
{
    struct chmod_call c;

    if (!read_call(call, &c))
        return false;
    *ret_mode = c.mode;
    return true;
}

/* A copy, which nobody changes any more. Page by page: what follows the path may not be mapped. */
static int copy_path(pid_t thread, uint64_t at, char text[PATH_MAX])
{
    for (size_t n = 0; n < PATH_MAX;) {
        size_t part = PAGE_BYTES - (at + n) % PAGE_BYTES;
        struct iovec here = {text + n, part < PATH_MAX - n ? part : PATH_MAX - n};
        struct iovec there = {(void *)(uintptr_t)(at + n), // NOLINT(performance-no-int-to-ptr)
                              here.iov_len};
        ssize_t got = process_vm_readv(thread, &here, 1, &there, 1, 0);
        if (got <= 0)
            return got < 0 && errno != EFAULT ? -EPERM : -EFAULT;
        if (memchr(text + n, '\0', (size_t)got))
            return 0;
        n += (size_t)got;
    }
    return -ENAMETOOLONG;
}

/* --- what it is of --- */

static int open_way(int dir, const char *path, bool follow, uint64_t resolve)
{
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC | (follow ? 0 : (uint64_t)O_NOFOLLOW),
                                 .resolve = resolve | RESOLVE_NO_MAGICLINKS};

    for (int i = 0; i < TRIES; i++) {
        int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
        if (fd >= 0 || errno != EAGAIN)
            return fd < 0 ? -errno : fd;
    }
    return -EPERM;
}

/* Exactly what the caller has open, whatever its name is by now. */
static int open_descriptor(int caller, int number)
{
    char name[32];

    snprintf(name, sizeof(name), "fd/%d", number);
    int fd = number < 0 ? -1 : openat(caller, name, O_PATH | O_CLOEXEC);
    return fd >= 0 ? fd : number < 0 || errno == ENOENT ? -EBADF : -EPERM;
}

/* C libraries without fchmodat2(2) name a descriptor by /proc. That is the caller's own, and not
 * ours; -1: the path is none of these. */
static int own_descriptor(const char *path)
{
    static const char *const places[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"};

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        size_t n = strlen(places[i]);
        size_t digits = strncmp(path, places[i], n) == 0 ? strspn(path + n, "0123456789") : 0;
        if (digits > 0 && digits < 10 && path[n + digits] == '\0')
            return (int)strtol(path + n, NULL, 10);
    }
    return -1;
}

/* A path that leads out of the directory it is relative to: from the root, by that one's name. */
static int open_from_root(int root, int base, const char *path, bool follow)
{
    char text[2 * PATH_MAX];

    int r = path_of_fd(base, text, PATH_MAX);
    if (r < 0 || text[0] != '/')
        return -ENOENT;
    size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, "/%s", path);
    return open_way(root, text, follow, RESOLVE_IN_ROOT);
}

static int open_path(int caller, int dir, const char *path, bool follow)
{
    int number = own_descriptor(path);

    if (number >= 0)
        return open_descriptor(caller, number);
    scoped_fd int root = openat(caller, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -EPERM;
    if (path[0] == '/')
        return open_way(root, path, follow, RESOLVE_IN_ROOT);
    scoped_fd int base =
        dir == AT_FDCWD ? openat(caller, "cwd", O_PATH | O_CLOEXEC) : open_descriptor(caller, dir);
    if (base < 0)
        return dir == AT_FDCWD ? -EPERM : base;
    int fd = open_way(base, path, follow, RESOLVE_BENEATH);
    return fd == -EXDEV ? open_from_root(root, base, path, follow) : fd;
}

static int open_object(pid_t thread, const struct chmod_call *c)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "/proc/%d", (int)thread);
    scoped_fd int caller = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (caller < 0)
        return -EPERM;
    if (!c->has_path)
        return open_descriptor(caller, c->dir);
    int r = copy_path(thread, c->path, path);
    if (r < 0)
        return r;
    if (path[0] == '\0' && c->flags & AT_EMPTY_PATH)
        return c->dir == AT_FDCWD ? open_path(caller, AT_FDCWD, ".", true)
                                  : open_descriptor(caller, c->dir);
    return open_path(caller, c->dir, path, !(c->flags & AT_SYMLINK_NOFOLLOW));
}

/* --- doing it --- */

/* The name of a descriptor leads to what it is open on, and nowhere else. */
static int change_mode(int fd, uint32_t mode, bool *ret_dropped)
{
    char name[32];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (S_ISLNK(st.st_mode))
        return -EOPNOTSUPP;
    bool may_have = S_ISDIR(st.st_mode) || weak("set-id-files");
    if (!may_have)
        mode &= ~(uint32_t)(S_ISUID | S_ISGID);
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    if (chmod(name, mode & 07777) < 0)
        return -errno;
    *ret_dropped = !may_have;
    return 0;
}

static int do_call(int listener, const struct seccomp_notif *ask, const struct chmod_call *c,
                   bool *ret_dropped)
{
    scoped_fd int fd = open_object((pid_t)ask->pid, c);

    /* Who is gone may have left the number to a process of the host. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &ask->id) < 0)
        return -EPERM;
    return fd < 0 ? fd : change_mode(fd, c->mode, ret_dropped);
}

/* --- where callers have different rights --- */

/* A child in our memory that joins the caller's user namespace, while we wait. */
struct joined {
    int listener;
    const struct seccomp_notif *ask;
    struct chmod_call call;
    bool dropped;
    int result;
    _Alignas(16) char stack[64 * 1024];
};

/* A number of /proc/PID/status, after `name` and so many others; as the namespace we are in sees
 * it. */
static unsigned long status_number(const char *text, const char *name, int skip, int base)
{
    const char *at = strstr(text, name);
    unsigned long number = 0;

    if (!at)
        return 0;
    char *end = (char *)(uintptr_t)(at + strlen(name));
    for (int i = 0; i <= skip; i++)
        number = strtoul(end, &end, base);
    return number;
}

/* The caller's ids and capabilities over files, and the one to look at its /proc files. */
static int take_rights(const char *status)
{
    const uint32_t files =
        1U << CAP_CHOWN | 1U << CAP_DAC_OVERRIDE | 1U << CAP_FOWNER | 1U << CAP_FSETID;
    uint32_t has = (uint32_t)status_number(status, "\nCapEff:", 0, 16);
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {0};

    sets[0].permitted = sets[0].effective = (has & files) | 1U << CAP_SYS_PTRACE;
    uid_t uid = (uid_t)status_number(status, "\nUid:", 3, 10);
    gid_t gid = (gid_t)status_number(status, "\nGid:", 3, 10);
    if (syscall(SYS_setgroups, 0, NULL) < 0)
        return -errno;
    (void)setfsgid(gid);
    (void)setfsuid(uid);
    if (setfsgid((gid_t)-1) != (int)gid || setfsuid((uid_t)-1) != (int)uid)
        return -EPERM;
    return syscall(SYS_capset, &head, sets) < 0 ? -errno : 0;
}

static int call_from_within(struct joined *j)
{
    char path[64];
    char status[4096];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)j->ask->pid);
    scoped_fd int userns = open(path, O_RDONLY | O_CLOEXEC);
    if (userns < 0 || setns(userns, CLONE_NEWUSER) < 0)
        return -EPERM;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)j->ask->pid);
    if (path_read_small(path, status, sizeof(status)) <= 0)
        return -EPERM;
    int r = take_rights(status);
    return r < 0 ? r : do_call(j->listener, j->ask, &j->call, &j->dropped);
}

static int run_joined(void *argument)
{
    struct joined *j = argument;

    j->result = call_from_within(j);
    return 0;
}

static int call_joined(int listener, const struct seccomp_notif *ask, const struct chmod_call *c,
                       bool *ret_dropped)
{
    struct process_marks marks;
    struct joined *j = malloc(sizeof(*j));

    if (!j)
        return -ENOMEM;
    j->listener = listener;
    j->ask = ask;
    j->call = *c;
    j->dropped = false;
    j->result = -EPERM;
    process_keep_marks(&marks);
    pid_t pid = clone(run_joined, j->stack + sizeof(j->stack), CLONE_VM | CLONE_VFORK, j);
    process_restore_marks(&marks);
    while (pid > 0 && waitpid(pid, NULL, (int)__WCLONE) < 0 && errno == EINTR)
        ;
    int r = j->result;
    *ret_dropped = j->dropped;
    free(j);
    return r;
}

int setid_chmod(int listener, const struct seccomp_notif *ask, bool of_base, bool *ret_dropped)
{
    struct chmod_call c;

    *ret_dropped = false;
    if (ask->pid == 0 || !read_call(&ask->data, &c))
        return -EPERM;
    if (c.flags & ~(uint32_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    return of_base ? call_joined(listener, ask, &c, ret_dropped)
                   : do_call(listener, ask, &c, ret_dropped);
}
