/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/session/group.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sys/cgroup.h"

enum {
    REMOVE_TRIES = 10, /* 1, 2, 4 ... ms between them */
};

struct group {
    struct group *next;
    struct group_home *home;
    enum group_state state; /* under the lock */
    bool removing;
    void (*last)(void *argument); /* not a group at all: the end of its home */
    void *argument;
    size_t left;  /* of an end: groups of its home whose removal was put off */
    bool reached; /* of an end: it waits for those only */
    bool dropped; /* while it was worked at */
    unsigned tries;
    uint64_t due_ms; /* of one that was put off */
    pid_t pid;
    int pidfd; /* our own */
    int dir;   /* of the group that everything is killed in */
    char name[48];
    bool freezer;
    bool own;   /* `dir` was made for this and is to be removed */
    bool whole; /* with all that the process has started, and frozen */
    bool limited;
    struct carrel_limits limits;
    struct cgroup cgroup; /* of the limits */
    struct err err;
};

/* Held while the thread is started or waited for. */
static struct {
    pthread_mutex_t lock;
    unsigned count;
} users = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct {
    pthread_mutex_t lock; /* of all below, and of the states of groups */
    pthread_cond_t changed;
    pthread_t thread;
    bool closing;
    struct group *first;
    struct group **last;
    struct group *later; /* put off: one that is slow to end keeps nobody else waiting */
} mover = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- the thread's work --- */

/* Below the sandbox's own group where it has one on v2: nobody may be moved out of that. Otherwise
 * below our own, whose limits stay those of all. */
static void find_home(struct group_home *home)
{
    struct cgroup_spot spot;

    home->known = true;
    if (home->sandbox->v2.dir >= 0) {
        home->parent = fcntl(home->sandbox->v2.dir, F_DUPFD_CLOEXEC, 3);
        return;
    }
    static const char *const hierarchies[] = {"", "freezer"};
    for (unsigned i = 0; home->parent < 0 && i < 2; i++) {
        if (cgroup_find(hierarchies[i], &spot) < 0)
            continue;
        char *name = strrchr(spot.path, '/');
        if (name && strcmp(name + 1, CGROUP_MAIN) == 0)
            *name = '\0'; /* where we made room for groups like these */
        home->freezer = i == 1;
        home->parent = open(spot.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (home->parent >= 0 && (faccessat(home->parent, ".", W_OK, AT_EACCESS) < 0 ||
                                  faccessat(home->parent, "cgroup.procs", W_OK, AT_EACCESS) < 0))
            scope_close(&home->parent);
    }
    if (home->parent >= 0)
        cgroup_sweep(home->parent);
}

static int make_dir(struct group *group)
{
    static atomic_uint counter;

    for (int i = 0; i < 64; i++) {
        snprintf(group->name, sizeof(group->name), "carrel-%d-k%u", (int)getpid(),
                 atomic_fetch_add(&counter, 1));
        if (mkdirat(group->home->parent, group->name, 0755) == 0) {
            group->own = true;
            group->dir =
                openat(group->home->parent, group->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            return group->dir < 0 ? -errno : 0;
        }
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

static bool has_ended(int pidfd)
{
    struct pollfd ended = {.fd = pidfd, .events = POLLIN};

    return poll(&ended, 1, 0) != 0;
}

/* A number may become somebody else's when its process has gone: only one that lives on after the
 * move has been the right one all the time. */
static int move(int dir, pid_t pid, int pidfd)
{
    char text[32];

    snprintf(text, sizeof(text), "%d", (int)pid);
    if (has_ended(pidfd))
        return -ESRCH;
    int r = cgroup_write(dir, "cgroup.procs", text);
    return r == 0 && has_ended(pidfd) ? -ESRCH : r;
}

static int set_frozen(const struct group *group, bool frozen)
{
    if (group->freezer)
        return cgroup_write(group->dir, "freezer.state", frozen ? "FROZEN" : "THAWED");
    return cgroup_write(group->dir, "cgroup.freeze", frozen ? "1" : "0");
}

static int put_into_group(struct group *group)
{
    struct group_home *home = group->home;

    if (!home->known)
        find_home(home);
    if (group->limited && group->cgroup.v2.dir >= 0) {
        group->dir = fcntl(group->cgroup.v2.dir, F_DUPFD_CLOEXEC, 3); /* there is no second one */
        return group->dir < 0 ? -errno : 0;
    }
    if (home->parent < 0)
        return -ENOENT;
    group->freezer = home->freezer;
    int r = make_dir(group);
    if (r < 0 || !group->whole)
        return r < 0 ? r : move(group->dir, group->pid, group->pidfd);
    r = set_frozen(group, true);
    if (r == 0)
        r = has_ended(group->pidfd) ? -ESRCH
                                    : group_take_tree(group->dir, home->parent, group->pid);
    if (r < 0)
        ignore(set_frozen(group, false) == 0);
    return r;
}

static int put_under_limits(struct group *group)
{
    if (!group->limited)
        return 0;
    if (cgroup_make_below(&group->cgroup, group->home->sandbox, &group->limits, &group->err) < 0)
        return -1;
    if (has_ended(group->pidfd))
        return err_set(&group->err, ERR_CONFLICT, 0, "the command's keeper was killed");
    return cgroup_attach(&group->cgroup, group->pid, &group->err);
}

/* Returns what it is now. */
static enum group_state fill(struct group *group)
{
    if (put_under_limits(group) < 0)
        return GROUP_FAILED;
    int r = put_into_group(group);
    if (r == 0)
        return GROUP_IN;
    err_set(&group->err, ERR_KERNEL, -r, "this host gives no control group for a command");
    /* Its limits hold without a group to kill in. */
    if (group->limited && r != -ESRCH) {
        scope_close(&group->dir);
        return GROUP_IN;
    }
    return GROUP_FAILED;
}

/* Whether the dying are still in it: then removing it would wait for them. */
static bool is_filled(const struct cgroup *cgroup)
{
    char text[4096];
    uint64_t populated = 0;

    if (cgroup->v2.dir >= 0 &&
        cgroup_number(cgroup->v2.dir, "cgroup.events", "populated", &populated) == 0 && populated)
        return true;
    for (unsigned i = 0; i < CGROUP_LIMIT_COUNT_; i++) {
        if (cgroup->v1[i].dir >= 0 &&
            cgroup_read(cgroup->v1[i].dir, "cgroup.procs", text, sizeof(text)) > 0)
            return true;
    }
    return false;
}

/* False: it is to be tried again. */
static bool take_away(struct group *group)
{
    bool filled = is_filled(&group->cgroup);

    if (group->own &&
        (unlinkat(group->home->parent, group->name, AT_REMOVEDIR) == 0 || errno != EBUSY))
        group->own = false;
    if (filled)
        cgroup_kill(&group->cgroup);
    if ((group->own || filled) && ++group->tries < REMOVE_TRIES)
        return false;
    scope_close(&group->dir);
    scope_close(&group->pidfd);
    cgroup_clear(&group->cgroup);
    return true;
}

static void queue(struct group *group)
{
    *mover.last = group;
    mover.last = &group->next;
    pthread_cond_broadcast(&mover.changed);
}

static void tell(int fd)
{
    uint64_t one = 1;

    ignore(write(fd, &one, sizeof(one)) == (ssize_t)sizeof(one)); /* full: it will be read */
}

/* The end of a home: nothing of it was asked for later. False: it is to be tried again. */
static bool end_home(struct group *end)
{
    if (is_filled(end->home->sandbox) && ++end->tries < REMOVE_TRIES)
        return false;
    scope_close(&end->home->parent);
    end->last(end->argument);
    return true;
}

static void put_off(struct group *group)
{
    group->due_ms = now_ms() + (1ULL << (group->tries - 1));
    group->next = mover.later;
    mover.later = group;
}

/* Called with the lock held, gives it up meanwhile. */
static void remove_one(struct group *group)
{
    struct group *end = group->last ? group : group->home->end;
    bool first_time = group->tries == 0;

    if (group->left > 0) { /* queued again by the last of them */
        group->reached = true;
        return;
    }
    pthread_mutex_unlock(&mover.lock);
    bool removed = group->last ? end_home(group) : take_away(group);
    pthread_mutex_lock(&mover.lock);
    if (!removed) {
        end->left += group != end && first_time;
        put_off(group);
        return;
    }
    if (group != end && !first_time && --end->left == 0 && end->reached)
        queue(end);
    free(group);
}

/* Called with the lock held, gives it up meanwhile. */
static void do_first(void)
{
    struct group *group = mover.first;

    mover.first = group->next;
    if (!mover.first)
        mover.last = &mover.first;
    group->next = NULL;
    if (group->removing) {
        remove_one(group);
        return;
    }
    group->state = GROUP_MOVING;
    pthread_mutex_unlock(&mover.lock);
    enum group_state state = fill(group);
    pthread_mutex_lock(&mover.lock);
    group->state = state;
    if (group->dropped) { /* before anything that was asked for since: its home may end next */
        group->removing = true;
        group->next = mover.first;
        mover.first = group;
        if (!group->next)
            mover.last = &group->next;
        return;
    }
    tell(group->home->tell);
}

/* Queues those whose time has come, and returns when the next one's does; 0: there is none. */
static uint64_t queue_due(void)
{
    uint64_t now = now_ms();
    uint64_t next_ms = 0;

    for (struct group **at = &mover.later; *at;) {
        struct group *group = *at;
        if (group->due_ms > now) {
            next_ms = next_ms && next_ms < group->due_ms ? next_ms : group->due_ms;
            at = &group->next;
            continue;
        }
        *at = group->next;
        group->next = NULL;
        queue(group);
    }
    return next_ms;
}

static void *work(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mover.lock);
    for (;;) {
        uint64_t ms = queue_due();
        struct timespec due = {.tv_sec = (time_t)(ms / 1000),
                               .tv_nsec = (long)(ms % 1000) * 1000000};
        if (mover.first)
            do_first();
        else if (ms)
            (void)pthread_cond_timedwait(&mover.changed, &mover.lock, &due);
        else if (!mover.closing)
            pthread_cond_wait(&mover.changed, &mover.lock);
        else
            break;
    }
    pthread_mutex_unlock(&mover.lock);
    return NULL;
}

/* --- its users --- */

/* On the clock of now_ms. */
static int make_condition(void)
{
    pthread_condattr_t attr;
    int r = pthread_condattr_init(&attr);

    if (r)
        return r;
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (r == 0)
        r = pthread_cond_init(&mover.changed, &attr);
    pthread_condattr_destroy(&attr);
    return r;
}

static int begin_thread(void)
{
    sigset_t all;
    sigset_t before;

    int r = make_condition();
    if (r)
        return r;
    mover.first = NULL;
    mover.last = &mover.first;
    mover.later = NULL;
    mover.closing = false;
    sigfillset(&all); /* signals are for the caller's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&mover.thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r)
        pthread_cond_destroy(&mover.changed);
    return r;
}

int groups_open(struct group_home *home, const struct cgroup *sandbox, int tell_fd, struct err *err)
{
    *home = (struct group_home){.sandbox = sandbox, .tell = tell_fd, .parent = -1};
    home->end = calloc(1, sizeof(*home->end));
    if (!home->end)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    pthread_mutex_lock(&users.lock);
    int r = users.count == 0 ? begin_thread() : 0;
    users.count += r == 0;
    pthread_mutex_unlock(&users.lock);
    if (r == 0)
        return 0;
    free(home->end);
    return err_set(err, ERR_LIMIT, r, "start the thread that minds control groups");
}

void groups_close(struct group_home *home, void (*last)(void *argument), void *argument)
{
    struct group *end = home->end;

    end->home = home;
    end->removing = true;
    end->last = last;
    end->argument = argument;
    pthread_mutex_lock(&users.lock);
    pthread_mutex_lock(&mover.lock);
    queue(end);
    mover.closing = --users.count == 0;
    pthread_mutex_unlock(&mover.lock);
    if (users.count == 0) {
        pthread_join(mover.thread, NULL);
        pthread_cond_destroy(&mover.changed);
    }
    pthread_mutex_unlock(&users.lock);
}

static struct group *begin(struct group_home *home, pid_t pid, int pidfd, bool whole,
                           const struct carrel_limits *limits)
{
    struct group *group = calloc(1, sizeof(*group));

    if (!group)
        return NULL;
    group->whole = whole;
    group->home = home;
    group->pid = pid;
    group->pidfd = fcntl(pidfd, F_DUPFD_CLOEXEC, 3);
    group->dir = -1;
    cgroup_init(&group->cgroup);
    if (limits) {
        group->limited = true;
        group->limits = *limits;
    }
    pthread_mutex_lock(&mover.lock);
    queue(group);
    pthread_mutex_unlock(&mover.lock);
    return group;
}

struct group *group_make(struct group_home *home, pid_t pid, int pidfd,
                         const struct carrel_limits *limits)
{
    return begin(home, pid, pidfd, false, limits);
}

struct group *group_make_late(struct group_home *home, pid_t pid, int pidfd)
{
    return begin(home, pid, pidfd, true, NULL);
}

enum group_state group_state(const struct group *group, struct err *err)
{
    pthread_mutex_lock(&mover.lock);
    enum group_state state = group->state;
    if (state == GROUP_FAILED && err)
        *err = group->err;
    pthread_mutex_unlock(&mover.lock);
    return state;
}

bool group_cancel(struct group *group)
{
    pthread_mutex_lock(&mover.lock);
    bool waits = group->state == GROUP_QUEUED;
    for (struct group **at = &mover.first; waits && *at; at = &(*at)->next) {
        if (*at != group)
            continue;
        *at = group->next;
        if (mover.last == &group->next)
            mover.last = at;
        break;
    }
    pthread_cond_broadcast(&mover.changed);
    pthread_mutex_unlock(&mover.lock);
    if (waits) {
        scope_close(&group->pidfd);
        free(group);
    }
    return waits;
}

void group_drop(struct group *group)
{
    if (group_cancel(group))
        return;
    pthread_mutex_lock(&mover.lock);
    if (group->state == GROUP_MOVING) {
        group->dropped = true;
    } else {
        group->removing = true;
        queue(group);
    }
    pthread_mutex_unlock(&mover.lock);
}

/* --- ending what is in one --- */

/* Kills those listed; true: there was nobody. */
static bool kill_listed(int dir)
{
    char text[32768];
    char *at = text;

    if (cgroup_read(dir, "cgroup.procs", text, sizeof(text)) <= 0)
        return true;
    for (long pid; (pid = strtol(at, &at, 10)) > 0 && *at == '\n';) /* not one that was cut off */
        (void)kill((pid_t)pid, SIGKILL);
    return false;
}

uint64_t group_number(const struct group *group)
{
    struct stat status;

    return !group->freezer && group->dir >= 0 && fstat(group->dir, &status) == 0
               ? (uint64_t)status.st_ino
               : 0;
}

size_t group_count(const struct group *group)
{
    char text[32768];
    size_t n = 0;

    if (cgroup_read(group->dir, "cgroup.procs", text, sizeof(text)) < 0)
        return SIZE_MAX;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

bool group_can_kill(const struct group *group)
{
    return group->dir >= 0;
}

bool group_kill(struct group *group)
{
    uint64_t populated = 1;

    if (!group->freezer) {
        if (cgroup_number(group->dir, "cgroup.events", "populated", &populated) < 0 ||
            populated == 0)
            return true;
        if (cgroup_write(group->dir, "cgroup.kill", "1") == 0)
            return false;
        (void)cgroup_write(group->dir, "cgroup.freeze", "1"); /* before Linux 5.14 */
        (void)kill_listed(group->dir);
        (void)cgroup_write(group->dir, "cgroup.freeze", "0");
        return false;
    }
    /* Who is frozen does not fork, and dies as soon as it is let go. */
    (void)cgroup_write(group->dir, "freezer.state", "FROZEN");
    bool empty = kill_listed(group->dir);
    (void)cgroup_write(group->dir, "freezer.state", "THAWED");
    return empty;
}

int group_freeze(struct group *group)
{
    char state[32];
    uint64_t frozen = 0;
    struct err unused;

    switch (group_state(group, &unused)) {
    case GROUP_QUEUED:
    case GROUP_MOVING:
        return 1;
    case GROUP_FAILED:
        return -ENOTSUP;
    case GROUP_IN:
        break;
    }
    if (group->dir < 0)
        return -ENOTSUP;
    if (set_frozen(group, true) < 0)
        return -ENOTSUP;
    if (group->freezer) { /* asked again and again it takes those in, too, that have forked */
        if (cgroup_read(group->dir, "freezer.state", state, sizeof(state)) < 0)
            return -ENOTSUP;
        return strncmp(state, "FROZEN", 6) != 0;
    }
    if (cgroup_number(group->dir, "cgroup.events", "frozen", &frozen) < 0)
        return -ENOTSUP;
    return frozen == 0;
}

void group_thaw(struct group *group)
{
    struct err unused;

    if (group_state(group, &unused) == GROUP_IN && group->dir >= 0)
        ignore(set_frozen(group, false) == 0);
}

int group_oom_fd(const struct group *group)
{
    return cgroup_oom_fd(&group->cgroup);
}

bool group_ran_out_of_memory(const struct group *group)
{
    return group->limited && cgroup_ran_out_of_memory(&group->cgroup);
}
