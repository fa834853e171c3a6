/* SPDX-License-Identifier: Apache-2.0 */
/* The sockets for clients: handed over by a service manager, or made here, and then given to the
 * front. The broker itself never accepts or reads from them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "broker/broker.h"
#include "broker/listen.h"
#include "policy/units.h"

#ifndef CARREL_VERSION
#define CARREL_VERSION "unknown"
#endif

enum {
    BACKLOG = 4096, /* the front takes all of them, and says no to those for which it has no room */
    TAKEN_TRIES = 100,
    TAKEN_PAUSE_MS = 50,
    FIRST_HANDED_OVER = 3,
};

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

static const char *variable(const char *name)
{
    return getenv(name); /* read before there are threads; NOLINT(concurrency-mt-unsafe) */
}

static bool is_loopback(const union address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

/* "127.0.0.1:7070", "[::1]:7070", "localhost:0". Names are not looked up. */
static int parse_address(const char *text, union address *ret, socklen_t *ret_n, struct err *err)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    uint64_t port = 0;
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (!colon || n == 0 || n >= sizeof(host) ||
        (strcmp(colon + 1, "0") != 0 && units_parse_count(colon + 1, 65535, &port) < 0))
        return err_set(err, ERR_INVALID, 0,
                       "'%s' is not an address and a port, like 127.0.0.1:7070", text);
    memcpy(host, text, n);
    host[n] = '\0';
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof(host), "127.0.0.1");
    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, host, &ret->v4.sin_addr) == 1) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons((uint16_t)port);
        *ret_n = sizeof(ret->v4);
        return 0;
    }
    n = strlen(host);
    if (n > 2 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &ret->v6.sin6_addr) == 1) {
            ret->v6.sin6_family = AF_INET6;
            ret->v6.sin6_port = htons((uint16_t)port);
            *ret_n = sizeof(ret->v6);
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, 0,
                   "'%s' is not a numeric address and a port, like 127.0.0.1:7070 or [::1]:7070",
                   text);
}

static int keep(struct broker *b, int *fd)
{
    b->listening[b->listening_count++] = take_fd(fd);
    return 0;
}

int listen_check(const struct broker *b, bool may_go_beyond, struct err *err)
{
    const char *text = b->settings.listen;
    union address address = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = 0;

    if (*text == '\0')
        return 0;
    if (parse_address(text, &address, &n, err) < 0)
        return -1;
    if (!is_loopback(&address) && !may_go_beyond)
        return err_set(
            err, ERR_DENIED, 0,
            "'%s' can be reached from other machines. Start once on loopback, so that "
            "there is a key, and then give --listen on the command line; put a proxy with "
            "TLS in front of it. (insecure_listen = yes allows it at once.)",
            text);
    return 0;
}

/* `advice` is for an address that is taken. */
static int open_tcp(const struct broker *b, const char *text, const char *advice, int *ret,
                    struct err *err)
{
    union address address = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = 0;
    int one = 1;

    if (parse_address(text, &address, &n, err) < 0)
        return -1;
    scoped_fd int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "make a socket for '%s'", text);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (address.any.sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    int r = bind(fd, &address.any, n);
    for (int i = 0; r < 0 && errno == EADDRINUSE && b->was_killed && i < TAKEN_TRIES; i++) {
        (void)poll(NULL, 0, TAKEN_PAUSE_MS); /* as below: who was killed may not be dead yet */
        r = bind(fd, &address.any, n);
    }
    if (r < 0 || listen(fd, BACKLOG) < 0)
        return err_set(err, errno == EADDRINUSE ? ERR_CONFLICT : ERR_IO, errno, "listen on '%s'%s",
                       text, errno == EADDRINUSE ? advice : "");
    *ret = take_fd(&fd);
    return 0;
}

/* EAGAIN: a server listens there and its queue is full, so the socket is in use. */
static bool is_listened_at(const union address *address)
{
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    return fd >= 0 && (connect(fd, &address->any, sizeof(address->local)) == 0 || errno == EAGAIN);
}

/* One that nobody answers at is left over from a daemon that was killed; we hold the lock. The
 * front of one that was killed just now has it until it is dead, too. */
static int remove_stale(const union address *address, bool was_killed, struct err *err)
{
    const char *path = address->local.sun_path;
    struct stat st;

    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_set(err, ERR_IO, errno, "look at the socket '%s'", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_CONFLICT, 0, "'%s' is in the way of the Unix socket", path);
    bool taken = is_listened_at(address);
    for (int i = 0; taken && was_killed && i < TAKEN_TRIES; i++) {
        (void)poll(NULL, 0, TAKEN_PAUSE_MS);
        taken = is_listened_at(address);
    }
    if (taken)
        return err_set(err, ERR_CONFLICT, 0, "another program listens on the socket '%s'", path);
    if (unlink(path) < 0 && errno != ENOENT)
        return err_set(err, ERR_IO, errno, "remove the old socket '%s'", path);
    return 0;
}

static int open_local(struct broker *b, struct err *err)
{
    union address address = {.local = {.sun_family = AF_UNIX}};
    const char *path = b->settings.socket;

    _Static_assert(sizeof(b->settings.socket) <= sizeof(address.local.sun_path), "it fits");
    memcpy(address.local.sun_path, path, strlen(path) + 1);
    if (remove_stale(&address, b->was_killed, err) < 0)
        return -1;
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "make a Unix socket");
    mode_t before = umask(0177); /* from its first moment on it is ours only */
    int r = bind(fd, &address.any, sizeof(address.local));
    int saved = errno;
    (void)umask(before);
    errno = saved;
    if (r < 0 || listen(fd, BACKLOG) < 0)
        return err_set(err, ERR_IO, errno, "listen on the socket '%s'", path);
    b->made_socket = true;
    return keep(b, &fd);
}

static bool is_listening(int fd)
{
    int yes = 0;
    socklen_t n = sizeof(yes);

    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &n) == 0 && yes;
}

/* 1: the service manager has given us some (sd_listen_fds(3)). */
static int take_handed_over(struct broker *b, struct err *err)
{
    const char *pid = variable("LISTEN_PID");
    const char *count = variable("LISTEN_FDS");
    char own[16];
    uint64_t n;

    snprintf(own, sizeof(own), "%d", (int)getpid());
    if (!pid || !count || strcmp(pid, own) != 0)
        return 0;
    if (units_parse_count(count, BROKER_MAX_LISTEN, &n) < 0)
        return err_set(err, ERR_INVALID, 0, "LISTEN_FDS is '%.16s'; at most %d sockets are taken",
                       count, BROKER_MAX_LISTEN);
    for (int fd = FIRST_HANDED_OVER; fd < FIRST_HANDED_OVER + (int)n; fd++) {
        if (!is_listening(fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ||
            fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
            return err_set(err, ERR_INVALID, 0,
                           "the descriptor %d from the service manager is no listening socket", fd);
        b->listening[b->listening_count++] = fd;
    }
    return 1;
}

static int open_http(struct broker *b, struct err *err)
{
    scoped_fd int fd = -1;
    int r = open_tcp(b, b->settings.listen, " (another program does; give another with --listen)",
                     &fd, err);

    return r < 0 ? -1 : keep(b, &fd);
}

int listen_open(struct broker *b, struct err *err)
{
    const char *tls = b->settings.tls_listen;

    if (*tls && open_tcp(b, tls, " (another program does; give another with --set tls_listen=)",
                         &b->tls_listening, err) < 0)
        return -1;
    int r = take_handed_over(b, err);
    if (r != 0)
        return r < 0 ? -1 : 0;
    if (*b->settings.listen && open_http(b, err) < 0)
        return -1;
    if (*b->settings.socket && open_local(b, err) < 0)
        return -1;
    if (b->listening_count == 0 && b->tls_listening < 0)
        return err_set(err, ERR_INVALID, 0,
                       "neither 'listen' nor 'socket' nor 'tls_listen' is set, so no client could "
                       "connect");
    return 0;
}

void listen_close(struct broker *b)
{
    while (b->listening_count > 0)
        scope_close(&b->listening[--b->listening_count]);
    if (b->made_socket)
        ignore(unlink(b->settings.socket) ==
               0); /* we hold the lock still; a stale one does no harm */
}

static void describe(const union address *a, char *tcp, size_t tcp_size, char *path,
                     size_t path_size)
{
    char host[INET6_ADDRSTRLEN] = "";

    if (a->any.sa_family == AF_INET && !*tcp) {
        (void)inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host));
        snprintf(tcp, tcp_size, "%s:%u", host, ntohs(a->v4.sin_port));
    } else if (a->any.sa_family == AF_INET6 && !*tcp) {
        (void)inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host));
        snprintf(tcp, tcp_size, "[%s]:%u", host, ntohs(a->v6.sin6_port));
    } else if (a->any.sa_family == AF_UNIX && !*path) {
        snprintf(path, path_size, "%s", a->local.sun_path);
    }
}

void listen_describe(const struct broker *b, char *tcp, size_t tcp_size, char *path,
                     size_t path_size)
{
    *tcp = *path = '\0';
    for (size_t i = 0; i < b->listening_count; i++) {
        union address a = {0};
        socklen_t n = sizeof(a) - 1; /* a path that fills its room has no end of its own */
        if (getsockname(b->listening[i], &a.any, &n) == 0)
            describe(&a, tcp, tcp_size, path, path_size);
    }
}

/* Of an address of IPv4 or IPv6; 0: of another. */
static uint16_t port_of(int fd)
{
    union address a = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = sizeof(a);

    if (fd < 0 || getsockname(fd, &a.any, &n) < 0)
        return 0;
    return a.any.sa_family == AF_INET    ? ntohs(a.v4.sin_port)
           : a.any.sa_family == AF_INET6 ? ntohs(a.v6.sin6_port)
                                         : 0;
}

void listen_ports(const struct broker *b, uint16_t ret[CARREL_MAX_PORTS])
{
    size_t n = 0;

    _Static_assert((int)BROKER_MAX_LISTEN < CARREL_MAX_PORTS, "each has its place");
    memset(ret, 0, CARREL_MAX_PORTS * sizeof(*ret));
    for (size_t i = 0; i < b->listening_count; i++) {
        uint16_t port = port_of(b->listening[i]);
        if (port)
            ret[n++] = port;
    }
    if (b->tls_listening >= 0)
        ret[n] = port_of(b->tls_listening);
}

void listen_describe_tls(const struct broker *b, char *tcp, size_t size)
{
    union address a = {.any = {.sa_family = AF_UNSPEC}};
    socklen_t n = sizeof(a);
    char path[1] = "";

    *tcp = '\0';
    if (b->tls_listening >= 0 && getsockname(b->tls_listening, &a.any, &n) == 0)
        describe(&a, tcp, size, path, sizeof(path));
}

/* How to trust a certificate of our own. */
static void welcome_tls(const struct broker *b)
{
    const char *state = b->settings.state;
    char tcp[128];

    listen_describe_tls(b, tcp, sizeof(tcp));
    if (!*tcp)
        return;
    printf("  https   https://%s\n", tcp);
    if (b->settings.tls_self_signed)
        printf(
            "  trust   export SSL_CERT_FILE='%s/tls/ca.pem' NODE_EXTRA_CA_CERTS='%s/tls/ca.pem'\n"
            "          curl --cacert '%s/tls/ca.pem' https://localhost:%u/healthz\n"
            "          (for %s and the names below it, and for this host alone)\n",
            state, state, state, port_of(b->tls_listening), b->settings.domain);
}

void listen_welcome(const struct broker *b)
{
    const char *state = b->settings.state;
    char tcp[128];
    char path[128];

    listen_describe(b, tcp, sizeof(tcp), path, sizeof(path));
    printf("Carrel " CARREL_VERSION " is ready.\n  key     %s/admin.key\n", state);
    if (*path)
        printf("  socket  %s (its owner and root need no key: carrel ws ls)\n", path);
    if (*tcp)
        printf("  listen  http://%s\n  try     "
               "H=\"Authorization: Bearer $(cat '%s/admin.key')\"; "
               "curl -sH \"$H\" http://%s/v1/workspaces -d '{\"id\":\"demo\"}'; "
               "curl -sH \"$H\" http://%s/v1/workspaces/demo/exec "
               "-d '{\"command\":\"echo hello from $(hostname)\"}'\n",
               tcp, state, tcp, tcp);
    welcome_tls(b);
    ignore(fflush(stdout) == 0); /* nobody reads it: nothing is lost */
}

void listen_notify(const char *text)
{
    const char *path = variable("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;

    if (n < 2 || n >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    scoped_fd int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        ignore(sendto(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT,
                      (const struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) >= 0);
}

uint64_t listen_watchdog_ms(void)
{
    const char *pid = variable("WATCHDOG_PID");
    const char *text = variable("WATCHDOG_USEC");
    char own[16];
    uint64_t us;

    snprintf(own, sizeof(own), "%d", (int)getpid());
    if (!text || (pid && strcmp(pid, own) != 0) ||
        units_parse_count(text, 1000000000000ULL, &us) < 0)
        return 0;
    return us / 2000 ? us / 2000 : 1; /* twice as often as is asked for */
}
