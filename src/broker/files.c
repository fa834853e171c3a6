/* SPDX-License-Identifier: Apache-2.0 */
/* File servers: a process for each sandbox whose files somebody asks for (src/files/). One is
 * started ahead, as a start takes longer than a call. The front gets an end of its socket, and the
 * calls go there without us.
 *
 *   spare --(a sandbox that lives)--> joined, ANSWER_FILES --(the sandbox ends, or it dies)--> gone
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/files.h"
#include "broker/quiet.h"
#include "broker/sandboxes.h"
#include "protocol/files_join.h"
#include "sys/fds.h"
#include "sys/message.h"
#include "sys/process.h"

enum {
    SPARE_AFTER_MS = 2, /* not while somebody waits for the one before */
    LEAVE_MS = 60000,   /* to finish what is under way */
    MOST_FINISH = 4,    /* ... of one workspace */
    REAP_MS = 1000,     /* at the very end, for those that were killed */
};

struct files {
    struct files *next; /* of those that leave */
    char workspace[PROTOCOL_ID + 1];
    char shown[PROTOCOL_ID + 1]; /* whose tree it also shows; "" */
    struct broker *broker;
    struct watch gone;
    struct timer late;
    pid_t pid;
    int pidfd;
    int socket;
    struct files_activity *activity; /* what it does, by its own word */
    int memory;                      /* ... and where that is; -1: not made, or handed over */
    int wake; /* an eventfd, by which it asks for a count of the disk; -1: likewise */
    uint64_t seen;
    uint64_t number; /* of the sandbox that it was of, once it leaves */
};

/* Who asked for one before it was there. */
struct files_asker {
    struct files_asker *next;
    uint64_t tag;
    uint64_t generation;
    struct buf request; /* as packed, for another sandbox */
};

/* In the child of a process with threads: system calls only. */
static _Noreturn void become_server(const struct broker *b, const char *how, int socket,
                                    pid_t parent)
{
    const char *const argv[] = {"carrel-files", how, NULL};
    /* A time zone that is in no file: there, files are somebody else's. */
    static const char *const env[] = {"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C.UTF-8",
                                      "TZ=UTC0", NULL};
    sigset_t none;

    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    int program = fcntl(b->files_program, F_DUPFD_CLOEXEC, 64);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) { /* our log is not its business */
        if (dup2(null, i) < 0)
            _exit(119);
    }
    if (program < 0 || dup2(socket, JOIN_SOCKET) < 0 ||
        process_close_from(JOIN_SOCKET + 1, CLOSE_AT_EXEC) < 0)
        _exit(120);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(122);
    (void)syscall(SYS_execveat, program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

/* What is left of one that has been waited for, or never was. */
static void free_files(struct files *f)
{
    if (f->activity)
        (void)munmap(f->activity, sizeof(*f->activity));
    scope_close(&f->memory);
    scope_close(&f->wake);
    scope_close(&f->pidfd);
    scope_close(&f->socket);
    free(f);
}

/* One that hangs in a file, or in a sync, may take long to die: nobody else waits for that. */
static bool reap(struct files *f)
{
    struct broker *b = f->broker;
    struct files **at = &b->files_leaving;

    if (waitpid(f->pid, NULL, WNOHANG) == 0)
        return false;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    events_forget(b->events, &f->gone);
    timer_stop(b->events, &f->late);
    free_files(f);
    return true;
}

static void has_gone(struct watch *watch, uint32_t what)
{
    struct files *f = container_of(watch, struct files, gone);
    struct broker *b = f->broker;

    (void)what;
    if (reap(f))
        quiet_look(b);
}

static void is_late(struct timer *timer)
{
    const struct files *f = container_of(timer, struct files, late);

    (void)kill(f->pid, SIGKILL);
}

static void let_go(struct broker *b, struct files *f, bool may_finish)
{
    f->broker = b;
    f->next = b->files_leaving;
    b->files_leaving = f;
    scope_close(&f->socket); /* with the front's, its end */
    f->gone = (struct watch){.ready = has_gone, .fd = -1};
    f->late = (struct timer){.ring = is_late};
    if (!may_finish || timer_set(b->events, &f->late, now_ms() + LEAVE_MS) < 0)
        (void)kill(f->pid, SIGKILL);
    ignore(events_watch(b->events, &f->gone, f->pidfd, EPOLLIN) == 0); /* then at the end */
}

static bool shows(const struct files *f, const char *workspace)
{
    return strcmp(f->workspace, workspace) == 0 || strcmp(f->shown, workspace) == 0;
}

void files_end_leaving(struct broker *b, const char *workspace)
{
    for (const struct files *f = b->files_leaving; f; f = f->next) {
        if (shows(f, workspace))
            (void)kill(f->pid, SIGKILL);
    }
}

int files_spawn(const struct broker *b, const char *how, struct files_process *ret)
{
    pid_t parent = getpid();
    int pair[2];

    if (b->files_program < 0) {
        errno = ENOENT;
        return -1;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    scoped_fd int ours = pair[0];
    scoped_fd int theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0)
        become_server(b, how, theirs, parent);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        int error = errno;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        errno = error;
        return -1;
    }
    *ret = (struct files_process){pid, pidfd, take_fd(&ours)};
    return 0;
}

static struct files *start_server(struct broker *b)
{
    struct files *f = calloc(1, sizeof(*f));
    struct files_process process;

    if (!f || files_spawn(b, NULL, &process) < 0) {
        free(f);
        return NULL;
    }
    f->memory = f->wake = -1;
    f->pid = process.pid;
    f->pidfd = process.pidfd;
    f->socket = process.socket;
    return f;
}

/* A memory that it shares with us, ahead where that can be. 0 or -errno. */
static int share_activity(struct files *f)
{
    /* Sealed: were it made shorter, to look at it would end us. */
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

    if (f->memory >= 0)
        return 0;
    int fd = memfd_create("carrel-files", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, sizeof(*f->activity)) < 0 || fcntl(fd, F_ADD_SEALS, seals) < 0) {
        int error = errno;
        scope_close(&fd);
        return -error;
    }
    f->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    void *memory = mmap(NULL, sizeof(*f->activity), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (f->wake < 0 || memory == MAP_FAILED) {
        int error = errno;
        scope_close(&f->wake);
        scope_close(&fd);
        return -error;
    }
    f->activity = memory;
    atomic_store(&f->activity->left, FILES_UNBOUNDED);
    f->memory = fd;
    return 0;
}

static void make_spare(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, files_timer);

    if (!b->files_spare && !b->stopping)
        b->files_spare = start_server(b);
    if (b->files_spare)
        ignore(share_activity(b->files_spare) == 0); /* then when it joins */
}

void files_prepare(struct broker *b)
{
    b->files_timer.ring = make_spare;
    ignore(timer_set(b->events, &b->files_timer, now_ms() + SPARE_AFTER_MS) == 0); /* then later */
}

void files_close(struct broker *b)
{
    uint64_t due = now_ms() + REAP_MS;

    timer_stop(b->events, &b->files_timer);
    if (b->files_spare)
        let_go(b, b->files_spare, false);
    b->files_spare = NULL;
    for (struct files *f = b->files_leaving, *next; f; f = next) {
        struct pollfd p = {.fd = f->pidfd, .events = POLLIN};
        uint64_t now = now_ms();
        next = f->next;
        (void)kill(f->pid, SIGKILL);
        (void)poll(&p, 1, now < due ? (int)(due - now) : 0);
        (void)reap(f);
    }
}

bool files_is_busy(struct sandbox *s)
{
    struct files *f = s->files;

    if (!f || !f->activity)
        return false;
    uint64_t begun = atomic_load(&f->activity->begun);
    bool busy = begun != f->seen || begun != atomic_load(&f->activity->ended);
    f->seen = begun;
    return busy;
}

int files_stop(struct sandbox *s, bool stop)
{
    const struct files *f = s->files;
    siginfo_t state = {.si_pid = 0};

    if (!f)
        return 0;
    if (kill(f->pid, stop ? SIGSTOP : SIGCONT) < 0)
        return errno == ESRCH ? 0 : -1;
    if (!stop)
        return 0;
    /* All its threads, and not one that has ended: that is others' to hear. */
    if (waitid(P_PID, (id_t)f->pid, &state, WSTOPPED | WNOHANG | WNOWAIT) < 0)
        return errno == ECHILD ? 0 : -1;
    return state.si_pid == 0;
}

bool files_under_way(const struct sandbox *s)
{
    const struct files *f = s->files;

    return s->files_askers ||
           (f && f->activity &&
            atomic_load(&f->activity->begun) != atomic_load(&f->activity->ended));
}

bool files_are_leaving(const struct broker *b, const char *workspace, uint64_t last)
{
    for (const struct files *f = b->files_leaving; f; f = f->next) {
        if (f->number <= last && shows(f, workspace))
            return true;
    }
    return false;
}

static int send_join(struct files *f, const struct session_join *join, bool sweeps)
{
    static struct files_join message;

    int r = share_activity(f);
    int fds[5] = {join->pidfd, f->memory, f->wake};
    size_t count = 3;
    const struct iovec part = {&message, sizeof(message)};

    if (r < 0)
        return r;
    if (join->filter_length > JOIN_MOST_FILTER)
        return -E2BIG;
    message = (struct files_join){.namespaces = join->namespaces,
                                  .uid = join->uid,
                                  .gid = join->gid,
                                  .filter_length = (uint32_t)join->filter_length,
                                  .has_lease = join->lease >= 0,
                                  .has_hidden = join->hidden >= 0,
                                  .sweeps = sweeps};
    if (join->lease >= 0)
        fds[count++] = join->lease;
    if (join->hidden >= 0)
        fds[count++] = join->hidden;
    memcpy(message.filter, join->filter, join->filter_length * sizeof(message.filter[0]));
    ssize_t sent = fds_send(f->socket, &part, 1, fds, count, MSG_DONTWAIT);
    if (sent < 0)
        return (int)sent;
    scope_close(&f->memory);
    return 0;
}

static void answer(struct sandbox *s, struct files_asker *a, const struct err *err)
{
    struct broker *b = s->broker;
    scoped_buf struct buf message;

    buf_init(&message, 4096);
    if (a->generation == b->generation && err) {
        channel_send_error(b, a->tag, err);
    } else if (a->generation == b->generation) {
        protocol_pack_plain(&message, a->tag, &(struct plain_message){.texts = {s->workspace}});
        channel_send(b, ANSWER_FILES, &message, &s->files->socket, 1);
    }
    buf_clear(&a->request);
    free(a);
}

static void answer_all(struct sandbox *s, const struct err *err)
{
    timer_stop(s->broker->events, &s->files_timer);
    while (s->files_askers) {
        struct files_asker *a = s->files_askers;
        s->files_askers = a->next;
        answer(s, a, err);
    }
}

void files_tell_disk(struct sandbox *s)
{
    struct files_activity *told = s->files ? s->files->activity : NULL;
    uint64_t left;
    uint64_t counts;

    if (!told || !session_disk_left(s->session, &left, &counts))
        return;
    atomic_store(&told->left, left == UINT64_MAX ? FILES_BEING_COUNTED : left);
    atomic_store(&told->counts, counts);
}

static void asks_for_count(struct watch *watch, uint32_t what)
{
    struct sandbox *s = container_of(watch, struct sandbox, files_wake);
    uint64_t times;

    (void)what;
    ignore(read(watch->fd, &times, sizeof(times)) > 0);
    if (s->over)
        return;
    session_count_disk(s->session);
    sandbox_rearm(s);
}

static void died(struct watch *watch, uint32_t what)
{
    struct sandbox *s = container_of(watch, struct sandbox, files_watch);

    (void)what;
    log_warning("files_died", "workspace", s->workspace, "then", "the next call starts another",
                NULL);
    s->files_joined = false; /* it finishes nothing any more */
    files_server_end(s);
}

static void joined(struct watch *watch, uint32_t what)
{
    struct sandbox *s = container_of(watch, struct sandbox, files_watch);
    struct broker *b = s->broker;
    struct err err;

    (void)what;
    events_forget(b->events, watch);
    int error = EPIPE; /* what it says when it has joined, or how it failed */
    ssize_t n = recv(s->files->socket, &error, sizeof(error), MSG_DONTWAIT);
    int r = n == (ssize_t)sizeof(error) ? -error : -EPIPE;
    if (r == 0) {
        s->files_joined = true;
        watch->ready = died;
        r = events_watch(b->events, watch, s->files->pidfd, EPOLLIN);
    }
    if (r == 0) {
        answer_all(s, NULL);
        return;
    }
    err_set(&err, r == -EINVAL || r == -EBADF ? ERR_KERNEL : ERR_IO, -r,
            "the workspace's files cannot be served: joining its sandbox failed (Linux 5.8 or "
            "newer is needed)");
    answer_all(s, &err);
    files_server_end(s);
}

/* The sandbox is still being made, or the server hangs on its way into it. */
static void waited_long(struct timer *timer)
{
    struct sandbox *s = container_of(timer, struct sandbox, files_timer);
    struct err err;

    err_set(&err, ERR_LIMIT, ETIMEDOUT,
            "the workspace's files cannot be served: its sandbox was not ready in time; try again, "
            "or let the workspace sleep first");
    log_warning("files_late", "workspace", s->workspace, "then", "the next call tries again", NULL);
    answer_all(s, &err);
    if (!s->files_joined)
        files_server_end(s); /* a server that has not joined is no use to the next one either */
}

/* From the first that asks; later ones do not make it longer. */
static void bound_the_wait(struct sandbox *s)
{
    uint64_t wait_ms = s->broker->settings.files_wait_ms;

    if (s->files_joined || s->files_timer.due_ms || wait_ms == 0)
        return;
    s->files_timer.ring = waited_long;
    if (timer_set(s->broker->events, &s->files_timer, now_ms() + wait_ms) < 0)
        log_error("timer_failed", "workspace", s->workspace, NULL);
}

/* Those that leave and are still at something. */
static unsigned count_finishing(const struct broker *b, const char *workspace)
{
    unsigned count = 0;

    for (const struct files *f = b->files_leaving; f; f = f->next)
        count += f->late.due_ms && strcmp(f->workspace, workspace) == 0;
    return count;
}

static int begin(struct sandbox *s, const struct session_join *join, struct err *err)
{
    struct broker *b = s->broker;
    bool sweeps = count_finishing(b, s->workspace) == 0;
    int r = -EPIPE;

    s->files = b->files_spare;
    b->files_spare = NULL;
    files_prepare(b);
    if (s->files)
        r = send_join(s->files, join, sweeps);
    if (r == -EPIPE) { /* there was none, or it has died meanwhile */
        if (s->files)
            let_go(b, s->files, false);
        s->files = start_server(b);
        if (!s->files)
            return err_set(err, ERR_IO, errno, "start a file server");
        r = send_join(s->files, join, sweeps);
    }
    s->files_watch.ready = joined;
    s->files_wake = (struct watch){.ready = asks_for_count, .fd = -1};
    if (r == 0)
        r = events_watch(b->events, &s->files_watch, s->files->socket, EPOLLIN);
    if (r == 0)
        r = events_watch(b->events, &s->files_wake, s->files->wake, EPOLLIN);
    files_tell_disk(s);
    if (r == 0)
        return 0;
    err_set(err, ERR_IO, -r, "tell a file server its sandbox");
    answer_all(s, err); /* before files_server_end, which has another reason for them */
    files_server_end(s);
    return -1;
}

void files_sandbox_lives(struct sandbox *s)
{
    struct session_join join;
    struct err err;

    if (!s->files_askers || s->files || !session_may_be_joined(s->session, &join))
        return;
    if (begin(s, &join, &err) < 0)
        answer_all(s, &err);
}

/* Beside it another sandbox may come to stand: not where the two would have the same image or the
 * same layer mounted. */
static bool may_finish(const struct sandbox *s)
{
    return s->files_joined && !s->ending && !s->has_image && !*s->plan && !*s->template &&
           !s->cache && count_finishing(s->broker, s->workspace) < MOST_FINISH;
}

void files_server_end(struct sandbox *s)
{
    struct err err;

    events_forget(s->broker->events, &s->files_watch);
    if (s->files)
        events_forget(s->broker->events, &s->files_wake);
    if (s->files) {
        memcpy(s->files->workspace, s->workspace, sizeof(s->workspace));
        memcpy(s->files->shown, s->shown, sizeof(s->shown));
        s->files->number = s->number;
        let_go(s->broker, s->files, may_finish(s));
    }
    s->files = NULL;
    s->files_joined = false;
    if (!s->files_askers)
        return;
    bool failed = s->over && !s->ending && *s->why;
    err_set(&err, ERR_CONFLICT, 0, "the workspace's sandbox has ended%s%s; try again",
            failed ? ": " : "", failed ? s->why : "");
    answer_all(s, &err);
}

void files_put_off(struct sandbox *s)
{
    struct files_asker **at = &s->files_askers;

    while (*at) {
        struct files_asker *a = *at;
        struct err err;
        if (a->generation == s->broker->generation &&
            sandbox_put_off(s, REQUEST_FILES, &a->request, a->tag, s->shown, &err) < 0) {
            at = &a->next; /* it is told that it came too late */
            continue;
        }
        *at = a->next;
        buf_clear(&a->request);
        free(a);
    }
    if (!s->files_askers)
        timer_stop(s->broker->events, &s->files_timer);
}

void files_request(struct broker *b, uint64_t tag, const struct exec_message *m)
{
    struct sandbox *s = NULL;
    struct err err;

    if (b->stopping) {
        err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
        channel_send_error(b, tag, &err);
        return;
    }
    int r = sandbox_find_or_start(b, REQUEST_FILES, m, tag, &s, &err);
    if (r == 1)
        return;
    struct files_asker *a = r == 0 ? calloc(1, sizeof(*a)) : NULL;
    if (r == 0 && !a)
        err_set(&err, ERR_LIMIT, ENOMEM, "keep the request");
    if (!a) {
        channel_send_error(b, tag, &err);
        return;
    }
    *a = (struct files_asker){.tag = tag, .generation = b->generation, .next = s->files_askers};
    buf_init(&a->request, MESSAGE_MAX_BYTES);
    protocol_pack_exec(&a->request, tag, m);
    s->files_askers = a;
    s->busy_ms = now_ms();
    bound_the_wait(s);
    if (s->files_joined)
        answer_all(s, NULL);
    else
        files_sandbox_lives(s);
    sandbox_rearm(s);
}
