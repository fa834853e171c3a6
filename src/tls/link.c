/* SPDX-License-Identifier: Apache-2.0 */
/* One client. Its bytes go to the front in the clear, through one end of a pair whose other end
 * the front has; nothing of them is read here.
 *
 *   SHAKE --handshake done--> DOOR --the front has its end--> OPEN --the front closed--> ENDING
 *
 * A client that closes without a word, or breaks TLS, is gone: the front sees its end of the pair
 * close. One that says that it sends no more (close_notify) is still answered. What one side does
 * not take now waits in a buffer of one record, and as long as it does nothing more is read from
 * the other. */
#include <errno.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "protocol/tls.h"
#include "sys/fds.h"
#include "tls/tls.h"

enum {
    RECORD = 16384, /* the most that TLS puts in one */
    AT_ONCE = 8,    /* records, then others have their turn */
    MOST_SHAKES = 1024,
    SHAKE_MS = 10000,
    DOOR_MS = 20,      /* until it is tried again */
    LEFT_MS = 60000,   /* for what the front had still said */
    GOODBYE_MS = 2000, /* for the client to close, too: else it might lose the last bytes */
};

enum state {
    SHAKE,
    DOOR,
    OPEN,
    ENDING,
};

/* What was read on one side and not yet taken by the other. */
struct rest {
    char *p;
    size_t at;
    size_t n;
};

struct link {
    struct watch client;
    struct watch inner;
    struct timer timer;
    struct tls *tls;
    struct link *next; /* of the handshakes */
    struct link *previous;
    SSL *ssl;
    int fd;       /* the client */
    int inner_fd; /* our end of the pair; -1: there is none yet */
    int theirs;   /* the front's, until it has it */
    enum state state;
    uint64_t due_ms; /* of handshake and door */
    struct rest up;  /* to the front */
    struct rest down;
    uint32_t client_armed;
    uint32_t inner_armed;
    bool wants_out;  /* TLS has to write before it goes on */
    bool ended;      /* the client sends no more */
    bool told_ended; /* ... and the front knows */
    bool said;       /* the front sends no more */
    bool told_said;  /* ... and the client knows */
    bool hung_up;    /* the front has closed its end */
    bool dead;
    unsigned char address[TLS_ADDRESS];
    char peer[NETWORK_PEER];
};

static char scratch[RECORD];

/* --- lists --- */

static void leave_shakes(struct link *l)
{
    struct tls *t = l->tls;

    if (l->state != SHAKE)
        return;
    *(l->previous ? &l->previous->next : &t->first_shake) = l->next;
    *(l->next ? &l->next->previous : &t->last_shake) = l->previous;
    l->next = l->previous = NULL;
    t->shakes--;
}

static void enter_shakes(struct link *l)
{
    struct tls *t = l->tls;

    l->previous = t->last_shake;
    *(l->previous ? &l->previous->next : &t->first_shake) = l;
    t->last_shake = l;
    t->shakes++;
}

static void close_link(struct link *l)
{
    leave_shakes(l);
    events_forget(l->tls->events, &l->client);
    events_forget(l->tls->events, &l->inner);
    timer_stop(l->tls->events, &l->timer);
    SSL_free(l->ssl);
    scope_close(&l->fd);
    scope_close(&l->inner_fd);
    scope_close(&l->theirs);
    free(l->up.p);
    free(l->down.p);
    l->tls->count--;
    free(l);
}

static void set_timer(struct link *l, uint64_t ms)
{
    if (timer_set(l->tls->events, &l->timer, now_ms() + ms) < 0)
        l->dead = true;
}

/* --- bytes --- */

/* Keeps what was not taken of n bytes in the scratch. */
static void keep(struct link *l, struct rest *rest, size_t taken, size_t n)
{
    if (taken == n)
        return;
    rest->p = malloc(n - taken);
    if (!rest->p) {
        l->dead = true;
        return;
    }
    memcpy(rest->p, scratch + taken, n - taken);
    rest->n = n - taken;
    rest->at = 0;
}

static void took(struct rest *rest, size_t n)
{
    rest->at += n;
    rest->n -= n;
    if (rest->n > 0)
        return;
    free(rest->p);
    rest->p = NULL;
}

/* What TLS says of a call that did not succeed; false: the connection is over. */
static bool waits(struct link *l, int r)
{
    int why = SSL_get_error(l->ssl, r);

    ERR_clear_error();
    l->wants_out |= why == SSL_ERROR_WANT_WRITE;
    return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
}

/* How many the front took; when it takes no more the client is not listened to either. */
static size_t give_front(struct link *l, const char *bytes, size_t n)
{
    ssize_t done = send(l->inner_fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (done >= 0)
        return (size_t)done;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    return n; /* it has closed: what still comes is of no use, until it has told all */
}

static size_t give_client(struct link *l, const char *bytes, size_t n)
{
    size_t done = 0;

    ERR_clear_error();
    int r = SSL_write_ex(l->ssl, bytes, n, &done);
    if (r != 1 && !waits(l, r))
        l->dead = true;
    return r == 1 ? done : 0;
}

/* One record from the client to the front. False: nothing more for now. */
static bool step_up(struct link *l)
{
    size_t n = 0;

    if (l->up.n > 0) {
        took(&l->up, give_front(l, l->up.p + l->up.at, l->up.n));
        return l->up.n == 0;
    }
    if (l->ended)
        return false;
    ERR_clear_error();
    int r = SSL_read_ex(l->ssl, scratch, sizeof(scratch), &n);
    if (r == 1) {
        keep(l, &l->up, give_front(l, scratch, n), n);
        return l->up.n == 0 && !l->dead;
    }
    if (SSL_get_error(l->ssl, r) == SSL_ERROR_ZERO_RETURN)
        l->ended = true;
    else if (!waits(l, r))
        l->dead = true;
    return false;
}

static bool step_down(struct link *l)
{
    if (l->down.n > 0) {
        took(&l->down, give_client(l, l->down.p + l->down.at, l->down.n));
        return l->down.n == 0 && !l->dead;
    }
    if (l->said)
        return false;
    ssize_t n = recv(l->inner_fd, scratch, sizeof(scratch), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n <= 0) {
        l->said = true;
        return false;
    }
    keep(l, &l->down, give_client(l, scratch, (size_t)n), (size_t)n);
    return l->down.n == 0 && !l->dead;
}

/* Each end is told to the other side once everything before it is. */
static void pass_ends(struct link *l)
{
    if (l->ended && l->up.n == 0 && !l->told_ended) {
        l->told_ended = true;
        (void)shutdown(l->inner_fd, SHUT_WR);
    }
    if (!l->said || l->down.n > 0 || l->told_said)
        return;
    ERR_clear_error();
    int r = SSL_shutdown(l->ssl);
    if (r < 0 && waits(l, r))
        return;
    l->told_said = true;
    (void)shutdown(l->fd, SHUT_WR);
}

/* --- states --- */

/* The front gets its end, now or in a moment. */
static void enter_door(struct link *l)
{
    const struct iovec part = {l->address, sizeof(l->address)};
    int pair[2];

    if (l->inner_fd < 0) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
            l->dead = true;
            return;
        }
        l->inner_fd = pair[0];
        l->theirs = pair[1];
    }
    ssize_t r = fds_send(l->tls->door, &part, 1, &l->theirs, 1, MSG_DONTWAIT);
    if (r == -EAGAIN || r == -ENOBUFS || r == -ETOOMANYREFS) {
        set_timer(l, DOOR_MS);
        l->dead |= now_ms() > l->due_ms;
        return;
    }
    scope_close(&l->theirs);
    timer_stop(l->tls->events, &l->timer);
    l->state = OPEN;
    l->inner_armed = EPOLLIN;
    if (r < 0 || events_watch(l->tls->events, &l->inner, l->inner_fd, EPOLLIN) < 0)
        l->dead = true;
}

static void shake(struct link *l)
{
    ERR_clear_error();
    int r = SSL_accept(l->ssl);

    if (r == 1) {
        leave_shakes(l);
        l->state = DOOR;
        enter_door(l);
    } else if (!waits(l, r)) {
        l->dead = true;
    }
}

static void carry(struct link *l)
{
    for (int i = 0; i < AT_ONCE && !l->dead && step_up(l); i++)
        ;
    for (int i = 0; i < AT_ONCE && !l->dead && step_down(l); i++)
        ;
    if (!l->dead)
        pass_ends(l);
    if (l->hung_up && l->told_said && l->state == OPEN) {
        l->state = ENDING;
        set_timer(l, GOODBYE_MS);
    }
}

static uint32_t wanted_of_client(const struct link *l)
{
    uint32_t out = l->wants_out || l->down.n > 0 ? EPOLLOUT : 0;

    if (l->state == SHAKE)
        return EPOLLIN | out;
    if (l->state == DOOR)
        return 0;
    return (l->ended ? EPOLLRDHUP : 0) | (!l->ended && l->up.n == 0 ? EPOLLIN : 0) | out |
           /* Without a watch on the front's end, its bytes go on as the client takes them. */
           (l->hung_up && !l->told_said ? EPOLLOUT : 0);
}

static void rearm(struct link *l)
{
    uint32_t client = wanted_of_client(l);
    uint32_t inner = (!l->said && l->down.n == 0 ? EPOLLIN : 0) | (l->up.n > 0 ? EPOLLOUT : 0);

    if (client != l->client_armed && events_change(l->tls->events, &l->client, client) < 0)
        l->dead = true;
    l->client_armed = client;
    if (l->inner.fd < 0 || inner == l->inner_armed)
        return;
    if (events_change(l->tls->events, &l->inner, inner) < 0)
        l->dead = true;
    l->inner_armed = inner;
}

static void go_on(struct link *l)
{
    l->wants_out = false;
    if (!l->dead && l->state == SHAKE)
        shake(l);
    if (!l->dead && l->state >= OPEN)
        carry(l);
    if (!l->dead)
        rearm(l);
    if (l->dead)
        close_link(l);
}

static void on_client(struct watch *watch, uint32_t what)
{
    struct link *l = container_of(watch, struct link, client);

    l->dead |= (what & (EPOLLERR | EPOLLHUP)) != 0 || (l->ended && (what & EPOLLRDHUP));
    go_on(l);
}

/* The front has closed its end; all it has said before is still there to be read. */
static void on_inner(struct watch *watch, uint32_t what)
{
    struct link *l = container_of(watch, struct link, inner);

    if (what & (EPOLLHUP | EPOLLERR)) {
        l->hung_up = true;
        events_forget(l->tls->events, &l->inner);
        set_timer(l, LEFT_MS);
    }
    go_on(l);
}

static void on_ring(struct timer *timer)
{
    struct link *l = container_of(timer, struct link, timer);

    if (l->state == DOOR)
        enter_door(l);
    else
        l->dead = true;
    go_on(l);
}

/* --- the beginning --- */

/* Its address, and by what name its handshakes are counted; "": they are not. */
static bool learn_peer(struct link *l)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(from);
    static const unsigned char v4[12] = {[10] = 0xff, [11] = 0xff};

    if (getpeername(l->fd, (struct sockaddr *)&from, &size) < 0)
        return false;
    if (from.ss_family == AF_INET) {
        memcpy(l->address, v4, sizeof(v4));
        memcpy(l->address + sizeof(v4), &((struct sockaddr_in *)&from)->sin_addr, 4);
    } else if (from.ss_family == AF_INET6) {
        memcpy(l->address, &((struct sockaddr_in6 *)&from)->sin6_addr, 16);
    }
    if (!networks_have(&l->tls->trusted, &from))
        network_peer(&from, l->peer);
    return true;
}

/* Slow ones give way to others: of the same address the oldest, if it has too many, else of all. */
static void make_room(struct tls *tls, const char *peer)
{
    struct link *oldest = NULL;
    size_t of_peer = 0;

    for (struct link *l = tls->first_shake; l && *peer; l = l->next) {
        if (strcmp(l->peer, peer) != 0)
            continue;
        oldest = oldest ? oldest : l;
        of_peer++;
    }
    if (oldest && of_peer >= tls->shakes_of_one)
        close_link(oldest);
    else if (tls->first_shake && tls->shakes >= MOST_SHAKES)
        close_link(tls->first_shake);
}

void link_begin(struct tls *tls, int *fd)
{
    struct link *l = tls->count < tls->most ? calloc(1, sizeof(*l)) : NULL;

    if (!l) {
        scope_close(fd);
        return;
    }
    *l = (struct link){
        .client = {.ready = on_client, .fd = -1},
        .inner = {.ready = on_inner, .fd = -1},
        .timer.ring = on_ring,
        .tls = tls,
        .fd = take_fd(fd),
        .inner_fd = -1,
        .theirs = -1,
        .state = SHAKE,
        .due_ms = now_ms() + SHAKE_MS,
        .client_armed = EPOLLIN,
        .ssl = SSL_new(tls->context),
    };
    tls->count++;
    bool known = learn_peer(l);
    if (known)
        make_room(tls, l->peer);
    enter_shakes(l);
    if (!known || !l->ssl || SSL_set_fd(l->ssl, l->fd) != 1 ||
        events_watch(tls->events, &l->client, l->fd, EPOLLIN) < 0 ||
        timer_set(tls->events, &l->timer, l->due_ms) < 0)
        close_link(l);
}
