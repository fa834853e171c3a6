/* SPDX-License-Identifier: Apache-2.0 */
/* Keepers: asked for at pid 1 with one end of a socket pair, known from their first word on.
 *
 *   asked --(hello)--> idle --(a command)--> busy --(nothing left of it)--> idle
 *     any --(its socket ends, or we end it)--> lost
 *
 * A command that waits is sent right behind the request for its keeper, with a permit that is read
 * once: by the keeper, after its hello and before the start, or by us, to take the command back.
 * Until the hello is heard the command is EXEC_QUEUED, as if it had not been sent:
 *
 *   what happens meanwhile      permit is there            permit was read by the keeper
 *   hello                       busy; the command is told  the same
 *   a signal for the command    nobody to take it          the same
 *   kill, deadline              taken back: ends at once,  hello is on its way: ended behind it, as
 *                               was never started          one that is about to start
 *   no keeper could be made     fails                      (the hello comes first)
 *   killed by its own command   -                          after the hello, or instead of it where
 *                                                          its pid is gone: exec_lose_keeper
 *   pid 1 or the sandbox ends   told with the end of all   the same
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/session/internal.h"
#include "sys/fds.h"

enum {
    AHEAD_BYTES = 16384, /* at most: mostly in one piece */
    GENERATIONS = 64,    /* between a keeper and who asks for a command of root's */
    MOST_FDS = 4         /* of a message: standard files, and a permit */
};

/* Those that are for whoever comes. */
static unsigned count(const struct session *session, enum keeper_state state)
{
    unsigned n = 0;

    for (const struct keeper *k = session->keepers; k; k = k->next)
        n += k->state == state && !k->reserved && !k->exec;
    return n;
}

/* Keepers are Carrel's own and come on top of the processes that a sandbox may have. */
static void make_room(struct session *session)
{
    uint64_t keepers = 0;

    for (const struct keeper *k = session->keepers; k; k = k->next)
        keepers++;
    cgroup_set_pids(&session->run->cgroup, session->spec.limits.pids, keepers);
}

bool keeper_ask(struct session *session, struct exec *exec)
{
    struct keeper *k = calloc(1, sizeof(*k));
    int pair[2];
    int on = 1;

    if (!k || session->live.socket < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        free(k);
        return false;
    }
    k->session = session;
    k->socket = pair[0];
    k->pid = k->pidfd = k->permit = -1;
    k->source = (struct source){.kind = SOURCE_KEEPER, .fd = -1, .of = k};
    k->due_ms = now_ms() + ANSWER_WITHIN_MS;
    k->next = session->keepers;
    session->keepers = k;
    make_room(session);
    bool ok = setsockopt(k->socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
              fcntl(k->socket, F_SETFL, O_NONBLOCK) == 0 &&
              source_set(session, &k->source, k->socket, EPOLLIN) &&
              message_send(session->live.socket, MESSAGE_KEEPER, NULL, 0, &pair[1], 1) == 0;
    (void)close(pair[1]);
    if (!ok) {
        keeper_lose(k);
        return false;
    }
    if (exec) {
        k->reserved = true;
        k->exec = exec;
        exec->keeper = k;
    }
    return true;
}

void keeper_lose(struct keeper *k)
{
    struct session *session = k->session;

    if (k->state == KEEPER_LOST)
        return;
    (void)source_set(session, &k->source, -1, 0);
    scope_close(&k->socket);
    scope_close(&k->permit);
    k->state = KEEPER_LOST;
    for (struct keeper **at = &session->keepers; *at; at = &(*at)->next) {
        if (*at == k) {
            *at = k->next;
            break;
        }
    }
    k->next = session->lost;
    session->lost = k;
    make_room(session);
}

void keeper_free(struct keeper *k)
{
    scope_close(&k->socket);
    scope_close(&k->pidfd);
    if (k->group)
        group_drop(k->group);
    if (k->late)
        group_drop(k->late);
    free(k->unsent);
    free(k);
}

bool keeper_has_group(const struct keeper *k)
{
    return k->group && group_state(k->group, NULL) == GROUP_IN && group_can_kill(k->group);
}

/* --- sending --- */

static bool keep_unsent(struct keeper *k, const void *bytes, size_t n)
{
    size_t left = k->unsent_size - k->unsent_at;
    char *all = malloc(left + n);

    if (!all)
        return false;
    if (k->unsent)
        memcpy(all, k->unsent + k->unsent_at, left);
    memcpy(all + left, bytes, n);
    free(k->unsent);
    k->unsent = all;
    k->unsent_at = 0;
    k->unsent_size = left + n;
    return source_set(k->session, &k->source, k->socket, EPOLLIN | EPOLLOUT);
}

static bool send_unsent(struct keeper *k)
{
    size_t left = k->unsent_size - k->unsent_at;
    ssize_t sent = send(k->socket, k->unsent + k->unsent_at, left, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    k->unsent_at += (size_t)sent;
    if (k->unsent_at < k->unsent_size)
        return true;
    free(k->unsent);
    k->unsent = NULL;
    k->unsent_at = k->unsent_size = 0;
    return source_set(k->session, &k->source, k->socket, EPOLLIN);
}

/* How many bytes were taken, or -errno. */
static ssize_t send_now(int socket, const struct message_head *head, const void *bytes,
                        const int *fds)
{
    const struct iovec parts[2] = {{(void *)(uintptr_t)head, sizeof(*head)},
                                   {(void *)(uintptr_t)bytes, head->length}};

    return fds_send(socket, parts, head->length ? 2 : 1, fds, head->fd_count, MSG_DONTWAIT);
}

bool keeper_send(struct keeper *k, uint32_t kind, const void *bytes, size_t size, const int fds[3],
                 size_t fd_count)
{
    struct message_head head = {kind, (uint32_t)size, (uint32_t)fd_count};
    size_t done = 0;

    if (k->state == KEEPER_LOST || size > MESSAGE_MAX_BYTES || fd_count > 3)
        return false;
    if (!k->unsent) {
        ssize_t sent = send_now(k->socket, &head, bytes, fds);
        if (sent < 0 && (sent != -EAGAIN || fd_count))
            return false;
        done = sent < 0 ? 0 : (size_t)sent;
    }
    if (done == sizeof(head) + size)
        return true;
    if (done < sizeof(head)) { /* never only a part of so few bytes */
        if (!keep_unsent(k, &head, sizeof(head)))
            return false;
        done = sizeof(head);
    }
    done -= sizeof(head);
    return done == size || keep_unsent(k, (const char *)bytes + done, size - done);
}

bool keeper_send_ahead(struct keeper *k, const struct exec *exec)
{
    size_t files = exec->tty ? 0 : 3;
    struct message_head head = {MESSAGE_AHEAD, (uint32_t)exec->message_size, (uint32_t)files + 1};
    int fds[MOST_FDS];

    if (exec->message_size > AHEAD_BYTES)
        return false;
    k->permit = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    memcpy(fds, exec->command_fds, files * sizeof(int));
    fds[files] = k->permit;
    ssize_t sent = k->permit < 0 ? -1 : send_now(k->socket, &head, exec->message, fds);
    if (sent <= 0) {
        scope_close(&k->permit);
        return false;
    }
    size_t done = (size_t)sent - sizeof(head); /* never only a part of so few bytes */
    if (done < exec->message_size &&
        !keep_unsent(k, (const char *)exec->message + done, exec->message_size - done))
        (void)shutdown(k->socket, SHUT_RDWR); /* half of it is of no use to anybody: it is lost */
    return true;
}

bool keeper_take_back(const struct keeper *k)
{
    uint64_t permit;

    return k->permit < 0 || read(k->permit, &permit, sizeof(permit)) > 0;
}

static struct keeper *find_busy(struct session *session, pid_t pid)
{
    struct keeper *k = session->keepers;

    while (k && (k->state != KEEPER_BUSY || !k->exec || k->pid != pid))
        k = k->next;
    return k;
}

static struct keeper *find_keeper_of(struct session *session, pid_t pid)
{
    struct keeper *k = NULL;

    for (int i = 0; i < GENERATIONS && pid > 1 && !k; i++) {
        k = find_busy(session, pid);
        pid = process_count_parent(pid);
    }
    return k;
}

/* His number is the kernel's word. Should he have gone, and another have it by now, that one is of
 * the same workspace, or nobody's here. */
void keepers_pass_asker(struct session *session, int asker)
{
    const int fds[3] = {asker, -1, -1};
    struct ucred who;
    socklen_t size = sizeof(who);
    struct keeper *k = NULL;

    if ((session->run->setup.flags & SETUP_SUDO) && session->state < SESSION_ENDING &&
        getsockopt(asker, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0)
        k = find_keeper_of(session, who.pid);
    if (k && !k->exec->killed)
        (void)keeper_send(k, MESSAGE_SUDO, "", 0, fds, 1);
}

/* --- hearing --- */

/* The first word comes with the kernel's: who has said it. */
static int read_hello(struct keeper *k, struct reply *reply)
{
    struct message_head head;
    pid_t pid = -1;
    int off = 0;
    ssize_t n = fds_receive_pid(k->socket, &head, sizeof(head), &pid);

    if (n <= 0)
        return (int)n;
    if (n != sizeof(head) || head.length != sizeof(*reply) || head.fd_count != 0)
        return -EPROTO;
    int r = message_read_exactly(k->socket, reply, sizeof(*reply));
    if (r < 0)
        return r;
    (void)setsockopt(k->socket, SOL_SOCKET, SO_PASSCRED, &off, sizeof(off));
    k->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    k->pid = k->pidfd < 0 ? -1 : pid; /* it may have gone again */
    return reply->kind == REPLY_READY && k->pidfd >= 0 ? 1 : -EPROTO;
}

/* Into a group of its own, while nobody waits for it. */
static void put_aside(struct keeper *k)
{
    if (!k->group && k->state == KEEPER_IDLE && !k->reserved && k->pidfd >= 0)
        k->group = group_make(&k->session->home, k->pid, k->pidfd, NULL);
}

static void greet(struct keeper *k)
{
    struct session *session = k->session;

    k->state = KEEPER_IDLE;
    session_stands(session); /* where no listener has told it */
    if (k->reserved && k->exec) {
        k->group = group_make(&session->home, k->pid, k->pidfd, &k->exec->limits);
        return; /* its command comes when it is under its limits */
    }
    if (k->exec)
        exec_meet_keeper(k->exec);
    keepers_dispatch(session);
    put_aside(k);
}

/* The oldest is the last of the list. */
static struct exec *find_waiting(struct session *session, unsigned *ret_count)
{
    struct exec *oldest = NULL;

    *ret_count = 0;
    for (struct exec *exec = session->execs; exec; exec = exec->next) {
        if (exec->state != EXEC_QUEUED || exec->keeper || exec->limited || exec->killed ||
            exec->failed)
            continue;
        oldest = exec;
        (*ret_count)++;
    }
    return oldest;
}

/* Who waits longest, and for whom there is no keeper to be had. */
static struct exec *find_unlucky(const struct keeper *k)
{
    unsigned waiting;

    if (k->exec || k->reserved)
        return k->exec && !k->exec->killed ? k->exec : NULL;
    return find_waiting(k->session, &waiting);
}

/* The command may have killed it, or there was no process left for it. */
static void mourn(struct keeper *k)
{
    struct session *session = k->session;
    struct exec *exec = k->exec;
    bool unborn = k->state == KEEPER_ASKED;
    struct err err = {0};

    if (unborn && exec && !keeper_take_back(k)) {
        session_stands(session); /* it has been there: what it said is heard, then its end again */
        exec_meet_keeper(exec);
        return;
    }
    keeper_lose(k);
    if (!exec || !exec->killed) /* not our doing */
        session->ahead_ms = now_ms() + PAUSE_MS;
    if (session->state >= SESSION_ENDING || session_is_dying(session))
        return; /* it is told with the end of all */
    err_set(&err, ERR_LIMIT, 0,
            "no process is left in the sandbox for another command, or it was killed");
    if (exec && exec->state != EXEC_QUEUED)
        exec_lose_keeper(exec);
    else if ((unborn || k->reserved) && (exec = find_unlucky(k)))
        exec_fail(exec, STATUS_CARREL_FAILED, &err);
    keepers_dispatch(session);
}

static void hear(struct keeper *k)
{
    int fds[MESSAGE_MAX_FDS];
    size_t fd_count = 0;
    struct reply reply;
    bool first = k->state == KEEPER_ASKED;
    int r = first ? read_hello(k, &reply) : session_read_reply(k->socket, &reply, fds, &fd_count);

    if (r == -EAGAIN)
        return;
    if (r == 1 && first)
        greet(k);
    else if (r == 1 && k->state == KEEPER_BUSY && k->exec)
        exec_hear(k->exec, &reply, fds, &fd_count);
    else
        mourn(k);
    for (size_t i = 0; i < fd_count; i++)
        (void)close(fds[i]);
}

void keeper_ready(struct keeper *k, uint32_t events)
{
    if (k->state == KEEPER_LOST)
        return; /* of the same batch of events */
    if ((events & EPOLLOUT) && k->unsent && !send_unsent(k)) {
        mourn(k);
        return;
    }
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        hear(k);
}

/* --- who takes what --- */

void keeper_rest(struct keeper *k)
{
    k->exec = NULL;
    if (k->state != KEEPER_BUSY) {
        keepers_dispatch(k->session); /* there is room for another */
        return;
    }
    k->state = KEEPER_IDLE;
    if (k->reserved || count(k->session, KEEPER_IDLE) > IDLE_KEEPERS) {
        keeper_lose(k);
        return;
    }
    keepers_dispatch(k->session);
    put_aside(k);
}

/* One that is in its group, or whose group nobody works at yet: then it goes without. */
static struct keeper *find_idle(struct session *session)
{
    struct keeper *without = NULL;

    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (k->state != KEEPER_IDLE || k->reserved)
            continue;
        enum group_state state = k->group ? group_state(k->group, NULL) : GROUP_QUEUED;
        if (state == GROUP_IN)
            return k;
        if (state != GROUP_MOVING)
            without = k;
    }
    if (without && without->group && group_state(without->group, NULL) != GROUP_FAILED) {
        if (!group_cancel(without->group))
            return NULL; /* just begun: it will be told */
        without->group = NULL;
    }
    return without;
}

/* The oldest, too. */
static struct keeper *find_unborn(struct session *session)
{
    struct keeper *oldest = NULL;

    for (struct keeper *k = session->keepers; k; k = k->next) {
        if (k->state == KEEPER_ASKED && !k->reserved && !k->exec)
            oldest = k;
    }
    return oldest;
}

/* One of those that have a keeper of their own; false: there is nothing to do for any. */
static bool give_limited(struct session *session)
{
    struct err err = {0};

    for (struct keeper *k = session->keepers; k; k = k->next) {
        struct exec *exec = k->exec;
        if (!k->reserved || k->state != KEEPER_IDLE || !exec || exec->killed || exec->failed)
            continue;
        enum group_state state = k->group ? group_state(k->group, &err) : GROUP_FAILED;
        if (state == GROUP_IN) {
            exec_give(exec, k);
            return true;
        }
        if (state != GROUP_FAILED)
            continue;
        if (!k->group)
            err_set(&err, ERR_LIMIT, 0, "out of memory");
        k->exec = NULL;
        exec->keeper = NULL;
        keeper_lose(k);
        exec_fail(exec, STATUS_CARREL_FAILED, &err);
        return true;
    }
    return false;
}

void keepers_dispatch(struct session *session)
{
    struct exec *exec;
    struct keeper *k;
    unsigned waiting;

    if (session->state >= SESSION_ENDING)
        return;
    while (give_limited(session))
        ;
    while ((exec = find_waiting(session, &waiting)) && (k = find_idle(session)))
        exec_give(exec, k);
    (void)find_waiting(session, &waiting);
    /* One for each that waits, and one ahead; but none for a command that kills them all. */
    bool ahead = count(session, KEEPER_IDLE) == 0 && now_ms() >= session->ahead_ms;
    for (unsigned n = count(session, KEEPER_ASKED); n < waiting + ahead; n++) {
        if (!keeper_ask(session, NULL))
            break;
    }
    while ((exec = find_waiting(session, &waiting)) && (k = find_unborn(session)) &&
           exec_give_ahead(exec, k))
        ;
}
