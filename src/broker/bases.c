/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/bases.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "broker/channel.h"
#include "broker/chores.h"
#include "broker/plans.h"
#include "broker/sandboxes.h"
#include "broker/templates.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"
#include "sys/path.h"

#define BASES  ".carrel/bases"
#define PINNED "base" /* in the layer */
#define LAYER  "system"
#define GONE   "system.gone" /* beside the layer: was it */

enum {
    NAME_ROOM = PROTOCOL_ID + 16,
    PATH_ROOM = 4096,
};

/* Whether `id` is "NAME.N"; *ret_number is N. */
static bool is_of(const char *id, const char *name, unsigned long *ret_number)
{
    size_t n = strlen(name);
    char *end;

    if (strncmp(id, name, n) != 0 || id[n] != '.' || id[n + 1] < '1' || id[n + 1] > '9')
        return false;
    *ret_number = strtoul(id + n + 1, &end, 10);
    return *end == '\0';
}

/* An operator's directory, who may have them elsewhere: for several daemons, say. */
static int open_bases(const struct broker *b)
{
    int fd = openat(b->state, BASES, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 ? -errno : fd;
}

static int find_newest(const struct broker *b, const char *name, char ret[NAME_ROOM],
                       struct err *err)
{
    unsigned long newest = 0;
    unsigned long number;
    const struct dirent *entry;
    int fd = open_bases(b);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    while (dir && (entry = readdir(dir))) {
        if (is_of(entry->d_name, name, &number) && number > newest)
            newest = number;
    }
    if (dir)
        (void)closedir(dir);
    else if (fd >= 0)
        (void)close(fd);
    if (newest == 0)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "the daemon has no base '%s' for the workspace's system; have it made with: "
                       "carrel base build %s",
                       name, name);
    snprintf(ret, NAME_ROOM, "%s.%lu", name, newest);
    return 0;
}

/* The one that the layer's changes are of. It is there before the first of them. */
static int pin(int layer, const char *id, struct err *err)
{
    static const char unready[] = "base.new";
    size_t n = strlen(id);

    /* No id of the workspace's has it: it is root's, as far as ids of systems are mapped. */
    if (geteuid() == 0 && fchown(layer, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "take the directory of the workspace's system");
    scoped_fd int fd =
        openat(layer, unready, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, id, n) != (ssize_t)n || fsync(fd) < 0 ||
        renameat(layer, unready, layer, PINNED) < 0 || fsync(layer) < 0)
        return err_set(err, ERR_IO, errno, "note which base the workspace's system is on");
    return 0;
}

/* 1: none yet. */
static int read_pinned(int layer, char ret[NAME_ROOM], struct err *err)
{
    scoped_fd int fd = path_open_beneath(layer, PINNED, O_RDONLY | O_NONBLOCK, 1);

    if (fd == -ENOENT)
        return 1;
    ssize_t n = fd < 0 ? fd : read(fd, ret, NAME_ROOM - 1);
    if (n <= 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : EIO,
                       "read which base the workspace's system is on");
    ret[n] = '\0';
    return protocol_id_is_valid(ret)
               ? 0
               : err_set(err, ERR_IO, 0, "what the workspace's system is on is no base");
}

/* `over`: what the template has changed, or -1; that is of one base, and so is all over it. */
static int choose(const struct broker *b, int layer, int over, const struct exec_message *m,
                  char ret[NAME_ROOM], struct err *err)
{
    unsigned long number;
    int r = read_pinned(layer, ret, err);

    if (r < 0)
        return -1;
    if (r == 1) {
        r = over < 0 ? find_newest(b, m->spec.base, ret, err) : read_pinned(over, ret, err);
        if (r == 1)
            err_set(err, ERR_IO, 0, "the template does not say which base its system is on");
        if (r != 0 || pin(layer, ret, err) < 0)
            return -1;
    }
    if (is_of(ret, m->spec.base, &number))
        return 0;
    return err_set(
        err, ERR_CONFLICT, 0,
        "the workspace's system stands on '%s', and its policy says '%s'; put that back, "
        "or make a new workspace",
        ret, m->spec.base);
}

/* What was looked at is what is shown, whatever its path leads to by then. */
static int keep(struct sandbox_spec *to, int *fd, const char **ret, struct err *err)
{
    if (to->fd_count == sizeof(to->fds) / sizeof(to->fds[0]))
        return err_set(err, ERR_LIMIT, 0, "too many mounts");
    to->fds[to->fd_count++] = *fd;
    *ret = arena_printf(&to->arena, "/proc/self/fd/%d", take_fd(fd));
    return *ret ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "keep the workspace's system");
}

static int check(const struct sandbox_spec *to, struct err *err)
{
    if (to->spec.limits.disk_image)
        return err_set(err, ERR_CONFLICT, 0,
                       "a workspace with a system of its own cannot have its disk in an image, as "
                       "its layer lies outside of it; bound the disk without an image");
    return 0;
}

/* What the workspace's template has changed of its base is seen below the workspace's own. */
static int add_over(const struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                    int *ret, struct err *err)
{
    *ret = -1;
    if (!*m->spec.template)
        return 0;
    scoped_fd int over = template_open_system(b, m->spec.template);
    if (over == -ENOENT)
        return err_set(err, ERR_CONFLICT, 0,
                       "a workspace on a template for the host's system cannot have one of its "
                       "own; make one without a template, or on a template with a \"base\"");
    if (over < 0)
        return err_set(err, ERR_IO, -over, "open the system of the workspace's template");
    *ret = over;
    return keep(to, &over, &to->spec.base_over, err);
}

/* --- what the workspace has changed --- */

static bool is_empty(int dir, const char *name)
{
    scoped_fd int fd = path_open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 0);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    const struct dirent *entry;
    bool empty = true;

    if (!entries)
        return fd == -ENOENT;
    (void)take_fd(&fd);
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own */
    while (empty && (entry = readdir(entries)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    (void)closedir(entries);
    return empty;
}

int base_refuse_changed(const struct broker *b, const char *bucket, const char *workspace,
                        const char *why, struct err *err)
{
    scoped_fd int env = layers_open(b, bucket, workspace);

    if (env == -ENOENT || (env >= 0 && is_empty(env, LAYER "/upper")))
        return 0;
    return err_set(err, ERR_CONFLICT, env < 0 ? -env : 0,
                   "the workspace has changed its own system, %s; what it has installed there can "
                   "be made part of a template, or be removed with: carrel ws reset-system",
                   why);
}

/* What has this name may be of an interrupted reset: then that is finished, and this begins. */
static int reset(const int *fds, const void *what, struct chore_report *report)
{
    int r = tree_remove_lent(fds[0], GONE);

    (void)what;
    if (r == 0 && renameat(fds[0], LAYER, fds[0], GONE) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && fsync(fds[0]) < 0)
        r = -errno;
    if (r == 0)
        r = tree_remove_lent(fds[0], GONE);
    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove what the system had changed") : 0;
}

static int remove_gone(const int *fds, const void *what, struct chore_report *report)
{
    int r = tree_remove_lent(fds[0], GONE);

    (void)what;
    return r < 0 ? err_set(&report->err, ERR_IO, -r, "remove what a system had changed") : 0;
}

/* Not now is soon enough. */
static void tidy(struct broker *b, const struct exec_message *m)
{
    struct stat st;
    struct err err;
    scoped_fd int env = layers_open(b, m->bucket, m->workspace);

    if (env < 0 || fstatat(env, GONE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    struct chore_work work = {.fds = {env, -1, -1, -1}, .work = remove_gone, .can_wait = true};
    if (chore_start(b, &work, &err) < 0)
        log_err("system_not_removed", m->workspace, &err);
}

struct resetting {
    uint64_t tag;
    uint64_t generation;
    char workspace[PROTOCOL_ID + 1];
};

static void was_reset(struct broker *b, void *context, const struct err *failed,
                      const struct chore_report *report)
{
    struct resetting *r = context;

    (void)report;
    lock_release(b, r->workspace, r);
    if (r->generation == b->generation && failed)
        channel_send_error(b, r->tag, failed);
    else if (r->generation == b->generation)
        channel_send_ok(b, r->tag);
    free(r);
}

static int start_reset(struct broker *b, const struct plain_message *m, struct resetting *r,
                       struct err *err)
{
    scoped_fd int env = layers_open(b, m->texts[0], m->texts[1]);

    if (env < 0)
        return env == -ENOENT ? 1 : err_set(err, ERR_IO, -env, "open the workspace's layers");
    if (sandbox_find_any(b, m->texts[1]))
        return err_set(err, ERR_CONFLICT, EBUSY,
                       "the workspace is awake; put it to sleep first: carrel ws sleep %s",
                       m->texts[1]);
    if (lock_take(b, r->workspace, LOCK_RESET, r, err) < 0)
        return -1;
    struct chore_work work = {
        .fds = {env, -1, -1, -1}, .work = reset, .done = was_reset, .context = r};
    if (chore_start(b, &work, err) == 0)
        return 0;
    lock_release(b, r->workspace, r);
    return -1;
}

void base_reset(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    struct err err;
    struct resetting *r = calloc(1, sizeof(*r));

    if (r) {
        *r = (struct resetting){.tag = tag, .generation = b->generation};
        snprintf(r->workspace, sizeof(r->workspace), "%s", m->texts[1]);
    }
    int begun = r ? start_reset(b, m, r, &err) : err_set(&err, ERR_LIMIT, ENOMEM, "begin");
    if (begun == 0)
        return;
    free(r);
    if (begun < 0)
        channel_send_error(b, tag, &err);
    else
        channel_send_ok(b, tag); /* there is nothing */
}

int base_add(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
             struct err *err)
{
    struct plan_id at = {.plan = ""};
    char id[NAME_ROOM];
    char path[PATH_ROOM];

    snprintf(at.bucket, sizeof(at.bucket), "%s", m->bucket);
    snprintf(at.workspace, sizeof(at.workspace), "%s", m->workspace);
    int over;
    if (check(to, err) < 0 || add_over(b, to, m, &over, err) < 0)
        return -1;
    scoped_fd int layer = layer_open(b, &at, LAYER, to->tree, err);
    if (layer < 0 || choose(b, layer, over, m, id, err) < 0)
        return -1;
    tidy(b, m);
    snprintf(path, sizeof(path), "%s/root", id);
    scoped_fd int bases = open_bases(b);
    scoped_fd int base =
        bases < 0 ? bases : path_open_beneath(bases, path, O_PATH | O_DIRECTORY, 0);
    if (base < 0)
        return err_set(err, ERR_NOT_FOUND, -base,
                       "the base that the workspace's system stands on is gone (%s); put it back",
                       path);
    int r = path_of_fd(layer, path, sizeof(path));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of the workspace's system");
    to->spec.base_layer = arena_copy(&to->arena, path, strlen(path));
    if (!to->spec.base_layer)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the workspace's system");
    to->spec.no_sudo = m->spec.no_sudo;
    return keep(to, &base, &to->spec.base, err);
}
