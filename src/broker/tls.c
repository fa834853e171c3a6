/* SPDX-License-Identifier: Apache-2.0 */
/* Starts carrel-tls where settings say at which address HTTPS is served, and hands it certificate
 * and key, as descriptors: when it is ready, and whenever one of the files has changed. The broker
 * reads neither. */
#include "broker/tls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/listen.h"
#include "protocol/tls.h"
#include "sys/fds.h"
#include "sys/process.h"

enum {
    STOP_MS = 1000,
    LOOK_MS = 5000, /* between two looks at the files */
    MOST_ARGS = 8,
    ONCE_FD = 3, /* the first that a process gets that does one thing */
    ONCE_FDS = 2,
};

#define OWN_DIR "tls"

static bool is_own(const struct broker *b)
{
    return b->settings.tls_self_signed;
}

static const char *own_path(const struct broker *b, char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/" OWN_DIR "/%s", b->settings.state, name);
    return path;
}

const char *tls_certificate(const struct broker *b)
{
    return b->settings.tls_certificate;
}

/* --- the files --- */

static int open_certificate(const struct broker *b, int *ret, struct err *err)
{
    const char *path = b->settings.tls_certificate;

    *ret = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    return *ret < 0 ? err_set(err, ERR_IO, errno, "open '%s' (setting 'tls_certificate')", path)
                    : 0;
}

static int open_key(const struct broker *b, int *ret, struct err *err)
{
    const char *path = b->settings.tls_key;
    scoped_fd int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '%s' (setting 'tls_key')", path);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 027))
        return err_set(err, ERR_DENIED, 0,
                       "the key '%s' must be a file that others can neither read nor write (chmod "
                       "600 it)",
                       path);
    *ret = take_fd(&fd);
    return 0;
}

static int open_both(const struct broker *b, int fds[ONCE_FDS], struct err *err)
{
    if (open_certificate(b, &fds[0], err) < 0)
        return -1;
    if (open_key(b, &fds[1], err) < 0) {
        scope_close(&fds[0]);
        return -1;
    }
    return 0;
}

/* --- carrel-tls for one thing --- */

static _Noreturn void become(const struct broker *b, const char *const *argv, int dir,
                             const int *fds)
{
    static const char *const env[] = {"LC_ALL=C.UTF-8", NULL};
    int high[ONCE_FDS];
    int program = fcntl(b->tls_program, F_DUPFD_CLOEXEC, 64);
    sigset_t none;

    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (dir >= 0 && fchdir(dir) < 0)
        _exit(119);
    for (int i = 0; fds && i < ONCE_FDS; i++)
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 64);
    for (int i = 0; fds && i < ONCE_FDS; i++) {
        if (high[i] < 0 || dup2(high[i], ONCE_FD + i) < 0)
            _exit(120);
    }
    if (program < 0 || process_close_from(fds ? ONCE_FD + ONCE_FDS : ONCE_FD, CLOSE_AT_EXEC) < 0)
        _exit(120);
    (void)syscall(SYS_execveat, program, "", argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

/* Waits for its end; what is wrong it says on stderr. */
static int run_once(const struct broker *b, const char *const *argv, int dir, const int *fds,
                    struct err *err)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        become(b, argv, dir, fds);
    if (pid < 0)
        return err_set(err, ERR_IO, errno, "start carrel-tls");
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return err_set(err, ERR_IO, errno, "wait for carrel-tls");
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(err, ERR_INVALID, 0,
                   "carrel-tls cannot serve HTTPS with the certificate '%s' and its key (its own "
                   "words are above)",
                   b->settings.tls_certificate);
}

static int check_pair(const struct broker *b, struct err *err)
{
    static const char *const argv[] = {"carrel-tls", "--check", NULL};
    int fds[ONCE_FDS] = {-1, -1};

    if (open_both(b, fds, err) < 0)
        return -1;
    int r = run_once(b, argv, -1, fds, err);
    for (int i = 0; i < ONCE_FDS; i++)
        scope_close(&fds[i]);
    return r;
}

/* DIR/tls: everybody may read its ca.pem who can name it. */
static int make_own(struct broker *b, struct err *err)
{
    const char *const argv[] = {"carrel-tls", "--make", b->settings.domain, NULL};

    if (mkdirat(b->state, OWN_DIR, 0711) < 0 && errno != EEXIST)
        return err_set(err, ERR_IO, errno, "make '" OWN_DIR "' in the state directory");
    scoped_fd int dir = openat(b->state, OWN_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (dir < 0 || fstat(dir, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '" OWN_DIR "' in the state directory");
    if (st.st_uid != geteuid() || (st.st_mode & 022))
        return err_set(err, ERR_DENIED, 0,
                       "'%s/" OWN_DIR "' belongs to another user, or can be written by others",
                       b->settings.state);
    struct settings *s = &b->settings;
    if (strlen(s->state) + sizeof("/" OWN_DIR "/cert.pem") > sizeof(s->tls_key))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "the path of '%s/" OWN_DIR "'", s->state);
    (void)own_path(b, s->tls_certificate, sizeof(s->tls_certificate), "cert.pem");
    (void)own_path(b, s->tls_key, sizeof(s->tls_key), "key.pem");
    return run_once(b, argv, dir, NULL, err);
}

int tls_check(struct broker *b, struct err *err)
{
    const struct settings *s = &b->settings;

    if (is_own(b) && (*s->tls_certificate || *s->tls_key))
        return err_set(err, ERR_INVALID, 0,
                       "give either 'tls_self_signed', or 'tls_certificate' and 'tls_key'");
    if (!*s->tls_certificate != !*s->tls_key)
        return err_set(err, ERR_INVALID, 0,
                       "'tls_certificate' and 'tls_key' go together: the setting '%s' lacks",
                       *s->tls_key ? "tls_certificate" : "tls_key");
    bool has_pair = is_own(b) || *s->tls_key;
    if (!*s->tls_listen && has_pair)
        return err_set(err, ERR_INVALID, 0,
                       "say where HTTPS is to be served: --set tls_listen=127.0.0.1:7443");
    if (!*s->tls_listen)
        return 0;
    if (!has_pair)
        return err_set(err, ERR_INVALID, 0,
                       "'tls_listen' needs a certificate: 'tls_certificate' and 'tls_key', or "
                       "--tls-self-signed for one of this machine's own");
    if (is_own(b) && make_own(b, err) < 0)
        return -1;
    return check_pair(b, err);
}

/* --- the process --- */

int tls_begin(struct broker *b, struct err *err)
{
    int pair[2];

    if (!*b->settings.tls_listen)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_IO, errno, "make the door between carrel-tls and the front");
    b->tls_door = pair[0];
    b->front_door = pair[1];
    return 0;
}

static char *const *prepare(struct helper *h, struct arena *arena, int fds[HELPER_FDS],
                            struct err *err)
{
    const struct broker *b = h->broker;
    const char **argv = arena_alloc(arena, MOST_ARGS * sizeof(*argv));
    size_t n = 0;

    fds[0] = fcntl(b->tls_listening, F_DUPFD_CLOEXEC, 3);
    fds[1] = fcntl(b->tls_door, F_DUPFD_CLOEXEC, 3);
    if (!argv || fds[0] < 0 || fds[1] < 0) {
        err_set(err, ERR_LIMIT, errno, "start carrel-tls");
        return NULL;
    }
    h->extra_count = 2;
    argv[n++] = "carrel-tls";
    argv[n++] = "--most";
    /* As many again whose owner is not known yet, as in the front. */
    argv[n++] = arena_printf(arena, "%ju", (uintmax_t)b->settings.max_connections * 2);
    argv[n++] = "--of-one";
    argv[n++] = arena_printf(arena, "%ju", (uintmax_t)b->settings.address_connections);
    if (*b->settings.trusted_proxies) {
        argv[n++] = "--trusted";
        argv[n++] = b->settings.trusted_proxies;
    }
    for (size_t i = 0; i < n; i++) {
        if (!argv[i]) {
            err_set(err, ERR_LIMIT, ENOMEM, "start carrel-tls");
            return NULL;
        }
    }
    return (char *const *)(uintptr_t)argv;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* What it cannot take it says, and goes on with what it has. */
static void hand_over(struct broker *b)
{
    char byte = 'c';
    const struct iovec part = {&byte, 1};
    int fds[ONCE_FDS] = {-1, -1};
    struct err err;

    if (open_both(b, fds, &err) < 0) {
        log_err("certificate_unreadable", "the one of before stays", &err);
        return;
    }
    ignore(fstat(fds[0], &b->tls_files[0]) + fstat(fds[1], &b->tls_files[1]));
    if (b->tls.socket >= 0)
        ignore(fds_send(b->tls.socket, &part, 1, fds, ONCE_FDS, MSG_DONTWAIT)); /* it has died */
    for (int i = 0; i < ONCE_FDS; i++)
        scope_close(&fds[i]);
}

/* Both have to be there and to be looked at anew: who replaces them replaces one after the other,
 * and between the two carrel-tls says that they do not fit, and is asked again. */
static void look(struct timer *timer)
{
    struct broker *b = container_of(timer, struct broker, tls_timer);
    const char *const paths[] = {b->settings.tls_certificate, b->settings.tls_key};
    bool changed = false;
    struct stat st;

    for (int i = 0; i < ONCE_FDS; i++)
        changed |= stat(paths[i], &st) == 0 && !is_same_file(&st, &b->tls_files[i]);
    if (changed && b->tls.pid) {
        log_info("certificate_changed", "file", paths[0], NULL);
        hand_over(b);
    }
    ignore(timer_set(b->events, timer, now_ms() + LOOK_MS)); /* else it is not looked for again */
}

static void heard(struct helper *h, const char *bytes, size_t n)
{
    char words[TLS_WORDS + 1];

    snprintf(words, sizeof(words), "%.*s", (int)(n < TLS_WORDS ? n : TLS_WORDS), bytes);
    if (strcmp(words, TLS_READY) == 0)
        hand_over(h->broker);
    else
        log_error("certificate_not_taken", "error",
                  words + (strncmp(words, TLS_BAD, strlen(TLS_BAD)) == 0 ? strlen(TLS_BAD) : 0),
                  "then", "the one of before stays", NULL);
}

void tls_start(struct broker *b)
{
    if (!*b->settings.tls_listen)
        return;
    b->tls = helper_make(b, "carrel-tls");
    b->tls.program = b->tls_program;
    b->tls.uid = b->tls_uid;
    b->tls.gid = b->tls_gid;
    b->tls.prepare = prepare;
    b->tls.heard = heard;
    helper_begin(&b->tls);
    b->tls_timer.ring = look;
    ignore(timer_set(b->events, &b->tls_timer, now_ms() + LOOK_MS));
}

void tls_stop(struct broker *b)
{
    if (b->tls.broker)
        helper_stop(&b->tls, SIGTERM, STOP_MS);
    timer_stop(b->events, &b->tls_timer);
    scope_close(&b->tls_door);
    scope_close(&b->front_door);
    scope_close(&b->tls_listening);
}
