/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/verbs/diff.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sys/landlock.h"
#include "sys/process.h"

enum {
    OLD = 3,
    NEW = 4,
    HIGH = 64, /* where descriptors are out of the way */
    WAIT_MS = 20000,
    CPU_SECONDS = 10,
    NOT_CONFINED = 121,
    NOT_FOUND = 127,
};

#define MOST_MEMORY (1UL << 30)

/* --- one side only --- */

static void add_all(struct buf *b, const struct diff_side *side, char sign)
{
    size_t lines = 0;

    for (size_t i = 0; i < side->n; i++)
        lines += side->bytes[i] == '\n' || i + 1 == side->n;
    if (sign == '+')
        buf_printf(b, "@@ -0,0 +1,%zu @@\n", lines);
    else
        buf_printf(b, "@@ -1,%zu +0,0 @@\n", lines);
    for (size_t at = 0; at < side->n;) {
        const char *newline = memchr(side->bytes + at, '\n', side->n - at);
        size_t n = newline ? (size_t)(newline - side->bytes) - at : side->n - at;
        buf_add(b, &sign, 1);
        buf_add(b, side->bytes + at, n);
        buf_str(b, newline ? "\n" : "\n\\ No newline at end of file\n");
        at += n + 1;
    }
}

/* --- the child --- */

/* A file without a name, of which nobody can take anything away any more. */
static int hold(const struct diff_side *side)
{
    scoped_fd int fd = memfd_create("carrel-diff", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    for (size_t at = 0; fd >= 0 && at < side->n;) {
        ssize_t n = write(fd, side->bytes + at, side->n - at);
        if (n <= 0)
            return -1;
        at += (size_t)n;
    }
    if (fd < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return -1;
    return take_fd(&fd);
}

static int limit_child(void)
{
    static const struct {
        int what;
        rlim_t most;
    } limits[] = {
        {RLIMIT_CPU, CPU_SECONDS},
        {RLIMIT_AS, MOST_MEMORY},
        {RLIMIT_FSIZE, 0},
        {RLIMIT_CORE, 0},
    };

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct rlimit limit = {limits[i].most, limits[i].most};
        if (setrlimit((__rlimit_resource_t)limits[i].what, &limit) < 0)
            return -1;
    }
    return 0;
}

/* No capability, no new one, and of the file system only what starting the program takes. A kernel
 * without Landlock leaves it what the tree's owner may do, and two files that it did not choose. */
static int confine_child(void)
{
    static const struct landlock_place places[] = {
        {"/usr", .runs = true},
        {"/bin", .may_lack = true, .runs = true},
        {"/lib", .may_lack = true, .runs = true},
        {"/lib64", .may_lack = true, .runs = true},
        {"/etc/ld.so.cache", .may_lack = true},
    };
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, &head, none) < 0 ||
        limit_child() < 0)
        return -1;
    int r = landlock_confine(places, sizeof(places) / sizeof(places[0]), NULL, 0);
    return r == -ENOSYS || r == -EOPNOTSUPP ? 0 : r;
}

static _Noreturn void become_diff(const int files[3], const char *const labels[2])
{
    const char *const argv[] = {"diff",    "-u",      "--text",    "--label",   labels[0],
                                "--label", labels[1], "/dev/fd/3", "/dev/fd/4", NULL};
    static const char *const env[] = {"LC_ALL=C", "PATH=/usr/bin:/bin", NULL};
    static const int places[] = {STDOUT_FILENO, OLD, NEW};
    int away[3];

    for (int i = 0; i < 3; i++)
        away[i] = fcntl(files[i], F_DUPFD_CLOEXEC, HIGH);
    for (int i = 0; i < 3; i++) {
        if (away[i] < 0 || dup2(away[i], places[i]) < 0)
            _exit(NOT_CONFINED);
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || confine_child() < 0)
        _exit(NOT_CONFINED);
    (void)process_close_from(NEW + 1, CLOSE_AT_EXEC);
    (void)execve("/usr/bin/diff", (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
    _exit(NOT_FOUND);
}

/* All it says until it ends, as far as there is room. 0, or -ETIMEDOUT. */
static int gather(int from, struct buf *b)
{
    uint64_t deadline = now_ms() + WAIT_MS;
    char piece[16384];

    for (;;) {
        uint64_t now = now_ms();
        struct pollfd ready = {.fd = from, .events = POLLIN};
        if (now >= deadline || poll(&ready, 1, (int)(deadline - now)) == 0)
            return -ETIMEDOUT;
        ssize_t n = read(from, piece, sizeof(piece));
        if (n == 0)
            return 0;
        if (n > 0)
            buf_add(b, piece, (size_t)n);
        else if (errno != EINTR && errno != EAGAIN)
            return -errno;
        if (b->failed)
            return 0;
    }
}

static int judge_end(int status, int gathered, const struct buf *b, struct err *err)
{
    if (b->failed)
        return err_set(err, ERR_LIMIT, 0, "the differences are too long to be shown");
    if (gathered == 0 && WIFEXITED(status) && WEXITSTATUS(status) <= 1)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND)
        return err_set(err, ERR_KERNEL, 0, "/usr/bin/diff is missing: install diffutils");
    if (gathered < 0 || WIFSIGNALED(status))
        return err_set(err, ERR_LIMIT, 0, "the two are too different to be compared");
    return err_set(err, ERR_IO, 0, "diff failed with status %d", WEXITSTATUS(status));
}

static int run_diff(struct buf *b, int old, int new, const char *const labels[2], struct err *err)
{
    int ends[2];
    int status = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_IO, errno, "make a pipe");
    scoped_fd int from = ends[0];
    scoped_fd int to = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_set(err, ERR_IO, errno, "start diff");
    if (pid == 0)
        become_diff((const int[3]){to, old, new}, labels);
    scope_close(&to);
    int gathered = gather(from, b);
    if (gathered < 0 || b->failed)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return judge_end(status, gathered, b, err);
}

int diff_texts(struct buf *b, const struct diff_side *old, const struct diff_side *new,
               struct err *err)
{
    const char *const labels[2] = {old->label, new->label};

    if (old->n == new->n && (old->n == 0 || memcmp(old->bytes, new->bytes, old->n) == 0))
        return 0;
    if (old->n == 0 || new->n == 0) {
        buf_printf(b, "--- %s\n+++ %s\n", labels[0], labels[1]);
        add_all(b, old->n == 0 ? new : old, old->n == 0 ? '+' : '-');
        return b->failed ? err_set(err, ERR_LIMIT, 0, "the differences are too long to be shown")
                         : 0;
    }
    scoped_fd int before = hold(old);
    scoped_fd int after = hold(new);
    if (before < 0 || after < 0)
        return err_set(err, ERR_IO, errno, "keep what is to be compared");
    return run_diff(b, before, after, labels, err);
}
