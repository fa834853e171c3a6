/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping readers: processes that read the trees of workspaces that sleep
 * (src/protocol/files_asleep.h). They are made ahead by one of their own; the front gets an end of
 * a socket, and each goes by itself when nobody asks it for a while.
 *
 *   a request --(the workspace sleeps, nobody has its tree alone)--> a job, ANSWER_FILES
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/forks.h"
#include "broker/sandboxes.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"
#include "protocol/files_asleep.h"
#include "sys/fds.h"

enum {
    MOST_READERS = 64, /* more workspaces are woken instead */
    AGAIN_MS = 60000,  /* when their maker has ended */
};

struct sleeping_reader {
    struct sleeping_reader *next;
    struct broker *broker;
    char workspace[PROTOCOL_ID + 1];
    int socket;         /* as the front's; -1: it is being ended */
    int leash;          /* to end it by, and to hear of its end */
    struct watch watch; /* of that */
};

struct asleep {
    struct broker *broker;
    struct files_process maker; /* pid 0: there is none */
    struct watch gone;
    struct timer again;
    struct sleeping_reader *sleeping_readers;
    size_t count;
};

static void forget(struct sleeping_reader *o)
{
    struct asleep *a = o->broker->asleep;
    struct sleeping_reader **at = &a->sleeping_readers;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    a->count--;
    events_forget(o->broker->events, &o->watch);
    scope_close(&o->socket);
    scope_close(&o->leash);
    free(o);
}

static void has_ended(struct watch *watch, uint32_t what)
{
    (void)what;
    forget(container_of(watch, struct sleeping_reader, watch));
}

void asleep_end(struct broker *b, const char *workspace)
{
    for (struct sleeping_reader *o = b->asleep ? b->asleep->sleeping_readers : NULL; o;
         o = o->next) {
        if (strcmp(o->workspace, workspace) != 0 || o->socket < 0)
            continue;
        (void)shutdown(o->socket, SHUT_RDWR); /* also the front's end of it */
        scope_close(&o->socket);
        ignore(send(o->leash, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1); /* else it has gone */
    }
}

bool asleep_is_read(const struct broker *b, const char *workspace)
{
    const struct sleeping_reader *o = b->asleep ? b->asleep->sleeping_readers : NULL;

    while (o && strcmp(o->workspace, workspace) != 0)
        o = o->next;
    return o != NULL;
}

static void end_maker(struct asleep *a)
{
    events_forget(a->broker->events, &a->gone);
    (void)kill(a->maker.pid, SIGKILL); /* those that wait go with it; others have a leash */
    (void)waitpid(a->maker.pid, NULL, 0);
    scope_close(&a->maker.pidfd);
    scope_close(&a->maker.socket);
    a->maker.pid = 0;
}

/* Until then workspaces are woken instead. */
static void try_later(struct asleep *a)
{
    log_warning("asleep_gone", "then", "reading files wakes their workspaces for a minute", NULL);
    ignore(timer_set(a->broker->events, &a->again, now_ms() + AGAIN_MS) == 0); /* then never */
}

static void maker_is_gone(struct watch *watch, uint32_t what)
{
    struct asleep *a = container_of(watch, struct asleep, gone);

    (void)what;
    end_maker(a);
    try_later(a);
}

static void start_maker(struct timer *timer)
{
    struct asleep *a = container_of(timer, struct asleep, again);
    struct broker *b = a->broker;

    if (b->stopping)
        return;
    if (files_spawn(b, "--asleep", &a->maker) < 0) {
        try_later(a);
        return;
    }
    a->gone.ready = maker_is_gone;
    if (events_watch(b->events, &a->gone, a->maker.pidfd, EPOLLIN) < 0)
        maker_is_gone(&a->gone, 0);
}

void asleep_prepare(struct broker *b)
{
    b->asleep = calloc(1, sizeof(*b->asleep));
    if (!b->asleep)
        return;
    b->asleep->broker = b;
    b->asleep->gone.fd = -1;
    b->asleep->again.ring = start_maker;
    start_maker(&b->asleep->again);
}

void asleep_close(struct broker *b)
{
    struct asleep *a = b->asleep;

    if (!a)
        return;
    timer_stop(b->events, &a->again);
    if (a->maker.pid)
        end_maker(a);
    while (a->sleeping_readers)
        forget(a->sleeping_readers);
    free(a);
    b->asleep = NULL;
}

/* 0 or -errno. */
static int give_job(const struct asleep *a, const int fds[ASLEEP_FDS])
{
    struct asleep_job job = {.has_ids = geteuid() == 0};
    const struct iovec part = {&job, sizeof(job)};
    struct stat st;

    if (fstat(fds[0], &st) < 0)
        return -errno;
    job.uid = st.st_uid;
    job.gid = st.st_gid;
    ssize_t sent = fds_send(a->maker.socket, &part, 1, fds, ASLEEP_FDS, MSG_DONTWAIT);
    return sent < 0 ? (int)sent : 0;
}

/* 0 or -errno. */
static int begin(struct sleeping_reader *o, int tree)
{
    int calls[2];
    int leash[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, calls) < 0)
        return -errno;
    o->socket = calls[0];
    scoped_fd int their_calls = calls[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, leash) < 0)
        return -errno;
    o->leash = leash[0];
    scoped_fd int their_leash = leash[1];
    int r = events_watch(o->broker->events, &o->watch, o->leash, EPOLLIN);
    if (r == 0)
        r = give_job(o->broker->asleep, (const int[ASLEEP_FDS]){tree, their_calls, their_leash});
    return r;
}

static struct sleeping_reader *new_sleeping_reader(struct broker *b, const char *workspace,
                                                   int tree)
{
    struct sleeping_reader *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    *o = (struct sleeping_reader){.next = b->asleep->sleeping_readers,
                                  .broker = b,
                                  .socket = -1,
                                  .leash = -1,
                                  .watch = {.ready = has_ended, .fd = -1}};
    b->asleep->sleeping_readers = o;
    b->asleep->count++;
    snprintf(o->workspace, sizeof(o->workspace), "%s", workspace);
    if (begin(o, tree) == 0)
        return o;
    forget(o);
    return NULL;
}

void asleep_request(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    const char *workspace = m->texts[1];
    const struct asleep *a = b->asleep;
    const struct sleeping_reader *o = NULL;
    scoped_buf struct buf message;
    struct err err;

    buf_init(&message, 4096);
    bool sleeps = !b->stopping && !sandbox_find_any(b, workspace) && !lock_is_held(b, workspace);
    /* What lies in a fork is in its layer and in what that is over. */
    if (fork_find(b, m->texts[0], workspace, NULL, &err) != 0)
        sleeps = false;
    if (sleeps && a && a->maker.pid && a->count < MOST_READERS &&
        !tree_has_image(b, m->texts[0], workspace)) {
        scoped_fd int tree = tree_open(b, m->texts[0], workspace, &err);
        if (tree >= 0)
            o = new_sleeping_reader(b, workspace, tree);
    }
    if (!o) {
        err_set(&err, ERR_CONFLICT, 0, "the workspace has to be woken for that");
        channel_send_error(b, tag, &err);
        return;
    }
    protocol_pack_plain(&message, tag, &(struct plain_message){.texts = {workspace}});
    channel_send(b, ANSWER_FILES, &message, &o->socket, 1);
}
