/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/denial/connector.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "protocol/egress.h"
#include "sandbox/view.h"
#include "sys/path.h"
#include "sys/uapi.h"

enum {
    OLD_IN6_BYTES = 24, /* a sockaddr_in6 without its scope */
};

struct pending_connection {
    uint64_t id;     /* of the notification: its caller waits */
    uint64_t due_ms; /* 0: as long as the kernel tries */
    int fd;
    bool quiet; /* ready for nothing: not polled until the next look */
    socklen_t n;
    struct sockaddr_storage address;
};

void connector_init(struct connector *c)
{
    *c = (struct connector){.busy = -1};
    pthread_mutex_init(&c->lock, NULL);
}

void connector_interrupt(struct connector *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->busy >= 0 && !weak("net-interrupt"))
        (void)shutdown(c->busy, SHUT_RDWR);
    pthread_mutex_unlock(&c->lock);
}

void connector_clear(struct connector *c)
{
    while (c->count > 0)
        scope_close(&c->pending[--c->count].fd);
    free(c->pending);
    c->pending = NULL;
    pthread_mutex_destroy(&c->lock);
}

/* --- the caller's socket and its address --- */

static int pidfd_open_(pid_t pid, unsigned flags)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, flags);

    return fd < 0 ? -errno : fd;
}

static pid_t leader_of(pid_t thread)
{
    char path[64];
    char text[8192]; /* in the first line, a name, ends of lines are escaped */

    snprintf(path, sizeof(path), "/proc/%d/status", (int)thread);
    if (path_read_small(path, text, sizeof(text)) <= 0)
        return -1;
    const char *line = strstr(text, "\nTgid:\t");
    return line ? (pid_t)strtol(line + strlen("\nTgid:\t"), NULL, 10) : -1;
}

/* Before Linux 6.9 only of a whole process: a thread with descriptors of its own then names those
 * of the process, which are no less its own. */
static int open_caller(pid_t thread)
{
    int fd = pidfd_open_(thread, CARREL_PIDFD_THREAD);

    if (fd != -EINVAL)
        return fd;
    pid_t leader = leader_of(thread);
    return leader > 0 ? pidfd_open_(leader, 0) : -ESRCH;
}

static int take_socket(pid_t thread, int number)
{
    scoped_fd int caller = open_caller(thread);

    int fd = caller < 0 ? caller : (int)syscall(SYS_pidfd_getfd, caller, number, 0);

    if (caller >= 0 && fd < 0)
        fd = -errno;
    return fd == -EMFILE || fd == -ENFILE ? -EAGAIN : fd; /* ours are full, not the caller's */
}

static int copy_address(pid_t thread, const struct seccomp_data *call, struct sockaddr_storage *ret,
                        socklen_t *ret_n)
{
    int n = (int)call->args[2];
    struct iovec here = {ret, (size_t)n};
    struct iovec there = {(void *)(uintptr_t)call->args[1], // NOLINT(performance-no-int-to-ptr)
                          (size_t)n};

    if (n < 0 || (size_t)n > sizeof(*ret))
        return -EINVAL;
    if (n > 0 && process_vm_readv(thread, &here, 1, &there, 1, 0) != n)
        return -EFAULT;
    *ret_n = (socklen_t)n;
    return 0;
}

static int option_of(int fd, int name)
{
    int value = -1;
    socklen_t n = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, name, &value, &n) < 0 ? -errno : value;
}

/* --- connecting --- */

static void set_busy(struct connector *c, int fd)
{
    pthread_mutex_lock(&c->lock);
    c->busy = fd;
    pthread_mutex_unlock(&c->lock);
}

/* connect(2) without waiting, also for a socket that waits: that is a flag of the socket's, which
 * is changed for a moment. The caller itself is held up. */
static int connect_now(struct connector *c, const struct pending_connection *p, bool *ret_waits)
{
    int flags = fcntl(p->fd, F_GETFL);

    *ret_waits = flags >= 0 && !(flags & O_NONBLOCK);
    if (*ret_waits && fcntl(p->fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    set_busy(c, p->fd);
    int r = connect(p->fd, (const struct sockaddr *)&p->address, p->n) < 0 ? -errno : 0;
    set_busy(c, -1);
    if (*ret_waits) {
        flags = fcntl(p->fd, F_GETFL);
        if (flags >= 0)
            (void)fcntl(p->fd, F_SETFL, flags & ~O_NONBLOCK);
    }
    return r;
}

static bool is_under_way(int r)
{
    return r == -EINPROGRESS || r == -EALREADY;
}

/* A second connect(2) says how the first has ended, as it does to anybody. */
static int ask_again(struct connector *c, const struct pending_connection *p)
{
    bool waits;
    int r = connect_now(c, p, &waits);

    return r == -EISCONN ? 0 : r;
}

static uint64_t due_of(int fd)
{
    struct timeval timeout = {0};
    socklen_t n = sizeof(timeout);

    if (getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, &n) < 0 ||
        (timeout.tv_sec == 0 && timeout.tv_usec == 0))
        return 0;
    return now_ms() + (uint64_t)timeout.tv_sec * 1000 + (uint64_t)timeout.tv_usec / 1000;
}

/* Takes the descriptor when it stays under way. */
static int connect_for(struct connector *c, struct pending_connection *p, int *fd)
{
    struct pollfd ready = {.fd = p->fd, .events = POLLOUT};
    bool waits;
    int r = connect_now(c, p, &waits);

    if (!waits || !is_under_way(r))
        return r;
    if (poll(&ready, 1, 0) > 0) /* on this host it takes no time */
        r = ask_again(c, p);
    if (!is_under_way(r))
        return r;
    if (!c->pending)
        c->pending = calloc(CONNECTOR_MAX, sizeof(*c->pending));
    if (!c->pending || c->count == CONNECTOR_MAX)
        return -EAGAIN;
    p->due_ms = due_of(p->fd);
    c->pending[c->count] = *p;
    c->pending[c->count++].fd = take_fd(fd);
    return CONNECTOR_WAIT;
}

/* Datagrams are not connections: what matters is where they are sent to, which is not looked at. */
static int judge(const struct run_view *run, const struct pending_connection *p,
                 enum outbound *ret_why)
{
    if (option_of(p->fd, SO_TYPE) == SOCK_DGRAM)
        return 0;
    *ret_why = outbound_judge(&p->address, p->n, run->spec->own_ports);
    return *ret_why == OUTBOUND_FREE ? 0 : -EACCES;
}

/* Carrel's own socket for a port of names, in place of that port; the rest of what is in the
 * sandbox's network are its own programs. */
static bool redirect(const struct setup *setup, struct sockaddr_storage *address, socklen_t n)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    uint32_t to;

    memcpy(&v4, address, sizeof(v4));
    memcpy(&v6, address, sizeof(v6));
    to = v4.sin_addr.s_addr;
    if (v4.sin_family == AF_INET6 && n >= OLD_IN6_BYTES && IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
        memcpy(&to, &v6.sin6_addr.s6_addr[12], sizeof(to));
    else if (v4.sin_family != AF_INET || n < (socklen_t)sizeof(v4))
        return false;
    if ((ntohl(to) ^ EGRESS_NETWORK) >> (32 - EGRESS_PREFIX))
        return false;
    for (uint32_t i = 0; i < setup->port_count; i++) {
        if (setup->named_ports[i] != ntohs(v4.sin_port) || setup->ports[i] == setup->named_ports[i])
            continue;
        v4.sin_port = htons((uint16_t)setup->ports[i]); /* at the same place in both families */
        memcpy(address, &v4, offsetof(struct sockaddr_in, sin_addr));
        return true;
    }
    return false;
}

/* To a name, at a port where programs inside may listen. All else goes on inside: that a caller
 * changes its address meanwhile leads it nowhere. */
static int take_redirected(struct connector *c, const struct run_view *run, int listener,
                           const struct seccomp_notif *ask)
{
    pid_t thread = (pid_t)ask->pid;
    struct pending_connection p = {.id = ask->id, .fd = -1};

    if (thread <= 0 || copy_address(thread, &ask->data, &p.address, &p.n) < 0 ||
        !redirect(run->setup, &p.address, p.n))
        return CONNECTOR_GO_ON;
    scoped_fd int fd = take_socket(thread, (int)ask->data.args[0]);
    if (fd < 0)
        return fd;
    int family = option_of(fd, SO_DOMAIN);
    if ((family != AF_INET && family != AF_INET6) || option_of(fd, SO_PROTOCOL) != IPPROTO_TCP)
        return CONNECTOR_GO_ON;
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &ask->id) < 0)
        return -EACCES;
    p.fd = fd;
    return connect_for(c, &p, &fd);
}

int connector_take(struct connector *c, const struct run_view *run, int listener,
                   const struct seccomp_notif *ask, enum outbound *ret_why,
                   struct sockaddr_storage *ret_address)
{
    const uint32_t walled = SETUP_GUARD | SETUP_SCOPE_SOCKETS;
    pid_t thread = (pid_t)ask->pid;

    *ret_why = OUTBOUND_FREE;
    if (run->setup->flags & SETUP_REDIRECT)
        return take_redirected(c, run, listener, ask);
    if (thread <= 0)
        return -EACCES;
    scoped_fd int fd = take_socket(thread, (int)ask->data.args[0]);
    if (fd < 0)
        return fd;
    int family = option_of(fd, SO_DOMAIN);
    if (family < 0)
        return family;
    if (family != AF_INET && family != AF_INET6)
        return (run->setup->flags & walled) == walled ? CONNECTOR_GO_ON : -EACCES;
    struct pending_connection p = {.id = ask->id, .fd = -1};
    int r = copy_address(thread, &ask->data, &p.address, &p.n);
    if (r < 0)
        return r;
    /* Who is gone may have left the number to a process of the host. */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &ask->id) < 0)
        return -EACCES;
    p.fd = fd;
    *ret_address = p.address;
    r = judge(run, &p, ret_why);
    if (r == 0)
        r = connect_for(c, &p, &fd);
    return r;
}

/* --- those under way --- */

void connector_fill(const struct connector *c, struct pollfd *fds)
{
    for (size_t i = 0; i < c->count; i++)
        fds[i] =
            (struct pollfd){.fd = c->pending[i].quiet ? -1 : c->pending[i].fd, .events = POLLOUT};
}

static bool is_gone(int listener, uint64_t id)
{
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) < 0 && errno == ENOENT;
}

static void drop(struct connector *c, size_t i)
{
    scope_close(&c->pending[i].fd);
    c->pending[i] = c->pending[--c->count];
}

/* Backwards: what takes the place of one that is dropped has been looked at. */
int connector_serve(struct connector *c, int listener, const struct pollfd *fds,
                    int (*answer)(int listener, uint64_t id, int result))
{
    uint64_t now = now_ms();
    bool look = now - c->looked_ms >= CONNECTOR_LOOK_MS;
    int failure = 0;

    if (look)
        c->looked_ms = now;
    for (size_t i = c->count; i-- > 0;) {
        struct pending_connection *p = &c->pending[i];
        int r = fds[i].revents ? ask_again(c, p) : -EALREADY;
        p->quiet = fds[i].revents || (p->quiet && !look);
        if (is_under_way(r) && look && is_gone(listener, p->id)) {
            drop(c, i); /* nobody waits for it any more */
            continue;
        }
        if (is_under_way(r) && (p->due_ms == 0 || now < p->due_ms))
            continue;
        r = answer(listener, p->id, is_under_way(r) ? -EINPROGRESS : r);
        failure = r < 0 ? r : failure;
        drop(c, i);
    }
    return failure;
}

/* --- the host --- */

static bool can_take_descriptors(void)
{
    scoped_fd int self = pidfd_open_(getpid(), 0);
    scoped_fd int copy = self < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, self, self, 0);

    return copy >= 0;
}

static bool can_read_memory(void)
{
    char from = 1;
    char to = 0;
    struct iovec here = {&to, 1};
    struct iovec there = {&from, 1};

    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

bool host_can_guard(void)
{
    char scope[8];
    bool never = path_read_small("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) > 0 &&
                 scope[0] == '3';

    return !never && can_take_descriptors() && can_read_memory();
}
