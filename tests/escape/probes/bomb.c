/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks by taking all there is: processes, threads, and memory of every kind that is not simply
 * the program's own. Each stops at a size that does no harm to the host, and has then escaped.
 *
 *   bomb fork N, bomb threads N   more than N at a time?
 *   bomb storm                    forks without end, whatever the answer
 *   bomb heap|tmpfs|memfd|shm|pipes|sockets|tcp|udp N   more than N MiB?
 */
#include "probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>

#ifndef SO_MEMINFO
#define SO_MEMINFO 55
#endif

#define MIB   (1UL << 20)
#define CHUNK (64UL << 10)

static char chunk[CHUNK];
static size_t most;

/* --- processes and threads --- */

static void count(const char *what, size_t got)
{
    printf("%zu %s at a time: %s\n", got, what, strerrorname_np(errno));
    if (got > most)
        escaped("%zu %s at a time, and %zu were allowed", got, what, most);
    else if (errno != EAGAIN)
        unclear("another error than EAGAIN");
}

static void fork_bomb(void)
{
    size_t got = 1; /* this one */

    for (; got <= 3 * most; got++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0)
            for (;;)
                pause();
    }
    count("processes", got);
}

static void *sleeper(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

static void thread_bomb(void)
{
    size_t got = 1;
    pthread_attr_t small;
    pthread_t thread;

    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    for (; got <= 3 * most; got++) {
        errno = pthread_create(&thread, &small, sleeper, NULL);
        if (errno)
            break;
    }
    count("threads", got);
}

static void storm(void)
{
    alarm(60); /* where nothing else ends it */
    for (;;)
        (void)!fork();
}

/* --- memory: each returns the bytes it could get hold of --- */

static size_t heap(void)
{
    size_t got = 0;

    for (; got < most; got += MIB) {
        char *p = malloc(MIB);
        if (!p)
            break;
        memset(p, 1, MIB);
    }
    return got;
}

static size_t fill_file(int fd, size_t already)
{
    size_t got = 0;

    while (fd >= 0 && already + got < most && write(fd, chunk, CHUNK) == (ssize_t)CHUNK)
        got += CHUNK;
    return got;
}

static size_t tmpfs(void)
{
    static const char *const files[] = {"/tmp/bomb", "/.cache/bomb", "/dev/shm/bomb"};
    size_t got = 0;

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        got += fill_file(open(files[i], O_WRONLY | O_CREAT, 0600), got);
    return got;
}

static size_t memfd(void)
{
    size_t got = 0;

    for (int i = 0; i < 8; i++)
        got += fill_file(memfd_create("bomb", 0), got);
    return got;
}

static size_t shm(void)
{
    size_t got = 0;

    for (; got < most; got += MIB) {
        int id = shmget(IPC_PRIVATE, MIB, 0600 | IPC_CREAT);
        char *at = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
        if (at == (char *)-1)
            break;
        memset(at, 1, MIB);
        (void)shmdt(at); /* stays, as nobody removed it */
    }
    return got;
}

static size_t pipes(void)
{
    size_t got = 0;
    int ends[2];

    while (got < most && pipe2(ends, O_NONBLOCK) == 0) {
        (void)fcntl(ends[1], F_SETPIPE_SZ, MIB);
        for (ssize_t n; got < most && (n = write(ends[1], chunk, CHUNK)) > 0;)
            got += (size_t)n;
    }
    return got;
}

static size_t sockets(void)
{
    size_t got = 0;
    int ends[2];

    while (got < most && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0) {
        for (int i = 0; i < 2; i++)
            for (ssize_t n; got < most && (n = write(ends[i], chunk, CHUNK)) > 0;)
                got += (size_t)n;
    }
    return got;
}

static int bound_socket(int type, struct sockaddr_in *at)
{
    socklen_t size = sizeof(*at);
    int fd = socket(AF_INET, type | SOCK_NONBLOCK, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (fd < 0 || bind(fd, (struct sockaddr *)at, size) < 0 ||
        getsockname(fd, (struct sockaddr *)at, &size) < 0)
        unclear("a socket on the loopback");
    return fd;
}

/* What the kernel holds for this socket. */
static size_t held(int fd)
{
    uint32_t info[SK_MEMINFO_VARS] = {0};
    socklen_t size = sizeof(info);

    (void)getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &size);
    return (size_t)info[SK_MEMINFO_RMEM_ALLOC] + info[SK_MEMINFO_WMEM_QUEUED];
}

static size_t tcp(void)
{
    struct sockaddr_in at;
    int listener = bound_socket(SOCK_STREAM, &at);
    int fds[1200];
    size_t n = 0;
    size_t got = 0;

    (void)listen(listener, 1200);
    while (got < most && n + 2 <= sizeof(fds) / sizeof(fds[0])) {
        int out = socket(AF_INET, SOCK_STREAM, 0);
        struct timeval soon = {.tv_usec = 20000};
        if (out < 0 || setsockopt(out, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof(soon)) < 0 ||
            connect(out, (struct sockaddr *)&at, sizeof(at)) < 0)
            break;
        int in = accept4(listener, NULL, NULL, 0);
        if (in < 0)
            break;
        while (send(out, chunk, CHUNK, MSG_NOSIGNAL) > 0)
            ;
        fds[n++] = out;
        fds[n++] = in;
        got = 0;
        for (size_t i = 0; i < n; i++)
            got += held(fds[i]);
    }
    return got;
}

static size_t udp(void)
{
    size_t got = 0;

    for (int i = 0; i < 2000 && got < most; i++) {
        struct sockaddr_in at;
        int in = bound_socket(SOCK_DGRAM, &at);
        for (int k = 0; k < 64; k++)
            (void)sendto(in, chunk, 8192, 0, (struct sockaddr *)&at, sizeof(at));
        got += held(in);
    }
    return got;
}

/* Answers nobody reads. No cgroup is charged for them, so what counts is whether they stay. */
static size_t netlink(void)
{
    struct {
        struct nlmsghdr head;
        struct ifinfomsg link;
    } ask = {{sizeof(ask), RTM_GETLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = 1}};

    int room = 8 << 20;
    size_t got = 0;

    for (int i = 0; i < 1000 && got < most; i++) {
        int fd = socket(AF_NETLINK, SOCK_RAW, 0);
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
        for (int k = 0; k < 100000 && send(fd, &ask, sizeof(ask), MSG_DONTWAIT) > 0; k++)
            ;
        got += held(fd);
    }
    sleep(2);
    return got;
}

/* Datagrams begun and never sent off. */
static size_t corked(void)
{
    size_t got = 0;

    for (int i = 0; i < 3000 && got < most; i++) {
        struct sockaddr_in at;
        int fd = bound_socket(SOCK_DGRAM, &at);
        for (int k = 0; k < 7; k++)
            (void)sendto(fd, chunk, 8192, MSG_MORE, (struct sockaddr *)&at, sizeof(at));
        got += 7 * 8192UL;
    }
    sleep(2);
    return got;
}

static void raise_open_files(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static const struct {
    const char *name;
    size_t (*run)(void);
} memories[] = {{"heap", heap},       {"tmpfs", tmpfs},     {"memfd", memfd}, {"shm", shm},
                {"pipes", pipes},     {"sockets", sockets}, {"tcp", tcp},     {"udp", udp},
                {"netlink", netlink}, {"corked", corked}};

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    most = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    if (strcmp(what, "storm") == 0)
        storm();
    if (strcmp(what, "fork") == 0)
        fork_bomb();
    if (strcmp(what, "threads") == 0)
        thread_bomb();
    for (size_t i = 0; i < sizeof(memories) / sizeof(memories[0]); i++) {
        if (strcmp(what, memories[i].name) != 0)
            continue;
        most *= MIB;
        memset(chunk, 1, sizeof(chunk));
        raise_open_files();
        size_t got = memories[i].run();
        printf("%s: %zu KiB: %s\n", what, got >> 10, strerrorname_np(errno));
        if (got >= most)
            escaped("%zu MiB of %s", got >> 20, what);
    }
    fflush(stdout);
    return verdict();
}
