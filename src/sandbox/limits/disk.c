/* SPDX-License-Identifier: Apache-2.0 */
/* Method polling. Free space is asked for every few ms, more often the less is left. It says only
 * that somebody has written: when it has fallen by what the run may still add, and now and then in
 * any case, the trees are counted, in slices, to see whether it was this run.
 *
 *   estimate = added at the last count + what has gone from free space since
 *
 * Where something is hidden from the count (a directory its owner made unreadable, a descriptor on
 * its way through a socket), the estimate is what counts. A run is also ended, counted or not, when
 * space goes so fast that the count comes too late, and when the host comes to its floor.
 *
 * With an image the kernel keeps the limit; what is used is only told. Where the workspace has a
 * project quota that leaves no more than the run may add, the kernel keeps the limit as well; the
 * quota is used as it is (to set one for a run would leave it behind when the engine is killed),
 * and polling goes on for what is outside of it. */
#include "sandbox/limits/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/limits/tally.h"
#include "sandbox/limits/unlinked.h"
#include "sandbox/view.h"
#include "sys/path.h"
#include "sys/quota.h"

#define FLOOR_BYTES  (1UL << 30) /* what a host must keep free: this, or a twentieth of its disk */
#define FLOOR_INODES 10000UL
#define FLOOR_PART   20
#define FLOOR_ADDED  (1UL << 20) /* that a run may add all the same */
#define BYTES_PER_MS (2UL << 20) /* about as fast as pages can be dirtied */
#define FILES_PER_MS 50UL        /* ... and files made */
#define HURRY_BYTES  (256UL << 20)
#define BYTES_A_FILE 4096UL /* a limit on bytes allows as many files as fit, one block each */
#define MIN_FILES    4096UL
#define FULL_BYTES   (1UL << 20)

enum {
    MAX_TREES = 64,
    MIN_WAIT_MS = 5,
    MAX_WAIT_MS = 100,
    SLICE_MS = 4,
    SLICE_ENTRIES = 256,
    COUNT_ANYWAY_MS = 250,
    REST_BUSY = 8,  /* pause after a count, in its own length, when there is reason for another */
    REST_IDLE = 50, /* ... and when there is none */
    WHOLE_COUNT_MS = 60000,
    HIDDEN_COUNTS = 3,
};

struct tree {
    int fd;
    bool first_on_device; /* its file system is asked through this one */
    bool in_project;      /* it answers for the project, whose bound is the kernel's business */
    dev_t device;
};

/* Of all file systems together. */
struct room {
    uint64_t bytes;
    uint64_t files;
    uint64_t above_floor; /* bytes that may still go on the tightest of them */
    bool at_floor;
};

struct disk_state {
    bool image;
    bool quota;         /* the kernel would refuse what is beyond max_bytes */
    uint64_t max_bytes; /* that may be added; UINT64_MAX: any */
    uint64_t max_files;
    struct tree trees[MAX_TREES];
    size_t tree_count;
    dev_t devices[MAX_TREES];
    size_t device_count;
    const char *layers[CARREL_MAX_LAYERS + 1]; /* where inside overlays are, whose files lie in
                                                  these trees */
    size_t layer_count;
    struct unlinked_ours ours; /* none: not known */
    struct tally *tally;
    struct tally_sum before;
    uint64_t bytes; /* added when the last count began: counted, or estimated until it is done */
    uint64_t files;
    struct room at_count; /* what was free then */
    struct room at_begin;
    uint64_t peak_bytes;
    bool counting;
    size_t tree_at;
    unsigned over;        /* counts in a row that found too much */
    unsigned over_hidden; /* ... that would have, if all they could not see was this run's */
    uint64_t count_began_ms;
    uint64_t count_ended_ms;
    uint64_t count_took_ms;
    uint64_t due_ms;  /* when to look again */
    uint64_t counted; /* bytes added, when that was known last */
    uint64_t counts;
    uint64_t left_bytes; /* beyond a limit: what was added when no command ran */
    uint64_t left_files;
    bool asked;     /* for a count */
    bool answering; /* the one under way was asked for */
    bool idle;
    enum disk_end end;
};

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static struct room look(const struct disk_state *s)
{
    struct room room = {.above_floor = UINT64_MAX};
    struct statvfs fs;

    for (size_t i = 0; i < s->tree_count; i++) {
        if (!s->trees[i].first_on_device || fstatvfs(s->trees[i].fd, &fs) < 0)
            continue;
        uint64_t floor = smaller(FLOOR_BYTES, (uint64_t)fs.f_blocks * fs.f_frsize / FLOOR_PART);
        uint64_t inodes = smaller(FLOOR_INODES, fs.f_files / FLOOR_PART);
        uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
        room.bytes += (uint64_t)fs.f_bfree * fs.f_frsize;
        room.files += fs.f_ffree;
        if (s->trees[i].in_project)
            continue;
        room.above_floor = smaller(room.above_floor, less(available, floor));
        if (available < floor || (fs.f_files > 0 && fs.f_ffree < inodes))
            room.at_floor = true;
    }
    return room;
}

/* --- which trees --- */

/* A tree inside of another one is counted there. */
static bool is_inside(const char *path, const char *top)
{
    size_t n = strlen(top);

    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool is_covered(const struct disk_state *s, int fd, dev_t device)
{
    char path[4096];
    char top[4096];

    for (size_t i = 0; i < s->tree_count; i++) {
        if (s->trees[i].device == device && path_of_fd(fd, path, sizeof(path)) == 0 &&
            path_of_fd(s->trees[i].fd, top, sizeof(top)) == 0 && is_inside(path, top))
            return true;
    }
    return false;
}

static int add_tree(struct disk_state *s, int *fd, const struct stat *st, struct err *err)
{
    if (is_covered(s, *fd, st->st_dev))
        return 0;
    if (s->tree_count == MAX_TREES)
        return err_set(err, ERR_LIMIT, 0,
                       "a disk limit can watch at most %d writable mounts; leave --disk and "
                       "--files out, or mount less",
                       MAX_TREES);
    struct tree *tree = &s->trees[s->tree_count++];
    *tree = (struct tree){.fd = take_fd(fd), .device = st->st_dev, .first_on_device = true};
    tree->in_project = quota_has_project(tree->fd);
    for (size_t i = 0; i < s->device_count; i++)
        tree->first_on_device &= s->devices[i] != st->st_dev;
    if (tree->first_on_device)
        s->devices[s->device_count++] = st->st_dev;
    return 0;
}

static int add_directory(struct disk_state *s, int top, const char *name, struct err *err)
{
    struct stat st;
    scoped_fd int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, ERR_IO, errno, "open '%s' to count what is in it", name);
    return add_tree(s, &fd, &st, err);
}

static int add_workspace(struct disk_state *s, const struct run_view *run, struct err *err)
{
    return add_directory(s, run->plan ? run->plan->upper : run->workspace, run->workspace_path,
                         err);
}

/* What is changed in a layer lies in its directory. */
static int add_layers(struct disk_state *s, const struct run_view *run, struct err *err)
{
    for (size_t i = 0; i < run->layer_count; i++) {
        const struct layer *layer = &run->layers[i];
        if (layer->flags & OP_SHOWN)
            continue;
        s->layers[s->layer_count++] = run->setup->ops[layer->op].target;
        if (layer != run->plan && add_directory(s, layer->upper, layer->name, err) < 0)
            return -1;
    }
    return 0;
}

/* The mounts the caller asked for; what they are was found out when the setup was written. */
static int add_mounts(struct disk_state *s, const struct run_view *run, struct err *err)
{
    struct stat st;

    for (size_t i = 0; i < run->spec->mount_count; i++) {
        const struct carrel_mount *mount = &run->spec->mounts[i];
        if (!mount->writable || mount->layer || mount->ready)
            continue;
        scoped_fd int path = open(mount->source, O_PATH | O_CLOEXEC);
        scoped_fd int fd = path < 0 ? -1 : openat(path, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (path < 0 || fstat(path, &st) < 0)
            return err_set(err, ERR_IO, errno, "open '%s' to count what is in it", mount->source);
        if (add_tree(s, fd < 0 ? &path : &fd, &st, err) < 0)
            return -1;
    }
    return 0;
}

/* --- counting --- */

static uint64_t estimated_bytes(const struct disk_state *s, const struct room *now)
{
    return s->bytes + less(s->at_count.bytes, now->bytes);
}

static uint64_t estimated_files(const struct disk_state *s, const struct room *now)
{
    return s->files + less(s->at_count.files, now->files);
}

static void begin_count(struct disk_state *s)
{
    struct room now = look(s);

    tally_reset(s->tally);
    s->bytes = estimated_bytes(s, &now);
    s->files = estimated_files(s, &now);
    s->at_count = now;
    s->count_began_ms = now_ms();
    s->counting = true;
    s->answering = s->asked;
    s->asked = false;
    s->tree_at = 0;
}

/* Files that are seen through an overlay have its device, which is known when it stands. */
static void count_unlinked(struct disk_state *s)
{
    dev_t devices[MAX_TREES + CARREL_MAX_LAYERS + 1];
    size_t count = s->device_count;
    char path[4096];
    struct stat st;

    if (s->ours.count == 0)
        return;
    memcpy(devices, s->devices, count * sizeof(dev_t));
    for (size_t i = 0; i < s->layer_count; i++) {
        snprintf(path, sizeof(path), "/proc/%d/root/%s", (int)s->ours.pids[0], s->layers[i]);
        if (stat(path, &st) == 0)
            devices[count++] = st.st_dev;
    }
    unlinked_add(s->tally, &s->ours, devices, count);
}

/* 1: more to do, 0: done. */
static int continue_count(struct disk_state *s, uint64_t until_ms)
{
    while (now_ms() <= until_ms) {
        if (tally_step(s->tally, SLICE_ENTRIES))
            continue;
        if (s->tree_at == s->tree_count) {
            count_unlinked(s);
            s->counting = false;
            s->count_ended_ms = now_ms();
            s->count_took_ms = s->count_ended_ms - s->count_began_ms;
            return 0;
        }
        if (tally_begin(s->tally, s->trees[s->tree_at++].fd) < 0)
            tally_note_hidden(s->tally);
    }
    return 1;
}

static int count_whole(struct disk_state *s)
{
    begin_count(s);
    return continue_count(s, now_ms() + WHOLE_COUNT_MS) ? -1 : 0;
}

/* --- the verdict --- */

static bool end_for(struct disk_state *s, enum disk_end end)
{
    s->end = end;
    s->counting = false;
    return true;
}

static uint64_t most_bytes(const struct disk_state *s)
{
    return larger(s->max_bytes, s->left_bytes);
}

static uint64_t most_files(const struct disk_state *s)
{
    return larger(s->max_files, s->left_files);
}

static bool judge(struct disk_state *s, uint64_t bytes, uint64_t files)
{
    s->peak_bytes = larger(s->peak_bytes, bytes);
    if (s->idle) {
        s->left_bytes = bytes;
        s->left_files = files;
        return false;
    }
    if (bytes > most_bytes(s))
        return end_for(s, DISK_BYTES);
    if (files > most_files(s))
        return end_for(s, DISK_FILES);
    return false;
}

/* What was moved during a count may have been counted twice: free space must agree, or a second
 * count. */
static bool is_confirmed(struct disk_state *s, const struct room *now)
{
    bool bytes = less(s->at_begin.bytes, now->bytes) > most_bytes(s);
    bool files = less(s->at_begin.files, now->files) > most_files(s);

    return bytes || files || ++s->over > 1;
}

/* After a count, or as soon as it has met too much. 1: over, 0: not, -1: to be counted again. */
static int judge_count(struct disk_state *s, const struct room *now)
{
    const struct tally_sum *sum = tally_sum(s->tally);
    uint64_t bytes = less(sum->bytes, s->before.bytes);
    uint64_t files = less(sum->entries, s->before.entries);
    bool over = !s->idle && (bytes > most_bytes(s) || files > most_files(s));

    if (over && !is_confirmed(s, now))
        return -1;
    if (!over && s->counting)
        return 0;
    s->over = 0;
    s->bytes = sum->hidden ? larger(bytes, estimated_bytes(s, now)) : bytes;
    s->files = sum->hidden ? larger(files, estimated_files(s, now)) : files;
    s->counted = s->bytes;
    s->counts += !s->counting;
    s->answering &= s->counting;
    s->over_hidden =
        !over && (s->bytes > most_bytes(s) || s->files > most_files(s)) ? s->over_hidden + 1 : 0;
    /* One that is being started cannot be looked into for a moment. */
    if (s->over_hidden > 0 && s->over_hidden < HIDDEN_COUNTS && !s->idle)
        return 0;
    bool ended = judge(s, s->bytes, s->files);
    if (ended && !over)
        s->end = DISK_HIDDEN;
    return ended;
}

static bool is_count_due(const struct disk_state *s, const struct room *now, uint64_t time)
{
    uint64_t rested = time - s->count_ended_ms;
    uint64_t bytes = estimated_bytes(s, now);

    if (s->asked || s->idle)
        return s->asked && rested >= s->count_took_ms * REST_BUSY;
    if (bytes > most_bytes(s) || estimated_files(s, now) > most_files(s))
        return rested >= s->count_took_ms * REST_BUSY || bytes / 2 > most_bytes(s);
    return rested >= COUNT_ANYWAY_MS && rested >= s->count_took_ms * REST_IDLE;
}

/* The less is left, the sooner. */
static void wait_until_worthwhile(struct disk_state *s, const struct room *now, uint64_t time)
{
    uint64_t bytes = smaller(less(most_bytes(s), estimated_bytes(s, now)), now->above_floor);
    uint64_t files = less(most_files(s), estimated_files(s, now));
    uint64_t wait = smaller(bytes / BYTES_PER_MS, files / FILES_PER_MS);

    wait = wait < MIN_WAIT_MS ? MIN_WAIT_MS : smaller(wait, MAX_WAIT_MS);
    s->due_ms = s->counting ? time : time + wait;
}

/* While it is being counted it goes on writing. */
static bool is_too_fast(const struct disk_state *s, const struct room *now)
{
    uint64_t gone = less(s->at_count.bytes, now->bytes);

    return !s->idle && gone > HURRY_BYTES && gone / 2 > most_bytes(s);
}

/* On a full disk a run may still delete: it is ended when it has added something. */
static bool is_filling_host(const struct disk_state *s, const struct room *now)
{
    return now->at_floor && !s->idle && estimated_bytes(s, now) > s->left_bytes + FLOOR_ADDED;
}

static bool check_image(struct disk_state *s)
{
    struct room now = look(s);

    s->due_ms = now_ms() + smaller(MAX_WAIT_MS, MIN_WAIT_MS + s->max_files / FILES_PER_MS);
    return judge(s, 0, less(s->at_begin.files, now.files));
}

bool disk_watch_check(struct disk_watch *watch)
{
    struct disk_state *s = watch->state;
    uint64_t time = now_ms();

    if (!s || s->end || time < s->due_ms || weak("disk"))
        return s && s->end;
    if (s->image)
        return check_image(s);
    struct room now = look(s);
    if (is_filling_host(s, &now))
        return end_for(s, DISK_HOST_FULL);
    if (!s->counting && is_count_due(s, &now, time))
        begin_count(s);
    if (s->counting) {
        if (is_too_fast(s, &now)) {
            s->peak_bytes = larger(s->peak_bytes, estimated_bytes(s, &now));
            return end_for(s, DISK_TOO_FAST);
        }
        (void)continue_count(s, time + SLICE_MS);
        now = look(s);
        int r = judge_count(s, &now);
        if (r > 0)
            return true;
        if (r < 0)
            begin_count(s);
    }
    wait_until_worthwhile(s, &now, time);
    return false;
}

/* --- the outside --- */

static void free_state(struct disk_state *s)
{
    for (size_t i = 0; i < s->tree_count; i++)
        scope_close(&s->trees[i].fd);
    tally_free(s->tally);
    free(s);
}

uint64_t disk_most_files(const struct carrel_limits *limits)
{
    if (limits->disk_files)
        return limits->disk_files;
    if (!limits->disk_bytes || limits->disk_image)
        return UINT64_MAX;
    return larger(limits->disk_bytes / BYTES_A_FILE, MIN_FILES);
}

static void set_limits(struct disk_state *s, const struct carrel_limits *limits)
{
    s->image = limits->disk_image;
    s->max_bytes = limits->disk_bytes && !s->image ? limits->disk_bytes : UINT64_MAX;
    s->max_files = disk_most_files(limits);
}

/* What the quota of the workspace leaves; UINT64_MAX: it has none. */
static uint64_t quota_bytes(const struct disk_state *s)
{
    uint64_t bytes = UINT64_MAX;
    uint64_t files;

    return quota_left(s->trees[0].fd, &bytes, &files) < 0 ? UINT64_MAX : bytes;
}

static int begin_polling(struct disk_state *s, const struct run_view *run, struct err *err)
{
    if (add_layers(s, run, err) < 0 || add_mounts(s, run, err) < 0)
        return -1;
    s->tally = tally_new();
    if (!s->tally)
        return err_set(err, ERR_LIMIT, ENOMEM, "count the workspace");
    s->at_begin = look(s);
    if (s->at_begin.at_floor && !run->stays) /* where files may be deleted, too */
        return err_set(err, ERR_LIMIT, 0,
                       "the disk of '%s' is almost full, and a run with a disk limit would be "
                       "ended at once; make room, or use another disk",
                       run->workspace_path);
    if (count_whole(s) < 0)
        return err_set(err, ERR_LIMIT, 0,
                       "'%s' has too many files to be counted in a minute, so the disk limit "
                       "cannot be kept; use --disk=image:SIZE, or a smaller tree",
                       run->workspace_path);
    s->before = *tally_sum(s->tally);
    s->bytes = s->files = 0;
    s->counts = 1;
    s->quota = quota_bytes(s) <= s->max_bytes && s->max_bytes != UINT64_MAX;
    return 0;
}

int disk_watch_begin(struct disk_watch *watch, const struct run_view *run, struct err *err)
{
    const struct carrel_limits *limits = &run->spec->limits;

    watch->state = NULL;
    if (!limits->disk_bytes && !limits->disk_files)
        return 0;
    struct disk_state *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_LIMIT, ENOMEM, "watch the disk");
    set_limits(s, limits);
    int r = add_workspace(s, run, err);
    if (r == 0 && s->image)
        s->at_begin = look(s);
    else if (r == 0)
        r = begin_polling(s, run, err);
    if (r < 0) {
        free_state(s);
        return -1;
    }
    watch->state = s;
    return 0;
}

void disk_watch_idle(struct disk_watch *watch, bool idle)
{
    if (watch->state)
        watch->state->idle = idle;
}

static bool is_polled(const struct disk_state *s)
{
    return s && !s->image && !s->quota && s->max_bytes != UINT64_MAX;
}

void disk_watch_ask(struct disk_watch *watch)
{
    if (!is_polled(watch->state))
        return;
    watch->state->asked = true;
    watch->state->due_ms = 0;
}

bool disk_watch_is_asked(const struct disk_watch *watch)
{
    return watch->state && (watch->state->asked || watch->state->counting);
}

bool disk_watch_left(const struct disk_watch *watch, uint64_t *ret_bytes, uint64_t *ret_counts)
{
    const struct disk_state *s = watch->state;

    if (!is_polled(s))
        return false;
    *ret_bytes = s->asked || s->answering ? UINT64_MAX : less(s->max_bytes, s->counted);
    *ret_counts = s->counts;
    return true;
}

void disk_watch_follow(struct disk_watch *watch, pid_t pid)
{
    if (!watch->state)
        return;
    watch->state->ours.count = 0;
    disk_watch_trust(watch, pid);
}

void disk_watch_trust(struct disk_watch *watch, pid_t pid)
{
    struct unlinked_ours *ours = watch->state ? &watch->state->ours : NULL;

    if (ours && pid > 0 && ours->count < sizeof(ours->pids) / sizeof(ours->pids[0]))
        ours->pids[ours->count++] = pid;
}

int disk_watch_due_ms(const struct disk_watch *watch)
{
    const struct disk_state *s = watch->state;

    if (!s || s->end || (s->image && s->max_files == UINT64_MAX))
        return -1;
    return (int)less(s->due_ms, now_ms());
}

static bool is_full(const struct disk_state *s)
{
    struct statvfs fs;

    if (s->quota)
        return quota_bytes(s) < FULL_BYTES;
    return s->image && fstatvfs(s->trees[0].fd, &fs) == 0 &&
           ((uint64_t)fs.f_bavail * fs.f_frsize < FULL_BYTES || fs.f_ffree == 0);
}

static uint64_t added_in_all(struct disk_state *s, uint64_t *ret_files)
{
    struct room now = look(s);

    *ret_files = less(s->at_begin.files, now.files);
    if (s->image)
        return less(s->at_begin.bytes, now.bytes);
    *ret_files = 0;
    s->ours.count = 0; /* all are gone, and with them the files without a name */
    if (count_whole(s) < 0)
        return CARREL_UNKNOWN;
    *ret_files = less(tally_sum(s->tally)->entries, s->before.entries);
    uint64_t added = less(tally_sum(s->tally)->bytes, s->before.bytes);
    return tally_sum(s->tally)->hidden ? larger(added, estimated_bytes(s, &now)) : added;
}

enum disk_end disk_watch_end(struct disk_watch *watch, struct carrel_result *ret)
{
    struct disk_state *s = watch->state;
    enum disk_end end = DISK_KEPT;

    if (!s)
        return end;
    if (ret) {
        uint64_t files;
        bool full = is_full(s);
        uint64_t added = added_in_all(s, &files);
        uint64_t peak = added == CARREL_UNKNOWN ? s->peak_bytes : larger(added, s->peak_bytes);
        ret->disk_method = s->image ? "image" : s->quota ? "quota" : "polling";
        ret->usage.added_bytes = added;
        ret->usage.overshoot_bytes = less(peak, s->max_bytes);
        end = s->end                       ? s->end
              : ret->usage.overshoot_bytes ? DISK_BYTES
              : files > s->max_files       ? DISK_FILES
              : full                       ? DISK_FULL
                                           : DISK_KEPT;
    }
    free_state(s);
    watch->state = NULL;
    return end;
}
