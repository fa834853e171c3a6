/* SPDX-License-Identifier: Apache-2.0 */
/* The list of denials, and the listener that tells of them. A process whose call is asked about
 * waits in the kernel until it is answered here, so a flood of such calls is slowed down by
 * answering late: each window of time has so much work in it, and when that is used up the listener
 * rests until the window is over. A call that is done here costs little of it, a refused one too
 * until there have been some thousand. */
#include "sandbox/denial/denial.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/denial/denied.h"
#include "sandbox/denial/setid.h"
#include "sys/refusals.h"
#include "sys/uapi.h"

enum {
    WINDOW_MS = 100,
    WINDOW_CPU_MS = 10,         /* a tenth of a processor, whatever a call makes us do */
    WINDOW_CONNECT_CPU_MS = 20, /* where connections are made here */
    WINDOW_WORK = 6000,
    PATIENT_CALLS = 4000, /* refused ones that cost no more than others */
    PATIENCE_COST = 120,  /* ... and then: 500 a second */
    BATCH = 64,           /* calls answered before the engine looks at other things */
    SAME_RULE_MAX = CARREL_MAX_DENIALS / 2,
    SCAN_BYTES = 1 << 20, /* of error output looked at as it comes; after that only the last */
    NOTIFICATION_MAX = 256,
};

/* The kernel's structures may have grown since our headers were written. */
union notification {
    struct seccomp_notif ask;
    struct seccomp_notif_resp answer;
    char room[NOTIFICATION_MAX];
};

static long seccomp(unsigned operation, unsigned flags, void *argument)
{
    return syscall(SYS_seccomp, operation, flags, argument);
}

/* Letting a call go on (Linux 5.5) cannot be asked for. A flag that came later is taken for it:
 * known, it fails for want of a filter, and not by being invalid. */
bool host_can_notify(void)
{
    uint32_t action = SECCOMP_RET_USER_NOTIF;
    struct seccomp_notif_sizes sizes;

    if (seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0 ||
        seccomp(SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
        return false;
    if (sizes.seccomp_notif > NOTIFICATION_MAX || sizes.seccomp_notif_resp > NOTIFICATION_MAX)
        return false;
    return seccomp(SECCOMP_SET_MODE_FILTER,
                   SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, NULL) < 0 &&
           errno == EFAULT;
}

/* --- the list --- */

void denials_init(struct denials *d, struct run_view run)
{
    memset(d, 0, sizeof(*d));
    d->run = run;
    d->listener = -1;
    d->timer = -1;
    d->stop = -1;
    d->alarm = -1;
    pthread_mutex_init(&d->lock, NULL);
    connector_init(&d->connector);
}

static struct carrel_denial *find(struct denials *d, const struct carrel_denial *like)
{
    for (size_t i = 0; i < d->count; i++) {
        struct carrel_denial *one = &d->list[i];
        if (one->source == like->source && strcmp(one->what, like->what) == 0 &&
            strcmp(one->rule, like->rule) == 0)
            return one;
    }
    return NULL;
}

static size_t count_of_rule(const struct denials *d, const char *rule)
{
    size_t n = 0;

    for (size_t i = 0; i < d->count; i++)
        n += strcmp(d->list[i].rule, rule) == 0;
    return n;
}

/* One rule never takes all the room: a scan of ports must not hide a refused mount. */
static void record_locked(struct denials *d, const struct carrel_denial *one, unsigned times)
{
    struct carrel_denial *known = find(d, one);

    if (known) {
        known->count += times < UINT32_MAX - known->count ? times : UINT32_MAX - known->count;
        return;
    }
    if (!d->list)
        d->list = calloc(CARREL_MAX_DENIALS, sizeof(*d->list));
    if (!d->list || d->count == CARREL_MAX_DENIALS ||
        count_of_rule(d, one->rule) >= SAME_RULE_MAX) {
        d->dropped += d->dropped < UINT32_MAX;
        return;
    }
    d->list[d->count] = *one;
    d->list[d->count++].count = times;
}

static void record(struct denials *d, const struct carrel_denial *one)
{
    pthread_mutex_lock(&d->lock);
    record_locked(d, one, 1);
    pthread_mutex_unlock(&d->lock);
}

void denials_add(struct denials *d, const char *what, const char *rule, const char *fix,
                 enum carrel_source source)
{
    struct carrel_denial one = {.source = source};

    denied_append(one.what, sizeof(one.what), what, strlen(what));
    denied_append(one.rule, sizeof(one.rule), rule, strlen(rule));
    denied_append(one.fix, sizeof(one.fix), fix, strlen(fix));
    record(d, &one);
}

void denials_add_limit(void *denials, const char *what, const char *rule, const char *fix,
                       enum carrel_source source)
{
    denials_add(denials, what, rule, fix, source);
}

void denials_tell(struct denials *d, const struct carrel_denial *one)
{
    pthread_mutex_lock(&d->lock);
    record_locked(d, one, one->count);
    pthread_mutex_unlock(&d->lock);
}

/* --- what the kernel counts --- */

uint64_t refusals_of(const struct run_view *run, pid_t pid)
{
    char net[32];

    if (run->net == CARREL_NET_HOST || run->level != CARREL_LEVEL_NS)
        return 0;
    snprintf(net, sizeof(net), "/proc/%d/net", (int)pid);
    return network_refusals(net);
}

void denials_add_refusals(struct denials *d, uint64_t n)
{
    struct carrel_denial one;

    if (n == 0)
        return;
    denied_refusal(d->run.net, &one);
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->count; i++) {
        if (d->list[i].source == CARREL_SOURCE_INFERRED && strcmp(d->list[i].rule, one.rule) == 0)
            d->list[i--] = d->list[--d->count]; /* the same, read off the error output */
    }
    record_locked(d, &one, n < UINT32_MAX ? (unsigned)n : UINT32_MAX);
    pthread_mutex_unlock(&d->lock);
}

/* --- the listener --- */

void denials_listen(struct denials *d, int listener)
{
    scope_close(&d->listener);
    d->listener = listener;
    /* Older kernels wake the caller as any other process: slower, and nothing else. */
    (void)ioctl(listener, CARREL_SECCOMP_NOTIF_SET_FLAGS, CARREL_SECCOMP_NOTIF_SYNC_WAKE_UP);
}

static int ready_fd(const struct denials *d)
{
    return d->resting ? d->timer : d->listener;
}

int denials_fd(const struct denials *d)
{
    return d->aside ? d->alarm : ready_fd(d);
}

static double cpu_ms(void)
{
    struct timespec t = {0};

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1000 + (double)t.tv_nsec / 1e6;
}

static void begin_window(struct denials *d, uint64_t now)
{
    d->window_ms = now;
    d->window_left = WINDOW_WORK;
    d->window_cpu_ms = cpu_ms();
}

static void rest(struct denials *d, uint64_t now)
{
    uint64_t wait_ms = WINDOW_MS - (now - d->window_ms) % WINDOW_MS;
    struct itimerspec until = {.it_value = {0, (long)wait_ms * 1000000}};

    if (d->timer < 0)
        d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    d->resting = d->timer >= 0 && timerfd_settime(d->timer, 0, &until, NULL) == 0;
}

static bool has_rested(struct denials *d)
{
    uint64_t times;

    if (d->resting && read(d->timer, &times, sizeof(times)) < 0)
        return false;
    d->resting = false;
    return true;
}

static bool has_spent_cpu(const struct denials *d)
{
    double most = d->run.setup->flags & (SETUP_GUARD | SETUP_REDIRECT) ? WINDOW_CONNECT_CPU_MS
                                                                       : WINDOW_CPU_MS;

    return cpu_ms() - d->window_cpu_ms > most;
}

static void spend(struct denials *d, unsigned work)
{
    d->window_left = work < d->window_left ? d->window_left - work : 0;
}

static void tell(struct denials *d, const struct carrel_denial *one)
{
    spend(d, d->refused++ < PATIENT_CALLS ? 1 : PATIENCE_COST);
    record(d, one);
}

/* 0, or -errno when it could not be answered. */
static int answer(int listener, uint64_t id, int result)
{
    union notification reply = {.answer = {.id = id}};

    if (result == CONNECTOR_GO_ON)
        reply.answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    else
        reply.answer.error = result;
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply) < 0 && errno != ENOENT)
        return -errno; /* ENOENT: it has been killed */
    return 0;
}

static int serve_connection(struct denials *d, const struct seccomp_notif *ask)
{
    struct sockaddr_storage address = {0};
    enum outbound why = OUTBOUND_FREE;
    int result = -EAGAIN;

    spend(d, 1);
    if (d->can_wait)
        result = connector_take(&d->connector, &d->run, d->listener, ask, &why, &address);
    if (result == CONNECTOR_WAIT)
        return 0;
    if (why != OUTBOUND_FREE) {
        struct carrel_denial one;
        denied_connection(why, &address, sizeof(address), &one);
        tell(d, &one);
    }
    return answer(d->listener, ask->id, result);
}

static int serve_chmod(struct denials *d, const struct seccomp_notif *ask, uint32_t mode)
{
    struct carrel_denial one;
    bool dropped;
    int result = setid_chmod(d->listener, ask, d->run.setup->flags & SETUP_SYSTEM, &dropped);

    if (dropped) {
        denied_bits(mode, &one);
        tell(d, &one);
    }
    spend(d, 1);
    return answer(d->listener, ask->id, result);
}

/* One call that waits. With POLLIN the kernel's own count says that there is one, so that this
 * receives without waiting; ENOENT when the caller died meanwhile. */
static int serve_one(struct denials *d)
{
    union notification got = {0};
    struct carrel_denial one;
    uint32_t mode;

    if (ioctl(d->listener, SECCOMP_IOCTL_NOTIF_RECV, &got) < 0) {
        spend(d, 1);
        return 0;
    }
    if (got.ask.data.nr == __NR_connect && d->run.setup->flags & (SETUP_GUARD | SETUP_REDIRECT))
        return serve_connection(d, &got.ask);
    if (d->is_caller && setid_is_chmod(&got.ask.data, &mode))
        return serve_chmod(d, &got.ask, mode);
    int error = denied_call_answer(&got.ask.data);
    denied_call(&got.ask.data, &one);
    tell(d, &one);
    return answer(d->listener, got.ask.id, error == 0 ? CONNECTOR_GO_ON : -error);
}

int denials_serve(struct denials *d)
{
    if (d->listener < 0 || !has_rested(d))
        return 0;
    uint64_t now = now_ms();
    if (now - d->window_ms >= WINDOW_MS)
        begin_window(d, now);
    for (int i = 0; i < BATCH; i++) {
        struct pollfd waiting = {.fd = d->listener, .events = POLLIN};
        if (poll(&waiting, 1, 0) <= 0)
            return 0;
        if (!(waiting.revents & POLLIN)) { /* nobody is left under the filter */
            scope_close(&d->listener);
            return 0;
        }
        if (d->window_left == 0 || has_spent_cpu(d)) {
            rest(d, now);
            return 0;
        }
        int r = serve_one(d);
        if (r < 0)
            return r;
    }
    return 0;
}

/* --- aside --- */

static void raise_alarm(struct denials *d, int failure)
{
    uint64_t one = 1;

    d->failure = failure;
    ignore(write(d->alarm, &one, sizeof(one)) == (ssize_t)sizeof(one));
}

static void *answer_all(void *argument)
{
    struct denials *d = argument;

    d->is_caller = setid_become_caller(d->run.identity) == 0;
    for (;;) {
        struct pollfd fds[2 + CONNECTOR_MAX] = {{.fd = d->stop, .events = POLLIN},
                                                {.fd = ready_fd(d), .events = POLLIN}};
        size_t connections = d->connector.count;
        connector_fill(&d->connector, fds + 2);
        if (poll(fds, 2 + connections, connections ? CONNECTOR_LOOK_MS : -1) < 0 &&
            errno != EINTR) {
            raise_alarm(d, -errno);
            return NULL;
        }
        if (fds[0].revents || fds[1].fd < 0)
            return NULL;
        int r = connections ? connector_serve(&d->connector, d->listener, fds + 2, answer) : 0;
        if (r == 0 && fds[1].revents)
            r = denials_serve(d);
        if (r < 0) {
            raise_alarm(d, r);
            return NULL;
        }
    }
}

/* Where there can be no thread it is done here, and may have to wait. */
static void go_aside(struct denials *d)
{
    sigset_t all;
    sigset_t before;

    d->stop = eventfd(0, EFD_CLOEXEC);
    d->alarm = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->stop < 0 || d->alarm < 0)
        return;
    sigfillset(&all); /* signals are for the caller's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    d->can_wait = true; /* the thread reads it */
    d->aside = pthread_create(&d->thread, NULL, answer_all, d) == 0;
    if (!d->aside)
        d->can_wait = false;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Nobody is left under the filter: for that no thread is started. */
static bool has_ended(struct denials *d)
{
    struct pollfd waiting = {.fd = d->listener, .events = POLLIN};

    if (d->resting || poll(&waiting, 1, 0) <= 0 || (waiting.revents & POLLIN))
        return false;
    scope_close(&d->listener);
    return true;
}

int denials_attend(struct denials *d)
{
    if (d->aside)
        return d->failure;
    if (has_ended(d))
        return 0;
    go_aside(d);
    return d->aside ? 0 : denials_serve(d);
}

/* A connection can hold it up, if its socket's flags were changed at the right moment. */
static void join(struct denials *d)
{
    struct timespec until;

    do {
        connector_interrupt(&d->connector);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 20000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
    } while (pthread_timedjoin_np(d->thread, NULL, &until) == ETIMEDOUT);
}

/* After the sandbox has gone: then nothing else holds the thread up. */
static void come_back(struct denials *d)
{
    uint64_t one = 1;

    if (!d->aside)
        return;
    if (write(d->stop, &one, sizeof(one)) != (ssize_t)sizeof(one))
        (void)pthread_cancel(d->thread);
    join(d);
    d->aside = d->can_wait = false;
}

/* --- error output --- */

static void end_line(struct denials *d)
{
    struct carrel_denial one;

    if (d->line_n > 0 && denied_line(&d->run, d->line, d->line_n, &one)) {
        pthread_mutex_lock(&d->lock);
        bool told = strcmp(one.rule, DENIED_BY_NETWORK) == 0 && count_of_rule(d, one.rule) > 0;
        pthread_mutex_unlock(&d->lock);
        if (!told)
            record(d, &one);
    }
    d->line_n = 0;
}

/* Cuts bytes into lines, wherever the chunks ended; of a long line the beginning is enough. */
static void scan(struct denials *d, const char *bytes, size_t n)
{
    while (n > 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t part = end ? (size_t)(end - bytes) : n;
        size_t room = sizeof(d->line) - d->line_n;
        size_t take = part < room ? part : room;
        memcpy(d->line + d->line_n, bytes, take);
        d->line_n += take;
        if (!end)
            return;
        end_line(d);
        bytes += part + 1;
        n -= part + 1;
    }
}

static void keep_tail(struct denials *d, const char *bytes, size_t n)
{
    if (!d->tail && !(d->tail = malloc(DENIALS_TAIL)))
        return;
    if (n > DENIALS_TAIL) {
        bytes += n - DENIALS_TAIL;
        n = DENIALS_TAIL;
    }
    size_t keep = d->tail_n < DENIALS_TAIL - n ? d->tail_n : DENIALS_TAIL - n;
    memmove(d->tail, d->tail + d->tail_n - keep, keep);
    memcpy(d->tail + keep, bytes, n);
    d->tail_n = keep + n;
}

void denials_scan(struct denials *d, const char *bytes, size_t n)
{
    size_t live = d->scanned < SCAN_BYTES ? SCAN_BYTES - d->scanned : 0;

    if (live > n)
        live = n;
    scan(d, bytes, live);
    d->scanned += live;
    if (n > live)
        keep_tail(d, bytes + live, n - live);
}

/* --- the end --- */

void denials_take(struct denials *d, struct carrel_result *ret)
{
    come_back(d);
    if (d->tail)
        scan(d, d->tail, d->tail_n);
    end_line(d);
    d->tail_n = 0;
    ret->denials = d->list;
    ret->denial_count = d->count;
    ret->denials_dropped = d->dropped;
    d->list = NULL;
    d->count = 0;
}

void denials_clear(struct denials *d)
{
    come_back(d);
    scope_close(&d->listener);
    scope_close(&d->timer);
    scope_close(&d->stop);
    scope_close(&d->alarm);
    pthread_mutex_destroy(&d->lock);
    connector_clear(&d->connector);
    free(d->list);
    free(d->tail);
    denials_init(d, d->run);
}
