/* SPDX-License-Identifier: Apache-2.0 */
/* One background thread makes sandboxes and clears away what runs have left of them:
 *
 *   missing --(thread)--> ready --(carrel_run)--> taken --(end of the run)--> used
 *      used --(thread)--> gone
 *
 * The thread lives as long as the pool, because pid 1 dies with the thread that made it. */
#include "sandbox/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/start.h"
#include "sandbox/wire.h"
#include "sys/message.h"

enum {
    POOL_MAX_SIZE = 1024,
    DEFAULT_IDLE_MS = 60000,
    READY_WITHIN_MS = 30000, /* a frame takes a millisecond or two; a machine can be very busy */
    QUIET_MS = 10, /* after a run: making and clearing away take locks that a run would wait for */
    PAUSE_AFTER_FAILURE_MS = 1000
};

enum attempt {
    UNTRIED,
    MADE,
    FAILED
};

struct prepared {
    struct prepared *next;
    struct live live;
    struct identity identity;
    struct cgroup cgroup;
    uint32_t flags; /* of the setup it was made with */
    uint32_t namespaces;
    int mount_ns; /* keeps the mounts until we, not the run, take them down */
};

struct carrel_pool {
    struct carrel_spec like;
    unsigned size;
    uint64_t idle_ms;
    pthread_t thread;
    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    struct prepared *ready;
    struct prepared *used;
    unsigned ready_count;
    unsigned used_count;
    enum attempt first; /* the count may be 0 again before anyone asks how it went */
    bool closing;
    uint64_t last_use_ms;
    uint64_t retry_ms; /* not before: the last attempt failed */
    struct err failure;
    uid_t owner_uid; /* of the last workspace */
    gid_t owner_gid;
    double thread_ms; /* cpu time of the thread itself */
    struct carrel_pool_stats stats;
};

static double clock_ms(clockid_t clock)
{
    struct timespec t;

    if (clock_gettime(clock, &t) < 0)
        return 0;
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static void prepared_free(struct prepared *p)
{
    live_clear(&p->live);
    scope_close(&p->mount_ns);
    cgroup_clear(&p->cgroup);
    identity_clear(&p->identity);
    free(p);
}

/* Waits for the one reply a frame gives. */
static int await_ready(struct live *live, struct err *err)
{
    struct pollfd socket = {.fd = live->socket, .events = POLLIN};
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    struct reply reply;

    if (poll(&socket, 1, READY_WITHIN_MS) != 1)
        return err_set(err, ERR_IO, 0, "a sandbox for the pool did not get ready");
    if (message_receive_head(live->socket, &head, fds) != 1 || head.fd_count != 0 ||
        head.length != sizeof(reply) ||
        message_read_exactly(live->socket, &reply, sizeof(reply)) < 0)
        return live_explain_death(live, err);
    if (reply.kind == REPLY_READY)
        return 0;
    *err = reply.error;
    err->msg[sizeof(err->msg) - 1] = '\0';
    return -1;
}

static int open_mount_ns(pid_t pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Most workspaces of a pool belong to one user: an id map for the last one seen is made ahead. */
static int map_owner(struct run *run, uid_t uid, gid_t gid, struct err *err)
{
    int unused;

    return run->identity.range
               ? identity_idmap(&run->identity, IDENTITY_MAP_OWNER, uid, gid, &unused, err)
               : 0;
}

static struct prepared *prepare(const struct carrel_spec *like, uid_t uid, gid_t gid,
                                struct err *err)
{
    struct prepared *p = calloc(1, sizeof(*p));
    struct run *run = malloc(sizeof(*run));

    if (!p || !run) {
        free(p);
        free(run);
        err_set(err, ERR_LIMIT, 0, "out of memory");
        return NULL;
    }
    live_init(&p->live);
    int r = run_prepare_frame(run, like, err);
    run->cgroup.nest = true; /* it may become one that stays, with limits of single commands */
    if (r == 0)
        r = live_start_frame(&p->live, run, err);
    if (r == 0)
        r = map_owner(run, uid, gid, err);
    identity_settle(&run->identity);
    if (r == 0)
        r = await_ready(&p->live, err);
    p->mount_ns = p->live.pid > 0 ? open_mount_ns(p->live.pid) : -1;
    p->identity = run->identity;
    p->cgroup = run->cgroup;
    p->flags = run->setup.flags;
    p->namespaces = run->setup.namespaces;
    identity_init(&run->identity);
    cgroup_init(&run->cgroup);
    run_clear(run);
    free(run);
    if (r < 0) {
        prepared_free(p);
        return NULL;
    }
    return p;
}

static double cpu_of(pid_t pid)
{
    clockid_t clock;

    return clock_getcpuclockid(pid, &clock) == 0 ? clock_ms(clock) : 0;
}

/* Called with the lock held, gives it up meanwhile. */
static void add_one(struct carrel_pool *pool)
{
    struct err err = {0};
    uid_t uid = pool->owner_uid;
    gid_t gid = pool->owner_gid;

    pthread_mutex_unlock(&pool->lock);
    struct prepared *p = prepare(&pool->like, uid, gid, &err);
    double spent = p ? cpu_of(p->live.pid) : 0;
    pthread_mutex_lock(&pool->lock);
    if (pool->first == UNTRIED)
        pool->first = p ? MADE : FAILED;
    pool->stats.cpu_ms += spent;
    if (p) {
        p->next = pool->ready;
        pool->ready = p;
        pool->ready_count++;
    } else {
        pool->failure = err;
        pool->retry_ms = now_ms() + PAUSE_AFTER_FAILURE_MS;
    }
    pthread_cond_broadcast(&pool->changed);
}

/* Likewise. */
static void free_list(struct carrel_pool *pool, struct prepared **list)
{
    struct prepared *p = *list;

    *list = NULL;
    pthread_mutex_unlock(&pool->lock);
    while (p) {
        struct prepared *next = p->next;
        prepared_free(p);
        p = next;
    }
    pthread_mutex_lock(&pool->lock);
}

static void drop_ready(struct carrel_pool *pool)
{
    pool->ready_count = 0;
    free_list(pool, &pool->ready);
}

static void drop_used(struct carrel_pool *pool)
{
    pool->used_count = 0;
    free_list(pool, &pool->used);
}

/* When to look again; the thread is woken before that when something changes. */
static void wait_until(struct carrel_pool *pool, uint64_t when_ms)
{
    struct timespec until = {.tv_sec = (time_t)(when_ms / 1000),
                             .tv_nsec = (long)(when_ms % 1000) * 1000000};

    (void)pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
}

/* One piece of work, or a wait for the next. While runs come and go, only what is needed soon. */
static void work(struct carrel_pool *pool)
{
    uint64_t now = now_ms();
    bool idle = now - pool->last_use_ms >= pool->idle_ms && pool->first != UNTRIED;
    bool quiet = now - pool->last_use_ms >= QUIET_MS;
    bool missing = !idle && pool->ready_count < pool->size && now >= pool->retry_ms;

    if (missing && (quiet || pool->ready_count <= pool->size / 2))
        add_one(pool);
    else if (pool->used && (quiet || pool->used_count > pool->size))
        drop_used(pool);
    else if (idle && pool->ready)
        drop_ready(pool);
    else if (idle)
        wait_until(pool, now + pool->idle_ms);
    else if (pool->used || missing)
        wait_until(pool, pool->last_use_ms + QUIET_MS);
    else
        wait_until(pool, pool->retry_ms > now ? pool->retry_ms : pool->last_use_ms + pool->idle_ms);
    pool->thread_ms = clock_ms(CLOCK_THREAD_CPUTIME_ID);
}

static void *keep(void *argument)
{
    struct carrel_pool *pool = argument;

    pthread_mutex_lock(&pool->lock);
    while (!pool->closing)
        work(pool);
    drop_ready(pool);
    drop_used(pool);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Everything that is decided when the frame is made. */
_Static_assert(sizeof(struct carrel_limits) == 7 * sizeof(uint64_t), "a new limit goes in here");

/* What a frame has to know of the network. */
static bool has_own_network(const struct carrel_spec *spec)
{
    return spec->net != CARREL_NET_HOST;
}

static bool suits(const struct carrel_spec *a, const struct carrel_spec *b)
{
    const struct carrel_limits *x = &a->limits;
    const struct carrel_limits *y = &b->limits;

    /* A pool keeps the mounts of what was used for a while; a layer has to be gone with its run. */
    return !a->plan && !b->plan && has_own_network(a) == has_own_network(b) && a->user == b->user &&
           a->tmp_bytes == b->tmp_bytes && x->memory_bytes == y->memory_bytes &&
           x->pids == y->pids && x->cpu_milli == y->cpu_milli && x->io_bytes == 0 &&
           y->io_bytes == 0 && x->disk_bytes == y->disk_bytes && x->disk_files == y->disk_files &&
           x->disk_image == y->disk_image;
}

static bool has_died(const struct prepared *p)
{
    struct pollfd pid_1 = {.fd = p->live.pidfd, .events = POLLIN};

    return poll(&pid_1, 1, 0) != 0;
}

/* One that stands; the host may have ended some while they waited. */
static struct prepared *take_living(struct carrel_pool *pool)
{
    struct prepared *p;

    while ((p = pool->ready)) {
        pool->ready = p->next;
        pool->ready_count--;
        if (!has_died(p))
            return p;
        p->next = pool->used;
        pool->used = p;
        pool->used_count++;
    }
    return NULL;
}

void pool_take(struct carrel_pool *pool, struct run *run)
{
    struct prepared *p = NULL;

    pthread_mutex_lock(&pool->lock);
    pool->last_use_ms = now_ms();
    pool->owner_uid = run->owner_uid;
    pool->owner_gid = run->owner_gid;
    if (suits(&pool->like, run->spec) && !run->authority_cert &&
        !(run->setup.flags & SETUP_REDIRECT))
        p = take_living(pool);
    if (p)
        pool->stats.taken++;
    else
        pool->stats.missed++;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    if (!p)
        return;
    run->taken = p;
    run->identity = p->identity;
    run->cgroup = p->cgroup;
    run->setup.flags = p->flags;
    run->setup.namespaces = p->namespaces;
    identity_init(&p->identity);
    cgroup_init(&p->cgroup);
}

void pool_hand_over(struct prepared *taken, struct live *live)
{
    *live = taken->live;
    live_init(&taken->live);
}

void pool_give_back(struct carrel_pool *pool, struct run *run)
{
    struct prepared *taken = run->taken;

    taken->identity = run->identity;
    taken->cgroup = run->cgroup;
    identity_init(&run->identity);
    cgroup_init(&run->cgroup);
    run->taken = NULL;
    pthread_mutex_lock(&pool->lock);
    taken->next = pool->used;
    pool->used = taken;
    pool->used_count++;
    pool->last_use_ms = now_ms();
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

static int start_thread(struct carrel_pool *pool, struct err *err)
{
    pthread_condattr_t monotonic;
    sigset_t all;
    sigset_t before;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&pool->lock, NULL);
    sigfillset(&all); /* signals are the caller's business */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&pool->thread, NULL, keep, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r ? err_set(err, ERR_LIMIT, r, "start the pool's thread") : 0;
}

/* A pool that cannot make its first sandbox is refused, in that sandbox's words. */
static int await_first(struct carrel_pool *pool, struct err *err)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->first == UNTRIED)
        pthread_cond_wait(&pool->changed, &pool->lock);
    bool ok = pool->first == MADE;
    if (!ok)
        *err = pool->failure;
    pthread_mutex_unlock(&pool->lock);
    return ok ? 0 : -1;
}

static int check_options(const struct carrel_pool_options *options, struct err *err)
{
    if (options->size == 0 || options->size > POOL_MAX_SIZE)
        return err_set(err, ERR_INVALID, 0, "a pool holds 1 to %d sandboxes", POOL_MAX_SIZE);
    if (options->like.level == CARREL_LEVEL_DIR)
        return err_set(err, ERR_INVALID, 0, "level dir has nothing to prepare; use level ns");
    if (options->like.limits.io_bytes)
        return err_set(err, ERR_INVALID, 0,
                       "a bound on io depends on the workspace's device and cannot be prepared");
    return 0;
}

int carrel_pool_open(const struct carrel_pool_options *options, struct carrel_pool **ret,
                     struct carrel_error *error)
{
    struct err err = {0};
    struct carrel_pool *pool = NULL;

    if (check_options(options, &err) < 0)
        return run_report(&err, error);
    pool = calloc(1, sizeof(*pool));
    if (!pool) {
        err_set(&err, ERR_LIMIT, 0, "out of memory");
        return run_report(&err, error);
    }
    pool->like = options->like;
    pool->size = options->size;
    pool->idle_ms = options->idle_ms ? options->idle_ms : DEFAULT_IDLE_MS;
    pool->last_use_ms = now_ms();
    pool->owner_uid = geteuid();
    pool->owner_gid = getegid();
    if (start_thread(pool, &err) < 0) {
        free(pool);
        return run_report(&err, error);
    }
    if (await_first(pool, &err) < 0) {
        carrel_pool_close(pool);
        return run_report(&err, error);
    }
    *ret = pool;
    return 0;
}

void carrel_pool_stats(struct carrel_pool *pool, struct carrel_pool_stats *ret)
{
    pthread_mutex_lock(&pool->lock);
    *ret = pool->stats;
    ret->ready = pool->ready_count;
    ret->cpu_ms += pool->thread_ms;
    pthread_mutex_unlock(&pool->lock);
}

void carrel_pool_close(struct carrel_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->closing = true;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    pthread_join(pool->thread, NULL);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
