/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/store_mounts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/channel.h"
#include "broker/mount_room.h"
#include "broker/mover_process.h"
#include "broker/movers.h"
#include "broker/record.h"
#include "broker/requests.h"
#include "broker/sandbox_spec.h"
#include "broker/sandboxes.h"
#include "sys/message.h"
#include "sys/mount.h"
#include "sys/path.h"

enum {
    MOST_STORE_MOUNTS = 64,
    MOST_WAITING = 64,
    FIRST_PAUSE_MS = 1000, /* twice as long each time */
    LONGEST_PAUSE_MS = 60000,
    STOP_MS = 4000, /* for rclone to end by itself */
    TELL_MS = 3000, /* between two denials of one mount */
    WORDS = 300,
    LONGEST_LINE = 4096,
    MOST_HEARD = 8192,
};

enum mount_state {
    BEGINS,
    SERVES,
    AWAY,
};

struct waiting {
    struct waiting *next;
    uint64_t generation;
    uint64_t tag;
    uint32_t kind;
    size_t n;
    char bytes[];
};

struct store_mount {
    struct store_mount *next;
    struct broker *broker;
    char store[PROTOCOL_ID + 1];
    enum mount_state state;
    bool writable; /* what rclone is good enough for */
    bool served;   /* it has, at least once */
    bool keeps;    /* what was written may not be in the store yet: it is begun again */
    struct room_place place;
    pid_t pid; /* 0: none */
    struct watch gone;
    struct watch report;
    struct buf line;
    struct timer timer; /* when it begins again */
    uint64_t pause_ms;
    uint64_t told_ms;
    char why[WORDS]; /* it is away */
    struct waiting *waiting;
    size_t waiting_count;
};

/* A new mount on its way into a sandbox that lives. */
struct arriving {
    struct watch watch;
    struct broker *broker;
    char workspace[PROTOCOL_ID + 1];
    char store[PROTOCOL_ID + 1];
    uint64_t sandbox;
};

static void begin_again(struct timer *timer);
static int begin(struct store_mount *m, struct err *err);

static struct store_mount *find(const struct broker *b, const char *store)
{
    struct store_mount *m = b->store_mounts;

    while (m && strcmp(m->store, store) != 0)
        m = m->next;
    return m;
}

/* --- who sees it --- */

static bool sees(const struct sandbox *s, const char *store, const char **ret_name,
                 bool *ret_writable)
{
    for (size_t i = 0; s->stores && s->stores[i]; i += 3) {
        if (strcmp(s->stores[i], store) == 0) {
            *ret_name = s->stores[i + 1] + 1;
            *ret_writable = strcmp(s->stores[i + 2], "rw") == 0 && !*s->plan;
            return true;
        }
    }
    return false;
}

/* Once for each place that shows it. */
static void each_sandbox(struct store_mount *m,
                         void (*with)(struct store_mount *m, struct sandbox *s, const char *name,
                                      bool writable))
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = m->broker->sandboxes[i], *next; s; s = next) {
            const char *name;
            bool writable;
            next = s->next;
            if (!s->over && !s->ending && sees(s, m->store, &name, &writable))
                with(m, s, name, writable);
        }
    }
}

static bool is_seen(struct store_mount *m)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = m->broker->sandboxes[i]; s; s = s->next) {
            const char *name;
            bool writable;
            if (!s->over && sees(s, m->store, &name, &writable))
                return true;
        }
    }
    return false;
}

static void deny(struct store_mount *m, struct sandbox *s, const char *name, bool writable)
{
    struct carrel_denial denial = {.source = CARREL_SOURCE_KERNEL, .count = 1};

    (void)writable;
    snprintf(denial.what, sizeof(denial.what), "the store '%.64s' at /%.64s", m->store, name);
    snprintf(denial.rule, sizeof(denial.rule), "%s", "what a store does not answer in time fails");
    snprintf(denial.fix, sizeof(denial.fix), "%.200s", m->why);
    sandbox_deny(s, &denial);
}

/* Not for each of a thousand files. */
static void tell(struct store_mount *m, const char *why)
{
    snprintf(m->why, sizeof(m->why), "%s", why);
    if (m->told_ms && now_ms() - m->told_ms < TELL_MS)
        return;
    m->told_ms = now_ms();
    log_warning("store_mount", "store", m->store, "why", m->why, NULL);
    each_sandbox(m, deny);
}

static void note(struct store_mount *m, const char *operation, const char *result)
{
    scoped_buf struct buf details;

    buf_init(&details, 4096);
    buf_printf(&details, "{\"store\":\"%s\",\"why\":", m->store);
    record_put_text(&details, m->why, sizeof(m->why));
    buf_str(&details, "}");
    (void)record_note(m->broker,
                      &(struct audit_record){.actor = "broker",
                                             .workspace = "",
                                             .request = "",
                                             .operation = operation,
                                             .result = result,
                                             .details = buf_done(&details) == 0 ? details.p : ""},
                      NULL);
}

/* --- a sandbox that lives gets it again --- */

static void arrived(struct watch *watch, uint32_t what)
{
    struct arriving *a = container_of(watch, struct arriving, watch);
    struct sandbox *s = sandbox_find_any(a->broker, a->workspace);
    int fd = watch->fd;
    char there = 0;

    (void)what;
    if (read(fd, &there, 1) < 0 && errno == EINTR)
        return;
    events_forget(a->broker->events, watch);
    scope_close(&fd);
    while (s && s->number != a->sandbox)
        s = s->next;
    if (s && !there) {
        char why[128];
        snprintf(why, sizeof(why),
                 "the store '%s' is mounted again, and it could not be given that", a->store);
        sandbox_put_to_sleep(s, why);
    }
    free(a);
}

static void give(struct store_mount *m, struct sandbox *s, const char *name, bool writable)
{
    struct broker *b = m->broker;
    struct session_join join;
    struct arriving *a = calloc(1, sizeof(*a));
    int ends[2] = {-1, -1};
    struct err err;

    if (!a || !session_may_be_joined(s->session, &join) ||
        pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(a);
        return;
    }
    a->broker = b;
    a->sandbox = s->number;
    a->watch = (struct watch){.ready = arrived, .fd = -1};
    snprintf(a->workspace, sizeof(a->workspace), "%s", s->workspace);
    snprintf(a->store, sizeof(a->store), "%s", m->store);
    int mount = room_copy(&b->mount_room, &m->place, writable, &err);
    if (mount < 0 || events_watch(b->events, &a->watch, ends[0], EPOLLIN) < 0) {
        scope_close(&mount);
        scope_close(&ends[0]);
        scope_close(&ends[1]);
        free(a);
        sandbox_put_to_sleep(s, "a store is mounted again, and it could not be given that");
    } else if (room_replace(join.pidfd, name, mount, ends[1], &err) < 0) {
        log_err("store_mount_lost", s->workspace, &err); /* its end is heard: nothing is there */
    }
}

/* --- its process --- */

static void answer_waiting(struct store_mount *m, const struct err *err)
{
    struct broker *b = m->broker;
    struct waiting *w = m->waiting;

    m->waiting = NULL;
    m->waiting_count = 0;
    while (w) {
        struct waiting *next = w->next;
        if (w->generation == b->generation && err)
            channel_send_error(b, w->tag, err);
        else if (w->generation == b->generation && b->resumed)
            request_handle(b, w->kind, w->bytes, w->n);
        free(w);
        w = next;
    }
}

static void free_mount(struct store_mount *m)
{
    struct store_mount **at = &m->broker->store_mounts;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    timer_stop(m->broker->events, &m->timer);
    room_drop(&m->broker->mount_room, &m->place);
    buf_clear(&m->line);
    free(m);
}

static int say_away(const struct store_mount *m, struct err *err)
{
    err_set(err, ERR_IO, 0, "the store '%s' cannot be mounted: %s", m->store, m->why);
    err->said = SAID_STORE_FAILED;
    return -1;
}

/* It is kept, and begun again, where somebody sees it; else the next one who wants it asks anew. */
static void is_away(struct store_mount *m)
{
    struct err err;

    m->state = AWAY;
    room_drop(&m->broker->mount_room, &m->place);
    (void)say_away(m, &err);
    answer_waiting(m, &err);
    if (m->broker->stopping || !(m->keeps || is_seen(m))) {
        free_mount(m);
        return;
    }
    m->pause_ms = m->pause_ms ? 2 * m->pause_ms : FIRST_PAUSE_MS;
    if (m->pause_ms > LONGEST_PAUSE_MS)
        m->pause_ms = LONGEST_PAUSE_MS;
    if (timer_set(m->broker->events, &m->timer, now_ms() + m->pause_ms) < 0)
        free_mount(m);
}

static void serves(struct store_mount *m, bool writable)
{
    bool again = m->served;

    m->state = SERVES;
    m->writable = writable;
    m->served = true;
    m->keeps = m->keeps || writable;
    m->pause_ms = m->told_ms = 0;
    m->why[0] = '\0';
    note(m, "store.mount", writable ? "rw" : "ro");
    answer_waiting(m, NULL);
    if (again)
        each_sandbox(m, give);
}

/* "R rw": it serves; "E words": a file could not be had; "X words": it ends, and why. */
static void take_line(struct store_mount *m, const char *line)
{
    if (line[0] && line[1] != ' ')
        return;
    if (line[0] == 'R' && m->state == BEGINS)
        serves(m, strcmp(line + 2, "rw") == 0);
    else if (line[0] == 'E' && m->state == SERVES)
        tell(m, line + 2);
    else if (line[0] == 'X')
        snprintf(m->why, sizeof(m->why), "%s", line + 2);
}

static void take_lines(struct store_mount *m)
{
    char *end;

    while (m->line.n && (end = memchr(m->line.p, '\n', m->line.n))) {
        *end = '\0';
        take_line(m, m->line.p);
        size_t used = (size_t)(end + 1 - m->line.p);
        memmove(m->line.p, m->line.p + used, m->line.n - used);
        m->line.n -= used;
    }
    if (m->line.n > LONGEST_LINE)
        m->line.n = 0; /* no line of ours */
}

/* False: no more now, or ever. */
static bool hear_some(struct store_mount *m)
{
    char piece[LONGEST_LINE];
    ssize_t n = m->report.fd < 0 ? 0 : read(m->report.fd, piece, sizeof(piece));

    if (n <= 0 && m->report.fd >= 0 && (n == 0 || errno != EAGAIN))
        events_forget(m->broker->events, &m->report);
    if (n <= 0)
        return false;
    for (ssize_t i = 0; i < n; i++) {
        if (((unsigned char)piece[i] < ' ' && piece[i] != '\n') || (unsigned char)piece[i] >= 0x7f)
            piece[i] = '?'; /* names of objects may be cut within a letter */
    }
    buf_add(&m->line, piece, (size_t)n);
    if (m->line.p)
        take_lines(m);
    return true;
}

static void hear(struct watch *watch, uint32_t what)
{
    (void)what;
    (void)hear_some(container_of(watch, struct store_mount, report));
}

/* The kernel has ended the connection with its process: whoever waits inside has an error. */
static void has_gone(struct watch *watch, uint32_t what)
{
    struct store_mount *m = container_of(watch, struct store_mount, gone);
    int gone = watch->fd;
    int report = m->report.fd;
    int status = 0;

    (void)what;
    if (waitpid(m->pid, &status, WNOHANG) != m->pid)
        return;
    while (hear_some(m))
        ;
    m->pid = 0;
    events_forget(m->broker->events, &m->gone);
    events_forget(m->broker->events, &m->report);
    scope_close(&gone);
    scope_close(&report);
    if (!*m->why)
        snprintf(m->why, sizeof(m->why), "who serves it has ended (%s %d)",
                 WIFSIGNALED(status) ? "signal" : "status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    bool served = m->state == SERVES;
    m->state = AWAY;
    if (served) {
        char why[WORDS];
        snprintf(why, sizeof(why), "%s", m->why);
        m->told_ms = 0;
        tell(m, why);
        note(m, "store.unmount", "failed");
    }
    is_away(m);
}

/* What is made for a start. */
struct parts {
    struct mover_start start;
    char daemon[65];
    char cache[32];
    int report; /* our end */
    int fuse;
    int mount;
    int probe_fuse;
    int probe_mount;
};

/* .carrel/mounts/STORE, the mover's: what was written and is not in the store yet. */
static int open_state(const struct broker *b, const char *store, struct err *err)
{
    scoped_fd int own = path_open_beneath(b->state, ".carrel", O_RDONLY | O_DIRECTORY, 0);
    int fd = -1;

    if (own >= 0 && (mkdirat(own, "mounts", 0700) == 0 || errno == EEXIST)) {
        scoped_fd int all = path_open_beneath(own, "mounts", O_RDONLY | O_DIRECTORY, 0);
        if (all >= 0 && (mkdirat(all, store, 0700) == 0 || errno == EEXIST))
            fd = path_open_beneath(all, store, O_RDONLY | O_DIRECTORY, 0);
    }
    if (fd >= 0 && fchown(fd, b->mover_uid, b->mover_uid) < 0)
        scope_close(&fd);
    return fd < 0 ? err_set(err, ERR_IO, errno, "make the directory of the store's mount") : fd;
}

static int show_state(const struct broker *b, const char *store, int *ret, struct err *err)
{
    scoped_fd int dir = open_state(b, store, err);

    if (dir < 0)
        return -1;
    *ret = mount_clone(dir, false);
    int r = *ret < 0 ? *ret : mount_set(*ret, MOUNT_NOSUID | MOUNT_NODEV | MOUNT_NOEXEC, false, -1);
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "show carrel-mover what it keeps") : 0;
}

static int make_fuse(const struct broker *b, int *ret_device, int *ret_mount, struct err *err)
{
    *ret_device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (*ret_device < 0)
        return err_set(err, ERR_KERNEL, errno,
                       "a store cannot be mounted, as this host does not let Carrel open /dev/fuse "
                       "(modprobe fuse; in a container: --device /dev/fuse)");
    *ret_mount = mount_new_fuse(*ret_device, b->mover_uid);
    return *ret_mount < 0 ? err_set(err, ERR_KERNEL, -*ret_mount, "make a mount of FUSE") : 0;
}

static int make_parts(struct store_mount *m, struct parts *p, struct err *err)
{
    struct broker *b = m->broker;
    int ends[2];

    p->start.conf = store_open_conf(b, m->store, err);
    if (p->start.conf < 0 || store_daemon_name(b, p->daemon, err) < 0 ||
        make_fuse(b, &p->fuse, &p->mount, err) < 0 ||
        make_fuse(b, &p->probe_fuse, &p->probe_mount, err) < 0 ||
        show_state(b, m->store, &p->start.state, err) < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(err, ERR_LIMIT, errno, "make a pipe");
    p->report = ends[0];
    p->start.report = ends[1];
    if (fcntl(p->report, F_SETFL, O_NONBLOCK) < 0)
        return err_set(err, ERR_IO, errno, "prepare a pipe");
    return 0;
}

static int start(struct store_mount *m, struct parts *p, struct err *err)
{
    struct broker *b = m->broker;
    const int passed[MOVER_PASSED] = {p->fuse, p->mount, p->probe_fuse, p->probe_mount};
    const char *const argv[] = {
        "carrel-mover", "mount",  "--daemon", p->daemon,          "--state", MOVER_STATE,
        "--cache",      p->cache, "--rclone", b->settings.rclone, NULL};

    snprintf(p->cache, sizeof(p->cache), "%llu", (unsigned long long)b->settings.mount_cache);
    memcpy(p->start.passed, passed, sizeof(passed));
    p->start.passed_count = MOVER_PASSED;
    p->start.program = b->mover_program;
    p->start.uid = b->mover_uid;
    p->start.argv = argv;
    m->pid = mover_fork(&p->start);
    p->start.argv = NULL; /* it has gone */
    scoped_fd int pidfd = m->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, m->pid, 0);
    if (pidfd >= 0 && events_watch(b->events, &m->gone, pidfd, EPOLLIN) == 0) {
        (void)take_fd(&pidfd); /* the watch's */
        if (events_watch(b->events, &m->report, p->report, EPOLLIN) == 0) {
            p->report = -1;
            return 0;
        }
        int gone = m->gone.fd;
        events_forget(b->events, &m->gone);
        scope_close(&gone);
    }
    err_set(err, ERR_LIMIT, errno, "start carrel-mover");
    if (m->pid > 0) {
        (void)kill(m->pid, SIGKILL);
        (void)waitpid(m->pid, NULL, 0);
    }
    m->pid = 0;
    return -1;
}

static int begin(struct store_mount *m, struct err *err)
{
    struct parts p = {.start = {.conf = -1, .report = -1, .tree = -1, .state = -1},
                      .report = -1,
                      .fuse = -1,
                      .mount = -1,
                      .probe_fuse = -1,
                      .probe_mount = -1};
    int *const all[] = {&p.start.conf, &p.start.report, &p.start.state, &p.report,
                        &p.fuse,       &p.mount,        &p.probe_fuse,  &p.probe_mount};

    m->state = BEGINS;
    m->why[0] = '\0';
    int r = make_parts(m, &p, err);
    if (r == 0)
        r = start(m, &p, err);
    if (r == 0 && (r = room_add(&m->broker->mount_room, &p.mount, &m->place, err)) < 0)
        (void)kill(m->pid, SIGKILL); /* that is heard */
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        scope_close(all[i]);
    return r;
}

static void begin_again(struct timer *timer)
{
    struct store_mount *m = container_of(timer, struct store_mount, timer);
    struct err err;

    if (begin(m, &err) == 0 || m->pid)
        return;
    if (err.code == ERR_NOT_FOUND)
        m->keeps = false; /* the store was removed */
    err_text(&err, m->why, sizeof(m->why));
    is_away(m);
}

/* --- what a sandbox wants --- */

static int find_or_begin(struct broker *b, const char *store, struct store_mount **ret,
                         struct err *err)
{
    size_t n = 0;

    *ret = find(b, store);
    if (*ret)
        return 0;
    if (geteuid() != 0)
        return err_set(
            err, ERR_KERNEL, 0,
            "stores are mounted by a daemon that root has started, as only that may show "
            "them to other users; mirror the workspace to the store, or run the daemon as "
            "root");
    for (const struct store_mount *each = b->store_mounts; each; each = each->next)
        n++;
    struct store_mount *m = n < MOST_STORE_MOUNTS ? calloc(1, sizeof(*m)) : NULL;
    if (!m)
        return err_set(err, ERR_LIMIT, 0, "%zu stores are mounted, as many as can be", n);
    *m = (struct store_mount){.next = b->store_mounts,
                              .broker = b,
                              .place = {.mount = -1},
                              .gone = {.ready = has_gone, .fd = -1},
                              .report = {.ready = hear, .fd = -1},
                              .timer = {.ring = begin_again}};
    snprintf(m->store, sizeof(m->store), "%s", store);
    buf_init(&m->line, MOST_HEARD);
    b->store_mounts = m;
    if (begin(m, err) < 0) {
        if (!m->pid)
            free_mount(m);
        return -1;
    }
    *ret = m;
    return 0;
}

static int keep(struct store_mount *m, uint32_t kind, const struct exec_message *message,
                uint64_t tag, struct err *err)
{
    struct waiting **last = &m->waiting;
    scoped_buf struct buf packed;

    buf_init(&packed, MESSAGE_MAX_BYTES);
    protocol_pack_exec(&packed, tag, message);
    struct waiting *w = m->waiting_count < MOST_WAITING && buf_done(&packed) == 0
                            ? malloc(sizeof(*w) + packed.n)
                            : NULL;
    if (!w)
        return err_set(err, ERR_LIMIT, 0, "too many commands wait for the store '%s'", m->store);
    *w = (struct waiting){
        .generation = m->broker->generation, .tag = tag, .kind = kind, .n = packed.n};
    memcpy(w->bytes, packed.p, packed.n);
    while (*last)
        last = &(*last)->next;
    *last = w;
    m->waiting_count++;
    return 1;
}

static int check_mode(const struct store_mount *m, const char *mode, struct err *err)
{
    if (m->writable || strcmp(mode, "ro") == 0)
        return 0;
    return err_set(
        err, ERR_KERNEL, 0,
        "the store '%s' cannot be written through a mount: this host's rclone loses what "
        "is written after a directory was renamed. Say \"mode\": \"ro\", or get a current "
        "one from rclone.org/downloads and name it in the setting 'rclone'",
        m->store);
}

int store_mounts_await(struct broker *b, uint32_t kind, const struct exec_message *m, uint64_t tag,
                       struct err *err)
{
    for (size_t i = 0; m->spec.stores && m->spec.stores[i]; i += 3) {
        struct store_mount *mount = NULL;
        if (find_or_begin(b, m->spec.stores[i], &mount, err) < 0 || !mount)
            return -1;
        if (mount->state == BEGINS)
            return keep(mount, kind, m, tag, err);
        if (mount->state == AWAY)
            return say_away(mount, err);
        if (check_mode(mount, m->spec.stores[i + 2], err) < 0)
            return -1;
    }
    return 0;
}

int store_mounts_add(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err)
{
    for (size_t i = 0; m->spec.stores && m->spec.stores[i]; i += 3) {
        const char *const *three = m->spec.stores + i;
        bool writable = strcmp(three[2], "rw") == 0 && !to->is_planned;
        const struct store_mount *mount = to->looks ? NULL : find(b, three[0]);
        if (!to->looks && (!mount || mount->state != SERVES))
            return err_set(err, ERR_CONFLICT, 0, "the store '%s' is not mounted just now",
                           three[0]);
        int fd = mount ? room_copy(&b->mount_room, &mount->place, writable, err) : -1;
        if (mount && fd < 0)
            return -1;
        if (sandbox_spec_add_ready(to, &fd, three, writable, err) < 0)
            return -1;
    }
    return 0;
}

void store_mounts_resume(struct broker *b)
{
    scoped_fd int all = path_open_beneath(b->state, ".carrel/mounts", O_RDONLY | O_DIRECTORY, 0);
    DIR *names = all < 0 || geteuid() != 0 ? NULL : fdopendir(all);
    const struct dirent *entry;
    struct store_mount *m = NULL;
    struct err err;

    if (!names)
        return;
    (void)take_fd(&all);               /* it is the stream's */
    while ((entry = readdir(names))) { /* one thread; NOLINT(concurrency-mt-unsafe) */
        if (!protocol_id_is_valid(entry->d_name))
            continue;
        if (find_or_begin(b, entry->d_name, &m, &err) < 0)
            log_err("store_mount", entry->d_name, &err);
        else if (m)
            m->keeps = true;
    }
    (void)closedir(names);
}

void store_mounts_changed(struct broker *b, const char *store)
{
    struct store_mount *m = find(b, store);

    if (!m)
        return;
    if (m->pid) {
        (void)kill(m->pid, SIGTERM);
        snprintf(m->why, sizeof(m->why), "the store was set anew, or removed");
        m->pause_ms = 0;
    } else {
        ignore(timer_set(b->events, &m->timer, now_ms()) == 0);
    }
}

void store_mounts_close(struct broker *b)
{
    uint64_t due = now_ms() + STOP_MS;
    struct err err;

    for (const struct store_mount *m = b->store_mounts; m; m = m->next) {
        if (m->pid)
            (void)kill(m->pid, SIGTERM);
    }
    err_set(&err, ERR_CONFLICT, 0, "the daemon is stopping");
    for (struct store_mount *m = b->store_mounts, *next; m; m = next) {
        next = m->next;
        while (m->pid && now_ms() < due) {
            if (waitpid(m->pid, NULL, WNOHANG) != 0)
                m->pid = 0;
            else
                (void)usleep(10000);
        }
        if (m->pid && kill(m->pid, SIGKILL) == 0)
            (void)waitpid(m->pid, NULL, 0);
        int gone = m->gone.fd;
        int report = m->report.fd;
        events_forget(b->events, &m->gone);
        events_forget(b->events, &m->report);
        scope_close(&gone);
        scope_close(&report);
        answer_waiting(m, &err);
        free_mount(m);
    }
    scope_close(&b->mount_room.ns);
}
