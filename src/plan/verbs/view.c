/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan view: {"hash":"…","privileged":true}. Of a written plan only the content lies in
 * upper/, each file where it is to be. This adds the rest, so that upper/ put over the tree shows
 * what the plan makes of it:
 *
 *   made            directories and links as such; a directory hides what the base has there
 *   moved, chmodded "redirect" and "metacopy": the data stay where they are. Without privileges
 *                   the kernel follows neither, and a copy is made
 *   gone            character device 0:0
 *
 * The directory is a copy of the plan's, which nobody wants afterwards. What the plan says is not
 * trusted to make sense: it has not been verified yet. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "plan/core/index.h"
#include "plan/core/layout.h"
#include "plan/core/reach.h"
#include "plan/core/tree_digest.h"
#include "plan/core/verbs.h"
#include "sys/path.h"

enum {
    OWNER_ALL = 0700,
    MOST_NAMES = 65536,    /* of attributes: the kernel's limit */
    MOST_TEXT = 128 << 20, /* of paths */
};

/* A directory that gets its mode when nothing is put into it any more. */
struct later {
    const char *path;
    uint32_t mode;
    int64_t mtime_ns;
};

struct view {
    struct reach upper;
    struct reach tree;
    const struct plan *plan;
    struct plan_index index;
    bool privileged;
    char last[PLAN_MAX_PATH + 1]; /* all directories above it are there */
    struct later *later;
    size_t count;
    size_t room;
    struct arena arena;
    char *attributes; /* two times MOST_NAMES bytes */
};

static int fail(int r, const char *path, struct err *err)
{
    bool senseless = r == -ENOENT || r == -EEXIST || r == -ENOTDIR || r == -ELOOP || r == -ESTALE ||
                     r == -EISDIR || r == -EXDEV;

    return err_set(err, senseless ? ERR_CONFLICT : ERR_IO, -r,
                   "show '%.200s' as the plan wants it; verify it without a check to see why",
                   path);
}

/* --- marks and attributes --- */

static int mark(const struct view *v, int fd, const char *name, const char *value)
{
    char whole[64];

    snprintf(whole, sizeof(whole), "%s.overlay.%s", v->privileged ? "trusted" : "user", name);
    return fsetxattr(fd, whole, value, strlen(value), 0) < 0 ? -errno : 0;
}

static int mark_redirect(const struct view *v, int fd, const char *base)
{
    char value[PLAN_MAX_PATH + 2];

    snprintf(value, sizeof(value), "/%s", base);
    return mark(v, fd, "redirect", value);
}

static int copy_attributes(const struct view *v, int from, int to)
{
    char *value = v->attributes + MOST_NAMES;
    ssize_t n = flistxattr(from, v->attributes, MOST_NAMES);

    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = v->attributes; name < v->attributes + n; name += strlen(name) + 1) {
        if (strncmp(name, "user.", 5) != 0 || strncmp(name, "user.overlay.", 13) == 0)
            continue;
        ssize_t size = fgetxattr(from, name, value, MOST_NAMES);
        if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0) < 0)
            return -errno;
    }
    return 0;
}

/* --- directories --- */

static int finish_later(struct view *v, const char *path, uint32_t mode, int64_t mtime_ns)
{
    if (v->count == v->room) {
        size_t room = v->room ? 2 * v->room : 64;
        struct later *all = reallocarray(v->later, room, sizeof(*all));
        if (!all)
            return -ENOMEM;
        v->later = all;
        v->room = room;
    }
    const char *kept = arena_copy(&v->arena, path, strlen(path));
    if (!kept)
        return -ENOMEM;
    v->later[v->count++] = (struct later){kept, mode & 07777, mtime_ns};
    return 0;
}

/* One may be there already, with content in it. A descriptor or -errno. */
static int make_dir(struct view *v, const char *path)
{
    const char *name;
    int parent = reach_parent(&v->upper, path, &name);

    if (parent < 0)
        return parent;
    if (mkdirat(parent, name, OWNER_ALL) < 0 && errno != EEXIST)
        return -errno;
    scoped_fd int there = path_open_beneath(parent, name, O_PATH | O_DIRECTORY, 1);
    int r = there < 0 ? there : reach_chmod(there, OWNER_ALL);
    return r < 0 ? r : path_open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 1);
}

/* A directory of the base that something is in: it goes on showing what it has. */
static int adopt(struct view *v, const char *path)
{
    char origin[PLAN_MAX_PATH + 1];
    struct stat st;
    ssize_t by;

    if (plan_after(&v->index, path) != PLAN_NOBODY)
        return 0; /* made with its operation */
    if (plan_place_of(&v->index, path, origin, &by) != PLACE_BASE)
        return -ENOENT;
    int r = reach_stat(&v->tree, origin, &st);
    if (r < 0 || !S_ISDIR(st.st_mode))
        return r < 0 ? r : -ENOTDIR;
    scoped_fd int fd = make_dir(v, path);
    return fd < 0 ? fd : finish_later(v, path, st.st_mode, plan_mtime(&st));
}

static int make_parents(struct view *v, const char *path)
{
    char above[PLAN_MAX_PATH + 1];
    int r = 0;

    for (const char *slash = strchr(path, '/'); r == 0 && slash; slash = strchr(slash + 1, '/')) {
        size_t n = (size_t)(slash - path);
        if (strncmp(v->last, path, n) == 0 && v->last[n] == '/')
            continue;
        memcpy(above, path, n);
        above[n] = '\0';
        r = adopt(v, above);
    }
    if (r == 0)
        memcpy(v->last, path, strlen(path) + 1);
    return r;
}

/* --- what the base has, elsewhere or with another mode --- */

static int copy_data(int from, int to, off_t size)
{
    off_t at = 0;

    for (;;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0)
            return errno == ENXIO ? 0 : -errno;
        off_t hole = lseek(from, data, SEEK_HOLE);
        if (hole < 0)
            return -errno;
        for (at = data; at < hole && at < size;) {
            loff_t in = at;
            loff_t out = at;
            ssize_t n = copy_file_range(from, &in, to, &out, (size_t)(hole - at), 0);
            if (n <= 0)
                return n < 0 ? -errno : -ESTALE;
            at += n;
        }
        if (at >= size)
            return 0;
    }
}

static int bring_file(struct view *v, const char *base, const char *path, uint32_t mode)
{
    const char *name;
    struct stat st;
    scoped_fd int from = reach_open(&v->tree, base, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    int parent = reach_parent(&v->upper, path, &name);

    if (from < 0 || parent < 0)
        return from < 0 ? from : parent;
    if (fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
        return -ESTALE;
    scoped_fd int to =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0 || ftruncate(to, st.st_size) < 0)
        return -errno;
    int r = v->privileged ? mark_redirect(v, to, base) : copy_data(from, to, st.st_size);
    if (r == 0 && v->privileged)
        r = mark(v, to, "metacopy", "");
    if (r == 0)
        r = copy_attributes(v, from, to);
    if (r == 0 && (fchmod(to, mode & 0777) < 0 ||
                   futimens(to, (const struct timespec[2]){st.st_atim, st.st_mtim}) < 0))
        r = -errno;
    return r;
}

static int make_link(struct view *v, const char *target, const char *path)
{
    const char *name;
    int parent = reach_parent(&v->upper, path, &name);

    if (parent < 0)
        return parent;
    return symlinkat(target, parent, name) < 0 ? -errno : 0;
}

static int bring_link(struct view *v, const char *base, const char *path)
{
    char target[PLAN_MAX_PATH + 1];
    const char *name;
    int parent = reach_parent(&v->tree, base, &name);
    ssize_t n = parent < 0 ? parent : readlinkat(parent, name, target, sizeof(target));

    if (n < 0)
        return parent < 0 ? parent : -errno;
    if ((size_t)n == sizeof(target))
        return -ENAMETOOLONG;
    target[n] = '\0';
    return make_link(v, target, path);
}

struct copying {
    struct view *view;
    const char *base;
    const char *path;
};

/* What another operation names is brought with that. Sockets and pipes are in no plan. */
static int copy_entry(void *context, struct plan_entry *entry, struct err *err)
{
    const struct copying *c = context;
    struct view *v = c->view;
    char path[PLAN_MAX_PATH + 1];
    mode_t mode = entry->st->st_mode;
    int r = 0;

    if (plan_before(&v->index, entry->path) != PLAN_NOBODY) {
        entry->skip_below = true;
        return 0;
    }
    int n = snprintf(path, sizeof(path), "%s%s", c->path, entry->path + strlen(c->base));
    if (n < 0 || (size_t)n >= sizeof(path))
        return fail(-ENAMETOOLONG, c->path, err);
    if (S_ISDIR(mode)) {
        scoped_fd int fd = make_dir(v, path);
        r = fd < 0 ? fd : finish_later(v, path, mode, plan_mtime(entry->st));
    } else if (S_ISREG(mode)) {
        r = bring_file(v, entry->path, path, mode);
    } else if (S_ISLNK(mode)) {
        r = bring_link(v, entry->path, path);
    }
    return r < 0 ? fail(r, path, err) : 0;
}

static int bring_dir(struct view *v, const struct plan_operation *o, const char *base,
                     struct err *err)
{
    struct copying copying = {.view = v, .base = base, .path = o->path};
    struct plan_walk walk = {
        .root = v->tree.top, .top = base, .visit = copy_entry, .context = &copying};
    char origin[PLAN_MAX_PATH + 1];
    struct stat st;
    ssize_t by;
    scoped_fd int fd = make_dir(v, o->path);
    int r = fd < 0 ? fd : reach_stat(&v->tree, base, &st);

    if (r == 0)
        r = finish_later(v, o->path, o->mode, plan_mtime(&st));
    /* Where its directory shows it anyway. */
    bool stays = plan_place_of(&v->index, o->path, origin, &by) == PLACE_HELD &&
                 (v->privileged || strcmp(base, o->path) == 0);
    if (r == 0 && !stays)
        r = v->privileged ? mark_redirect(v, fd, base) : mark(v, fd, "opaque", "y");
    if (r < 0)
        return fail(r, o->path, err);
    return stays || v->privileged ? 0 : plan_walk(&walk, err);
}

/* --- operations --- */

static int show_mkdir(struct view *v, const struct plan_operation *o)
{
    scoped_fd int fd = make_dir(v, o->path);
    int r = fd < 0 ? fd : mark(v, fd, "opaque", "y");

    return r < 0 ? r : finish_later(v, o->path, o->mode, o->mtime_ns);
}

static int show_content(struct view *v, const struct plan_operation *o)
{
    struct stat st;
    scoped_fd int fd = reach_open(&v->upper, o->path, O_PATH | O_NOFOLLOW);

    if (fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -errno;
    return S_ISREG(st.st_mode) ? reach_chmod(fd, o->mode & 0777) : -ESTALE;
}

static int show(struct view *v, const struct plan_operation *o, struct err *err)
{
    const char *base = plan_base_path(o);
    int r = make_parents(v, o->path);

    if (r < 0)
        return fail(r, o->path, err);
    if (o->link)
        return err_set(err, ERR_INVALID, 0, "a written plan has no hard links");
    if (o->kind == PLAN_MKDIR)
        r = show_mkdir(v, o);
    else if (o->kind == PLAN_SYMLINK)
        r = make_link(v, o->target, o->path);
    else if (o->has_hash)
        r = show_content(v, o);
    else if (!base)
        r = -ENOENT;
    else if (S_ISDIR(o->mode))
        return bring_dir(v, o, base, err);
    else
        r = S_ISLNK(o->mode) ? bring_link(v, base, o->path) : bring_file(v, base, o->path, o->mode);
    return r < 0 ? fail(r, o->path, err) : 0;
}

/* Where the base would show what the operation has taken away, nothing is. */
static int hide(struct view *v, const char *base, struct err *err)
{
    char above[PLAN_MAX_PATH + 1];
    char place[PLAN_MAX_PATH + 1];
    const char *name;

    layout_parent(base, above);
    if (!plan_follow(&v->index, above, place))
        return 0; /* gone with its directory */
    if (!v->privileged && strcmp(above, place) != 0)
        return 0; /* not copied with it */
    size_t n = strlen(place);
    int more = snprintf(place + n, sizeof(place) - n, "%s%s", n ? "/" : "", layout_name(base));
    if (more < 0 || (size_t)more >= sizeof(place) - n)
        return fail(-ENAMETOOLONG, base, err);
    if (plan_after(&v->index, place) != PLAN_NOBODY)
        return 0;
    int r = make_parents(v, place);
    int parent = r < 0 ? r : reach_parent(&v->upper, place, &name);
    if (parent >= 0 && mknodat(parent, name, S_IFCHR, makedev(0, 0)) < 0)
        parent = -errno;
    return parent < 0 ? fail(parent, base, err) : 0;
}

static int finish(struct view *v, struct err *err)
{
    while (v->count > 0) {
        const struct later *l = &v->later[--v->count];
        scoped_fd int fd = reach_open(&v->upper, l->path, O_PATH | O_DIRECTORY);
        int r = fd < 0 ? fd : l->mtime_ns ? reach_set_mtime(fd, l->mtime_ns) : 0;
        if (r == 0)
            r = reach_chmod(fd, l->mode);
        if (r < 0)
            return fail(r, l->path, err);
    }
    return 0;
}

static int show_all(struct view *v, struct err *err)
{
    const struct plan *plan = v->plan;
    const struct plan_order *before = &v->index.before;

    for (size_t i = 0; i < plan->count; i++) {
        if (plan->operations[i].kind != PLAN_DELETE && show(v, &plan->operations[i], err) < 0)
            return -1;
    }
    v->last[0] = '\0';
    for (size_t i = 0; i < before->count; i++) {
        if (hide(v, before->name[i], err) < 0)
            return -1;
    }
    return finish(v, err);
}

int plan_view(const struct plan *plan, int tree, int dir, bool privileged, struct err *err)
{
    struct view v = {.plan = plan, .privileged = privileged};
    scoped_fd int upper = path_open_beneath(dir, "upper", O_RDONLY | O_DIRECTORY, 1);

    if (upper < 0)
        return err_set(err, ERR_IO, -upper, "open what the plan carries");
    if (plan_index_make(&v.index, plan, err) < 0)
        return -1;
    reach_init(&v.upper, upper);
    reach_init(&v.tree, tree);
    arena_init(&v.arena, MOST_TEXT);
    v.attributes = malloc(2L * MOST_NAMES);
    int r = v.attributes ? show_all(&v, err) : err_set(err, ERR_LIMIT, ENOMEM, "show the plan");
    free(v.attributes);
    free(v.later);
    arena_clear(&v.arena);
    reach_forget(&v.upper);
    reach_forget(&v.tree);
    plan_index_clear(&v.index);
    return r;
}

int verb_view(const struct verb_call *call, json_t *answer, struct err *err)
{
    char text[2 * PLAN_HASH + 1];
    unsigned char hash[PLAN_HASH];
    const char *wanted = NULL;
    struct plan plan;
    int privileged = 0;

    if (verb_read(call, err, "{s:s,s:b}", "hash", &wanted, "privileged", &privileged) < 0 ||
        plan_load(&plan, call->dir, "manifest", hash, err) < 0)
        return -1;
    bytes_to_hex(hash, PLAN_HASH, text);
    int r = strcmp(text, wanted) == 0
                ? plan_view(&plan, call->tree, call->dir, privileged, err)
                : err_set(err, ERR_CONFLICT, 0, "the plan's hash is %s, not the one that was named",
                          text);
    /* What a command does in the view is no part of the plan, and the copy no plan. */
    if (r == 0 && unlinkat(call->dir, "manifest", 0) < 0)
        r = err_set(err, ERR_IO, errno, "finish the planned view");
    if (r == 0 &&
        json_object_set_new(answer, "operations", json_integer((json_int_t)plan.count)) < 0)
        r = err_set(err, ERR_LIMIT, ENOMEM, "answer");
    plan_clear(&plan);
    return r;
}
