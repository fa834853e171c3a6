/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/chores.h"
#include "broker/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "sys/process.h"

enum {
    FIRST_FD = 3,       /* of what the child works with; before it are stdin, stdout and stderr */
    MOST_AT_ONCE = 256, /* the front sees to it that no owner comes near */
    MOST_THAT_CAN_WAIT = 16,
};

struct chore {
    struct chore *next;
    struct broker *broker;
    struct watch watch;
    pid_t pid;
    uint64_t generation;
    struct chore_report *report; /* shared with the child */
    struct chore_work work;      /* of which only who is told counts by now, and its kind */
    char plan[PROTOCOL_EXEC_ID + 1];
};

static int check_count(const struct broker *b, bool can_wait, struct err *err)
{
    size_t n = 0;
    size_t can = 0;

    for (const struct chore *chore = b->chores; chore; chore = chore->next) {
        n++;
        can += chore->work.can_wait;
    }
    if (can_wait && can >= MOST_THAT_CAN_WAIT)
        return err_set(err, ERR_CONFLICT, EBUSY, "%d layers are being removed; try again later",
                       MOST_THAT_CAN_WAIT);
    if (n >= MOST_AT_ONCE)
        return err_set(err, ERR_LIMIT, 0, "%d trees are being copied or removed; try again later",
                       MOST_AT_ONCE);
    return 0;
}

bool chore_has_plan(const struct broker *b, const char *plan)
{
    for (const struct chore *chore = b->chores; chore; chore = chore->next) {
        if (strcmp(chore->plan, plan) == 0)
            return true;
    }
    return false;
}

static void free_chore(struct chore *chore)
{
    if (chore->report)
        (void)munmap(chore->report, sizeof(*chore->report));
    free(chore);
}

static void tell(const struct chore *chore, const struct err *failed)
{
    struct broker *b = chore->broker;

    if (chore->work.done) {
        chore->work.done(b, chore->work.context, failed, chore->report);
        return;
    }
    if (failed)
        log_err("chore_failed", NULL, failed);
    if (!chore->work.tag || chore->generation != b->generation)
        return;
    if (failed)
        channel_send_error(b, chore->work.tag, failed);
    else
        channel_send_ok(b, chore->work.tag);
}

static void finish(struct chore *chore, int status)
{
    struct broker *b = chore->broker;
    struct chore **at = &b->chores;
    struct err err;
    int fd = chore->watch.fd;

    events_forget(b->events, &chore->watch);
    scope_close(&fd);
    while (*at != chore)
        at = &(*at)->next;
    *at = chore->next;
    if (!WIFEXITED(status))
        err_set(&err, ERR_IO, 0, "removing or copying files was interrupted");
    else
        err = chore->report->err;
    tell(chore, WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : &err);
    free_chore(chore);
}

static void ended(struct watch *watch, uint32_t what)
{
    struct chore *chore = container_of(watch, struct chore, watch);
    int status = 0;

    (void)what;
    if (waitpid(chore->pid, &status, WNOHANG) == chore->pid)
        finish(chore, status);
}

/* It lets go of all that is the broker's: the lock, and the pipes of commands, which would not see
 * their end while it holds them. */
static int leave_broker(const int *given, int *ret, pid_t broker)
{
    int next = FIRST_FD;

    for (size_t i = 0; i < CHORE_FDS; i++) { /* out of the way of each other first */
        ret[i] = given[i] < 0 ? -1 : fcntl(given[i], F_DUPFD_CLOEXEC, FIRST_FD + CHORE_FDS);
        if (given[i] >= 0 && ret[i] < 0)
            return -errno;
    }
    for (size_t i = 0; i < CHORE_FDS; i++) {
        if (ret[i] < 0)
            continue;
        if (dup3(ret[i], next, O_CLOEXEC) < 0)
            return -errno;
        ret[i] = next++;
    }
    if (process_close_from((unsigned)next, CLOSE_NOW) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return -errno;
    return getppid() == broker ? 0 : -ESRCH; /* it died before we could hear of that */
}

static _Noreturn void work_here(const struct chore_work *work, struct chore_report *report,
                                pid_t broker)
{
    int fds[CHORE_FDS];
    int r = leave_broker(work->fds, fds, broker);

    if (r < 0)
        err_set(&report->err, ERR_IO, -r, "begin to remove or copy files");
    else
        r = work->work(fds, work->what, report);
    _exit(r < 0);
}

static struct chore *new_chore(struct broker *b, const struct chore_work *work)
{
    struct chore *chore = calloc(1, sizeof(*chore));

    if (!chore)
        return NULL;
    *chore = (struct chore){.broker = b,
                            .watch = {.ready = ended, .fd = -1},
                            .generation = b->generation,
                            .work = *work};
    snprintf(chore->plan, sizeof(chore->plan), "%s", work->plan ? work->plan : "");
    void *shared = mmap(NULL, sizeof(*chore->report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        free(chore);
        return NULL;
    }
    chore->report = shared;
    return chore;
}

int chore_start(struct broker *b, const struct chore_work *work, struct err *err)
{
    struct chore *chore = NULL;
    pid_t broker = getpid();

    if (check_count(b, work->can_wait, err) < 0)
        return -1;
    chore = new_chore(b, work);
    if (!chore)
        return err_set(err, ERR_LIMIT, ENOMEM, "start a process that works on files");
    chore->pid = fork();
    if (chore->pid == 0)
        work_here(work, chore->report, broker);
    int pidfd = chore->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, chore->pid, 0);
    int r = pidfd < 0 ? -errno : events_watch(b->events, &chore->watch, pidfd, EPOLLIN);
    if (r < 0) {
        err_set(err, ERR_IO, -r, "start a process that works on files");
        if (chore->pid > 0) {
            (void)kill(chore->pid, SIGKILL);
            (void)waitpid(chore->pid, NULL, 0);
        }
        scope_close(&pidfd);
        free_chore(chore);
        return -1;
    }
    chore->next = b->chores;
    b->chores = chore;
    return 0;
}

void chores_close(struct broker *b)
{
    for (struct chore *chore = b->chores, *next; chore; chore = next) {
        int status = 0;
        next = chore->next;
        (void)kill(chore->pid, SIGKILL);
        (void)waitpid(chore->pid, &status, 0);
        finish(chore, status);
    }
}
