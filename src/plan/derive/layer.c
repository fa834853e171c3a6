/* SPDX-License-Identifier: Apache-2.0 */
/* What overlayfs leaves in its upper directory, as seen on Linux 5.15 to 6.18:
 *
 *   deleted                character device 0:0; several may be one inode
 *   new or replaced dir    "opaque"; a new one has it or not
 *   moved dir or file      "redirect": a name in the base directory of its parent, or "/" and a
 *                          path of the base; with a user namespace's mounts there are none
 *   only its mode changed  "metacopy": size and mode are right, the data are not there
 *   one of several names   "nlink", of a file that has them in the base; the others show it too,
 *                          without an entry
 *
 * The marks are extended attributes, trusted.overlay.* or, where the mount was made in a user
 * namespace, user.overlay.*. There only "opaque" is one: the kernel does not look at the others,
 * and whoever wrote the files could have made them. */
#include "plan/derive/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/core/tree_digest.h"
#include "sys/path.h"

enum {
    MOST_ENTRIES = 2 * PLAN_MAX_OPERATIONS, /* with the directories on the way */
    MOST_TEXT = 256 << 20,
    MOST_NAMES = 65536,
    UNKNOWN_NAMES = INT32_MAX, /* more than are in the layer: they are looked for */
};

struct unlocked {
    struct unlocked *next;
    const char *path;
    mode_t mode;
};

/* A directory that the walk is in, and where its base lies; NULL: it has none. */
struct within {
    const char *path;
    const char *lower;
};

struct reading {
    struct layer_scan *layer;
    const struct plan_derivation *how;
    struct plan *flaws;
    struct within *stack;
    size_t depth;
    size_t room;
    const char *reserved; /* the last name at the top that was told to have something in it */
};

struct marks {
    bool opaque;
    bool empty;
    bool capability;
    bool origin;
    char redirect[PLAN_MAX_PATH + 1]; /* "": none */
    char names[32];
};

/* --- marks --- */

static ssize_t mark_value(const char *file, const char *name, char *value, size_t size)
{
    ssize_t n = getxattr(file, name, value, size - 1);

    value[n < 0 ? 0 : n] = '\0';
    return n;
}

static int read_mark(const char *file, const char *name, bool privileged, struct marks *marks)
{
    const char *prefix = privileged ? "trusted.overlay." : "user.overlay.";
    char value[32] = "";

    if (strcmp(name, "security.capability") == 0)
        marks->capability = true;
    if (strncmp(name, prefix, strlen(prefix)) != 0)
        return 0;
    const char *mark = name + strlen(prefix);
    ssize_t n = 0;
    if (strcmp(mark, "opaque") == 0) {
        n = mark_value(file, name, value, sizeof(value));
        marks->opaque = strcmp(value, "y") == 0;
    } else if (privileged && strcmp(mark, "redirect") == 0) {
        n = mark_value(file, name, marks->redirect, sizeof(marks->redirect));
    } else if (privileged && strcmp(mark, "nlink") == 0) {
        n = mark_value(file, name, marks->names, sizeof(marks->names));
    } else if (privileged && strcmp(mark, "metacopy") == 0) {
        marks->empty = true;
    } else if (privileged && strcmp(mark, "origin") == 0) {
        marks->origin = true;
    }
    return n < 0 ? -errno : 0;
}

static int read_marks(const struct reading *r, const char *path, struct marks *ret)
{
    char file[40];
    char *names = malloc(MOST_NAMES);
    scoped_fd int fd = path_open_beneath(r->layer->upper, path, O_PATH, 1);
    int result = fd < 0 ? fd : names ? 0 : -ENOMEM;

    memset(ret, 0, sizeof(*ret));
    if (result == 0) {
        snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
        ssize_t n = listxattr(file, names, MOST_NAMES);
        if (n < 0 && errno != EOPNOTSUPP)
            result = -errno;
        for (const char *name = names; result == 0 && n > 0 && name < names + n;
             name += strlen(name) + 1)
            result = read_mark(file, name, r->how->privileged, ret);
    }
    free(names);
    return result;
}

/* --- where things lie in the base --- */

static int no_memory(struct err *err)
{
    return err_set(err, ERR_LIMIT, ENOMEM, "keep what the layer holds");
}

/* 0 with the facts, 1: there is nothing, or nothing that can be come to. */
static int look_in_base(const struct reading *r, const char *path, struct stat *ret,
                        struct err *err)
{
    scoped_fd int fd = path_open_beneath(r->how->tree, path, O_PATH, 1);

    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP || fd == -EXDEV || fd == -ENAMETOOLONG)
        return 1;
    if (fd < 0 || fstat(fd, ret) < 0)
        return err_set(err, ERR_IO, fd < 0 ? -fd : errno, "look at '%s' in the tree", path);
    return 0;
}

static int join(struct reading *r, const char *directory, const char *name, const char **ret,
                struct err *err)
{
    size_t n = strlen(directory) + 1 + strlen(name);

    if (n > PLAN_MAX_PATH)
        return err_set(err, ERR_LIMIT, 0, "the path '%.60s…' is longer than %d bytes", directory,
                       PLAN_MAX_PATH);
    *ret = arena_printf(&r->layer->arena, "%s%s%s", directory, *directory ? "/" : "", name);
    return *ret ? 0 : no_memory(err);
}

/* The base path that a redirect means; NULL: none that a plan could name. */
static int resolve(struct reading *r, const char *redirect, const char **ret, struct err *err)
{
    const char *parent = r->stack[r->depth - 1].lower;
    struct err ignored;

    *ret = NULL;
    if (redirect[0] == '/') {
        *ret = arena_copy(&r->layer->arena, redirect + 1, strlen(redirect + 1));
        if (!*ret)
            return no_memory(err);
    } else if (parent && !strchr(redirect, '/')) {
        if (join(r, parent, redirect, ret, err) < 0)
            return -1;
    }
    if (*ret && plan_check_path(*ret, strlen(*ret), &ignored) < 0)
        *ret = NULL;
    return 0;
}

/* --- entries --- */

static struct layer_entry *add_entry(struct reading *r, const struct layer_entry *entry,
                                     struct err *err)
{
    struct layer_scan *layer = r->layer;

    if (layer->count >= MOST_ENTRIES) {
        (void)err_set(err, ERR_LIMIT, 0, "the layer holds more than %d files", MOST_ENTRIES);
        return NULL;
    }
    if (layer->count % 1024 == 0) {
        struct layer_entry *all = reallocarray(layer->entries, layer->count + 1024, sizeof(all[0]));
        if (!all) {
            (void)no_memory(err);
            return NULL;
        }
        layer->entries = all;
    }
    layer->entries[layer->count] = *entry;
    return &layer->entries[layer->count++];
}

static int push(struct reading *r, const char *path, const char *lower, struct err *err)
{
    if (r->depth == r->room) {
        size_t room = r->room ? 2 * r->room : 32;
        struct within *stack = reallocarray(r->stack, room, sizeof(stack[0]));
        if (!stack)
            return no_memory(err);
        r->stack = stack;
        r->room = room;
    }
    r->stack[r->depth++] = (struct within){.path = path, .lower = lower};
    return 0;
}

/* What the mark says it comes from, if the base has something of that type there. */
static int follow_redirect(struct reading *r, const struct marks *marks, mode_t type,
                           struct layer_entry *entry, struct stat *was, struct err *err)
{
    const char *from = NULL;

    if (resolve(r, marks->redirect, &from, err) < 0)
        return -1;
    int missing = from ? look_in_base(r, from, was, err) : 1;
    if (missing < 0)
        return -1;
    if (missing || (was->st_mode & S_IFMT) != type)
        return 0;
    plan_identify(&entry->was, was);
    /* Of a file with several names in the base the mark tells one: it has not moved from there. */
    bool is_here =
        entry->has_base && entry->base.dev == entry->was.dev && entry->base.ino == entry->was.ino;
    entry->from = is_here ? entry->place : from;
    entry->redirected = !is_here;
    return 0;
}

static int enter_directory(struct reading *r, const struct marks *marks, struct layer_entry *entry,
                           struct err *err)
{
    struct stat was = {0};

    if (marks->redirect[0]) {
        if (follow_redirect(r, marks, S_IFDIR, entry, &was, err) < 0)
            return -1;
        if (!entry->from && plan_add_flaw(r->flaws, PLAN_FLAW_LOST, entry->path, err) < 0)
            return -1;
    } else if (!marks->opaque && entry->has_base && S_ISDIR(entry->base.mode)) {
        entry->from = entry->place;
        entry->was = entry->base;
    }
    return push(r, entry->path, entry->from, err);
}

/* "U+1": one more than the layer's file has; "L-1": one less than the base's. */
static int64_t count_names(const char *text, nlink_t here, nlink_t in_base)
{
    char *end = NULL;

    if (text[0] != 'U' && (text[0] != 'L' || in_base == 0))
        return UNKNOWN_NAMES;
    long more = strtol(text + 1, &end, 10);
    if (end == text + 1 || *end || more < -1000000 || more > 1000000)
        return UNKNOWN_NAMES;
    return (int64_t)(text[0] == 'U' ? here : in_base) + more;
}

static int read_file(struct reading *r, const struct marks *marks, const struct stat *st,
                     struct layer_entry *entry, struct err *err)
{
    struct stat was = {0};

    entry->empty = marks->empty;
    if (marks->redirect[0]) {
        if (follow_redirect(r, marks, S_IFREG, entry, &was, err) < 0)
            return -1;
    } else if (marks->empty && entry->has_base && S_ISREG(entry->base.mode)) {
        entry->from = entry->place;
        entry->was = entry->base;
    }
    const struct plan_identity *old = entry->from       ? &entry->was
                                      : entry->has_base ? &entry->base
                                                        : NULL;
    uint32_t allowed = old && S_ISREG(old->mode) ? old->mode & 07000 : 0;
    entry->shared = st->st_nlink > 1;
    entry->parted = entry->parted && !marks->origin;
    if (marks->names[0])
        entry->names = count_names(marks->names, st->st_nlink, was.st_nlink);
    if (marks->capability && plan_add_flaw(r->flaws, PLAN_FLAW_CAPABILITY, entry->path, err) < 0)
        return -1;
    if ((st->st_mode & 07000 & ~allowed) &&
        plan_add_flaw(r->flaws, PLAN_FLAW_SETID, entry->path, err) < 0)
        return -1;
    /* Its data are nowhere: what is in its place goes, and nothing comes. */
    if (entry->empty && (!entry->from || entry->was.size != (uint64_t)st->st_size)) {
        entry->type = LAYER_WHITEOUT;
        entry->from = NULL;
        return plan_add_flaw(r->flaws, PLAN_FLAW_LOST, entry->path, err);
    }
    return 0;
}

static int read_entry(struct reading *r, const struct stat *st, struct layer_entry *entry,
                      struct err *err)
{
    enum plan_flaw_kind flaw;
    struct marks marks;

    if (S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0)) {
        entry->type = LAYER_WHITEOUT;
        return 0;
    }
    switch (st->st_mode & S_IFMT) {
    case S_IFLNK:
        entry->type = LAYER_SYMLINK;
        return 0;
    case S_IFDIR:
    case S_IFREG:
        break;
    default:
        entry->type = LAYER_WHITEOUT;
        flaw = S_ISFIFO(st->st_mode)   ? PLAN_FLAW_FIFO
               : S_ISSOCK(st->st_mode) ? PLAN_FLAW_SOCKET
                                       : PLAN_FLAW_DEVICE;
        return plan_add_flaw(r->flaws, flaw, entry->path, err);
    }
    int result = read_marks(r, entry->path, &marks);
    if (result < 0)
        return err_set(err, ERR_IO, -result, "read the marks of '%s'", entry->path);
    entry->type = S_ISDIR(st->st_mode) ? LAYER_DIRECTORY : LAYER_FILE;
    return S_ISDIR(st->st_mode) ? enter_directory(r, &marks, entry, err)
                                : read_file(r, &marks, st, entry, err);
}

/* Names that the engine mounts on are not the command's doing while they are empty. */
static int pass_reserved(struct reading *r, struct plan_entry *visited, struct err *err)
{
    const char *path = visited->path;
    size_t top = strcspn(path, "/");
    bool whiteout = S_ISCHR(visited->st->st_mode);

    if (!path[top] && (S_ISDIR(visited->st->st_mode) || whiteout))
        return 0;
    visited->skip_below = true;
    if (plan_is_unfinished(path))
        return 0;
    if (r->reserved && strncmp(r->reserved, path, top) == 0 && !r->reserved[top])
        return 0;
    r->reserved = arena_copy(&r->layer->arena, path, top);
    return r->reserved ? plan_add_flaw(r->flaws, PLAN_FLAW_RESERVED, r->reserved, err)
                       : no_memory(err);
}

static int visit(void *context, struct plan_entry *visited, struct err *err)
{
    struct reading *r = context;
    struct layer_entry entry = {0};
    struct stat base = {0};

    if (plan_is_reserved(visited->path))
        return pass_reserved(r, visited, err);
    while (r->depth > 1 && !plan_is_below(visited->path, r->stack[r->depth - 1].path))
        r->depth--;
    entry.path = arena_copy(&r->layer->arena, visited->path, strlen(visited->path));
    if (!entry.path)
        return no_memory(err);
    plan_identify(&entry.st, visited->st);
    const char *lower = r->stack[r->depth - 1].lower;
    const char *slash = strrchr(entry.path, '/');
    if (lower) {
        if (join(r, lower, slash ? slash + 1 : entry.path, &entry.place, err) < 0)
            return -1;
        int missing = look_in_base(r, entry.place, &base, err);
        if (missing < 0)
            return -1;
        entry.has_base = !missing;
        entry.parted = !missing && r->how->privileged && base.st_nlink > 1;
        if (entry.has_base)
            plan_identify(&entry.base, &base);
    }
    if (read_entry(r, visited->st, &entry, err) < 0)
        return -1;
    /* Of what is neither in the base nor in the layer there is nothing to say. */
    if (entry.type == LAYER_WHITEOUT && !entry.has_base)
        return 0;
    return add_entry(r, &entry, err) ? 0 : -1;
}

/* --- directories that their owner may not read --- */

static int unlock(struct reading *r, const char *path)
{
    struct unlocked *note = arena_alloc(&r->layer->arena, sizeof(*note));
    scoped_fd int fd = path_open_beneath(r->layer->upper, path, O_PATH | O_DIRECTORY, 1);
    struct stat st;
    char file[40];

    if (!note || fd < 0 || fstat(fd, &st) < 0)
        return fd < 0 ? fd : -ENOMEM;
    *note = (struct unlocked){.next = r->layer->unlocked,
                              .path = arena_copy(&r->layer->arena, path, strlen(path)),
                              .mode = st.st_mode & 07777};
    if (!note->path)
        return -ENOMEM;
    snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
    if (chmod(file, note->mode | S_IRWXU) < 0)
        return -errno;
    r->layer->unlocked = note;
    return 0;
}

/* With the right to search as well, or nothing below it could be come to. */
static int let_in(void *context, const char *path)
{
    struct reading *r = context;
    scoped_fd int fd =
        path_open_beneath(r->layer->upper, path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 1);

    if (fd == -EACCES || (fd >= 0 && faccessat(fd, ".", X_OK, AT_EACCESS) < 0))
        return unlock(r, path);
    return fd < 0 ? fd : 0;
}

static void lock_again(struct layer_scan *layer)
{
    char file[40];

    for (const struct unlocked *note = layer->unlocked; note; note = note->next) {
        scoped_fd int fd = path_open_beneath(layer->upper, note->path, O_PATH | O_DIRECTORY, 1);
        snprintf(file, sizeof(file), "/proc/self/fd/%d", fd);
        if (fd >= 0)
            ignore(chmod(file, note->mode)); /* the plan has the mode in any case */
    }
}

/* --- all of it --- */

static int read_all(struct reading *r, struct err *err)
{
    struct plan_walk walk = {
        .root = r->layer->upper, .top = "", .visit = visit, .context = r, .let_in = let_in};
    struct marks marks;

    int result = read_marks(r, ".", &marks);
    if (result < 0)
        return err_set(err, ERR_IO, -result, "read the marks of the plan's layer");
    if (marks.opaque || marks.redirect[0])
        return err_set(err, ERR_DENIED, 0,
                       "the layer says that it hides the tree as a whole: "
                       "discard the plan");
    return push(r, "", "", err) < 0 ? -1 : plan_walk(&walk, err);
}

int layer_read(struct layer_scan *ret, const struct plan_derivation *how, struct plan *flaws,
               struct err *err)
{
    struct reading r = {.layer = ret, .how = how, .flaws = flaws};

    *ret = (struct layer_scan){0};
    arena_init(&ret->arena, MOST_TEXT);
    ret->upper = path_open_beneath(how->dir, "upper", O_PATH | O_DIRECTORY, 1);
    if (ret->upper < 0)
        return err_set(err, ret->upper == -ENOENT ? ERR_NOT_FOUND : ERR_IO, -ret->upper,
                       "open the plan's layer");
    int result = read_all(&r, err);
    free(r.stack);
    return result;
}

void layer_clear(struct layer_scan *layer)
{
    lock_again(layer);
    free(layer->entries);
    arena_clear(&layer->arena);
    if (layer->upper >= 0)
        (void)close(layer->upper);
    *layer = (struct layer_scan){.upper = -1};
}
