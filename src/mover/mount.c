/* SPDX-License-Identifier: Apache-2.0 */
/* A store as a directory: rclone serves it, and we see to it that nobody waits for it for ever. The
 * connection has been made by the broker, is handed over once, and ends with rclone: who waits then
 * has an error. Told on standard output, in lines: "R rw" or "R ro", it serves; "E words", a file
 * could not be had; "X words", why it ends.
 *
 *   starts --(it answers us)--> serves --(requests are under way for PATIENCE_MS)--> asks
 *   asks --(rclone and the store both answer in ASK_MS)--> serves; else it is ended
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "mover/mover.h"

enum {
    DEVICE = 4,
    MOUNT,
    PROBE_DEVICE,
    PROBE_MOUNT,
    START_MS = 20000,
    PATIENCE_MS = 8000,
    ASK_MS = 10000,
    LOOK_MS = 500,
    TELL_MS = 1000, /* between two errors that are told */
    END_MS = 3000,  /* for rclone to end by itself */
    LONGEST_LINE = 16384,
    MOST_LOG = 65536,
    WORDS = 300,
};

struct serving {
    struct mover *m;
    bool writable;
    pid_t rclone;
    int words; /* its log */
    struct buf log;
    bool serves;
    uint64_t busy_ms; /* since when requests have been under way; 0: none are */
    pid_t asker;      /* 0: nobody asks */
    uint64_t asked_ms;
    uint64_t told_ms;
    char last[WORDS]; /* error */
};

static volatile sig_atomic_t asked_to_end;

static void on_term(int number)
{
    (void)number;
    asked_to_end = 1;
}

static void tell(const char *what, const char *words)
{
    ignore(dprintf(STDOUT_FILENO, "%s %s\n", what, words) > 0); /* nobody listens: we are killed */
}

/* --- as fusermount --- */

int mount_hand_over(char **argv)
{
    const char *number = getenv("_FUSE_COMMFD"); /* one thread; NOLINT(concurrency-mt-unsafe) */
    char byte = 0;

    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    const int device = MOVER_DEVICE;

    for (int i = 1; argv[i]; i++) {
        if (strcmp(argv[i], "-u") == 0)
            return 0; /* the connection ends with who serves it */
    }
    control.head = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.head), &device, sizeof(device));
    int to = number ? (int)strtol(number, NULL, 10) : -1;
    return sendmsg(to, &message, MSG_NOSIGNAL) == 1 ? 0 : 1;
}

/* --- whether it answers --- */

/* How many requests are under way; -1: nobody can tell. */
static int count_waiting(void)
{
    char path[64];
    char text[24] = "";
    struct statx s;

    if (syscall(SYS_statx, MOUNT, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &s) < 0)
        return -1;
    snprintf(path, sizeof(path), "/tmp/connections/%u/waiting", s.stx_dev_minor);
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ? -1 : (int)strtol(text, NULL, 10);
}

/* In a process of its own, which may never come back. */
static int ask(struct serving *s)
{
    scoped_buf struct buf object;
    struct statx unused;
    struct err err;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)signal(SIGTERM, SIG_DFL);
    if (syscall(SYS_statx, MOUNT, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS,
                &unused) < 0)
        return 1;
    buf_init(&object, 1 << 20);
    return s->serves && rclone_read(s->m, ".carrel/owner", &object, &err) < 0;
}

static void begin_ask(struct serving *s)
{
    s->asker = fork();
    if (s->asker == 0)
        _exit(ask(s));
    if (s->asker < 0)
        s->asker = 0; /* the next time */
    s->asked_ms = now_ms();
}

/* False: it does not answer. */
static bool hear_asker(struct serving *s)
{
    int status = 0;
    uint64_t patience = s->serves ? ASK_MS : START_MS;

    if (waitpid(s->asker, &status, WNOHANG) == s->asker) {
        s->asker = 0;
        s->busy_ms = 0; /* they may take on as long again */
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            return false;
        if (!s->serves)
            tell("R", s->writable ? "rw" : "ro");
        s->serves = true;
        return true;
    }
    return now_ms() - s->asked_ms < patience;
}

static bool answers(struct serving *s)
{
    if (s->asker)
        return hear_asker(s);
    if (!s->serves) {
        begin_ask(s);
        return true;
    }
    int waiting = count_waiting();
    if (waiting == 0)
        s->busy_ms = 0;
    else if (!s->busy_ms)
        s->busy_ms = now_ms();
    else if (now_ms() - s->busy_ms >= PATIENCE_MS)
        begin_ask(s);
    return true;
}

/* --- its log --- */

static void take_line(struct serving *s, char *line)
{
    if (!rclone_explain_line(s->m, line, s->last, sizeof(s->last)) ||
        (s->told_ms && now_ms() - s->told_ms < TELL_MS))
        return;
    s->told_ms = now_ms();
    tell("E", s->last);
}

/* False: it has ended. */
static bool hear_words(struct serving *s)
{
    char piece[LONGEST_LINE];
    char *end;
    ssize_t n = read(s->words, piece, sizeof(piece));

    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        return false;
    if (n > 0)
        buf_add(&s->log, piece, (size_t)n);
    while (s->log.n && (end = memchr(s->log.p, '\n', s->log.n))) {
        *end = '\0';
        take_line(s, s->log.p);
        size_t used = (size_t)(end + 1 - s->log.p);
        memmove(s->log.p, s->log.p + used, s->log.n - used);
        s->log.n -= used;
    }
    if (s->log.n > LONGEST_LINE || s->log.failed) {
        buf_clear(&s->log);
        buf_init(&s->log, MOST_LOG);
    }
    return true;
}

/* --- while it serves --- */

static int start(struct serving *s, struct err *err)
{
    char place[STORE_PATH + 16];
    char size[64];
    const char *const args[] = {"mount",
                                place,
                                "/tmp/tree",
                                "--allow-non-empty",
                                s->writable ? "--dir-perms=0777" : "--dir-perms=0555",
                                s->writable ? "--file-perms=0777" : "--file-perms=0555",
                                "--uid=65534",
                                "--gid=65534",
                                "--vfs-cache-mode=full",
                                size,
                                "--vfs-cache-poll-interval=10s",
                                "--vfs-write-back=1s",
                                "--dir-cache-time=10s",
                                "--attr-timeout=1s",
                                "--cache-dir=/tmp/state",
                                "--use-json-log",
                                "--stats=0",
                                "--contimeout=5s",
                                "--timeout=15s",
                                "--low-level-retries=3",
                                "--s3-no-check-bucket",
                                "--buffer-size=4M",
                                s->writable ? NULL : "--read-only",
                                NULL};

    snprintf(place, sizeof(place), "store:%s", s->m->conf.path);
    snprintf(size, sizeof(size), "--vfs-cache-max-size=%s", s->m->cache);
    s->rclone = rclone_serve(s->m, args, NULL, DEVICE, &s->words, err);
    (void)close(DEVICE); /* the connection is rclone's alone */
    return s->rclone < 0 ? -1 : 0;
}

static int serve(struct serving *s, struct err *err)
{
    struct pollfd words = {.fd = s->words, .events = POLLIN};

    while (!asked_to_end) {
        if (poll(&words, 1, LOOK_MS) > 0 && !hear_words(s))
            return err_set(err, ERR_IO, 0, "rclone has ended%s%s", *s->last ? ": " : "", s->last);
        if (answers(s))
            continue;
        err_set(err, ERR_IO, 0, "%s does not answer in time%s%s",
                s->serves ? "the store" : "rclone", *s->last ? ": " : "", s->last);
        tell("E", err->msg); /* before anybody who waits for it fails */
        return -1;
    }
    return 0;
}

/* What is written and not in the store yet stays here, and goes there the next time. */
static void end(struct serving *s)
{
    uint64_t due = now_ms() + END_MS;

    if (asked_to_end)
        (void)kill(s->rclone, SIGTERM);
    while (asked_to_end && s->rclone && now_ms() < due) {
        if (waitpid(s->rclone, NULL, WNOHANG) != 0)
            s->rclone = 0;
        else
            (void)poll(NULL, 0, 20);
    }
    if (s->rclone && kill(s->rclone, SIGKILL) == 0)
        (void)waitpid(s->rclone, NULL, 0);
    if (s->asker)
        (void)kill(s->asker, SIGKILL);
}

static int check_store(struct mover *m, struct err *err)
{
    scoped_buf struct buf object;

    buf_init(&object, 1 << 20);
    return rclone_read(m, ".carrel/owner", &object, err) < 0 ? -1 : 0;
}

int job_mount(struct mover *m, json_t **ret, struct err *err)
{
    struct serving s = {.m = m, .words = -1};
    const struct sigaction end_it = {.sa_handler = on_term};

    for (int fd = DEVICE; fd <= PROBE_MOUNT; fd++) {
        if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
            return err_set(err, ERR_INVALID, errno, "have a mount");
    }
    int good = mount_probe(m, PROBE_DEVICE, PROBE_MOUNT, err);
    (void)close(PROBE_DEVICE);
    (void)close(PROBE_MOUNT);
    if (good < 0 || check_store(m, err) < 0)
        return -1;
    s.writable = good;
    buf_init(&s.log, MOST_LOG);
    (void)sigaction(SIGTERM, &end_it, NULL);
    if (start(&s, err) < 0)
        return -1;
    int r = serve(&s, err);
    end(&s);
    buf_clear(&s.log);
    *ret = json_object(); /* nobody is told: it was asked to end */
    return r;
}
