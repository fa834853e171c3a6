/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/limits/limits.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "policy/units.h"
#include "sandbox/limits/cgroup.h"
#include "sandbox/wire.h"
#include "sys/path.h"
#include "sys/process_count.h"
#include "sys/sockets.h"

#define LEAST_MEMORY (4UL << 20)

enum {
    LOOK_MS = 250,
    ALERT_MS = 500, /* after an event the kernel may take a moment to choose whom to kill */
    ALERT_LOOK_MS = 5,
    UNCHARGED_SHARE =
        8,            /* so much of the memory limit may be in queues that nobody is charged for */
    LOOKS_TO_END = 8, /* two seconds at the limit on processes: it will not get better */
    TEMPORARY_TREES = 3, /* /tmp, /.cache, /dev/shm */
};

static int check_dir_level(const struct carrel_limits *limits, struct err *err)
{
    const struct {
        uint64_t asked;
        const char *what;
    } cannot[] = {
        {limits->memory_bytes, "--memory"}, {limits->pids, "--pids"},
        {limits->cpu_milli, "--cpu"},       {limits->io_bytes, "--io"},
        {limits->disk_bytes, "--disk"},     {limits->disk_files, "--files"},
    };

    for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++) {
        if (cannot[i].asked)
            return err_set(err, ERR_INVALID, 0, "level dir cannot give %s; use --level ns",
                           cannot[i].what);
    }
    return 0;
}

/* The kernel counts what is in the image, and nothing else. */
static int check_image(const struct carrel_spec *spec, struct err *err)
{
    for (size_t i = 0; spec->limits.disk_image && i < spec->mount_count; i++) {
        if (spec->mounts[i].writable && !spec->mounts[i].ready)
            return err_set(err, ERR_INVALID, 0,
                           "--disk=image does not count what is written to '%s' (%s); use "
                           "--disk SIZE, or %s",
                           spec->mounts[i].source, spec->mounts[i].layer ? "--layer" : "--rw",
                           spec->mounts[i].layer ? "--layer-ro" : "--ro");
    }
    return 0;
}

int limits_check(const struct carrel_spec *spec, enum carrel_level level, struct err *err)
{
    const struct carrel_limits *limits = &spec->limits;
    uint64_t tmp = spec->tmp_bytes;
    char text[32];

    if (level == CARREL_LEVEL_DIR)
        return check_dir_level(limits, err);
    if (check_image(spec, err) < 0)
        return -1;
    if (!limits->memory_bytes)
        return 0;
    if (limits->memory_bytes < LEAST_MEMORY)
        return err_set(err, ERR_INVALID, 0, "--memory: no sandbox starts in less than %s",
                       units_text(UNITS_SIZE, LEAST_MEMORY, text));
    if (tmp > limits->memory_bytes / TEMPORARY_TREES)
        return err_set(
            err, ERR_INVALID, 0,
            "--tmp-size: /tmp, /.cache and /dev/shm are counted as memory, and three "
            "times this size is more than --memory; at most %s fits",
            units_text(UNITS_SIZE, limits->memory_bytes / TEMPORARY_TREES / 4096 * 4096, text));
    return 0;
}

uint64_t limits_tmp_bytes(const struct carrel_spec *spec)
{
    uint64_t share = spec->limits.memory_bytes / (2UL * TEMPORARY_TREES) / 4096 * 4096;

    if (spec->tmp_bytes)
        return spec->tmp_bytes;
    return share && share < CARREL_DEFAULT_TMP_BYTES ? share : CARREL_DEFAULT_TMP_BYTES;
}

uint64_t limits_memory_shown(const struct carrel_spec *spec, uint64_t host_bytes)
{
    uint64_t limit = spec->limits.memory_bytes;

    return limit && limit < host_bytes ? limit : host_bytes;
}

int limits_status(enum carrel_reason reason)
{
    static const int statuses[] = {
        [CARREL_ENDED_EXIT] = 0,
        [CARREL_ENDED_SIGNAL] = 0,
        [CARREL_ENDED_TIMEOUT] = STATUS_TIMEOUT,
        [CARREL_ENDED_OUTPUT] = STATUS_OUTPUT_LIMIT,
        [CARREL_ENDED_OOM] = STATUS_MEMORY_LIMIT,
        [CARREL_ENDED_PIDS] = STATUS_PIDS_LIMIT,
        [CARREL_ENDED_DISK] = STATUS_DISK_LIMIT,
    };

    return statuses[reason];
}

uint64_t limits_oom_kills(void)
{
    static const char name[] = "\noom_kill ";
    char text[16384];

    if (path_read_small("/proc/vmstat", text, sizeof(text)) <= 0)
        return 0;
    const char *at = strstr(text, name);
    return at ? strtoull(at + sizeof(name) - 1, NULL, 10) : 0;
}

/* --- what to say -------------------------------------------------------------------------------
 */

/* The rule in the words of the option; the fix is the option with twice as much. */
static void deny_size(struct limit_watch *w, const char *what, const char *option, uint64_t bytes)
{
    char rule[96];
    char fix[128];
    char size[32];

    snprintf(rule, sizeof(rule), "%s %s", option + 2, units_text(UNITS_SIZE, bytes, size));
    snprintf(fix, sizeof(fix), "let it have more with %s %s", option,
             units_text(UNITS_SIZE, bytes * 2, size));
    w->met(w->context, what, rule, fix, CARREL_SOURCE_KERNEL);
}

static void deny_count(struct limit_watch *w, const char *what, const char *option, uint64_t most,
                       enum carrel_source source)
{
    char rule[96];
    char fix[128];

    snprintf(rule, sizeof(rule), "%s %llu", option + 2, (unsigned long long)most);
    snprintf(fix, sizeof(fix), "let it have more with %s %llu", option,
             (unsigned long long)most * 2);
    w->met(w->context, what, rule, fix, source);
}

static void deny_memory(struct limit_watch *w)
{
    deny_size(w, "use more memory", "--memory", w->run.spec->limits.memory_bytes);
}

static void deny_task(struct limit_watch *w, enum carrel_source source)
{
    deny_count(w, "start another process or thread", "--pids", w->run.spec->limits.pids, source);
}

static void deny_files(struct limit_watch *w)
{
    const struct carrel_limits *limits = &w->run.spec->limits;
    unsigned long long most = disk_most_files(limits);
    char rule[96];
    char fix[128];
    char size[32];

    if (limits->disk_files) {
        deny_count(w, "add more files", "--files", most, CARREL_SOURCE_KERNEL);
        return;
    }
    snprintf(rule, sizeof(rule), "disk %s allows %llu files",
             units_text(UNITS_SIZE, limits->disk_bytes, size), most);
    snprintf(fix, sizeof(fix), "let it have more with --files %llu", most * 2);
    w->met(w->context, "add more files", rule, fix, CARREL_SOURCE_KERNEL);
}

const char *limits_image_rule(const struct carrel_limits *limits, char *text)
{
    char size[32];

    snprintf(text, LIMITS_IMAGE_TEXT, "disk image %s",
             units_text(UNITS_SIZE, limits->disk_bytes, size));
    return text;
}

const char *limits_image_fix(const struct carrel_limits *limits, char *text)
{
    char size[32];

    snprintf(text, LIMITS_IMAGE_TEXT,
             "make room in it; an image keeps its size: for more, copy what is in it to a new "
             "workspace with --disk=image:%s",
             units_text(UNITS_SIZE, limits->disk_bytes * 2, size));
    return text;
}

static void deny_disk(struct limit_watch *w, enum disk_end end)
{
    const struct carrel_limits *limits = &w->run.spec->limits;
    char rule[LIMITS_IMAGE_TEXT];
    char fix[LIMITS_IMAGE_TEXT];

    switch (end) {
    case DISK_KEPT:
        break;
    case DISK_FILES:
        deny_files(w);
        break;
    case DISK_HOST_FULL:
        w->met(w->context, "add more bytes", "the host's disk is almost full",
               "make room on the disk, or keep the workspace on another", CARREL_SOURCE_KERNEL);
        break;
    case DISK_BYTES:
    case DISK_TOO_FAST:
    case DISK_HIDDEN:
    case DISK_FULL:
        if (limits->disk_image)
            w->met(w->context, "write", limits_image_rule(limits, rule),
                   limits_image_fix(limits, fix), CARREL_SOURCE_KERNEL);
        else
            deny_size(w,
                      end == DISK_TOO_FAST ? "add bytes faster than they can be counted"
                      : end == DISK_HIDDEN ? "add bytes in files that cannot be counted"
                                           : "add more bytes",
                      "--disk", limits->disk_bytes);
        break;
    }
}

/* --- the watch ---------------------------------------------------------------------------------
 */

static bool counts_tasks(const struct limit_watch *w)
{
    return w->run.spec->limits.pids && !cgroup_holds_pids(w->run.cgroup);
}

void limits_watch_init(struct limit_watch *w, struct run_view run, limits_met *met, void *context)
{
    *w = (struct limit_watch){.run = run, .met = met, .context = context};
}

int limits_watch_begin(struct limit_watch *w, struct run_view run, pid_t pid, struct err *err)
{
    limits_watch_init(w, run, w->met, w->context);
    w->pid = pid;
    if (counts_tasks(w) || cgroup_needs_looks(run.cgroup))
        w->look_ms = now_ms() + LOOK_MS;
    if (disk_watch_begin(&w->disk, &w->run, err) < 0)
        return -1;
    disk_watch_follow(&w->disk, pid);
    return 0;
}

int limits_watch_due_ms(const struct limit_watch *w)
{
    int disk = disk_watch_due_ms(&w->disk);
    uint64_t now = now_ms();

    if (!w->look_ms)
        return disk;
    int look = w->look_ms <= now ? 0 : (int)(w->look_ms - now);
    return disk >= 0 && disk < look ? disk : look;
}

int limits_watch_fd(const struct limit_watch *w)
{
    return w->run.cgroup ? cgroup_oom_fd(w->run.cgroup) : -1;
}

/* Without a cgroup nobody counts failed forks. That all places are taken says little: so many may
 * be all it wants. But together with an eighth of a cpu spent in the kernel it is what trying again
 * and again looks like. */
static bool seems_to_hit(struct limit_watch *w)
{
    uint64_t most = w->run.spec->limits.pids + 1; /* with pid 1 */
    struct process_count count;

    if (process_count_take(w->pid, most, &count) < 0)
        return false;
    uint64_t spent = count.system_ms > w->system_ms ? count.system_ms - w->system_ms : 0;
    w->system_ms = count.system_ms;
    if (count.tasks > w->most_tasks)
        w->most_tasks = count.tasks;
    if (count.tasks < most)
        return false;
    bool hit = spent >= LOOK_MS / 8;
    if (hit)
        deny_task(w, CARREL_SOURCE_INFERRED);
    return hit;
}

/* Whether the limit on processes has been hit in every look for a while. */
static bool keeps_hitting(struct limit_watch *w)
{
    bool hit;

    if (counts_tasks(w)) {
        hit = seems_to_hit(w);
    } else {
        hit = cgroup_new_fork_failures(w->run.cgroup) > 0;
        if (hit)
            deny_task(w, CARREL_SOURCE_KERNEL);
    }
    w->looks = hit ? w->looks + 1 : 0;
    return w->looks >= LOOKS_TO_END;
}

/* Netlink and held-back datagrams are memory that no cgroup counts. */
static bool holds_uncharged(const struct limit_watch *w)
{
    uint64_t most = w->run.spec->limits.memory_bytes;

    return most && (w->run.setup->namespaces & CLONE_NEWNET) && !weak("cgroup-memory") &&
           sockets_queued(w->pid) > most / UNCHARGED_SHARE;
}

bool limits_watch_check(struct limit_watch *w, bool memory_event, enum carrel_reason *ret)
{
    uint64_t began = now_ms();

    /* Also when a group around ours runs out, and before anybody is killed: look again, and soon.
     */
    if (memory_event) {
        cgroup_take_oom_event(w->run.cgroup);
        w->alert_ms = began + ALERT_MS;
        w->look_ms = began;
    }
    if (disk_watch_check(&w->disk)) {
        *ret = CARREL_ENDED_DISK;
        return true;
    }
    if (!w->look_ms || began < w->look_ms)
        return false;
    *ret = CARREL_ENDED_OOM;
    bool end = cgroup_is_beyond_memory(w->run.cgroup) || holds_uncharged(w) ||
               cgroup_ran_out_of_memory(w->run.cgroup);
    w->out_of_memory = end;
    if (!end && w->run.spec->limits.pids && keeps_hitting(w)) {
        *ret = CARREL_ENDED_PIDS;
        end = true;
    }
    /* Counting a large tree takes a while: it may not take all of a processor. */
    w->look_ms =
        now_ms() + (began < w->alert_ms ? ALERT_LOOK_MS : LOOK_MS) + 10 * (now_ms() - began);
    return end;
}

bool limits_watch_end(struct limit_watch *w, struct carrel_result *ret)
{
    struct cgroup *cgroup = w->run.cgroup;
    bool oom = w->out_of_memory || cgroup_ran_out_of_memory(cgroup);

    if (cgroup_new_fork_failures(cgroup) > 0)
        deny_task(w, CARREL_SOURCE_KERNEL);
    if (oom)
        deny_memory(w);
    if (w->most_tasks > 1)
        ret->usage.processes = w->most_tasks - 1; /* without pid 1 */
    cgroup_usage(cgroup, &ret->usage);
    deny_disk(w, disk_watch_end(&w->disk, ret));
    return oom;
}

void limits_watch_clear(struct limit_watch *w)
{
    (void)disk_watch_end(&w->disk, NULL);
}
