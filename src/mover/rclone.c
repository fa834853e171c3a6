/* SPDX-License-Identifier: Apache-2.0 */
/* rclone, as a child: its configuration in the environment, the walls of this process. Its words
 * are for people who know it; what they mean is said first. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "mover/mover.h"

enum {
    MOST_ARGS = 64,
    MOST_OUTPUT = 256 << 20,
    MOST_WORDS = 262144,
    SHORT_WORDS = 200, /* that are shown */
    LONG_WORDS = 2048,
    NOT_THERE = 3, /* rclone's exit status for a directory that is not there, */
    NO_OBJECT = 4, /* ... and for an object */
    NOT_STARTED = 120,
};

int rclone_find(struct mover *m, struct err *err)
{
    const char *const places[] = {*m->program ? m->program : "/usr/local/bin/rclone",
                                  "/usr/bin/rclone"};

    for (size_t i = 0; i < (*m->program ? 1 : sizeof(places) / sizeof(places[0])); i++) {
        if (access(places[i], X_OK) == 0) {
            snprintf(m->rclone, sizeof(m->rclone), "%s", places[i]);
            return 0;
        }
    }
    m->code = "rclone_missing";
    if (*m->program)
        return err_set(err, ERR_KERNEL, errno,
                       "'%.200s', which the setting rclone names, cannot be started by the user of "
                       "carrel-mover",
                       m->program);
    return err_set(err, ERR_KERNEL, 0,
                   "rclone, which carries the bytes to object stores, is not installed; on Debian: "
                   "apt-get install rclone");
}

const char *rclone_place(const struct mover *m, struct arena *arena, const char *below)
{
    return arena_printf(arena, "store:%s/%s", m->conf.path, below);
}

/* --- what went wrong --- */

static const struct {
    const char *word;
    const char *means;
} meanings[] = {
    {"SignatureDoesNotMatch", "the store does not accept the secret key"},
    {"InvalidAccessKeyId", "the store does not know the access key"},
    {"RequestTimeTooSkewed", "the clocks of this host and of the store differ too much"},
    {"NoSuchBucket", "the bucket does not exist"},
    {"AccessDenied", "the credentials do not allow that in this bucket"},
    {"Forbidden", "the credentials do not allow that in this bucket"},
    {"403", "the store refuses: the credentials do not allow that"},
    {"401", "the store does not accept the credentials"},
    {"unable to authenticate", "the store does not accept the credentials"},
    {"SlowDown", "the store asks to go more slowly"},
    {"TooManyRequests", "the store asks to go more slowly"},
    {"InternalServerError", "the store failed"},
    {"ServiceUnavailable", "the store failed"},
    {"429", "the store asks to go more slowly"},
    {"connection refused", "nothing answers at the store's address"},
    {"no such host", "the host of the store has no address"},
    {"timeout", "the store does not answer in time"},
    {"507", "the store is full"},
    {"no space left", "the store is full"},
    {"QuotaExceeded", "the store is full"},
    {"source file is being updated", "a file changed while it was read"},
    {"directory not found", "the path of the store does not exist"},
    {"500", "the store failed"},
    {"502", "the store failed"},
    {"503", "the store failed"},
};

/* A secret never gets out by way of an error. */
static void hide_secrets(const struct mover *m, char *text)
{
    for (size_t i = 0; i < m->conf.count; i++) {
        const char *value = m->conf.keys[i].value;
        size_t n = strlen(value);
        if (n < 6 || strcmp(value, m->conf.type) == 0)
            continue;
        for (char *at = strstr(text, value); at; at = strstr(at + n, value))
            memset(at, '*', n);
    }
}

/* The first line of rclone's that is an error; those are JSON, but for the very last. */
static void first_words(const struct mover *m, char *log, char *ret, size_t size)
{
    *ret = '\0';
    for (char *line = log; line && *line;) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        json_t *object = json_loads(line, 0, NULL);
        const char *words = json_string_value(json_object_get(object, "msg"));
        const char *which = json_string_value(json_object_get(object, "object"));
        if (!object && !*ret)
            snprintf(ret, size, "%s", line);
        if (words) {
            snprintf(ret, size, "%s%s%s", which ? which : "", which ? ": " : "", words);
            json_decref(object);
            break;
        }
        json_decref(object);
        line = end ? end + 1 : NULL;
    }
    hide_secrets(m, ret);
    for (char *at = ret; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
    }
}

/* A number is that of an answer only where it is none of a port. */
static bool says(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = strstr(words, word); at; at = strstr(at + 1, word)) {
        bool before = at > words && at[-1] >= '0' && at[-1] <= '9';
        bool behind = at[n] >= '0' && at[n] <= '9';
        if (*word < '0' || *word > '9' || (!before && !behind))
            return true;
    }
    return false;
}

static int explain(const struct mover *m, char *log, struct err *err)
{
    char words[LONG_WORDS];
    const char *means = NULL;

    first_words(m, log, words, sizeof(words));
    for (size_t i = 0; !means && i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (says(words, meanings[i].word))
            means = meanings[i].means;
    }
    return err_set(err, ERR_IO, 0, "%s (rclone: %.*s)", means ? means : "rclone failed",
                   SHORT_WORDS, *words ? words : "no words");
}

/* --- running --- */

static _Noreturn void become(const struct mover *m, const char *const *argv, const int fds[3])
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() == 1)
        _exit(122);
    for (int i = 0; i < 3; i++) {
        if (dup2(fds[i], i) < 0)
            _exit(120);
    }
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execve(m->rclone, (char *const *)(uintptr_t)argv, m->environment);
    _exit(123);
}

/* False: that pipe has ended. */
static bool take(int fd, struct buf *to)
{
    char piece[32768];
    ssize_t n = read(fd, piece, sizeof(piece));

    if (n > 0 && to)
        buf_add(to, piece, (size_t)n);
    return n > 0 || (n < 0 && errno == EINTR);
}

static void hear(int out, int words, struct buf *to, struct buf *log)
{
    struct pollfd fds[2] = {{.fd = out, .events = POLLIN}, {.fd = words, .events = POLLIN}};

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        if (fds[0].revents && !take(out, to))
            fds[0].fd = -1;
        if (fds[1].revents && !take(words, log))
            fds[1].fd = -1;
        fds[0].revents = fds[1].revents = 0;
    }
}

/* A pipe's two ends, ours and its. */
struct pipe {
    int ours;
    int theirs;
};

static int open_pipe(struct pipe *ret, struct err *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a pipe for rclone");
    *ret = (struct pipe){ends[0], ends[1]};
    return 0;
}

static void close_pipe(struct pipe *p)
{
    scope_close(&p->ours);
    scope_close(&p->theirs);
}

static void make_arguments(const struct mover *m, const char *const *args, const char **argv)
{
    const char *const first[] = {m->rclone,          "--use-json-log",          "--stats=0",
                                 "--retries=1",      "--low-level-retries=3",   "--contimeout=10s",
                                 "--timeout=60s",    "--s3-no-check-bucket",    "--transfers=8",
                                 "--buffer-size=1M", "--cache-dir=/nonexistent"};
    size_t n = sizeof(first) / sizeof(first[0]);

    memcpy(argv, first, sizeof(first));
    for (size_t i = 0; args[i] && n < MOST_ARGS - 1; i++)
        argv[n++] = args[i];
    argv[n] = NULL;
}

/* One run of it. */
struct run {
    int in;          /* -1: it has no input */
    struct buf *out; /* NULL: nobody wants it */
    struct buf *log;
    int status;
};

static int start(struct mover *m, const char *const *args, struct run *run, struct err *err)
{
    const char *argv[MOST_ARGS];
    struct pipe output = {-1, -1};
    struct pipe words = {-1, -1};

    make_arguments(m, args, argv);
    scoped_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_set(err, ERR_IO, errno, "open '/dev/null'");
    if (open_pipe(&output, err) < 0 || open_pipe(&words, err) < 0) {
        close_pipe(&output);
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0)
        become(m, argv, (const int[3]){run->in < 0 ? null : run->in, output.theirs, words.theirs});
    scope_close(&output.theirs);
    scope_close(&words.theirs);
    if (pid > 0)
        hear(output.ours, words.ours, run->out, run->log);
    while (pid > 0 && waitpid(pid, &run->status, 0) < 0 && errno == EINTR)
        ;
    close_pipe(&output);
    close_pipe(&words);
    return pid < 0 ? err_set(err, ERR_LIMIT, errno, "start rclone") : 0;
}

/* The exit status, or -1. */
static int run(struct mover *m, const char *const *args, struct run *run, struct err *err)
{
    buf_init(run->log, MOST_WORDS);
    if (run->out)
        buf_init(run->out, MOST_OUTPUT);
    if (start(m, args, run, err) < 0)
        return -1;
    if (run->out && buf_done(run->out) < 0)
        return err_set(err, ERR_LIMIT, 0, "rclone answers more than is bearable");
    if (WIFSIGNALED(run->status))
        return err_set(err, ERR_IO, 0, "rclone was killed by signal %d", WTERMSIG(run->status));
    if (WEXITSTATUS(run->status) >= NOT_STARTED)
        return err_set(err, ERR_KERNEL, 0, "rclone could not be started (%s)", m->rclone);
    return WEXITSTATUS(run->status);
}

pid_t rclone_serve(const struct mover *m, const char *const *args, char *const *environment,
                   int device, int *ret_words, struct err *err)
{
    struct mover with = *m;
    const char *argv[MOST_ARGS];
    struct pipe words = {-1, -1};
    size_t n = 0;

    argv[n++] = m->rclone;
    for (size_t i = 0; args[i] && n < MOST_ARGS - 1; i++)
        argv[n++] = args[i];
    argv[n] = NULL;
    if (environment)
        with.environment = (char **)(uintptr_t)environment;
    scoped_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || open_pipe(&words, err) < 0)
        return null < 0 ? err_set(err, ERR_IO, errno, "open '/dev/null'") : -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(device, MOVER_DEVICE) < 0)
            _exit(NOT_STARTED);
        become(&with, argv, (const int[3]){null, null, words.theirs});
    }
    scope_close(&words.theirs);
    if (pid < 0) {
        close_pipe(&words);
        return err_set(err, ERR_LIMIT, errno, "start rclone");
    }
    *ret_words = words.ours;
    return pid;
}

bool rclone_explain_line(const struct mover *m, char *line, char *ret, size_t size)
{
    struct err err;
    json_t *object = json_loads(line, 0, NULL);
    const char *level = json_string_value(json_object_get(object, "level"));
    bool is_error = level && (strcmp(level, "error") == 0 || strcmp(level, "critical") == 0);

    json_decref(object);
    if (!is_error)
        return false;
    (void)explain(m, line, &err);
    snprintf(ret, size, "%s", err.msg);
    return true;
}

int rclone_run(struct mover *m, const char *const *args, int in, struct buf *out, struct err *err)
{
    scoped_buf struct buf log;
    int status = run(m, args, &(struct run){.in = in, .out = out, .log = &log}, err);

    if (status <= 0)
        return status;
    log.failed = false; /* what was too much is at the end */
    buf_add(&log, "", 1);
    return explain(m, log.p ? log.p : (char[]){""}, err);
}

static int no_place(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "name an object of the store");
}

/* Whether a run that failed says that there is no such thing; any other failure is none, whatever
 * words it has. Ends the log. */
static bool is_missing(int status, struct buf *log)
{
    log->failed = false; /* what was too much is at the end */
    buf_add(log, "", 1);
    return status == NOT_THERE || status == NO_OBJECT || !log->p ||
           strstr(log->p, "object not found") || strstr(log->p, "directory not found");
}

/* What these words, up to NULL, with the place behind them, answer. 1; 0: it is not there. */
static int ask(struct mover *m, const char *const *words, const char *below, struct buf *ret,
               struct err *err)
{
    const char *args[MOST_ARGS];
    scoped_buf struct buf log;
    struct arena arena;
    size_t n = 0;

    buf_init(&log, 0);
    arena_init(&arena, 8192);
    while (words[n]) {
        args[n] = words[n];
        n++;
    }
    args[n] = rclone_place(m, &arena, below);
    args[n + 1] = NULL;
    int status = args[n] ? run(m, args, &(struct run){.in = -1, .out = ret, .log = &log}, err)
                         : no_place(err);
    arena_clear(&arena);
    if (status < 0)
        return -1;
    if (status > 0 && !is_missing(status, &log))
        return explain(m, log.p, err);
    return status == 0;
}

int rclone_read(struct mover *m, const char *below, struct buf *ret, struct err *err)
{
    int r = ask(m, (const char *const[]){"cat", NULL}, below, ret, err);

    return r == 1 ? ret->n > 0 : r;
}

int rclone_list(struct mover *m, const char *below, struct buf *ret, struct err *err)
{
    static const char *const words[] = {"lsjson",        "-R", "--files-only", "--no-modtime",
                                        "--no-mimetype", NULL};

    return ask(m, words, below, ret, err);
}

/* Bytes as a file that can be read. */
static int as_file(const char *bytes, size_t n)
{
    int fd = memfd_create("object", MFD_CLOEXEC);

    if (fd >= 0 && (fd_write_all(fd, bytes, n) < 0 || lseek(fd, 0, SEEK_SET) < 0))
        scope_close(&fd);
    return fd;
}

int rclone_write(struct mover *m, const char *below, const char *bytes, size_t n, struct err *err)
{
    scoped_fd int fd = as_file(bytes, n);
    struct arena arena;

    if (fd < 0)
        return err_set(err, ERR_LIMIT, errno, "keep an object in memory");
    arena_init(&arena, 8192);
    const char *const args[] = {"rcat", rclone_place(m, &arena, below), NULL};
    int r = args[1] ? rclone_run(m, args, fd, NULL, err) : no_place(err);
    arena_clear(&arena);
    return r;
}

int rclone_remove(struct mover *m, const char *below, struct err *err)
{
    struct arena arena;

    arena_init(&arena, 8192);
    const char *const args[] = {"deletefile", rclone_place(m, &arena, below), NULL};
    int r = args[1] ? rclone_run(m, args, -1, NULL, err) : no_place(err);
    arena_clear(&arena);
    return r;
}

int rclone_remove_dirs(struct mover *m, const char *below, struct err *err)
{
    scoped_buf struct buf log;
    struct arena arena;

    buf_init(&log, 0);
    arena_init(&arena, 8192);
    const char *const args[] = {"rmdirs", rclone_place(m, &arena, below), NULL};
    int status = args[1] ? run(m, args, &(struct run){.in = -1, .log = &log}, err) : no_place(err);
    arena_clear(&arena);
    if (status <= 0)
        return status;
    log.failed = false;
    buf_add(&log, "", 1);
    /* Whatever the exit status: some kinds of store end with another one here. */
    bool is_gone = log.p && strstr(log.p, "directory not found");
    return is_gone ? 0 : explain(m, log.p ? log.p : (char[]){""}, err);
}
