/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan, started: the tree's owner, no capability (but two to read the marks of a layer),
 * nothing of ours but what it works with. It is killed when the broker dies; what it had half done
 * then the next broker has taken back (plans_recover_all). */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "broker/plans.h"
#include "sys/process.h"

enum {
    FD_TREE = 3,
    FD_PLAN = 4,
    FD_STEPS = 5,
    FD_BASE = 6,
    FD_THEIRS = 7,
    FD_LAST = 7,
    HIGH = 64, /* where descriptors are out of the way */
};

/* What the largest plan, with its journal, takes; more than that says that it is too much. */
#define MOST_MEMORY (2UL << 30)

struct start {
    int fds[FD_LAST + 1]; /* as they are to be numbered */
    int program;
    const char *verb;
    uid_t uid;
    gid_t gid;
    bool as_root;
    enum plan_rights rights;
    pid_t parent;
};

void plan_child_close(struct plan_child *child)
{
    scope_close(&child->pidfd);
    scope_close(&child->job);
    scope_close(&child->answer);
    scope_close(&child->steps);
}

static uint64_t capabilities(enum plan_rights rights)
{
    static const uint64_t of[] = {
        [PLAN_NO_RIGHTS] = 0,
        [PLAN_READS_LAYERS] = 1ULL << CAP_SYS_ADMIN | 1ULL << CAP_DAC_READ_SEARCH,
        [PLAN_READS_ALL] = 1ULL << CAP_DAC_READ_SEARCH,
    };

    return of[rights];
}

/* Exactly these, also across execve. */
static int set_capabilities(uint64_t wanted)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)wanted, (uint32_t)wanted, (uint32_t)wanted},
        {(uint32_t)(wanted >> 32), (uint32_t)(wanted >> 32), (uint32_t)(wanted >> 32)}};

    if (syscall(SYS_capset, &head, data) < 0 ||
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return -1;
    for (unsigned long i = 0; i < 64; i++) {
        if ((wanted >> i & 1) && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, i, 0, 0) < 0)
            return -1;
    }
    return 0;
}

static int drop_rights(const struct start *s)
{
    const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
                               SECBIT_NO_SETUID_FIXUP_LOCKED;
    uint64_t wanted = capabilities(s->rights);

    if (!s->as_root)
        return 0;
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        return -1;
    for (unsigned long i = 0; prctl(PR_CAPBSET_READ, i, 0, 0, 0) >= 0; i++) {
        if (!(wanted >> i & 1) && prctl(PR_CAPBSET_DROP, i, 0, 0, 0) < 0)
            return -1;
    }
    if (setgroups(0, NULL) < 0 || setresgid(s->gid, s->gid, s->gid) < 0 ||
        setresuid(s->uid, s->uid, s->uid) < 0)
        return -1;
    return set_capabilities(wanted);
}

/* First out of the way, then to their places. */
static int place_descriptors(struct start *s)
{
    for (int i = 0; i <= FD_LAST; i++) {
        s->fds[i] = fcntl(s->fds[i], F_DUPFD_CLOEXEC, HIGH);
        if (s->fds[i] < 0)
            return -1;
    }
    s->program = fcntl(s->program, F_DUPFD_CLOEXEC, HIGH);
    if (s->program < 0)
        return -1;
    for (int i = 0; i <= FD_LAST; i++) {
        if (dup2(s->fds[i], i) < 0)
            return -1;
    }
    return process_close_from(FD_LAST + 1, CLOSE_AT_EXEC);
}

/* In the child of a process with threads: system calls only. */
static _Noreturn void become_plan(struct start *s)
{
    static const char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC0", NULL};
    const char *const argv[] = {"carrel-plan", s->verb, NULL};
    const struct rlimit none = {0, 0};
    const struct rlimit memory = {MOST_MEMORY, MOST_MEMORY};
    sigset_t empty;

    (void)sigemptyset(&empty);
    (void)pthread_sigmask(SIG_SETMASK, &empty, NULL);
    if (place_descriptors(s) < 0)
        _exit(120);
    if (setrlimit(RLIMIT_CORE, &none) < 0 || setrlimit(RLIMIT_AS, &memory) < 0 ||
        drop_rights(s) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(121);
    /* After every change of ids, which would clear the signal. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != s->parent)
        _exit(122);
    (void)syscall(SYS_execveat, s->program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

/* A file without a name that holds so much and no more: how far it was written is its offset. */
static int make_answer(void)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    int fd = memfd_create("carrel-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 && ftruncate(fd, PLAN_ANSWER_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0)
        return fd;
    scope_close(&fd);
    return -1;
}

struct ends {
    int job[2];
    int answer[2];
    int steps[2];
};

static void close_ends(struct ends *e)
{
    for (int i = 0; i < 2; i++) {
        scope_close(&e->job[i]);
        scope_close(&e->answer[i]);
        scope_close(&e->steps[i]);
    }
}

static int make_ends(struct ends *e)
{
    *e = (struct ends){{-1, -1}, {-1, -1}, {-1, -1}};
    if (pipe2(e->job, O_CLOEXEC) < 0 || pipe2(e->steps, O_CLOEXEC) < 0)
        return -1;
    e->answer[1] = make_answer();
    e->answer[0] = e->answer[1] < 0 ? -1 : fcntl(e->answer[1], F_DUPFD_CLOEXEC, 3);
    return e->answer[0] < 0 ? -1 : 0;
}

static int run(struct start *s, struct plan_child *ret)
{
    s->parent = getpid();
    ret->pid = fork();
    if (ret->pid == 0)
        become_plan(s);
    ret->pidfd = ret->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, ret->pid, 0);
    if (ret->pidfd >= 0)
        return 0;
    if (ret->pid > 0) {
        (void)kill(ret->pid, SIGKILL);
        (void)waitpid(ret->pid, NULL, 0);
    }
    return -1;
}

int plan_child_start(const struct broker *b, const struct plan_start *how, struct plan_child *ret,
                     struct err *err)
{
    scoped_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct ends e;
    struct stat st;

    *ret = (struct plan_child){.pidfd = -1, .job = -1, .answer = -1, .steps = -1};
    if (make_ends(&e) < 0 || null < 0 || fstat(how->tree, &st) < 0) {
        err_set(err, ERR_LIMIT, errno, "make the pipes of a plan's process");
        close_ends(&e);
        return -1;
    }
    const int base = how->others[0] < 0 ? null : how->others[0];
    const int theirs = how->others[1] < 0 ? null : how->others[1];
    struct start s = {.fds = {e.job[0], e.answer[1], null, how->tree, how->dir,
                              e.steps[1], [FD_BASE] = base, [FD_THEIRS] = theirs},
                      .program = b->plan_program,
                      .verb = how->verb,
                      .uid = st.st_uid,
                      .gid = st.st_gid,
                      .as_root = geteuid() == 0,
                      .rights = how->rights};
    int r = run(&s, ret);
    if (r < 0)
        err_set(err, ERR_LIMIT, errno, "start a plan's process");
    if (r == 0) {
        ret->job = take_fd(&e.job[1]);
        ret->answer = take_fd(&e.answer[0]);
        ret->steps = take_fd(&e.steps[0]);
        ignore(fcntl(ret->steps, F_SETFL, O_NONBLOCK) == 0);
    }
    close_ends(&e);
    return r;
}
