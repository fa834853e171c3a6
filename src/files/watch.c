/* SPDX-License-Identifier: Apache-2.0 */
/* Changes in a tree as they happen. Every directory has a watch of its own; one that appears gets
 * its watch first and is read after that, so that what is made in it meanwhile is told, once. Moves
 * come in two halves, which are put together again where both are in the tree.
 *
 *   add_tree --> "ready" --> read_events --> one --> tell    until the client leaves */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/hash.h"
#include "files/core/paths.h"
#include "files/core/search.h"

enum {
    MOST_WATCHES = 1 << 16,
    MOST_HALVES = 64,
    HALF_MS = 20, /* how long the other half of a move is waited for */
    BYTES = 1 << 16,
    EVENTS = IN_CREATE | IN_DELETE | IN_MODIFY | IN_ATTRIB | IN_MOVED_FROM | IN_MOVED_TO |
             IN_DELETE_SELF | IN_MOVE_SELF,
};

struct watched {
    int id;
    char *path; /* absolute */
};

struct half {
    uint32_t cookie;
    bool is_dir;
    char *path;
};

struct watch {
    struct files_call *call;
    struct emit e;
    struct buf path;
    struct buf other;
    int fd;
    bool recursive;
    bool is_dir; /* what is watched */
    bool over;   /* what was watched is gone */
    bool tells;  /* what is found by reading is told */
    dev_t root_dev;
    struct watched *all; /* by id, which only ever grow */
    size_t n;
    size_t cap;
    struct half halves[MOST_HALVES];
    size_t half_count;
    uint64_t *read; /* hashes of paths told after reading a directory, for events still to come */
    size_t read_count;
    size_t read_cap;
    char *last; /* the path of the last change, if that was to a content */
};

/* --- telling --- */

static void tell(struct watch *w, const char *event, const char *path, const char *to, bool is_dir)
{
    bool is_modify = strcmp(event, "modify") == 0;

    if (is_modify && w->last && strcmp(w->last, path) == 0)
        return;
    free(w->last);
    w->last = is_modify ? strdup(path) : NULL;
    emit_raw(&w->e, "{");
    emit_bytes(&w->e, "event", event, strlen(event));
    emit_bytes(&w->e, "path", path, strlen(path));
    if (to)
        emit_bytes(&w->e, "to", to, strlen(to));
    emit_raw(&w->e, is_dir ? ",\"is_dir\":true}\n" : ",\"is_dir\":false}\n");
    (void)emit_alive(&w->e);
}

/* All that is known now, without waiting for more. */
static void send_now(struct watch *w)
{
    free(w->last);
    w->last = NULL;
    if (w->e.b.n > 0 && !w->e.b.failed)
        (void)answer_bytes(w->call, w->e.b.p, w->e.b.n);
    w->e.b.n = 0;
}

/* --- what a reading has told already --- */

static uint64_t hash(const char *path)
{
    uint64_t h = hash_text(path);

    return h > 1 ? h : 2; /* 0: a free place, 1: one that was taken out */
}

static void put_read(uint64_t *table, size_t cap, uint64_t h)
{
    size_t at = h & (cap - 1);

    while (table[at])
        at = (at + 1) & (cap - 1);
    table[at] = h;
}

static void remember_read(struct watch *w, const char *path)
{
    if (2 * (w->read_count + 1) > w->read_cap) {
        size_t cap = w->read_cap ? 2 * w->read_cap : 256;
        uint64_t *table = calloc(cap, sizeof(*table));
        if (!table)
            return; /* it may be told twice */
        for (size_t i = 0; i < w->read_cap; i++) {
            if (w->read[i] > 1)
                put_read(table, cap, w->read[i]);
        }
        free(w->read);
        w->read = table;
        w->read_cap = cap;
    }
    put_read(w->read, w->read_cap, hash(path));
    w->read_count++;
}

/* Its place in the table, or NULL. */
static uint64_t *find_read(const struct watch *w, const char *path)
{
    uint64_t h = hash(path);

    for (size_t at = w->read_cap ? h & (w->read_cap - 1) : 0; w->read_cap && w->read[at];
         at = (at + 1) & (w->read_cap - 1)) {
        if (w->read[at] == h)
            return &w->read[at];
    }
    return NULL;
}

/* Whether the event tells what a reading has told: once, as it may be deleted and made again. */
static bool take_read(struct watch *w, const char *path)
{
    uint64_t *place = find_read(w, path);

    if (place)
        *place = 1;
    return place != NULL;
}

static void forget_read(struct watch *w)
{
    if (w->read_count == 0)
        return;
    free(w->read);
    w->read = NULL;
    w->read_cap = 0;
    w->read_count = 0;
}

/* --- the watches --- */

static struct watched *find(const struct watch *w, int id)
{
    size_t low = 0;
    size_t high = w->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (w->all[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < w->n && w->all[low].id == id ? &w->all[low] : NULL;
}

static int keep(struct watch *w, int id, const char *path)
{
    char *copy = strdup(path);
    struct watched *known = find(w, id);

    if (copy && known) {
        free(known->path);
        known->path = copy;
        return 0;
    }
    if (copy && w->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 64;
        struct watched *all = reallocarray(w->all, cap, sizeof(*all));
        if (!all) {
            free(copy);
            return -ENOMEM;
        }
        w->all = all;
        w->cap = cap;
    }
    if (!copy)
        return -ENOMEM;
    size_t at = w->n++;
    for (; at > 0 && w->all[at - 1].id > id; at--)
        w->all[at] = w->all[at - 1];
    w->all[at] = (struct watched){id, copy};
    return 0;
}

static int add(struct watch *w, const char *path, uint32_t flags)
{
    if (w->n >= MOST_WATCHES)
        return -ENOSPC;
    int id = inotify_add_watch(w->fd, path, EVENTS | IN_EXCL_UNLINK | flags);
    return id < 0 ? -errno : keep(w, id, path);
}

static void drop(struct watch *w, struct watched *one)
{
    free(one->path);
    w->n--;
    memmove(one, one + 1, (size_t)(w->all + w->n - one) * sizeof(*one));
}

static bool is_below(const char *path, const char *directory, size_t n)
{
    return strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* A directory has left the tree: its watches tell nothing any more. */
static void drop_tree(struct watch *w, const char *path)
{
    size_t n = strlen(path);

    for (size_t i = w->n; i > 0; i--) {
        if (!is_below(w->all[i - 1].path, path, n))
            continue;
        (void)inotify_rm_watch(w->fd, w->all[i - 1].id);
        drop(w, &w->all[i - 1]);
    }
}

/* A directory has another name now, and so has all that is in it. */
static void rename_tree(struct watch *w, const char *from, const char *to)
{
    size_t n = strlen(from);
    char *path = NULL;

    for (size_t i = 0; i < w->n; i++) {
        if (!is_below(w->all[i].path, from, n))
            continue;
        if (asprintf(&path, "%s%s", to, w->all[i].path + n) < 0)
            return;
        free(w->all[i].path);
        w->all[i].path = path;
    }
}

static bool is_watched(const struct watch *w, const char *path)
{
    for (size_t i = 0; i < w->n; i++) {
        if (strcmp(w->all[i].path, path) == 0)
            return true;
    }
    return false;
}

/* --- reading directories --- */

struct reading {
    struct watch *w;
    const char *root; /* where the walk began */
    int error;
};

/* What Carrel provides at the root does not change: watches for it would be wasted. */
static bool is_fixed(const struct watch *w, const struct tree_entry *entry, const char *path)
{
    struct statvfs st;

    return entry->depth == 1 && entry->st.st_dev != w->root_dev && statvfs(path, &st) == 0 &&
           st.f_flag & ST_RDONLY;
}

/* The name of what Carrel itself has not finished. */
static bool is_unfinished(const char *name)
{
    return strncmp(name, FILES_TEMP, strlen(FILES_TEMP)) == 0 && strlen(name) == FILES_TEMP_LENGTH;
}

/* Of a file that has no name yet the kernel says '#' and a number. */
static bool is_unnamed(const char *name, const char *path)
{
    struct stat st;

    return name[0] == '#' && name[1] && name[1 + strspn(name + 1, "0123456789")] == '\0' &&
           lstat(path, &st) < 0;
}

static enum walk_answer see(void *context, const struct tree_entry *entry)
{
    struct reading *r = context;
    struct watch *w = r->w;
    bool is_dir = S_ISDIR(entry->st.st_mode);
    const char *path = search_path(&w->other, r->root, entry->path);

    if (!path)
        return WALK_STOP;
    if (is_unfinished(entry->name))
        return WALK_PAST;
    if (w->tells && !find_read(w, path)) {
        tell(w, "create", path, NULL, is_dir);
        remember_read(w, path);
    }
    if (!is_dir)
        return w->call->gone ? WALK_STOP : WALK_ON;
    if (search_passes(r->root, entry) || (!r->root[1] && is_fixed(w, entry, path)))
        return WALK_PAST;
    int error = add(w, path, IN_ONLYDIR | IN_DONT_FOLLOW);
    if (error == -ENOSPC || error == -ENOMEM) {
        r->error = error;
        return WALK_STOP;
    }
    if (error == -ENAMETOOLONG && w->e.call)
        tell(w, "overflow", path, NULL, true); /* too deep to be watched */
    return error < 0 ? WALK_PAST : WALK_ON;
}

/* Watches a directory and all in it. 0 or -errno; one that has gone again is none. */
static int add_tree(struct watch *w, const char *path)
{
    struct reading r = {.w = w};
    char *root = strdup(path); /* may be in a buffer that the walk writes to */
    /* A link is followed where it is what was asked for. */
    uint32_t links = strcmp(path, w->call->m->path) == 0 ? 0 : IN_DONT_FOLLOW;
    int error = root ? add(w, root, IN_ONLYDIR | links) : -ENOMEM;

    if (error == 0 && (w->recursive || w->tells)) {
        r.root = root;
        error = files_walk(root, w->recursive ? UINT32_MAX : 1, see, NULL, &r);
        error = r.error ? r.error : error < 0 ? error : 0;
    }
    free(root);
    return error;
}

/* A new directory in the tree. What does not fit any more is told, and the rest goes on. */
static void appeared(struct watch *w, const char *path)
{
    if (!w->recursive)
        return;
    char *copy = strdup(path);
    w->tells = true;
    int error = copy ? add_tree(w, copy) : -ENOMEM;
    w->tells = false;
    if (error == -ENOSPC || error == -ENOMEM)
        tell(w, "overflow", copy ? copy : w->call->m->path, NULL, true);
    free(copy);
}

/* --- events --- */

/* Of a move that stays without its second half: gone from the tree. Another that has its name by
 * now is told by an event of its own, which may have come before (two that changed places) and must
 * not be taken back; of a directory the watches go, and so all is told anew. */
static void give_up(struct watch *w, const struct half *half)
{
    struct stat st;
    bool replaced = lstat(half->path, &st) == 0;

    if (replaced && !half->is_dir)
        return;
    tell(w, "delete", half->path, NULL, half->is_dir);
    if (!half->is_dir)
        return;
    drop_tree(w, half->path);
    if (replaced)
        tell(w, "create", half->path, NULL, S_ISDIR(st.st_mode));
    if (replaced && S_ISDIR(st.st_mode))
        appeared(w, half->path);
}

static void give_up_halves(struct watch *w, size_t keep_last)
{
    size_t n = w->half_count > keep_last ? w->half_count - keep_last : 0;

    for (size_t i = 0; i < n; i++) {
        give_up(w, &w->halves[i]);
        free(w->halves[i].path);
    }
    w->half_count -= n;
    memmove(w->halves, w->halves + n, w->half_count * sizeof(w->halves[0]));
}

static void moved_from(struct watch *w, const struct inotify_event *event, const char *path)
{
    if (w->half_count == MOST_HALVES)
        give_up_halves(w, MOST_HALVES - 1);
    char *copy = strdup(path);
    if (copy)
        w->halves[w->half_count++] =
            (struct half){event->cookie, (event->mask & IN_ISDIR) != 0, copy};
}

static void moved_to(struct watch *w, const struct inotify_event *event, const char *path)
{
    bool is_dir = event->mask & IN_ISDIR;

    for (size_t i = 0; i < w->half_count; i++) {
        struct half half = w->halves[i];
        if (half.cookie != event->cookie)
            continue;
        w->half_count--;
        memmove(w->halves + i, w->halves + i + 1, (w->half_count - i) * sizeof(half));
        tell(w, "move", half.path, path, is_dir);
        if (is_dir)
            rename_tree(w, half.path, path);
        if (is_dir && !is_watched(w, path))
            appeared(w, path); /* moved before it could be watched under its first name */
        free(half.path);
        return;
    }
    if (take_read(w, path))
        return;
    tell(w, "create", path, NULL, is_dir);
    if (is_dir)
        appeared(w, path);
}

/* The thing itself that is watched, not something in it. */
static void of_itself(struct watch *w, const struct inotify_event *event, struct watched *one)
{
    bool is_root = strcmp(one->path, w->call->m->path) == 0;
    bool is_dir = event->mask & IN_ISDIR;

    if (event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT) && is_root) {
        tell(w, "delete", one->path, NULL, is_dir);
        w->over = true;
    } else if (event->mask & IN_MODIFY) {
        tell(w, "modify", one->path, NULL, false);
    } else if (event->mask & IN_ATTRIB && is_root) {
        tell(w, "attrib", one->path, NULL, is_dir); /* of others the directory above tells */
    }
    if (event->mask & IN_IGNORED)
        drop(w, one);
}

/* Something was lost: the watches of directories made meanwhile with it. */
static void overflowed(struct watch *w)
{
    tell(w, "overflow", w->call->m->path, NULL, true);
    give_up_halves(w, 0);
    if (w->recursive)
        (void)add_tree(w, w->call->m->path);
}

static void one(struct watch *w, const struct inotify_event *event)
{
    struct watched *dir = find(w, event->wd);
    bool is_dir = event->mask & IN_ISDIR;

    if (event->mask & IN_Q_OVERFLOW) {
        overflowed(w);
        return;
    }
    if (!dir)
        return; /* of a watch that was dropped since */
    if (event->len == 0) {
        of_itself(w, event, dir);
        return;
    }
    const char *path = search_path(&w->path, dir->path, event->name);
    if (!path || is_unfinished(event->name))
        return;
    if (event->mask & IN_MOVED_FROM) {
        moved_from(w, event, path);
    } else if (event->mask & IN_MOVED_TO) {
        moved_to(w, event, path);
    } else if (event->mask & IN_CREATE) {
        if (take_read(w, path))
            return;
        tell(w, "create", path, NULL, is_dir);
        if (is_dir)
            appeared(w, path);
    } else if (event->mask & IN_DELETE) {
        tell(w, "delete", path, NULL, is_dir);
    } else if (event->mask & (IN_MODIFY | IN_ATTRIB) && !is_unnamed(event->name, path)) {
        tell(w, event->mask & IN_MODIFY ? "modify" : "attrib", path, NULL, is_dir);
    }
}

static void read_events(struct watch *w, char *bytes)
{
    ssize_t n = read(w->fd, bytes, BYTES);
    int more = 0;

    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(bytes + at);
        one(w, event);
        at += (ssize_t)(sizeof(*event) + event->len);
    }
    /* Nothing is left from before the last reading of a directory. */
    if (ioctl(w->fd, FIONREAD, &more) == 0 && more == 0)
        forget_read(w);
    send_now(w);
}

static void follow(struct watch *w, char *bytes)
{
    struct pollfd fds[2] = {{.fd = w->fd, .events = POLLIN}, {.fd = w->call->stream}};

    while (!w->call->gone && !w->over && !w->e.b.failed) {
        int n = poll(fds, 2, w->half_count > 0 ? HALF_MS : -1);
        if (n < 0 && errno != EINTR)
            break;
        if (n == 0) {
            give_up_halves(w, 0);
            send_now(w);
        }
        if (n > 0 && fds[1].revents & (POLLHUP | POLLERR | POLLNVAL))
            break; /* the end of its body alone is no reason */
        if (n > 0 && fds[0].revents)
            read_events(w, bytes);
    }
    give_up_halves(w, 0);
}

/* --- the call --- */

static int begin(struct watch *w)
{
    const char *path = w->call->m->path;
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    w->root_dev = st.st_dev;
    w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->fd < 0)
        return errno == EMFILE ? -ENOSPC : -errno;
    w->is_dir = S_ISDIR(st.st_mode);
    return w->is_dir ? add_tree(w, path) : add(w, path, 0);
}

static void watch_clear(struct watch *w)
{
    scope_close(&w->fd);
    for (size_t i = 0; i < w->n; i++)
        free(w->all[i].path);
    for (size_t i = 0; i < w->half_count; i++)
        free(w->halves[i].path);
    free(w->all);
    free(w->read);
    free(w->last);
    buf_clear(&w->path);
    buf_clear(&w->other);
    free(w);
}

void files_watch(struct files_call *call)
{
    struct watch *w = calloc(1, sizeof(*w));
    char *bytes = malloc(BYTES);
    int r = w && bytes ? 0 : -ENOMEM;

    if (w)
        w->fd = -1;
    if (r == 0) {
        w->call = call;
        w->recursive = call->m->flags & FILES_RECURSIVE;
        r = begin(w);
    }
    if (r == -ENOSPC) {
        answer_error(call, 507, "too_many_watches",
                     "there are more directories, or more watches at once, than can be watched: "
                     "watch a smaller part of the tree, or end other watches");
    } else if (r < 0) {
        answer_errno(call, r, call->m->path);
    } else {
        emit_begin(&w->e, call, true, FILES_TYPE_NDJSON);
        tell(w, "ready", call->m->path, NULL, w->is_dir);
        send_now(w);
        follow(w, bytes);
        emit_finish(&w->e, 200);
    }
    if (w)
        watch_clear(w);
    free(bytes);
}
