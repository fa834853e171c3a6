/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks with the host's network: connections to a metadata address and to Carrel's own port, by
 * every call that makes one, and in races with whoever looks at the address. "world" is the host's
 * side: a network of its own in which those addresses answer, and then the command that follows.
 */
#include "probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

enum {
    PORT = 8123, /* any service of the host's */
    OWN_PORT = 7070,
    DEAF_PORT = 8124, /* nobody answers there */
    KNOCKERS = 100,
    ROUNDS = 12000,
};

#define METADATA "169.254.169.254"

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un local;
};

static socklen_t make_address(union address *ret, const char *text, uint16_t port)
{
    memset(ret, 0, sizeof(*ret));
    if (inet_pton(AF_INET, text, &ret->v4.sin_addr) == 1) {
        ret->v4.sin_family = AF_INET;
        ret->v4.sin_port = htons(port);
        return sizeof(ret->v4);
    }
    if (inet_pton(AF_INET6, text, &ret->v6.sin6_addr) != 1)
        unclear(text);
    ret->v6.sin6_family = AF_INET6;
    ret->v6.sin6_port = htons(port);
    return sizeof(ret->v6);
}

/* --- the world --- */

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        unclear(path);
    (void)close(fd);
}

static void enter_network(void)
{
    uid_t uid = getuid();
    gid_t gid = getgid();
    char map[64];

    if (unshare(uid ? CLONE_NEWUSER | CLONE_NEWNET : CLONE_NEWNET) < 0)
        unclear("unshare");
    if (!uid)
        return;
    put("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "%u %u 1", uid, uid);
    put("/proc/self/uid_map", map);
    snprintf(map, sizeof(map), "%u %u 1", gid, gid);
    put("/proc/self/gid_map", map);
}

static void make_interfaces(void)
{
    struct ifreq up = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    struct ifreq alias = {.ifr_name = "lo:1"};
    union address metadata;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)make_address(&metadata, METADATA, 0);
    memcpy(&alias.ifr_addr, &metadata.v4, sizeof(metadata.v4));
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &up) < 0 || ioctl(fd, SIOCSIFADDR, &alias) < 0)
        unclear("make the interface");
    (void)close(fd);
}

static int serve_on(uint16_t port, int backlog)
{
    union address any;
    socklen_t n = make_address(&any, "::", port);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int no = 0;

    if (fd < 0 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN, &(int){16}, sizeof(int)) < 0 ||
        bind(fd, &any.any, n) < 0 || listen(fd, backlog) < 0)
        unclear("listen");
    return fd;
}

/* Its queue is full: the kernel drops whoever knocks. */
static void make_deaf_port(void)
{
    union address to;
    socklen_t n = make_address(&to, "127.0.0.1", DEAF_PORT);

    (void)serve_on(DEAF_PORT, 0);
    for (int i = 0; i < 4; i++)
        (void)connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), &to.any, n);
}

static void do_world(char **args)
{
    enter_network();
    make_interfaces();
    struct pollfd servers[2] = {{.fd = serve_on(PORT, 1024), .events = POLLIN},
                                {.fd = serve_on(OWN_PORT, 1024), .events = POLLIN}};
    make_deaf_port();
    if (fork() == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)close(1);
        (void)close(2);
        while (poll(servers, 2, -1) > 0) {
            for (int i = 0; i < 2; i++)
                (void)close(servers[i].revents ? accept(servers[i].fd, NULL, NULL) : -1);
        }
        _exit(0);
    }
    execv(args[0], args);
    unclear(args[0]);
}

/* --- plain attempts --- */

static int new_socket(int family, int flags)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

    if (fd < 0)
        unclear("socket");
    return fd;
}

static void try_connect(const char *text, uint16_t port, int flags)
{
    char what[96];
    union address to;
    socklen_t n = make_address(&to, text, port);
    int fd = new_socket(to.any.sa_family, flags);

    snprintf(what, sizeof(what), "connect to %s port %u%s", text, port,
             flags ? " without waiting" : "");
    int r = connect(fd, &to.any, n);
    if (r < 0 && errno == EINPROGRESS)
        r = 0;
    refused(what, r, EACCES);
    (void)close(fd);
}

/* The service itself must be there, or nothing is shown. */
static void must_connect(const char *text)
{
    union address to;
    socklen_t n = make_address(&to, text, PORT);
    int fd = new_socket(to.any.sa_family, 0);

    if (connect(fd, &to.any, n) < 0)
        unclear("connect to a service that is allowed");
    (void)close(fd);
}

static void try_metadata(char **args)
{
    static const char *const names[] = {
        METADATA,
        "::ffff:169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "64:ff9b::a9fe:a9fe",
        "::169.254.169.254",
    };

    (void)args;
    must_connect("127.0.0.1");
    must_connect("::1");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        try_connect(names[i], PORT, 0);
        try_connect(names[i], PORT, SOCK_NONBLOCK);
    }
}

static void try_own_port(char **args)
{
    static const char *const names[] = {
        "127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0",
    };

    (void)args;
    must_connect("127.0.0.1");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        try_connect(names[i], OWN_PORT, 0);
}

/* --- other ways --- */

static bool is_connected_to_metadata(int fd)
{
    union address peer = {0};
    socklen_t n = sizeof(peer);

    if (getpeername(fd, &peer.any, &n) < 0)
        return false;
    if (peer.any.sa_family == AF_INET)
        return peer.v4.sin_addr.s_addr == inet_addr(METADATA);
    return true;
}

static void try_fast_open(void)
{
    union address to;
    socklen_t n = make_address(&to, METADATA, PORT);
    struct iovec part = {(char *)(uintptr_t) "x", 1};
    struct mmsghdr message = {
        .msg_hdr = {.msg_name = &to, .msg_namelen = n, .msg_iov = &part, .msg_iovlen = 1}};

    refused("sendto with MSG_FASTOPEN",
            sendto(new_socket(AF_INET, 0), "x", 1, MSG_FASTOPEN, &to.any, n), EOPNOTSUPP);
    refused("sendmsg with MSG_FASTOPEN",
            sendmsg(new_socket(AF_INET, 0), &message.msg_hdr, MSG_FASTOPEN), EOPNOTSUPP);
    refused("sendmmsg with MSG_FASTOPEN",
            sendmmsg(new_socket(AF_INET, 0), &message, 1, MSG_FASTOPEN), EOPNOTSUPP);
    int fd = new_socket(AF_INET, 0);
    refused("TCP_FASTOPEN_CONNECT",
            setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &(int){1}, sizeof(int)), ENOPROTOOPT);
    message.msg_hdr.msg_flags = MSG_FASTOPEN; /* the message's own are for receiving */
    (void)sendmsg(fd, &message.msg_hdr, MSG_NOSIGNAL);
    (void)sendmmsg(fd, &message, 1, MSG_NOSIGNAL);
    if (is_connected_to_metadata(fd))
        escaped("flags in the message connected");
}

static void try_other_sockets(void)
{
    static const struct {
        const char *name;
        int type;
        int protocol;
    } kinds[] = {
        {"MPTCP", SOCK_STREAM, 262},
        {"SCTP", SOCK_STREAM, IPPROTO_SCTP},
        {"SCTP of packets", SOCK_SEQPACKET, 0},
        {"DCCP", SOCK_DCCP, 0},
        {"raw", SOCK_RAW, IPPROTO_TCP},
    };

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        failed(kinds[i].name, socket(AF_INET, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol));
        failed(kinds[i].name, socket(AF_INET6, kinds[i].type | SOCK_CLOEXEC, kinds[i].protocol));
    }
    failed("io_uring_setup", syscall(SYS_io_uring_setup, 1, NULL));
}

/* A source route goes over the address it names. */
static void try_source_route(void)
{
    uint8_t route[8] = {0x83, 7, 4, 169, 254, 169, 254, 0};

    failed("IP_OPTIONS",
           setsockopt(new_socket(AF_INET, 0), IPPROTO_IP, IP_OPTIONS, route, sizeof(route)));
}

#ifdef __x86_64__
/* The 32-bit door has a connect of its own. */
static void try_32_bit(void)
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        long r = 362; /* connect */
        __asm__ volatile("int $0x80" : "+a"(r) : "b"(-1L), "c"(0L), "d"(0L) : "memory");
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status))
        escaped("a 32-bit connect was let through");
}
#else
static void try_32_bit(void)
{
}
#endif

static void try_other_ways(char **args)
{
    (void)args;
    must_connect("127.0.0.1");
    try_fast_open();
    try_other_sockets();
    try_source_route();
    try_32_bit();
}

/* --- races --- */

static atomic_bool over;
static union address shared;

static void *swap_address(void *argument)
{
    volatile in_addr_t *word = &shared.v4.sin_addr.s_addr;
    in_addr_t good = inet_addr("127.0.0.1");
    in_addr_t bad = inet_addr(METADATA);

    (void)argument;
    while (!atomic_load(&over)) {
        *word = bad;
        *word = good;
    }
    return NULL;
}

/* The address is an allowed one when it is looked at, and another when it is used. */
static void race_address(char **args)
{
    pthread_t thread;
    int good = 0;

    (void)args;
    (void)make_address(&shared, "127.0.0.1", PORT);
    if (pthread_create(&thread, NULL, swap_address, NULL) != 0)
        unclear("pthread_create");
    for (int i = 0; i < ROUNDS && escapes == 0; i++) {
        int fd = new_socket(AF_INET, 0);
        if (connect(fd, &shared.any, sizeof(shared.v4)) == 0) {
            good++;
            if (is_connected_to_metadata(fd))
                escaped("the address was changed after it was looked at");
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        (void)close(fd);
    }
    atomic_store(&over, true);
    (void)pthread_join(thread, NULL);
    printf("%d connections\n", good);
    if (good == 0)
        unclear("none was allowed");
}

static struct {
    int number; /* the one that connect(2) is told */
    int tcp;
    int local;
} sockets;

static void *swap_socket(void *argument)
{
    (void)argument;
    while (!atomic_load(&over)) {
        (void)dup2(sockets.local, sockets.number);
        (void)dup2(sockets.tcp, sockets.number);
    }
    return NULL;
}

/* The socket is a Unix one when it is looked at, and one of TCP when it is used: the address, which
 * nobody reads for Unix sockets, is the metadata service's all the time. */
static void race_socket(char **args)
{
    pthread_t thread;
    int failures = 0;

    (void)args;
    must_connect("127.0.0.1");
    (void)make_address(&shared, METADATA, PORT);
    sockets.local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockets.tcp = new_socket(AF_INET, 0);
    sockets.number = fcntl(sockets.local, F_DUPFD_CLOEXEC, 0);
    if (sockets.local < 0 || pthread_create(&thread, NULL, swap_socket, NULL) != 0)
        unclear("prepare");
    for (int i = 0; i < ROUNDS && escapes == 0; i++) {
        (void)connect(sockets.number, &shared.any, sizeof(shared.v4));
        failures += errno == EINVAL; /* what a Unix socket says to such an address */
        if (is_connected_to_metadata(sockets.tcp))
            escaped("the socket was changed after it was looked at");
    }
    atomic_store(&over, true);
    (void)pthread_join(thread, NULL);
    printf("%d times the Unix socket\n", failures);
    if (failures == 0 && escapes == 0)
        unclear("the Unix socket was never the one");
}

static atomic_int knocker = -1;

static void *take_flag_away(void *argument)
{
    (void)argument;
    while (!atomic_load(&over))
        (void)fcntl(atomic_load(&knocker), F_SETFL, 0);
    return NULL;
}

static void *knock(void *argument)
{
    union address to;
    socklen_t n = make_address(&to, "127.0.0.1", DEAF_PORT);

    (void)argument;
    (void)connect(atomic_load(&knocker), &to.any, n);
    return NULL;
}

/* Whoever connects for us must not wait for us: its flag for that is taken away again and again,
 * until the deadline. */
static void race_flags(char **args)
{
    pthread_t thread;

    (void)args;
    must_connect("127.0.0.1");
    if (pthread_create(&thread, NULL, take_flag_away, NULL) != 0)
        unclear("pthread_create");
    puts("racing");
    for (int i = 0; i < KNOCKERS; i++) {
        atomic_store(&knocker, new_socket(AF_INET, 0));
        if (pthread_create(&thread, NULL, knock, NULL) != 0)
            unclear("pthread_create");
        (void)poll(NULL, 0, 10);
    }
    (void)pause();
}

/* "yes" where there can be Unix sockets at all. */
static void has_unix(char **args)
{
    (void)args;
    puts(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) < 0 ? "no" : "yes");
}

static const struct attack attacks[] = {
    {"world", do_world},
    {"metadata", try_metadata},
    {"own-port", try_own_port},
    {"other-ways", try_other_ways},
    {"race-address", race_address},
    {"race-socket", race_socket},
    {"race-flags", race_flags},
    {"has-unix", has_unix},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
