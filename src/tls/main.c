/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-tls: started by carrel-serve with its socket, the listening socket and the door to the
 * front as descriptors 3 to 5. It has the private key, and nothing else of Carrel's: no database,
 * no workspace, no key of a client, no word of HTTP. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "protocol/tls.h"
#include "sys/fds.h"
#include "tls/tls.h"

enum {
    FAILED = 125,
    KEPT_FDS = 32,
    LEAST_FDS = 256,
    ACCEPT_AT_ONCE = 16,
    PAUSE_MS = 100, /* without descriptors */
};

static const char help[] =
    "usage: carrel-tls [--most N] [--of-one N] [--trusted NETWORKS]\n"
    "       carrel-tls --check   with the certificate and its key as descriptors 3 and 4\n"
    "       carrel-tls --make DOMAIN\n\n"
    "Ends TLS for carrel-serve, which starts it. With --make it writes an authority of this\n"
    "machine's own, and a certificate for DOMAIN, into the working directory.\n";

/* --- what it is told --- */

static void say(const struct tls *t, const char *text)
{
    ignore(send(t->talk.fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL)); /* else unheard */
}

/* Connections go on with what they began with. */
static void take_certificate(struct tls *t, const int fds[2])
{
    char words[TLS_WORDS] = TLS_BAD;
    struct err err;
    SSL_CTX *context = certificate_load(fds[0], fds[1], &err);

    if (!context) {
        (void)err_text(&err, words + strlen(TLS_BAD), sizeof(words) - strlen(TLS_BAD));
        say(t, words);
        return;
    }
    SSL_CTX_free(t->context);
    t->context = context;
    if (events_change(t->events, &t->listener, EPOLLIN) < 0)
        _exit(FAILED);
}

static void hear(struct watch *watch, uint32_t what)
{
    struct tls *t = container_of(watch, struct tls, talk);
    char byte;
    int fds[2] = {-1, -1};
    size_t count = 2;

    (void)what;
    ssize_t n = fds_receive(watch->fd, &byte, sizeof(byte), fds, &count, MSG_DONTWAIT);
    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0 && n != -EPROTO)
        _exit(0); /* who started us has gone: every connection ends */
    if (n > 0 && count == 2)
        take_certificate(t, fds);
    for (size_t i = 0; n > 0 && i < count; i++)
        scope_close(&fds[i]);
}

/* --- clients --- */

static void accept_again(struct timer *timer)
{
    struct tls *t = container_of(timer, struct tls, pause);

    if (events_change(t->events, &t->listener, EPOLLIN) < 0)
        _exit(FAILED);
}

static void on_accept(struct watch *watch, uint32_t what)
{
    struct tls *t = container_of(watch, struct tls, listener);

    (void)what;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            link_begin(t, &fd);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (events_change(t->events, watch, 0) < 0 ||
                timer_set(t->events, &t->pause, now_ms() + PAUSE_MS) < 0)
                _exit(FAILED);
            return;
        }
    }
}

/* --- the beginning --- */

static int read_number(const char *text, size_t *ret)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || n == 0 || n > UINT32_MAX)
        return -1;
    *ret = (size_t)n;
    return 0;
}

static int parse(struct tls *t, char **argv, struct err *err)
{
    const char *at;

    for (int i = 1; argv[i]; i += 2) {
        const char *value = argv[i + 1];
        int r = -1;
        if (value && strcmp(argv[i], "--most") == 0)
            r = read_number(value, &t->most);
        else if (value && strcmp(argv[i], "--of-one") == 0)
            r = read_number(value, &t->shakes_of_one);
        else if (value && strcmp(argv[i], "--trusted") == 0)
            r = networks_parse(value, &t->trusted, &at) ? 0 : -1;
        if (r < 0)
            return err_set(err, ERR_INVALID, 0,
                           "'%.64s' is not an option, or lacks its value; see carrel-tls --help",
                           argv[i]);
    }
    return 0;
}

static int count_room(struct tls *t, struct err *err)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_set(err, ERR_IO, errno, "ask for the limit on descriptors");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < LEAST_FDS)
        return err_set(err, ERR_LIMIT, 0, "%ju descriptors are too few: allow %d",
                       (uintmax_t)files.rlim_cur, LEAST_FDS);
    /* The client, and both ends of its pair until the front has one. */
    size_t room = (size_t)(files.rlim_cur - KEPT_FDS) / 3;
    t->most = t->most && t->most < room ? t->most : room;
    t->shakes_of_one = t->shakes_of_one ? t->shakes_of_one : t->most;
    return 0;
}

/* Connections get these from the socket that they come in by: a client that has gone in silence is
 * found out. */
static int set_options(int fd)
{
    const struct {
        int level;
        int option;
        int value;
    } rows[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                {SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, 60},
                {IPPROTO_TCP, TCP_KEEPINTVL, 20},
                {IPPROTO_TCP, TCP_KEEPCNT, 3}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (setsockopt(fd, rows[i].level, rows[i].option, &rows[i].value, sizeof(int)) < 0)
            return -errno;
    }
    return 0;
}

static int prepare(struct tls *t, struct err *err)
{
    int type = 0;
    socklen_t size = sizeof(type);

    if (getsockopt(TLS_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET ||
        getsockopt(TLS_DOOR, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET)
        return err_set(err, ERR_INVALID, 0,
                       "descriptors 3 to 5 are not its sockets: it is started by carrel-serve");
    t->door = TLS_DOOR;
    t->talk = (struct watch){.ready = hear, .fd = -1};
    t->listener = (struct watch){.ready = on_accept, .fd = -1};
    t->pause.ring = accept_again;
    int r = events_open(&t->events);
    if (r == 0)
        r = set_options(TLS_LISTENER);
    if (r == 0)
        r = events_watch(t->events, &t->talk, TLS_SOCKET, EPOLLIN);
    if (r == 0)
        r = events_watch(t->events, &t->listener, TLS_LISTENER,
                         0); /* once there is a certificate */
    if (r < 0)
        return err_set(err, ERR_IO, -r, "open the loop");
    return count_room(t, err) < 0 ? -1 : tls_confine(err);
}

static int fail(const struct err *err)
{
    char text[512];

    fprintf(stderr, "carrel-tls: %s\n", err_text(err, text, sizeof(text)));
    return FAILED;
}

static int check(struct err *err)
{
    SSL_CTX *context = certificate_load(TLS_SOCKET, TLS_LISTENER, err);

    SSL_CTX_free(context);
    return context ? 0 : -1;
}

static int serve(struct tls *t, char **argv)
{
    struct err err = {.code = ERR_NONE};

    if (parse(t, argv, &err) < 0 || prepare(t, &err) < 0)
        return fail(&err);
    say(t, TLS_READY);
    for (;;) {
        int r = events_turn(t->events);
        if (r < 0) {
            log_warning("loop_failed", "message", strerrordesc_np(-r), NULL);
            return FAILED;
        }
    }
}

int main(int argc, char **argv)
{
    static struct tls t;
    struct err err = {.code = ERR_NONE};

    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    /* All of it now: later there are no files. The host's settings of OpenSSL are not read. */
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_LOAD_SSL_STRINGS |
                             OPENSSL_INIT_LOAD_CRYPTO_STRINGS,
                         NULL) != 1) {
        err_set(&err, ERR_KERNEL, 0, "this host's OpenSSL cannot be used");
        return fail(&err);
    }
    if (argc == 2 && strcmp(argv[1], "--check") == 0)
        return check(&err) < 0 ? fail(&err) : 0;
    if (argc == 3 && strcmp(argv[1], "--make") == 0)
        return certificates_make(argv[2], &err) < 0 ? fail(&err) : 0;
    return serve(&t, argv);
}
