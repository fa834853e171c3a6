/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, each in a thread of its own: all of them wait on the one socket, and the kernel wakes one
 * for each message. There is always one more than is busy, up to a bound; then calls are refused.
 * What hangs in a file holds up nobody else. */
#include "files/serve.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/call.h"
#include "files/core/paths.h"
#include "protocol/files_asleep.h"
#include "protocol/files_join.h"
#include "sys/fds.h"

enum {
    MOST_THREADS = 256,
    IDLE_THREADS = 4, /* more go home */
    STACK_BYTES = 512 << 10,
    ARENA_BYTES = 1 << 20,
    ASLEEP_IDLE_S = 1, /* a workspace that sleeps has a process no longer than it is looked at */
};

struct server {
    int socket;
    int hidden;
    struct files_activity *activity;
    bool asleep;
    atomic_int idle;
    atomic_int all;
    atomic_bool is_ending; /* the front and the broker have let go of the socket */
};

static files_operation *const operations[FILES_OP_COUNT_] = {
    [FILES_READ] = files_read,
    [FILES_TEXT] = files_text,
    [FILES_STAT] = files_stat,
    [FILES_LIST] = files_list,
    [FILES_WRITE] = files_write,
    [FILES_APPEND] = files_append,
    [FILES_EDIT] = files_edit,
    [FILES_REMOVE] = files_remove,
    [FILES_MOVE] = files_move,
    [FILES_COPY] = files_copy,
    [FILES_MKDIR] = files_mkdir,
    [FILES_CHMOD] = files_chmod,
    [FILES_SYMLINK] = files_symlink,
    [FILES_GLOB] = files_glob,
    [FILES_GREP] = files_grep,
    [FILES_WATCH] = files_watch,
    [FILES_INVENTORY] = files_inventory,
    [FILES_BATCH_READ] = files_batch_read,
    [FILES_BATCH_WRITE] = files_batch_write,
    [FILES_PACK] = files_pack_tree,
    [FILES_UNPACK] = files_unpack_tree,
    [FILES_REPAIR] = files_repair,
    [FILES_CONNECT] = files_connect,
};

static void handle(const struct server *server, char *bytes, size_t n, int stream)
{
    struct files_message m;
    struct arena arena;

    arena_init(&arena, ARENA_BYTES);
    struct files_call call = {.m = &m,
                              .stream = stream,
                              .hidden = server->hidden,
                              .replaced = -1,
                              .asleep = server->asleep};
    if (files_unpack(bytes, n, &arena, &m)) {
        if (!call.asleep || files_asleep_can(&m))
            operations[m.op](&call);
        if (!call.answered && !call.gone)
            answer_errno(&call, EIO, m.path);
    }
    arena_clear(&arena);
    files_room_end_call();
    if (call.replaced >= 0) {
        (void)sched_yield(); /* to who passes the answer on: freeing takes as long as all of it */
        scope_close(&call.replaced);
    }
}

/* One message and its stream. 0: the front and the broker have gone; -1: none came for a while. A
 * message with other descriptors is one without a stream: nobody would hear the answer. */
static ssize_t receive(int socket, char *bytes, int *ret_stream)
{
    size_t count = 1;
    ssize_t n;

    *ret_stream = -1;
    n = fds_receive(socket, bytes, FILES_MESSAGE, ret_stream, &count, 0);
    if (n == -EPROTO)
        return 1;
    return n == -EAGAIN ? -1 : n < 0 ? 0 : n;
}

static void *work(void *context);

static bool add_thread(struct server *server)
{
    pthread_attr_t attr;
    pthread_t thread;

    if (atomic_fetch_add(&server->all, 1) >= MOST_THREADS || pthread_attr_init(&attr) != 0) {
        atomic_fetch_sub(&server->all, 1);
        return false;
    }
    atomic_fetch_add(&server->idle, 1);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int r = pthread_create(&thread, &attr, work, server);
    (void)pthread_attr_destroy(&attr);
    if (r == 0)
        return true;
    atomic_fetch_sub(&server->idle, 1);
    atomic_fetch_sub(&server->all, 1);
    return false;
}

static void refuse(const struct server *server, int stream)
{
    const struct files_message m = {.path = "/"};
    struct files_call call = {
        .m = &m, .stream = stream, .hidden = -1, .replaced = -1, .asleep = server->asleep};

    answer_error(&call, 503, "unavailable",
                 "too many calls on this workspace's files at once; try again");
}

/* Whether it is to wait for the next call. Who goes home was never counted as idle: else the last
 * of those that wait could take a call and not see that nobody is left. */
static bool stays(struct server *server)
{
    int idle = atomic_load(&server->idle);

    do {
        if (idle >= IDLE_THREADS)
            return false;
    } while (!atomic_compare_exchange_weak(&server->idle, &idle, idle + 1));
    return true;
}

/* Since it was last asked, or now. */
static bool was_active(const struct files_activity *activity, uint64_t *seen)
{
    uint64_t begun = atomic_load(&activity->begun);
    bool active = begun != *seen || begun != atomic_load(&activity->ended);

    *seen = begun;
    return active;
}

static void *work(void *context)
{
    struct server *server = context;
    char *bytes = malloc(FILES_MESSAGE);
    bool idle = bytes != NULL;
    uint64_t seen = 0;
    int stream;

    if (!idle)
        atomic_fetch_sub(&server->idle, 1);
    while (idle) {
        ssize_t n = receive(server->socket, bytes, &stream);
        if (n < 0) {
            /* Nobody has asked for a while: what comes in this moment is still answered, and then
             * each thread reads the end. */
            if (!was_active(server->activity, &seen))
                (void)shutdown(server->socket, SHUT_RDWR);
            continue;
        }
        if (n == 0) {
            server->is_ending = true;
            break;
        }
        bool last = atomic_fetch_sub(&server->idle, 1) == 1 && !add_thread(server);
        atomic_fetch_add(&server->activity->begun, 1);
        /* Who is to take the next call, and say so, if this one took long? */
        if (stream >= 0 && last)
            refuse(server, stream);
        else if (stream >= 0)
            handle(server, bytes, (size_t)n, stream);
        scope_close(&stream);
        atomic_fetch_add(&server->activity->ended, 1);
        idle = !server->is_ending && stays(server);
    }
    free(bytes);
    /* Nobody asks any more. Calls under way are finished, also one that was taken a moment ago and
     * is not counted as begun: the last thread ends the process. */
    if (atomic_fetch_sub(&server->all, 1) == 1 && server->is_ending)
        _exit(0);
    return NULL;
}

static struct server the_server;

int files_serve(int socket, const struct files_joined *joined)
{
    struct buf unfinished;

    the_server =
        (struct server){.socket = socket, .hidden = joined->hidden, .activity = joined->activity};
    files_room_begin(joined->activity, joined->wake);
    files_sweep_find(joined->sweeps ? joined->hidden : -1, &unfinished);
    if (!add_thread(&the_server))
        return -ENOMEM;
    (void)add_thread(&the_server); /* the first call need not make the one for the next */
    files_sweep(joined->hidden, &unfinished);
    for (;;)
        (void)pause();
}

/* This thread does nothing but wait for the leash. */
int files_serve_asleep(int socket, int leash)
{
    static struct files_activity activity;
    const struct timeval patience = {.tv_sec = ASLEEP_IDLE_S};
    char byte;

    the_server =
        (struct server){.socket = socket, .hidden = -1, .activity = &activity, .asleep = true};
    if (setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0)
        return -errno;
    if (!add_thread(&the_server))
        return -ENOMEM;
    (void)add_thread(&the_server);
    while (recv(leash, &byte, 1, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

static void *rehearse(void *context)
{
    static const struct server server = {.hidden = -1};
    const struct files_message m = {.op = FILES_STAT,
                                    .path = "/",
                                    .other = "",
                                    .pattern = "",
                                    .cursor = "",
                                    .if_match = "",
                                    .if_none_match = ""};
    struct buf b;
    int pair[2];

    (void)context;
    buf_init(&b, FILES_MESSAGE);
    files_pack(&b, &m);
    if (buf_done(&b) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0) {
        handle(&server, b.p, b.n, pair[0]);
        (void)close(pair[0]);
        (void)close(pair[1]);
    }
    buf_clear(&b);
    return NULL;
}

void files_serve_rehearse(void)
{
    pthread_attr_t attr;
    pthread_t thread;

    if (pthread_attr_init(&attr) != 0)
        return;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES); /* which is used again */
    if (pthread_create(&thread, &attr, rehearse, NULL) == 0)
        (void)pthread_join(thread, NULL);
    (void)pthread_attr_destroy(&attr);
}

int files_serve_one_by_one(int socket)
{
    const struct server server = {.socket = socket, .hidden = -1};
    char *bytes = malloc(FILES_MESSAGE);
    int stream;
    ssize_t n;

    if (!bytes)
        return -ENOMEM;
    while ((n = receive(socket, bytes, &stream)) > 0) {
        if (stream >= 0)
            handle(&server, bytes, (size_t)n, stream);
        scope_close(&stream);
    }
    free(bytes);
    return 0;
}
