/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/denial: the filter is put on a child for real (which needs no privilege), and the
 * listener answers it. What the child saw comes back as its exit status. */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "sandbox/denial/denial.h"
#include "sandbox/denial/denied.h"
#include "sandbox/filter.h"
#include "sandbox/run.h"
#include "sys/refusals.h"

static struct carrel_spec spec;
static struct run run;
static struct run_view view;

static void make_run(void)
{
    memset(&run, 0, sizeof(run));
    spec = (struct carrel_spec){.workspace = "/w"};
    run.spec = &spec;
    run.net = CARREL_NET_NONE;
}

/* --- a child under the filter --- */

static int filter_self(void)
{
    struct setup *setup = calloc(1, sizeof(*setup));
    const struct filter_options options = {.notify = true};

    if (!setup)
        return -1;
    setup->namespaces = CLONE_NEWNET;
    filter_build(setup, &options);

    struct {
        unsigned short length;
        void *program;
    } program = {(unsigned short)setup->filter_length, setup->filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static int receive_fd(int socket)
{
    char byte;

    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    int fd = -1;

    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
    return fd;
}

static int send_fd(int socket, int fd)
{
    char byte = 0;

    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fd));
    memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    return sendmsg(socket, &message, 0) == 1 ? 0 : -1;
}

struct child {
    pid_t pid;
    struct denials denials;
};

static int begin(struct child *c, int (*act)(void))
{
    int pair[2];

    make_run();
    denials_init(&c->denials, run_view_of(&run));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    c->pid = fork();
    if (c->pid == 0) {
        int listener = filter_self();
        if (listener < 0 || send_fd(pair[1], listener) < 0)
            _exit(99);
        (void)close(listener);
        _exit(act());
    }
    (void)close(pair[1]);
    int listener = c->pid > 0 ? receive_fd(pair[0]) : -1;
    (void)close(pair[0]);
    if (listener < 0)
        return -1;
    denials_listen(&c->denials, listener);
    return 0;
}

/* Serves until the child has ended; its exit status. */
static int serve(struct child *c)
{
    int status;

    for (;;) {
        int fd = denials_fd(&c->denials);
        struct pollfd waiting = {.fd = fd, .events = POLLIN};
        if (fd < 0)
            break;
        if (poll(&waiting, 1, 10000) == 0)
            return -2;
        denials_serve(&c->denials);
    }
    if (waitpid(c->pid, &status, 0) != c->pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static int run_child(struct child *c, int (*act)(void), struct carrel_result *ret)
{
    memset(ret, 0, sizeof(*ret));
    if (begin(c, act) < 0)
        return -3;
    int status = serve(c);
    denials_take(&c->denials, ret);
    denials_clear(&c->denials);
    return status;
}

static bool told(const struct carrel_result *r, size_t i, const char *what, const char *rule)
{
    if (i < r->denial_count && strcmp(r->denials[i].what, what) == 0 &&
        strcmp(r->denials[i].rule, rule) == 0 && r->denials[i].fix[0])
        return true;
    for (size_t n = 0; n < r->denial_count; n++)
        printf("    told: %s | %s | %s | %u\n", r->denials[n].what, r->denials[n].rule,
               r->denials[n].fix, r->denials[n].count);
    return false;
}

/* --- what a child may try --- */

static int try_refused(void)
{
    if (syscall(SYS_mount, "none", "/", "tmpfs", 0, NULL) != -1 || errno != EPERM)
        return 1;
    if (syscall(SYS_unshare, CLONE_NEWUSER) != -1 || errno != EPERM)
        return 2;
    if (syscall(SYS_io_uring_setup, 1, NULL) != -1 || errno != ENOSYS)
        return 3;
    if (socket(AF_PACKET, SOCK_RAW, 0) != -1 || errno != EAFNOSUPPORT)
        return 4;
    if (socket(AF_NETLINK, SOCK_RAW, 9) != -1 || errno != EPROTONOSUPPORT)
        return 5;
    if (syscall(SYS_fchmodat, AT_FDCWD, "/nonexistent", 04755) != -1 || errno != EPERM)
        return 6;
    if (syscall(SYS_mknodat, AT_FDCWD, "/nonexistent", S_IFCHR | 0600, 0) != -1 || errno != EPERM)
        return 7;
    if (ioctl(0, TIOCSTI, "x") != -1 || errno != EPERM)
        return 8;
    for (int i = 0; i < 3; i++)
        (void)syscall(SYS_kcmp, 0, 0, 0, 0, 0);
    return 0;
}

TEST(refused_calls_get_the_same_error_and_are_told)
{
    struct child c;
    struct carrel_result r;

    CHECK(run_child(&c, try_refused, &r) == 0);
    CHECK(told(&r, 0, "mount", "filter: mounts"));
    CHECK(told(&r, 1, "unshare", "filter: namespaces"));
    CHECK(told(&r, 2, "io_uring_setup", "filter: io_uring"));
    CHECK(told(&r, 3, "socket AF_PACKET", "filter: socket families"));
    CHECK(told(&r, 4, "socket AF_NETLINK, protocol 9", "filter: netlink other than routes"));
    CHECK(told(&r, 5, "chmod with mode 4755", "filter: set-id bits"));
    CHECK(told(&r, 6, "mknod of a character device", "filter: devices"));
    CHECK(told(&r, 7, "ioctl TIOCSTI", "filter: typing into terminals"));
    CHECK(told(&r, 8, "kcmp", "filter: other processes"));
    CHECK(r.denial_count == 9 && r.denials[8].count == 3 && r.denials[0].count == 1);
    CHECK(r.denials[0].source == CARREL_SOURCE_KERNEL);
    free(r.denials);
    return 0;
}

/* A datagram socket is connected without a packet being sent. */
static int connect_to(const char *address, uint16_t port)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;

    if (!is_v4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
        return -1;
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = is_v4 ? connect(fd, (struct sockaddr *)&v4, sizeof(v4))
                  : connect(fd, (struct sockaddr *)&v6, sizeof(v6));
    (void)close(fd);
    return r;
}

static int try_connections(void)
{
    struct sockaddr_un other = {.sun_family = AF_UNIX, .sun_path = "/nonexistent"};
    int fd;

    if (connect_to("127.0.0.1", 80) < 0)
        return 1;
    (void)connect_to("192.0.2.1", 443);
    (void)connect_to("2001:db8::1:0:0:2", 443);
    (void)connect_to("::ffff:192.0.2.7", 80);
    (void)connect_to("127.0.0.1", 53);
    (void)connect_to("::1", 8080);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&other, 16) != -1 || errno != ENOENT)
        return 2;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (connect(fd, NULL, 16) != -1 || errno != EFAULT)
        return 3;
    return 0;
}

/* ... and if they went elsewhere the kernel counts them. */
TEST(no_connection_waits_for_the_listener)
{
    struct child c;
    struct carrel_result r;

    CHECK(run_child(&c, try_connections, &r) == 0);
    CHECK(r.denial_count == 0);
    return 0;
}

static void make_counters(const char *dir, const char *ipv4, const char *ipv6)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/snmp", dir);
    FILE *file = fopen(path, "we");
    fprintf(file, "%s", ipv4);
    (void)fclose(file);
    snprintf(path, sizeof(path), "%s/snmp6", dir);
    file = fopen(path, "we");
    fprintf(file, "%s", ipv6);
    (void)fclose(file);
}

TEST(the_kernels_counts_are_read)
{
    char dir[] = "/tmp/test_denial-XXXXXX";
    static const char ipv4[] = "Ip: Forwarding DefaultTTL OutDiscards OutNoRoutes ReasmTimeout\n"
                               "Ip: 2 64 7 12 9\nIcmp: InMsgs OutNoRoutes\nIcmp: 1 99\n";

    CHECK(mkdtemp(dir));
    make_counters(dir, ipv4, "Ip6InNoRoutes      \t5\nIp6OutNoRoutes      \t30\n");
    CHECK(network_refusals(dir) == 42);
    make_counters(dir, "Ip: Forwarding OutNoRoutes\nIp: 2\n", "");
    CHECK(network_refusals(dir) == 0);
    make_counters(dir, "Ip: OutNoRoutes", "Ip6OutNoRoutes");
    CHECK(network_refusals(dir) == 0);
    CHECK(network_refusals("/nonexistent") == 0);
    char path[128];
    snprintf(path, sizeof(path), "%s/snmp", dir);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/snmp6", dir);
    (void)unlink(path);
    CHECK(rmdir(dir) == 0);
    return 0;
}

TEST(what_the_kernel_counted_takes_the_place_of_what_was_inferred)
{
    struct denials d;
    struct carrel_result r = {0};

    make_run();
    denials_init(&d, run_view_of(&run));
    denials_scan(&d, "touch: cannot touch '/usr/x': Read-only file system\n", 52);
    denials_scan(&d, "connect: Network is unreachable\n", 32);
    denials_add_refusals(&d, 0);
    denials_add_refusals(&d, 7);
    denials_scan(&d, "curl: (6) Could not resolve host: a\n", 36);
    denials_add_refusals(&d, 2);
    denials_take(&d, &r);
    denials_clear(&d);
    CHECK(told(&r, 0, "write /usr/x", "read-only: /usr"));
    CHECK(told(&r, 1, "use the network", "network none") && r.denial_count == 2);
    CHECK(r.denials[1].count == 9 && r.denials[1].source == CARREL_SOURCE_KERNEL);
    free(r.denials);
    return 0;
}

enum {
    FLOOD = 4600
};

static int flood(void)
{
    for (int i = 0; i < FLOOD; i++) {
        if (syscall(SYS_chroot, "/") != -1 || errno != EPERM)
            return 1;
    }
    return 0;
}

/* 4000 pass at once, the others at 500 a second. That it took a second is the point here. */
TEST(a_flood_is_slowed_down_and_costs_the_engine_little)
{
    struct child c;
    struct carrel_result r;
    struct timespec before;
    struct timespec after;
    struct timespec worked_before;
    struct timespec worked;

    clock_gettime(CLOCK_MONOTONIC, &before);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &worked_before);
    CHECK(run_child(&c, flood, &r) == 0);
    clock_gettime(CLOCK_MONOTONIC, &after);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &worked);
    CHECK(r.denial_count == 1 && r.denials[0].count == FLOOD);
    CHECK((after.tv_sec - before.tv_sec) * 10 + (after.tv_nsec - before.tv_nsec) / 100000000 >= 10);
    CHECK((worked.tv_sec - worked_before.tv_sec) < 5);
    free(r.denials);
    return 0;
}

static int try_families(void)
{
    for (int family = 1001; family <= 1200; family++)
        (void)socket(family, SOCK_DGRAM, 0);
    (void)syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
    return 0;
}

TEST(one_rule_does_not_take_all_the_room)
{
    struct child c;
    struct carrel_result r;

    CHECK(run_child(&c, try_families, &r) == 0);
    CHECK(r.denial_count == CARREL_MAX_DENIALS / 2 + 1);
    CHECK(told(&r, CARREL_MAX_DENIALS / 2, "mount", "filter: mounts"));
    CHECK(r.denials_dropped == 200 - CARREL_MAX_DENIALS / 2);
    free(r.denials);
    return 0;
}

static int wait_for_a_kill(void)
{
    (void)syscall(SYS_mount, NULL, NULL, NULL, 0, NULL);
    return 1;
}

TEST(a_caller_that_dies_before_the_answer_blocks_nothing)
{
    struct child c;
    int status;

    CHECK(begin(&c, wait_for_a_kill) == 0);
    struct pollfd waiting = {.fd = denials_fd(&c.denials), .events = POLLIN};
    CHECK(poll(&waiting, 1, 10000) == 1);
    CHECK(kill(c.pid, SIGKILL) == 0 && waitpid(c.pid, &status, 0) == c.pid);
    denials_serve(&c.denials);
    denials_serve(&c.denials);
    CHECK(denials_fd(&c.denials) == -1);
    denials_clear(&c.denials);
    return 0;
}

TEST(nothing_waiting_blocks_nothing)
{
    struct denials d;

    denials_init(&d, run_view_of(&run));
    CHECK(denials_fd(&d) == -1);
    denials_serve(&d);
    denials_clear(&d);
    CHECK(host_can_notify());
    return 0;
}

/* --- error output --- */

static const struct {
    const char *line;
    const char *what; /* NULL: nothing to tell */
    const char *rule;
} lines[] = {
    {"touch: cannot touch '/usr/x': Read-only file system", "write /usr/x", "read-only: /usr"},
    {"bash: line 1: /etc/x: Read-only file system", "write /etc/x", "read-only: /etc"},
    {"sh: 1: cannot create /usr/x: Read-only file system", "write /usr/x", "read-only: /usr"},
    {"OSError: [Errno 30] Read-only file system: '/usr/a b'", "write /usr/a b", "read-only: /usr"},
    {"Error: EROFS: read-only file system, open '/lib/x'", "write /lib/x", "read-only: /lib"},
    {"open /usr/x: read-only file system", "write /usr/x", "read-only: /usr"},
    {"mv: cannot move '/w/a' to '/usr/a': Read-only file system", "write /usr/a",
     "read-only: /usr"},
    {"/usr/bin/install: cannot create 'x': Read-only file system", "write to a read-only place",
     "read-only"},
    {"cp: cannot create regular file '/data/sub/x': Read-only file system", "write /data/sub/x",
     "read-only: /data"},
    {"touch: cannot touch '/rw/x': Read-only file system", NULL, NULL},
    {"touch: cannot touch '/database/x': Read-only file system", NULL, NULL},
    {"cp: cannot create regular file '/usr/bin/ls': Permission denied", "write /usr/bin/ls",
     "read-only: /usr"},
    {"cat: /secret: Permission denied", NULL, NULL},
    {"find: '/usr/share/polkit-1/rules.d': Permission denied", NULL, NULL},
    {"find: '/proc/1/fd': Permission denied", NULL, NULL},
    {"nginx: bind() to 0.0.0.0:80 failed (13: Permission denied)", "listen on a port below 1024",
     "no capabilities"},
    {"dd: error writing '/tmp/x': No space left on device", "write /tmp/x", "tmp size 512M"},
    {"OSError: [Errno 28] No space left on device", "write", "tmp size 512M"},
    {"dd: error writing '/big': No space left on device", NULL, NULL},
    {"curl: (6) Could not resolve host: example.org", "use the network", "network none"},
    {"Error: send ENETUNREACH 192.0.2.1:9", "use the network", "network none"},
    {"OSError: [Errno 24] Too many open files", "open more files at a time", "open files"},
    {"tar: x: Cannot change ownership to uid 0, gid 0: Operation not permitted",
     "change the owner of a file", "no capabilities"},
    {"sudo: effective uid is not 0, is /usr/bin/sudo on ...", "become another user",
     "no new privileges"},
    {"all is well", NULL, NULL},
    {"touch: cannot touch '/usr/\x1b[2J\xe2\x80\xae\\': Read-only file system",
     "write /usr/\\x1b[2J\\xe2\\x80\\xae\\\\", "read-only: /usr"},
};

static void mount_something(void)
{
    static const struct carrel_mount mounts[] = {
        {.source = "/data"}, {.source = "/x", .target = "/rw", .writable = true}};

    make_run();
    spec.mounts = mounts;
    spec.mount_count = LENGTH(mounts);
    view = run_view_of(&run);
}

TEST(lines_of_error_output_are_understood)
{
    mount_something();
    for (size_t i = 0; i < LENGTH(lines); i++) {
        struct carrel_denial one = {0};
        bool found = denied_line(&view, lines[i].line, strlen(lines[i].line), &one);
        CHECK_FOR(lines[i].line, found == (lines[i].what != NULL));
        if (!found)
            continue;
        CHECK_FOR(one.what, strcmp(one.what, lines[i].what) == 0);
        CHECK_FOR(one.rule, strcmp(one.rule, lines[i].rule) == 0);
        CHECK_FOR(one.what, one.fix[0] && one.source == CARREL_SOURCE_INFERRED);
        CHECK_FOR(one.fix, !strstr(one.fix, "/data") && !strstr(one.fix, "/usr/"));
    }
    return 0;
}

/* However the output is cut into pieces, the same is found. */
TEST(pieces_of_any_size_are_read_alike)
{
    static const char text[] = "hello\ntouch: cannot touch '/usr/x': Read-only file system\n"
                               "dd: error writing '/tmp/y': No space left on device";

    for (size_t piece = 1; piece < sizeof(text); piece++) {
        struct denials d;
        struct carrel_result r = {0};
        make_run();
        denials_init(&d, run_view_of(&run));
        for (size_t at = 0; at < sizeof(text) - 1; at += piece) {
            size_t left = sizeof(text) - 1 - at;
            denials_scan(&d, text + at, left < piece ? left : piece);
        }
        denials_take(&d, &r);
        denials_clear(&d);
        CHECK(told(&r, 0, "write /usr/x", "read-only: /usr"));
        CHECK(told(&r, 1, "write /tmp/y", "tmp size 512M") && r.denial_count == 2);
        free(r.denials);
    }
    return 0;
}

TEST(the_end_of_very_long_output_is_read)
{
    static const char last[] = "x\ntouch: cannot touch '/usr/x': Read-only file system\n";
    static char filler[65536];
    struct denials d;
    struct carrel_result r = {0};

    make_run();
    memset(filler, 'x', sizeof(filler));
    denials_init(&d, run_view_of(&run));
    for (int i = 0; i < 64; i++)
        denials_scan(&d, filler, sizeof(filler) - (size_t)i);
    denials_scan(&d, last, sizeof(last) - 1);
    denials_scan(&d, "and\n", 4);
    denials_take(&d, &r);
    denials_clear(&d);
    CHECK(told(&r, 0, "write /usr/x", "read-only: /usr") && r.denial_count == 1);
    free(r.denials);
    return 0;
}

TEST(what_the_kernel_told_is_not_inferred_again)
{
    struct denials d;
    struct carrel_result r = {0};

    make_run();
    denials_init(&d, run_view_of(&run));
    denials_add(&d, "connect 192.0.2.1:80", DENIED_BY_NETWORK, "fix", CARREL_SOURCE_KERNEL);
    denials_scan(&d, "connect: Network is unreachable\n", 32);
    denials_add(&d, "a\nb\x7f", "rule", "fix", CARREL_SOURCE_KERNEL);
    denials_take(&d, &r);
    denials_clear(&d);
    CHECK(r.denial_count == 2 && strcmp(r.denials[1].what, "a\\x0ab\\x7f") == 0);
    free(r.denials);
    return 0;
}

TEST(sizes_are_printed_as_they_are_written)
{
    struct carrel_denial one;
    static const char line[] = "dd: error writing '/tmp/x': No space left on device";

    make_run();
    spec.tmp_bytes = 1536UL << 20;
    view = run_view_of(&run);
    CHECK(denied_line(&view, line, sizeof(line) - 1, &one) &&
          strcmp(one.rule, "tmp size 1536M") == 0);
    spec.tmp_bytes = 5000;
    CHECK(denied_line(&view, line, sizeof(line) - 1, &one) &&
          strcmp(one.rule, "tmp size 5000") == 0);
    return 0;
}
