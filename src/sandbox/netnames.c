/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/netnames.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "policy/network_inner.h"
#include "protocol/egress.h"
#include "sandbox/authority.h"
#include "sandbox/denial/connector.h"
#include "sandbox/denial/denial.h"
#include "sandbox/denial/denied.h"
#include "sys/packet.h"
#include "sys/process.h"

#ifndef CARREL_EGRESS_PATH
#define CARREL_EGRESS_PATH "/usr/local/libexec/carrel/carrel-egress"
#endif

enum {
    NAME_PORT = 53,
    MOST_ARGS = 64,
    LAST_WORD_MS = 1000,
    NEWS_BYTES = 8192,
    HEAR_TURN = 512, /* more than its socket holds */
    FIRST_PLACE = 512,
    FIRST_FREE_PORT = 1024,
};

/* --- the rules --- */

static int check_rules(const char *const *texts, struct network_rule *rules, size_t *ret_count,
                       struct err *err)
{
    size_t n = 0;

    for (; texts && texts[n]; n++) {
        if (n == NETWORK_MOST)
            return err_set(err, ERR_LIMIT, 0, "more than %d rules of the network", NETWORK_MOST);
        if (network_parse_rule(texts[n], &rules[n], err) < 0)
            return -1;
    }
    *ret_count = n;
    return 0;
}

static int write_ports(struct run *run, const struct network_rule *rules, size_t count,
                       struct err *err)
{
    uint32_t ports[SETUP_MAX_PORTS];
    int n = network_ports(rules, count, ports, SETUP_MAX_PORTS);

    _Static_assert((int)SETUP_MAX_PORTS == (int)EGRESS_PORTS, "as many as egress serves");
    _Static_assert((int)SETUP_UDP == (int)NETWORK_UDP, "written alike");
    _Static_assert((int)NETWORK_MOST == (int)EGRESS_RULES, "likewise");
    if (n < 0)
        return err_set(err, ERR_LIMIT, 0, "the rules of the network name more than %d ports",
                       SETUP_MAX_PORTS);
    for (int i = 0; i < n; i++) {
        if ((ports[i] & UINT16_MAX) == NAME_PORT)
            return err_set(err, ERR_INVALID, 0,
                           "a rule of the network names port 53, where the sandbox's own name "
                           "server is; leave it out: names are resolved without it");
        run->setup.named_ports[run->setup.port_count] = ports[i];
        run->setup.ports[run->setup.port_count++] = ports[i];
    }
    return 0;
}

static bool is_taken(const struct setup *setup, uint32_t port)
{
    bool taken = port == NAME_PORT;

    for (uint32_t i = 0; i < setup->port_count; i++)
        taken = taken || setup->ports[i] == port || setup->named_ports[i] == port;
    return taken;
}

/* Programs may listen at ports from 1024 on. So that these are theirs, Carrel's sockets are at
 * others, where nobody inside can be, and connections are led there. */
static void place_ports(struct run *run)
{
    struct setup *setup = &run->setup;
    uint32_t place = FIRST_PLACE;

    if (!run->host.can_notify || !host_can_guard() || weak("net-redirect"))
        return;
    for (uint32_t i = 0; i < setup->port_count; i++) {
        if (setup->named_ports[i] < FIRST_FREE_PORT || setup->named_ports[i] & NETWORK_UDP)
            continue;
        while (is_taken(setup, place))
            place++;
        setup->ports[i] = place;
        setup->flags |= SETUP_REDIRECT;
    }
}

void netnames_places(const struct setup *setup, char ret[EGRESS_PLACES + 1])
{
    size_t n = 0;

    _Static_assert(SETUP_MAX_PORTS * sizeof("1023=65535") <= EGRESS_PLACES, "they fit");
    *ret = '\0';
    for (uint32_t i = 0; i < setup->port_count; i++) {
        if (setup->ports[i] != setup->named_ports[i])
            n += (size_t)snprintf(ret + n, EGRESS_PLACES + 1 - n, "%s%u=%u", n ? "," : "",
                                  setup->ports[i], setup->named_ports[i]);
    }
}

int netnames_check(struct run *run, struct err *err)
{
    const struct carrel_spec *spec = run->spec;
    size_t count = 0;

    if (run->net != CARREL_NET_ALLOW) {
        if (!spec->net_rules || !spec->net_rules[0])
            return 0;
        return err_set(err, ERR_INVALID, 0,
                       "rules of the network do not go with network none or host");
    }
    struct network_rule *rules = malloc(NETWORK_MOST * sizeof(*rules));
    if (!rules)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    int r = check_rules(spec->net_rules, rules, &count, err);
    if (r == 0)
        r = write_ports(run, rules, count, err);
    if (r == 0)
        r = authority_get(run, rules, count, err);
    free(rules);
    if (run->setup.port_count == 0)
        run->net = CARREL_NET_NONE; /* no rules allow nothing */
    if (r == 0)
        place_ports(run);
    return r;
}

/* --- secrets --- */

/* The file of that one; NULL: none was given. */
static const char *secret_file(const struct carrel_spec *spec, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; spec->net_secrets && spec->net_secrets[i]; i++) {
        if (strncmp(spec->net_secrets[i], name, n) == 0 && spec->net_secrets[i][n] == '=')
            return spec->net_secrets[i] + n + 1;
    }
    return NULL;
}

static int secrets_check(const struct run *run, struct err *err)
{
    struct network_rule rule;

    for (size_t i = 0; run->spec->net_rules && run->spec->net_rules[i]; i++) {
        if (network_parse_rule(run->spec->net_rules[i], &rule, err) < 0)
            return -1;
        const char *name = network_inner(&rule, rule.secret);
        if (rule.secret && !secret_file(run->spec, name))
            return err_set(err, ERR_NOT_FOUND, 0,
                           "a rule of the network names the secret '%s': give it with --secret "
                           "%s=FILE",
                           name, name);
    }
    return 0;
}

/* What a line may hold: no end of a line but one at the end, which is not the value's. */
static int read_secret(const char *path, char *value, size_t size, struct err *err)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, value, size) : -1;

    if (n < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "read the secret in '%s'", path);
    if (n > 0 && value[n - 1] == '\n')
        n--;
    if (n > 0 && value[n - 1] == '\r')
        n--;
    if ((size_t)n == size || !network_is_value(value, (size_t)n))
        return err_set(err, ERR_INVALID, 0,
                       "what '%s' holds can be no secret: write %d to %d visible ASCII characters, "
                       "in one line",
                       path, NETWORK_VALUE_LEAST, NETWORK_VALUE_MOST);
    value[n] = '\0';
    return 0;
}

static int send_secret(struct netnames *netnames, const char *asked, struct err *err)
{
    const char *sign = strchr(asked, '=');
    char value[NETWORK_VALUE_MOST + 3];
    char name[NETWORK_SECRET] = "";
    scoped_buf struct buf b;

    buf_init(&b, EGRESS_MESSAGE);
    if (!sign || (size_t)(sign - asked) >= sizeof(name))
        return err_set(err, ERR_INVALID, 0, "a secret is NAME=FILE");
    memcpy(name, asked, (size_t)(sign - asked));
    if (read_secret(sign + 1, value, sizeof(value), err) < 0)
        return -1;
    static const char *const nothing[] = {NULL};
    const struct egress_order order = {
        .kind = EGRESS_SECRET, .name = "", .rules = nothing, .secret = name, .value = value};
    egress_pack_order(&b, &order);
    int r = buf_done(&b) < 0 ? -ENOMEM : packet_send(netnames->socket, b.p, b.n, NULL, 0);
    explicit_bzero(value, sizeof(value));
    if (b.p)
        explicit_bzero(b.p, b.n);
    return r < 0 && r != -EPIPE ? err_set(err, ERR_IO, -r, "talk to carrel-egress") : 0;
}

/* --- the process --- */

void netnames_init(struct netnames *netnames)
{
    *netnames = (struct netnames){.pidfd = -1, .socket = -1};
    identity_init(&netnames->identity);
}

struct birth {
    int program;
    int socket;
    int null;
    int trust; /* -1: none */
    bool own_uid;
    uid_t uid;
    pid_t parent;
    const char **argv;
};

/* In the child of a process that may have threads: system calls only. */
static _Noreturn void become_egress(const struct birth *b)
{
    static const char *const empty[] = {"LC_ALL=C.UTF-8", NULL};
    const char *const *env = empty;
    sigset_t none;

#ifdef CARREL_WEAK
    extern char **environ;
    env = (const char *const *)environ;
#endif
    (void)sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    if (dup2(b->null, 0) < 0 || dup2(b->null, 1) < 0 || dup2(b->socket, EGRESS_SOCKET) < 0 ||
        (b->trust >= 0 && dup2(b->trust, EGRESS_SOCKET + 1) < 0) ||
        process_close_from(EGRESS_SOCKET + 1 + (b->trust >= 0), CLOSE_AT_EXEC) < 0)
        _exit(120);
    if (b->own_uid && (syscall(SYS_setgroups, 0, NULL) < 0 ||
                       syscall(SYS_setresgid, b->uid, b->uid, b->uid) < 0 ||
                       syscall(SYS_setresuid, b->uid, b->uid, b->uid) < 0))
        _exit(121);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != b->parent)
        _exit(122);
    (void)syscall(SYS_execveat, b->program, "", b->argv, env, 0x1000 /* AT_EMPTY_PATH */);
    _exit(123);
}

static const char **make_argv(const struct run *run, struct arena *arena)
{
    const struct carrel_spec *spec = run->spec;
    const char **argv = arena_alloc(arena, (MOST_ARGS + 1) * sizeof(*argv));
    size_t n = 0;

    if (!argv)
        return NULL;
    argv[n++] = "carrel-egress";
    if (run->authority_key) {
        argv[n++] = "--inspect";
        argv[n++] = "yes";
    }
    if (run->authority_key && spec->net_trust) {
        argv[n++] = "--trust-fd";
        argv[n++] = "4";
    }
    if (spec->nameservers) {
        argv[n++] = "--nameservers";
        argv[n++] = spec->nameservers;
    }
    for (size_t i = 0; i < CARREL_MAX_PORTS && (spec->own_ports[i] || i == 0); i++) {
        argv[n++] = "--own-port";
        argv[n++] = arena_printf(arena, "%u", spec->own_ports[i] ? spec->own_ports[i] : 7070U);
    }
    for (size_t i = 0; spec->net_private && spec->net_private[i]; i++) {
        if (n + 2 > MOST_ARGS)
            return NULL;
        argv[n++] = "--private";
        argv[n++] = spec->net_private[i];
    }
    return argv;
}

static int fork_egress(struct netnames *netnames, const struct run *run, struct birth *birth,
                       struct err *err)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a socket pair");
    netnames->socket = process_high_fd(pair[0]);
    scoped_fd int theirs = process_high_fd(pair[1]);
    birth->socket = theirs;
    if (run->host.can_lease) {
        if (identity_lease(&netnames->identity, err) < 0)
            return -1;
        birth->own_uid = true;
        birth->uid = netnames->identity.base;
    }
    if (netnames->socket < 0 || theirs < 0)
        return err_set(err, ERR_LIMIT, errno, "open files");
    birth->parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        become_egress(birth);
    if (pid < 0)
        return err_set(err, ERR_LIMIT, errno, "start carrel-egress");
    netnames->pid = pid;
    netnames->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return netnames->pidfd < 0 ? err_set(err, ERR_LIMIT, errno, "watch carrel-egress") : 0;
}

const char *netnames_program(const struct carrel_spec *spec)
{
    return spec->egress_path ? spec->egress_path : CARREL_EGRESS_PATH;
}

int netnames_start(struct netnames *netnames, const struct run *run, struct err *err)
{
    const char *path = netnames_program(run->spec);
    struct arena arena;

    if (run->setup.port_count == 0)
        return 0;
    scoped_fd int program = process_high_fd(open(path, O_PATH | O_CLOEXEC));
    if (program < 0)
        return err_set(err, ERR_NOT_FOUND, errno,
                       "open '%s', the part of Carrel that makes connections; reinstall Carrel",
                       path);
    scoped_fd int null = process_high_fd(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (null < 0)
        return err_set(err, ERR_IO, errno, "open '/dev/null'");
    const char *trusted = run->authority_key ? run->spec->net_trust : NULL;
    scoped_fd int trust = trusted ? process_high_fd(open(trusted, O_RDONLY | O_CLOEXEC)) : -1;
    if (trusted && trust < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open '%s', the authorities to trust", trusted);
    if (secrets_check(run, err) < 0)
        return -1;
    arena_init(&arena, 1 << 16);
    struct birth birth = {
        .program = program, .null = null, .trust = trust, .argv = make_argv(run, &arena)};
    int r = birth.argv ? fork_egress(netnames, run, &birth, err)
                       : err_set(err, ERR_LIMIT, 0, "too many private hosts are allowed");
    arena_clear(&arena);
    return r;
}

int netnames_serve(struct netnames *netnames, const struct run *run, const int *fds, size_t count,
                   struct err *err)
{
    static const char *const nothing[] = {NULL};
    char places[EGRESS_PLACES + 1];
    struct egress_order order = {
        .kind = EGRESS_ADD,
        .id = 1,
        .name = run->spec->workspace ? run->spec->workspace : "",
        .rules = run->spec->net_rules ? run->spec->net_rules : nothing,
        .connections = run->spec->net_connections,
        .bytes_per_hour = run->spec->net_bytes_per_hour,
        .authority = run->authority_key,
        .places = places,
    };
    scoped_buf struct buf b;

    netnames_places(&run->setup, places);
    buf_init(&b, EGRESS_MESSAGE);
    if (count != run->setup.port_count + EGRESS_SOCKETS || netnames->served)
        return err_set(err, ERR_IO, 0, "the sandbox's first process sent other sockets than asked");
    if (strlen(order.name) >= EGRESS_TEXT)
        order.name = "";
    egress_pack_order(&b, &order);
    if (buf_done(&b) < 0)
        return err_set(err, ERR_LIMIT, 0, "the rules of the network are too long");
    netnames->served = true;
    for (size_t i = 0; run->spec->net_secrets && run->spec->net_secrets[i]; i++) {
        if (send_secret(netnames, run->spec->net_secrets[i], err) < 0)
            return -1;
    }
    int r = packet_send(netnames->socket, b.p, b.n, fds, count);
    return r < 0 && r != -EPIPE ? err_set(err, ERR_IO, -r, "talk to carrel-egress") : 0;
}

/* --- what it says --- */

static void take_news(struct netnames *netnames, struct denials *denials, char *bytes, size_t n)
{
    struct egress_news news;
    struct carrel_denial denial;

    if (!egress_unpack_news(bytes, n, &news))
        return;
    netnames->stands = netnames->stands || news.kind == EGRESS_READY;
    netnames->dropped = netnames->dropped || news.kind == EGRESS_DROPPED;
    if (news.kind != EGRESS_REFUSED)
        return;
    denied_name(news.host, (unsigned)news.port, news.rule, news.why, news.fix, &denial);
    denial.count = news.count > UINT32_MAX ? UINT32_MAX : (unsigned)news.count;
    denials_tell(denials, &denial);
}

/* Connections fail from now on. */
static int lose(struct netnames *netnames, struct denials *denials, struct err *err)
{
    scope_close(&netnames->socket);
    if (!netnames->stands)
        return err_set(err, ERR_KERNEL, 0,
                       "carrel-egress, which makes the connections, could not start; what it says "
                       "on standard error tells why");
    if (!netnames->dropped)
        denials_add(denials, "use the network", "carrel-egress has ended",
                    "run it again; if it happens again, look whether this host ends processes for "
                    "lack of memory (dmesg)",
                    CARREL_SOURCE_KERNEL);
    return 0;
}

int netnames_hear(struct netnames *netnames, struct denials *denials, struct err *err)
{
    char bytes[NEWS_BYTES];

    /* One that never stops talking does not keep us from anything else. */
    for (int turn = 0; turn < HEAR_TURN && netnames->socket >= 0; turn++) {
        ssize_t n = recv(netnames->socket, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            return lose(netnames, denials, err);
        if (n > 0)
            take_news(netnames, denials, bytes, (size_t)n);
    }
    return 0;
}

void netnames_end(struct netnames *netnames, struct denials *denials)
{
    const struct egress_order drop = {.kind = EGRESS_DROP, .id = 1, .name = ""};
    uint64_t due = now_ms() + LAST_WORD_MS;
    struct err ignored;
    scoped_buf struct buf b;

    buf_init(&b, EGRESS_MESSAGE);
    if (netnames->socket < 0 || !netnames->served)
        return;
    egress_pack_order(&b, &drop);
    if (buf_done(&b) < 0 || packet_send(netnames->socket, b.p, b.n, NULL, 0) < 0)
        return;
    while (netnames->socket >= 0 && !netnames->dropped && now_ms() < due) {
        struct pollfd word = {.fd = netnames->socket, .events = POLLIN};
        (void)poll(&word, 1, (int)(due - now_ms()) + 1);
        (void)netnames_hear(netnames, denials, &ignored);
    }
}

void netnames_clear(struct netnames *netnames)
{
    scope_close(&netnames->socket);
    if (netnames->pid > 0) {
        (void)kill(netnames->pid, SIGKILL);
        while (waitpid(netnames->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    scope_close(&netnames->pidfd);
    identity_clear(&netnames->identity);
    netnames_init(netnames);
}
