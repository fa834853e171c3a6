/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-front: started by carrel-serve with the socket to it as descriptor 3 and the listening
 * sockets and the door of carrel-tls after it, in the state directory; its arguments are the
 * settings. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
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
#include "base/seal.h"
#include "front/code/routes.h"
#include "front/core/confine.h"
#include "front/core/front.h"
#include "front/core/parser.h"
#include "front/core/room.h"
#include "front/core/router.h"
#include "front/door.h"
#include "front/e2b/routes.h"
#include "front/exec/exec.h"
#include "front/exec/routes.h"
#include "front/files/routes.h"
#include "front/mcp/routes.h"
#include "front/network/routes.h"
#include "front/openai/routes.h"
#include "front/plans/routes.h"
#include "front/ports/routes.h"
#include "front/resume.h"
#include "front/routes.h"
#include "front/snapshots/auto.h"
#include "front/snapshots/routes.h"
#include "front/stores/mirror.h"
#include "front/stores/routes.h"
#include "front/workspaces/routes.h"
#include "front/workspaces/trash.h"

enum {
    BROKER_SOCKET = 3,
    FIRST_LISTENER = 4,
    LISTENERS_MAX = 8, /* and the door of carrel-tls */
    DRAIN_MS = 8000,
};

/* All that can be asked over HTTP: the table of each room, on top of its routes.c. No two rows have
 * the same method and path. */
static const struct route *const all_routes[] = {
    front_routes, workspace_routes, exec_routes, code_routes,    file_routes,
    port_routes,  plan_routes,      mcp_routes,  sandbox_routes, network_routes,
    store_routes, snapshot_routes,  NULL,
};

static volatile sig_atomic_t told_to_stop;

static void on_term(int signal)
{
    (void)signal;
    told_to_stop = 1;
}

static int fail(const struct err *err)
{
    char text[512];

    log_error("front_failed", "message", err_text(err, text, sizeof(text)), NULL);
    return 1;
}

static int take_signals(struct err *err)
{
    struct sigaction action = {.sa_handler = on_term}; /* no SA_RESTART: it wakes the loop */
    struct sigaction ignored = {.sa_handler = SIG_IGN};

    if (sigaction(SIGTERM, &action, NULL) < 0 || sigaction(SIGINT, &ignored, NULL) < 0 ||
        sigaction(SIGPIPE, &ignored, NULL) < 0 || sigaction(SIGXFSZ, &ignored, NULL) < 0)
        return err_set(err, ERR_IO, errno, "handle signals");
    return 0;
}

static int open_parts(struct front *front, const struct settings *settings, struct err *err)
{
    front->settings = settings;
    front->broker_uid = -1;
    front->began_ms = now_ms();
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (getsockopt(BROKER_SOCKET, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        front->broker_uid = peer.uid;
    int r = events_open(&front->events);
    if (r < 0)
        return err_set(err, ERR_LIMIT, -r, "make the event loop");
    if (store_open(&front->store, "db/carrel.db", err) < 0)
        return -1;
    front->spools = open("execs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (front->spools < 0)
        return err_set(err, ERR_IO, errno, "open '%s/execs'", settings->state);
    return 0;
}

/* For addresses that are told to those who did not come this way. */
static void note_address(struct front *front, int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = {.any.sa_family = AF_UNSPEC};

    socklen_t size = sizeof(a);
    char host[INET6_ADDRSTRLEN] = "";

    if (getsockname(fd, &a.any, &size) < 0)
        return;
    if (a.any.sa_family == AF_INET) {
        if (a.v4.sin_addr.s_addr == htonl(INADDR_ANY))
            a.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        (void)inet_ntop(AF_INET, &a.v4.sin_addr, host, sizeof(host));
        snprintf(front->address, sizeof(front->address), "%s:%u", host, ntohs(a.v4.sin_port));
    } else if (a.any.sa_family == AF_INET6) {
        if (IN6_IS_ADDR_UNSPECIFIED(&a.v6.sin6_addr))
            a.v6.sin6_addr = in6addr_loopback;
        (void)inet_ntop(AF_INET6, &a.v6.sin6_addr, host, sizeof(host));
        snprintf(front->address, sizeof(front->address), "[%s]:%u", host, ntohs(a.v6.sin6_port));
    }
}

static void count_room(struct front *front)
{
    const struct settings *s = front->settings;
    struct http_options *room = &front->room;
    struct rlimit files = {.rlim_cur = 0};
    const char *at;

    ignore(getrlimit(RLIMIT_NOFILE, &files)); /* else there is room for a few */
    room_for_connections(s, files.rlim_cur, room);
    room->own_uid = front->broker_uid;
    ignore(networks_parse(s->trusted_proxies, &room->trusted, &at)); /* the broker has looked */
    if (room->max_connections + room->max_unknown < s->max_connections)
        fprintf(stderr,
                "level=info event=fewer_connections max_connections=%u message='a quarter of the "
                "%ju open files that are allowed'\n",
                room->max_connections + room->max_unknown, (uintmax_t)files.rlim_cur);
}

static void tree_changed(struct front *f, const char *workspace)
{
    mirror_changed(f, workspace);
    auto_changed(f, workspace);
}

static int open_network(struct front *front, struct err *err)
{
    front->routes = all_routes;
    front->exec_mode = &plan_exec_mode;
    front->port_route = &port_route;
    front->is_for_port = port_takes;
    front->is_foreign = e2b_takes;
    front->admit_foreign = e2b_admit;
    front->translate = sandbox_translate;
    front->end_exec = exec_end_of;
    front->tree_changed = tree_changed;
    front->keep_version = auto_keep;
    count_room(front);
    int r = http_open(&front->http, front->events, &router_calls, front, &front->room);

    if (r == 0)
        r = broker_open(&front->channel, front->events, BROKER_SOCKET, resume_event, front);
    if (r < 0)
        return err_set(err, ERR_LIMIT, -r, "make the front");
    for (int fd = FIRST_LISTENER; fd < FIRST_LISTENER + LISTENERS_MAX; fd++) {
        int listening = 0;
        socklen_t size = sizeof(listening);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0)
            break;
        if (!listening && !door_is(fd))
            break;
        r = listening ? http_listen(front->http, fd) : door_open(front, fd);
        if (r < 0)
            return err_set(err, ERR_LIMIT, -r, "listen");
        if (listening)
            note_address(front, fd);
    }
    return 0;
}

/* The second thread is made where it can have no more than the first, and both give up the rest. */
static int confine(struct front *front, struct err *err)
{
    if (seal_prepare() < 0)
        return err_set(err, ERR_KERNEL, 0, "this host's OpenSSL cannot seal secrets");
    if (confine_files(front->broker_uid == (int64_t)geteuid(), err) < 0)
        return -1;
    int r = parser_open(&front->parser, front->events);
    if (r < 0)
        return err_set(err, ERR_LIMIT, -r, "make the thread for large bodies");
    return confine_calls(err);
}

/* New requests are refused; those under way have a while to end. */
static int drain(struct front *front)
{
    uint64_t until = now_ms() + DRAIN_MS;

    front->draining = true;
    while (!http_drain(front->http) && now_ms() < until) {
        if (events_turn(front->events) < 0)
            break;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct front front;
    static struct settings settings;
    struct err err = {0};

    (void)argc;
    if (settings_decode(&settings, argv + 1, &err) < 0 || take_signals(&err) < 0 ||
        open_parts(&front, &settings, &err) < 0 || open_network(&front, &err) < 0 ||
        confine(&front, &err) < 0)
        return fail(&err);
    resume_ask(&front);
    sweep_begin(&front);
    auto_begin(&front);
    while (!told_to_stop) {
        int r = events_turn(front.events);
        if (r < 0) {
            err_set(&err, ERR_IO, -r, "wait for events");
            return fail(&err);
        }
    }
    return drain(&front);
}
