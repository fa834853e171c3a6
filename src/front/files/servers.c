/* SPDX-License-Identifier: Apache-2.0 */
#include "front/files/servers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pack.h"
#include "base/text.h"
#include "front/core/quota.h"
#include "front/files/asleep.h"
#include "protocol/broker.h"
#include "sys/fds.h"

enum {
    BODY_KEPT = 256 << 10, /* of the body, until the server takes it */
    MESSAGE_MAX = 4000000, /* of the broker's protocol */
    TRIES = 3,             /* servers that die are replaced */
    TAG_BYTES = 8,         /* the tag that a request begins with, as packed */
};

struct files_server {
    struct files_server *next;
    struct front *front;
    char workspace[FRONT_ID];
    bool asleep;                /* a sleeping reader of a workspace that sleeps: asleep.h */
    struct watch watch;         /* ... and when that ends, which nobody else tells */
    int socket;                 /* -1: the broker is asked for it, */
    struct sandbox_use *waking; /* ... and so for its sandbox, which counts */
    struct files_stream *waiting;
};

struct files_stream {
    struct files_stream *next;  /* among those that wait for the server */
    struct files_stream *newer; /* among all */
    struct files_stream *older;
    struct front *front;
    struct files_server *server; /* while it waits */
    char workspace[FRONT_ID];
    char bucket[FRONT_ID];
    char owner_name[FRONT_ID];
    uint64_t memory_bytes; /* as in quota_request */
    uint64_t pids;
    bool starts_nothing;
    const struct files_calls *calls;
    void *owner;
    struct buf message;
    struct buf wake;
    uint64_t switches; /* front->switches when `wake` was made */
    unsigned tries;
    int fd;
    struct watch watch;
    struct buf body; /* in pieces, see protocol/files.h */
    size_t body_at;
    bool body_ends;
    struct files_head head;
    size_t head_n;
    int passed; /* what came with it; -1 */
    bool answered;
    uint64_t left;   /* of the answer, or of its piece */
    uint32_t length; /* of the next piece, as far as it is there */
    size_t length_n;
    bool pieces;
    bool ended;
    bool only_reads; /* and has no body: may be asked again of another server */
    bool lasts;      /* without an end of its own */
    bool may_sleep;  /* a sleeping reader may have the answer, and has not said otherwise */
};

static void ready(struct watch *watch, uint32_t what);
static void fail(struct files_stream *s, int error);

static struct files_server *find(const struct front *front, const char *workspace, bool asleep)
{
    struct files_server *server = front->file_servers;

    while (server && (server->asleep != asleep || strcmp(server->workspace, workspace) != 0))
        server = server->next;
    return server;
}

static void was_answered(struct files_server *server)
{
    if (server->waking)
        quota_woken(server->front, server->waking);
    server->waking = NULL;
}

static void drop_server(struct files_server *server)
{
    struct files_server **at = &server->front->file_servers;

    while (*at != server)
        at = &(*at)->next;
    *at = server->next;
    events_forget(server->front->events, &server->watch);
    scope_close(&server->socket);
    was_answered(server);
    free(server);
}

void files_forget(struct front *front, const char *workspace)
{
    struct files_server *server = find(front, workspace, false);

    if (server && server->socket >= 0)
        drop_server(server);
}

bool files_are_used(const struct front *front, const char *workspace)
{
    const struct files_stream *s = front->file_streams;

    while (s && (s->lasts || strcmp(s->workspace, workspace) != 0))
        s = s->older;
    return s != NULL;
}

/* --- sending --- */

static void want(struct files_stream *s)
{
    uint32_t what = 0;

    if (s->body_at < s->body.n)
        what |= EPOLLOUT;
    if (!s->answered || !s->ended)
        what |= EPOLLIN;
    if (s->watch.fd < 0)
        ignore(events_watch(s->front->events, &s->watch, s->fd, what) == 0); /* then it hangs */
    else
        ignore(events_change(s->front->events, &s->watch, what) == 0);
}

static void push_body(struct files_stream *s)
{
    while (s->body_at < s->body.n) {
        ssize_t n = send(s->fd, s->body.p + s->body_at, s->body.n - s->body_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            s->body.n = s->body_at = 0; /* it has answered without it, or died: the answer tells */
        if (n <= 0)
            return;
        s->body_at += (size_t)n;
    }
    s->body.n = s->body_at = 0;
}

/* 0, or -errno: the server cannot be reached any more. */
static int send_call(struct files_stream *s, int socket)
{
    const struct iovec part = {s->message.p, s->message.n};
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    scoped_fd int ours = pair[0];
    scoped_fd int theirs = pair[1];
    ssize_t sent = fds_send(socket, &part, 1, &theirs, 1, MSG_DONTWAIT);
    if (sent < 0)
        return (int)sent;
    s->fd = take_fd(&ours);
    return 0;
}

static struct files_stream *take_waiting(struct files_server *server)
{
    struct files_stream *waiting = server->waiting;

    server->waiting = NULL;
    for (struct files_stream *s = waiting; s; s = s->next)
        s->server = NULL;
    return waiting;
}

/* Each may find that it is dead already, and forget it: so for each it is looked for anew. */
static void start_all(struct files_stream *waiting)
{
    while (waiting) {
        struct files_stream *s = waiting;
        waiting = s->next;
        int r = s->calls->still_may(s->owner) ? files_start(s) : 0;
        if (r < 0)
            fail(s, -r);
    }
}

static void heard(void *context, struct answer *answer)
{
    struct files_server *server = context;
    struct err err = {0};
    uint64_t tag;

    if (answer->kind == ANSWER_FILES && answer->fd_count == 1) {
        server->socket = take_fd(&answer->fds[0]);
        was_answered(server);
        start_all(take_waiting(server));
        return;
    }
    if (answer->kind != ANSWER_ERROR ||
        !protocol_unpack_error(answer->bytes, answer->n, &tag, &err))
        err_set(&err, ERR_IO, 0, "the workspace's files cannot be served");
    struct files_stream *waiting = take_waiting(server);
    drop_server(server);
    while (waiting) {
        struct files_stream *s = waiting;
        waiting = s->next;
        s->calls->failed(s->owner, &err);
    }
}

static struct files_server *new_server(const struct files_stream *s, bool asleep)
{
    struct files_server *server = calloc(1, sizeof(*server));

    if (!server)
        return NULL;
    server->front = s->front;
    server->asleep = asleep;
    server->socket = -1;
    server->watch.fd = -1;
    memcpy(server->workspace, s->workspace, sizeof(server->workspace));
    return server;
}

static void add_server(struct files_server *server)
{
    server->next = server->front->file_servers;
    server->front->file_servers = server;
}

static struct quota_request request_of(const struct files_stream *s)
{
    return (struct quota_request){.workspace = s->workspace,
                                  .owner = s->owner_name,
                                  .memory_bytes = s->memory_bytes,
                                  .pids = s->pids,
                                  .starts_nothing = s->starts_nothing};
}

/* Asks the broker, which wakes the workspace. */
static struct files_server *ask(struct files_stream *s)
{
    struct front *front = s->front;
    const struct quota_request wanted = request_of(s);
    struct files_server *server = new_server(s, false);
    struct sandbox_use *waking = server ? quota_wake(front, &wanted) : NULL;
    uint64_t tag = waking ? broker_expect(front->channel, heard, server) : 0;
    struct buf b;

    if (!tag) {
        if (waking)
            quota_woken(front, waking);
        free(server);
        return NULL;
    }
    server->waking = waking;
    add_server(server);
    buf_init(&b, MESSAGE_MAX);
    pack_u64(&b, tag);
    buf_add(&b, s->wake.p + TAG_BYTES, s->wake.n - TAG_BYTES);
    broker_send(front->channel, REQUEST_FILES, &b);
    return server;
}

static int wait_for(struct files_stream *s, struct files_server *server)
{
    if (!server && s->switches != s->front->switches)
        return -ESTALE; /* nothing is woken by what an older policy said */
    if (!server)
        server = ask(s);
    if (!server)
        return -ENOMEM;
    s->server = server;
    s->next = server->waiting;
    server->waiting = s;
    return 0;
}

/* A server that has died since is asked for again. */
static void begin_call(struct files_stream *s, int socket)
{
    int r = send_call(s, socket);

    if (r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOTCONN) {
        files_forget(s->front, s->workspace);
        if (!s->calls->still_may(s->owner))
            return;
        r = ++s->tries < TRIES ? wait_for(s, find(s->front, s->workspace, false)) : r;
        if (r == 0)
            return;
    }
    if (r < 0) {
        fail(s, -r);
        return;
    }
    push_body(s);
    want(s);
    if (s->body.n == 0 && !s->body_ends)
        s->calls->room(s->owner);
}

/* --- without waking it, where that does --- */

/* Calls that may be answered without a sandbox were let in without asking whether there may be one
 * more. False: it is told that there may not. */
static bool may_wake(const struct files_stream *s)
{
    const struct quota_request wanted = request_of(s);
    struct quota_answer quota;

    quota_check_sandbox(s->front, &wanted, &quota);
    if (quota.wait != QUOTA_NOTHING)
        s->calls->over_quota(s->owner, &quota);
    return quota.wait == QUOTA_NOTHING;
}

static int start_awake(struct files_stream *s)
{
    struct files_server *server = find(s->front, s->workspace, false);
    bool unchecked = s->may_sleep;

    s->may_sleep = false;
    if (!server && unchecked && !may_wake(s))
        return 0;
    if (!server || server->socket < 0)
        return wait_for(s, server);
    begin_call(s, server->socket);
    return 0;
}

/* One that would have known the answer has gone, or did not know it. */
static int wake_instead(struct files_stream *s)
{
    if (!s->calls->still_may(s->owner))
        return 0;
    s->head_n = 0;
    scope_close(&s->fd);
    return start_awake(s);
}

static void wake_all(struct files_stream *waiting)
{
    while (waiting) {
        struct files_stream *s = waiting;
        waiting = s->next;
        int r = s->calls->still_may(s->owner) ? start_awake(s) : 0;
        if (r < 0)
            fail(s, -r);
    }
}

static void reader_ended(struct watch *watch, uint32_t what)
{
    (void)what;
    drop_server(container_of(watch, struct files_server, watch));
}

static void heard_asleep(void *context, struct answer *answer)
{
    struct files_server *server = context;
    struct files_stream *waiting = take_waiting(server);

    if (answer->kind == ANSWER_FILES && answer->fd_count == 1) {
        server->socket = take_fd(&answer->fds[0]);
        server->watch.ready = reader_ended;
    }
    if (server->socket < 0 ||
        events_watch(server->front->events, &server->watch, server->socket, 0) < 0) {
        drop_server(server);
        wake_all(waiting);
        return;
    }
    start_all(waiting);
}

static struct files_server *ask_asleep(const struct files_stream *s)
{
    struct files_server *server = new_server(s, true);
    uint64_t tag = server ? broker_expect(s->front->channel, heard_asleep, server) : 0;
    struct buf b;

    if (!tag) {
        free(server);
        return NULL;
    }
    add_server(server);
    buf_init(&b, MESSAGE_MAX);
    protocol_pack_plain(&b, tag, &(struct plain_message){.texts = {s->bucket, s->workspace}});
    broker_send(s->front->channel, REQUEST_FILES_ASLEEP, &b);
    return server;
}

static void begin_asleep(struct files_stream *s, struct files_server *server)
{
    int r = send_call(s, server->socket);

    if (r < 0) {
        if (r == -EPIPE || r == -ECONNRESET)
            drop_server(server);
        r = wake_instead(s);
    } else {
        push_body(s);
        want(s);
    }
    if (r < 0)
        fail(s, -r);
}

static int start_asleep(struct files_stream *s)
{
    struct files_server *server = find(s->front, s->workspace, true);

    if (server && server->socket >= 0) {
        begin_asleep(s, server);
        return 0;
    }
    if (!server)
        server = ask_asleep(s);
    if (!server)
        return wake_instead(s);
    return wait_for(s, server);
}

/* --- the answer --- */

static void fail(struct files_stream *s, int error)
{
    struct err err;

    if (error == EAGAIN)
        err_set(&err, ERR_LIMIT, 0, "too many calls on this workspace's files at once; try again");
    else if (error == ESTALE)
        err_set(&err, ERR_CONFLICT, 0,
                "the policy of the workspace was changed (\"writes\"); send the call again");
    else
        err_set(&err, ERR_IO, 0, "the workspace's file server ended during the call");
    s->calls->failed(s->owner, &err);
}

/* A part of the head, and the descriptor that may come with it; as recv. */
static ssize_t receive_head(struct files_stream *s)
{
    char *at = (char *)&s->head + s->head_n;
    size_t count = 1;
    int fd;
    ssize_t n = fds_receive(s->fd, at, sizeof(s->head) - s->head_n, &fd, &count, MSG_DONTWAIT);

    if (n < 0) {
        errno = (int)-n;
        return -1;
    }
    if (count == 1) {
        scope_close(&s->passed);
        s->passed = fd;
    }
    return n;
}

/* A server goes with its sandbox, whatever ends that. Who only reads need not hear of it. */
static bool ask_again(struct files_stream *s)
{
    struct files_server *server = find(s->front, s->workspace, false);

    if (s->may_sleep)
        return wake_instead(s) == 0;
    if (!s->only_reads || s->head_n > 0 || ++s->tries >= TRIES)
        return false;
    if (!s->calls->still_may(s->owner))
        return true;
    if (server && server->socket >= 0) {
        drop_server(server);
        server = NULL;
    }
    scope_close(&s->fd);
    return wait_for(s, server) == 0;
}

static bool only_reads(const struct files_message *m)
{
    static const bool reads[FILES_OP_COUNT_] = {
        [FILES_READ] = true,  [FILES_TEXT] = true,      [FILES_STAT] = true,
        [FILES_LIST] = true,  [FILES_GLOB] = true,      [FILES_GREP] = true,
        [FILES_WATCH] = true, [FILES_INVENTORY] = true, [FILES_PACK] = true};

    return reads[m->op];
}

/* 1: the head is whole; 0: not yet; -1: told that there will be none, or asked again. */
static int take_head(struct files_stream *s)
{
    ssize_t n = receive_head(s);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0) {
        events_forget(s->front->events, &s->watch);
        if (!ask_again(s))
            fail(s, EIO);
        return -1;
    }
    s->head_n += (size_t)n;
    if (s->head_n < sizeof(s->head))
        return 0;
    if (s->may_sleep && s->head.status == FILES_ELSEWHERE) {
        events_forget(s->front->events, &s->watch);
        int r = wake_instead(s);
        if (r < 0)
            fail(s, -r);
        return -1;
    }
    s->head.etag[FILES_ETAG - 1] = '\0';
    s->pieces = s->head.size == FILES_MOST;
    s->left = s->pieces ? 0 : s->head.size;
    s->ended = !s->pieces && s->left == 0;
    return 1;
}

static void ready(struct watch *watch, uint32_t what)
{
    struct files_stream *s = container_of(watch, struct files_stream, watch);

    if (what & EPOLLOUT) {
        push_body(s);
        want(s);
    }
    /* The answer first: who has said it takes no more, and the client may be slow to send more. */
    if (!(what & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
        if (s->body.n == 0 && !s->body_ends)
            s->calls->room(s->owner);
        return;
    }
    if (s->answered) {
        events_forget(s->front->events, watch); /* until somebody pulls in vain */
        s->calls->more(s->owner);
        return;
    }
    int r = take_head(s);
    if (r == 0 && (what & EPOLLOUT) && s->body.n == 0 && !s->body_ends)
        s->calls->room(s->owner); /* nobody else will ask for more */
    if (r != 1)
        return;
    s->answered = true;
    events_forget(s->front->events, watch);
    s->calls->answered(s->owner, &s->head);
}

/* What is to come of the answer, into `bytes`; as recv says it. */
static ssize_t take(struct files_stream *s, void *bytes, size_t size)
{
    ssize_t n;

    do {
        n = recv(s->fd, bytes, size, MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN && s->watch.fd < 0)
        ignore(events_watch(s->front->events, &s->watch, s->fd, EPOLLIN) == 0);
    return n < 0 ? -errno : n == 0 ? -EPIPE : n;
}

/* The length of the next piece: 1 it is known, else as files_stream_pull. */
static ssize_t next_piece(struct files_stream *s)
{
    while (s->length_n < sizeof(s->length)) {
        ssize_t n = take(s, (char *)&s->length + s->length_n, sizeof(s->length) - s->length_n);
        if (n < 0)
            return n;
        s->length_n += (size_t)n;
    }
    s->length_n = 0;
    s->left = s->length;
    s->ended = s->length == 0;
    return s->ended ? 0 : 1;
}

ssize_t files_stream_pull(struct files_stream *s, char *bytes, size_t size)
{
    if (s->ended)
        return 0;
    if (s->pieces && s->left == 0) {
        ssize_t r = next_piece(s);
        if (r <= 0)
            return r;
    }
    ssize_t n = take(s, bytes, size < s->left ? size : (size_t)s->left);
    if (n < 0)
        return n;
    s->left -= (uint64_t)n;
    if (!s->pieces && s->left == 0)
        s->ended = true;
    return n;
}

/* --- the beginning and the end --- */

struct files_stream *files_stream_begin(struct front *front, const struct quota_request *whose,
                                        const struct files_message *m,
                                        const struct exec_message *wake,
                                        const struct files_calls *calls, void *owner)
{
    struct files_stream *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->front = front;
    s->switches = front->switches;
    s->calls = calls;
    s->owner = owner;
    s->only_reads = only_reads(m);
    s->may_sleep = asleep_may_answer(m, wake);
    s->lasts = m->op == FILES_WATCH;
    s->older = front->file_streams;
    if (s->older)
        s->older->newer = s;
    front->file_streams = s;
    s->fd = -1;
    s->passed = -1;
    s->watch = (struct watch){.ready = ready, .fd = -1};
    text_copy(s->workspace, sizeof(s->workspace), whose->workspace);
    text_copy(s->bucket, sizeof(s->bucket), wake->bucket);
    text_copy(s->owner_name, sizeof(s->owner_name), whose->owner);
    s->memory_bytes = whose->memory_bytes;
    s->pids = whose->pids;
    s->starts_nothing = whose->starts_nothing;
    buf_init(&s->message, FILES_MESSAGE);
    buf_init(&s->wake, MESSAGE_MAX);
    buf_init(&s->body, BODY_KEPT + 2UL * FILES_PIECE);
    files_pack(&s->message, m);
    protocol_pack_exec(&s->wake, 0, wake);
    if (buf_done(&s->message) < 0 || buf_done(&s->wake) < 0) {
        files_free(s);
        return NULL;
    }
    return s;
}

int files_start(struct files_stream *s)
{
    bool sleeps = !find(s->front, s->workspace, false) && !front_is_awake(s->front, s->workspace);

    return s->may_sleep && sleeps ? start_asleep(s) : start_awake(s);
}

/* Less than all only while much of it waits: then there is an event to come, and `room` after it.
 */
size_t files_body(struct files_stream *s, const char *bytes, size_t n)
{
    size_t taken = 0;

    if (s->answered || s->body_ends)
        return n; /* nobody wants it any more */
    while (taken < n && s->body.n < BODY_KEPT && !s->body.failed) {
        size_t left = n - taken;
        uint32_t length = left < FILES_PIECE ? (uint32_t)left : FILES_PIECE;
        buf_add(&s->body, &length, sizeof(length));
        buf_add(&s->body, bytes + taken, length);
        taken += length;
        if (s->fd >= 0)
            push_body(s);
    }
    if (s->fd >= 0)
        want(s);
    return taken;
}

void files_end_body(struct files_stream *s)
{
    const uint32_t end = 0;

    if (s->body_ends || s->answered)
        return;
    s->body_ends = true;
    buf_add(&s->body, &end, sizeof(end));
    if (s->fd >= 0) {
        push_body(s);
        want(s);
    }
}

int files_take_fd(struct files_stream *s)
{
    return take_fd(&s->passed);
}

void files_free(struct files_stream *s)
{
    if (s->server) {
        struct files_stream **at = &s->server->waiting;
        while (*at != s)
            at = &(*at)->next;
        *at = s->next;
    }
    if (s->newer)
        s->newer->older = s->older;
    else
        s->front->file_streams = s->older;
    if (s->older)
        s->older->newer = s->newer;
    events_forget(s->front->events, &s->watch);
    scope_close(&s->fd);
    scope_close(&s->passed);
    buf_clear(&s->message);
    buf_clear(&s->wake);
    buf_clear(&s->body);
    free(s);
}
