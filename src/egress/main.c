/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-egress: started by carrel-serve, or by `carrel run --allow`, with its socket as descriptor
 * 3. Every connection that a sandbox makes by name is made here. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "egress/inspected.h"
#include "sys/fds.h"

enum {
    FAILED = 125,
    ORDER_ARENA = 1 << 20,
    KEPT_FDS = 256, /* for everything but connections and what sandboxes listen at */
    LEAST_FDS = 512,
};

/* --- options --- */

static const char help[] =
    "usage: carrel-egress [--nameservers ADDRESS:PORT,...] [--private HOST[:PORT]]...\n"
    "                     [--own-port N]... [--inspect yes] [--trust-fd N] [--secrets-fd N]\n"
    "       carrel-egress --authority HOST...\n\n"
    "Makes the connections of sandboxes whose network is a list of names. Started by\n"
    "carrel-serve and by carrel run --allow, with a socket as descriptor 3.\n";

static int add_private(struct options *o, const char *value, struct err *err)
{
    if (o->private_count == PRIVATE_MOST)
        return err_set(err, ERR_LIMIT, 0, "more than %d private hosts", PRIVATE_MOST);
    struct network_rule *rule = &o->private[o->private_count];
    if (network_parse_rule(value, rule, err) < 0)
        return -1;
    if (rule->deny || rule->opaque || rule->refuse_ech)
        return err_set(err, ERR_INVALID, 0, "only HOST or HOST:PORT");
    o->private_count++;
    return 0;
}

static int add_own_port(struct options *o, const char *value, struct err *err)
{
    char *end;
    unsigned long port = strtoul(value, &end, 10);

    if (*value < '0' || *value > '9' || *end || port == 0 || port > UINT16_MAX)
        return err_set(err, ERR_INVALID, 0, "a port is a number from 1 to 65535");
    if (o->own_port_count == OWN_PORTS_MOST)
        return err_set(err, ERR_LIMIT, 0, "more than %d ports", OWN_PORTS_MOST);
    o->own_ports[o->own_port_count++] = (uint16_t)port;
    return 0;
}

static int take_descriptor(int *ret, const char *value, struct err *err)
{
    if (value[0] < '4' || value[0] > '9' || value[1])
        return err_set(err, ERR_INVALID, 0, "a descriptor that it was started with, from 4 to 9");
    *ret = value[0] - '0';
    return fcntl(*ret, F_SETFD, FD_CLOEXEC) < 0
               ? err_set(err, ERR_INVALID, errno, "descriptor %s", value)
               : 0;
}

static int parse(struct options *o, char **argv, struct err *err)
{
    o->trust_fd = o->secrets_fd = -1;
    for (int i = 1; argv[i]; i += 2) {
        const char *value = argv[i + 1];
        int r = 0;
        if (!value)
            return err_set(err, ERR_INVALID, 0, "'%.64s' is not an option, or lacks its value",
                           argv[i]);
        if (strcmp(argv[i], "--nameservers") == 0)
            o->nameservers = value;
        else if (strcmp(argv[i], "--private") == 0)
            r = add_private(o, value, err);
        else if (strcmp(argv[i], "--own-port") == 0)
            r = add_own_port(o, value, err);
        else if (strcmp(argv[i], "--inspect") == 0)
            o->inspects = true;
        else if (strcmp(argv[i], "--trust-fd") == 0)
            r = take_descriptor(&o->trust_fd, value, err);
        else if (strcmp(argv[i], "--secrets-fd") == 0)
            r = take_descriptor(&o->secrets_fd, value, err);
        else
            return err_set(err, ERR_INVALID, 0, "'%.64s' is not an option", argv[i]);
        if (r < 0)
            return err_wrap(err, "%s", argv[i]);
    }
    return 0;
}

/* --- orders --- */

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        scope_close(&fds[i]);
}

static void obey(struct egress *e, char *bytes, size_t n, int *fds, size_t count)
{
    struct egress_order order;
    struct arena arena;

    arena_init(&arena, ORDER_ARENA);
    if (egress_unpack_order(bytes, n, &arena, &order))
        boxes_hear(e, &order, fds, count);
    else
        log_warning("order_malformed", "message", "it is passed over", NULL);
    arena_clear(&arena);
    close_all(fds, count); /* those that nobody took */
}

static void hear(struct watch *watch, uint32_t what)
{
    static char bytes[EGRESS_MESSAGE + 1];
    struct egress *e = (struct egress *)(void *)((char *)watch - offsetof(struct egress, talk));

    if (what & EPOLLOUT)
        news_go_on(e);
    for (;;) {
        int fds[2 + EGRESS_PORTS];
        size_t count = sizeof(fds) / sizeof(fds[0]);
        ssize_t n = fds_receive(watch->fd, bytes, sizeof(bytes), fds, &count, MSG_DONTWAIT);
        if (n == -EAGAIN)
            return;
        if (n == -EPROTO) {
            log_warning("order_malformed", "message", "it is passed over", NULL);
            continue;
        }
        if (n <= 0)
            _exit(0); /* who started us has gone: every connection ends */
        obey(e, bytes, (size_t)n, fds, count);
    }
}

/* --- the beginning --- */

static int raise_descriptors(struct egress *e, struct err *err)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_set(err, ERR_IO, errno, "ask for the limit on descriptors");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_set(err, ERR_IO, errno, "raise the limit on descriptors");
    if (limit.rlim_cur < LEAST_FDS)
        return err_set(err, ERR_LIMIT, 0, "%ju descriptors are too few: allow %d",
                       (uintmax_t)limit.rlim_cur, LEAST_FDS);
    /* Two each, and a third for what sandboxes listen at. */
    e->most = (size_t)(limit.rlim_cur - KEPT_FDS) / 3;
    return 0;
}

static int prepare(struct egress *e, struct err *err)
{
    int type = 0;
    socklen_t size = sizeof(type);

    if (getsockopt(EGRESS_SOCKET, SOL_SOCKET, SO_TYPE, &type, &size) < 0 ||
        type != SOCK_SEQPACKET || fcntl(EGRESS_SOCKET, F_SETFD, FD_CLOEXEC) < 0)
        return err_set(err, ERR_INVALID, 0,
                       "descriptor 3 is not its socket: it is started by carrel-serve, or carrel "
                       "run --allow");
    e->talk = (struct watch){.ready = hear, .fd = -1};
    int r = events_open(&e->events);
    if (r == 0)
        r = events_watch(e->events, &e->talk, EGRESS_SOCKET, EPOLLIN);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "open the loop");
    if (raise_descriptors(e, err) < 0 || news_open(e, err) < 0 || pipes_open(e, err) < 0 ||
        dialer_open(e, err) < 0 || secrets_open(e, e->options.secrets_fd, err) < 0)
        return -1;
    if (e->options.inspects && tls_open(&e->tls, e->options.trust_fd, err) < 0)
        return -1;
    return egress_confine(err);
}

/* What a sandbox needs before it is there. */
static int make_authority(char **names, struct err *err)
{
    return egress_confine(err) < 0 ? -1 : authority_make((const char *const *)names, err);
}

int main(int argc, char **argv)
{
    static struct egress e;
    struct err err = {.code = ERR_NONE};
    char text[512];

    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 2 && strcmp(argv[1], "--authority") == 0 && make_authority(argv + 2, &err) == 0)
        return 0;
    if (err.code != ERR_NONE || parse(&e.options, argv, &err) < 0 || prepare(&e, &err) < 0) {
        fprintf(stderr, "carrel-egress: %s\n", err_text(&err, text, sizeof(text)));
        return FAILED;
    }
    news_tell(&e, &(struct egress_news){.kind = EGRESS_READY});
    for (;;) {
        int r = events_turn(e.events);
        if (r < 0) {
            log_warning("loop_failed", "message", strerrordesc_np(-r), NULL);
            return FAILED;
        }
    }
}
