/* SPDX-License-Identifier: Apache-2.0 */
/* A directory, and what is in it as deep as is asked for, by pages. The order is that of the bytes
 * of names, a directory before what is in it; it does not depend on what was there when an earlier
 * page was made, so nothing is told twice and nothing that stays is left out. A page keeps in
 * memory as many names as it has entries, whatever the size of the directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/paths.h"

enum {
    LIMIT_MOST = 10000,
    LIMIT_USUAL = 1000, /* up to here the answer is sent in one */
    DEPTH_MOST = 4096,  /* as a call may ask for: more than a path has parts */
    SCAN_BYTES = 32768,
    BELOW = FILES_PATH + 300, /* a path below the base: the longest, and one name more */
};

struct item {
    char *name;   /* behind its NUL a byte more: the type, as the directory has it (DT_…) */
    size_t level; /* length of the path of the directory it is in */
    unsigned depth;
    const char *resume; /* what of the cursor lies below it; NULL: it is new, "": all below it is */
};

struct list {
    struct files_call *call;
    struct emit e;
    int base;
    int dir;          /* the directory of the last entry, kept open */
    size_t dir_level; /* ... the length of its path; SIZE_MAX: none */
    char *path; /* below the base, of the directory or entry at hand: the last part of `full` */
    char full[FILES_PATH + BELOW]; /* here and not on a stack that is cleared for each entry */
    char target[FILES_PATH];
    struct item *items; /* yet to come, the next one last */
    size_t count;
    size_t left;      /* entries that the page still takes */
    bool dropped;     /* something that is yet to come had no room */
    bool too_deep;    /* something has a path that is too long to be asked for */
    char last[BELOW]; /* the last entry that was dealt with */
};

/* --- cursors: the path of the last entry, in base64 as it is used in URLs --- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void encode(const char *path, char cursor[FILES_CURSOR])
{
    size_t n = strlen(path);
    uint32_t bits = 0;
    unsigned have = 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        bits = bits << 8 | (unsigned char)path[i];
        for (have += 8; have >= 6; have -= 6)
            cursor[at++] = digits[bits >> (have - 6) & 63];
    }
    if (have > 0)
        cursor[at++] = digits[bits << (6 - have) & 63];
    cursor[at] = '\0';
}

static bool decode(const char *cursor, char path[BELOW])
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t at = 0;

    for (; *cursor; cursor++) {
        const char *digit = strchr(digits, *cursor);
        if (!digit)
            return false;
        bits = bits << 6 | (uint32_t)(digit - digits);
        have += 6;
        if (have < 8)
            continue;
        have -= 8;
        char c = (char)(bits >> have & 255);
        if (c == '\0' || at == BELOW - 1)
            return false;
        path[at++] = c;
    }
    path[at] = '\0';
    return true;
}

/* --- the first names of a directory, in order --- */

/* As they come, until there are as many as wanted; then a heap with the greatest on top, which
 * makes way for lesser ones. */
struct pick {
    char **names;
    size_t n;
    size_t most;
    bool is_heap;
};

static void sink(struct pick *p, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < p->n; i = child) {
        if (child + 1 < p->n && strcmp(p->names[child + 1], p->names[child]) > 0)
            child++;
        if (strcmp(p->names[i], p->names[child]) >= 0)
            return;
        char *swap = p->names[i];
        p->names[i] = p->names[child];
        p->names[child] = swap;
    }
}

static void make_heap(struct pick *p)
{
    for (size_t i = p->n / 2; i-- > 0;)
        sink(p, i);
    p->is_heap = true;
}

/* The name, and behind it its type. */
static char *keep(const char *name, unsigned char type)
{
    size_t n = strlen(name) + 1;
    char *copy = malloc(n + 1);

    if (!copy)
        return NULL;
    memcpy(copy, name, n);
    copy[n] = (char)type;
    return copy;
}

/* 0; 1: there was one too many; -ENOMEM. */
static int pick(struct pick *p, const char *name, unsigned char type)
{
    bool full = p->n == p->most;

    if (full && !p->is_heap)
        make_heap(p);
    if (full && strcmp(name, p->names[0]) >= 0)
        return 1;
    char *copy = keep(name, type);
    if (!copy)
        return -ENOMEM;
    if (full) {
        free(p->names[0]);
        p->names[0] = copy;
        sink(p, 0);
        return 1;
    }
    p->names[p->n++] = copy;
    return 0;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* --- the walk --- */

/* The part of a cursor that is a name of this directory, in `name`; the rest behind it. */
static const char *split(const char *resume, char name[256])
{
    size_t n = strcspn(resume, "/");

    if (n > 255)
        n = 255; /* no name is longer; of those that are equal so far none is */
    memcpy(name, resume, n);
    name[n] = '\0';
    return resume[n] == '/' ? resume + n + 1 : resume + n;
}

static int pick_names(struct list *l, int dir, const char *from, struct pick *p)
{
    bool is_root = files_is_root(dir);
    char bytes[SCAN_BYTES];
    ssize_t n;

    while ((n = getdents64(dir, bytes, sizeof(bytes))) > 0) {
        const struct dirent64 *entry;
        for (ssize_t at = 0; at < n; at += entry->d_reclen) {
            entry = (const struct dirent64 *)(const void *)(bytes + at);
            const char *name = entry->d_name;
            if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, from) < 0 ||
                (is_root && files_is_reserved_name(name)))
                continue;
            int r = pick(p, name, entry->d_type);
            if (r < 0)
                return r;
            l->dropped |= r == 1;
        }
        if (files_client_left(l->call))
            return -EPIPE;
    }
    return n < 0 ? -errno : 0;
}

/* Room for so many on top; those that would come last make way. */
static void make_room(struct list *l, size_t n)
{
    size_t most = l->left + 1;
    size_t away = l->count + n > most ? l->count + n - most : 0;

    if (away == 0)
        return;
    if (away > l->count)
        away = l->count;
    for (size_t i = 0; i < away; i++)
        free(l->items[i].name);
    memmove(l->items, l->items + away, (l->count - away) * sizeof(*l->items));
    l->count -= away;
    l->dropped = true;
}

/* What is in the directory at l->path (of the length `level`) is to come next. */
static int push(struct list *l, int dir, size_t level, unsigned depth, const char *resume)
{
    struct pick p = {.most = l->left + 1};
    char from[256] = "";
    const char *rest = resume ? split(resume, from) : NULL;

    p.names = malloc(p.most * sizeof(*p.names));
    if (!p.names)
        return -ENOMEM;
    int r = pick_names(l, dir, from, &p);
    qsort(p.names, p.n, sizeof(*p.names), compare);
    if (r == 0)
        make_room(l, p.n);
    for (size_t i = p.n; i-- > 0;) {
        bool is_from = resume && *resume && strcmp(p.names[i], from) == 0;
        if (r == 0)
            l->items[l->count++] = (struct item){p.names[i], level, depth, is_from ? rest : NULL};
        else
            free(p.names[i]);
    }
    free(p.names);
    return r;
}

/* The directory of the item at hand, which mostly is that of the one before. */
static int at_directory(struct list *l, size_t level)
{
    if (l->dir_level == level)
        return l->dir;
    scope_close(&l->dir);
    l->path[level] = '\0';
    l->dir = level == 0 ? fcntl(l->base, F_DUPFD_CLOEXEC, 3)
                        : openat(l->base, l->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    l->dir_level = l->dir < 0 ? SIZE_MAX : level;
    return l->dir;
}

static void tell(struct list *l, const char *name, const struct stat *st)
{
    bool is_link = S_ISLNK(st->st_mode) && files_read_link(l->dir, name, l->target) >= 0;

    emit_entry(&l->e, l->full, st, is_link ? l->target : NULL);
    l->left--;
}

/* A directory that may be read but not searched has names, and of what is there no more than their
 * types. That is told: left out, it would look empty. */
static void tell_unknown(struct list *l, const char *name)
{
    unsigned char type = (unsigned char)name[strlen(name) + 1];

    emit_unknown(&l->e, l->full, DTTOIF((mode_t)type), EACCES);
    l->left--;
}

static int go_into(struct list *l, size_t level, unsigned depth, const char *resume)
{
    int fd = openat(l->base, l->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return 0; /* gone, or closed: it was told, and that is all that can be said */
    scope_close(&l->dir);
    l->dir = fd;
    l->dir_level = level;
    int r = push(l, fd, level, depth, resume);
    return r == -EACCES || r == -ENOENT ? 0 : r;
}

static int see(struct list *l, const struct item *item)
{
    size_t n = item->level;
    size_t name_n = strlen(item->name);
    size_t slash = n > 0;
    size_t above = strlen(l->call->m->path);
    struct stat st;

    int dir = at_directory(l, n);
    if (slash)
        l->path[n] = '/';
    memcpy(l->path + n + slash, item->name, name_n + 1);
    if (!item->resume)
        memcpy(l->last, l->path, n + slash + name_n + 1);
    if (above + n + name_n + 2 >= FILES_PATH) {
        l->too_deep = true;
        return 0;
    }
    if (dir < 0 || fstatat(dir, item->name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (dir >= 0 && errno == EACCES && !item->resume)
            tell_unknown(l, item->name);
        return 0; /* or gone meanwhile */
    }
    if (!item->resume)
        tell(l, item->name, &st);
    uint64_t depth = l->call->m->depth ? l->call->m->depth : 1;
    if (!S_ISDIR(st.st_mode) || item->depth >= depth || item->depth >= DEPTH_MOST)
        return 0;
    return go_into(l, n + slash + name_n, item->depth + 1, item->resume);
}

static void finish(struct list *l, int r)
{
    bool more = l->count > 0 || l->dropped;
    char cursor[FILES_CURSOR];

    if (r < 0) {
        if (!l->e.streamed)
            answer_errno(l->call, r, l->call->m->path);
        l->call->gone = true; /* the answer is cut off */
    }
    emit_raw(&l->e, "]");
    if (l->too_deep) {
        emit_comma(&l->e);
        emit_raw(&l->e, "\"too_deep\":true");
    }
    emit_comma(&l->e);
    if (more && l->last[0]) {
        encode(l->last, cursor);
        emit_bytes(&l->e, "next", cursor, strlen(cursor));
    } else {
        emit_raw(&l->e, "\"next\":null");
    }
    emit_raw(&l->e, "}");
    emit_finish(&l->e, 200);
}

static void walk(struct list *l, const char *resume)
{
    int r;

    emit_begin(&l->e, l->call, l->left > LIMIT_USUAL, FILES_TYPE_JSON);
    emit_raw(&l->e, "{");
    emit_bytes(&l->e, "path", l->call->m->path, strlen(l->call->m->path));
    emit_comma(&l->e);
    emit_raw(&l->e, "\"entries\":[");
    r = push(l, l->base, 0, 1, resume[0] ? resume : NULL);
    while (r == 0 && l->count > 0 && l->left > 0 && emit_alive(&l->e)) {
        struct item item = l->items[--l->count];
        r = see(l, &item);
        free(item.name);
    }
    finish(l, r);
}

void files_list(struct files_call *call)
{
    const struct files_message *m = call->m;
    uint64_t limit = m->limit == 0 ? LIMIT_USUAL : m->limit < LIMIT_MOST ? m->limit : LIMIT_MOST;
    char resume[BELOW] = "";
    struct stat st;

    if (!decode(m->cursor, resume)) {
        answer_error(call, 400, "invalid_request", "this is no cursor of a list");
        return;
    }
    scoped_fd int base = files_open(m->path, true, &st);
    if (base < 0 || !S_ISDIR(st.st_mode)) {
        int error = base < 0 && base != -ENXIO ? base : -ENOTDIR;
        if (error == -EACCES && stat(m->path, &st) == 0 && !S_ISDIR(st.st_mode))
            error = -ENOTDIR; /* whether one may read it is another question */
        answer_errno(call, error, m->path);
        return;
    }
    struct list *l = calloc(1, sizeof(*l));
    struct item *items = malloc((limit + 2) * sizeof(*items));
    if (!l || !items) {
        answer_errno(call, ENOMEM, m->path);
    } else {
        l->call = call;
        l->base = base;
        l->dir = -1;
        l->dir_level = SIZE_MAX;
        l->items = items;
        l->left = limit;
        memcpy(l->last, resume, sizeof(resume));
        size_t above = m->path[1] ? strlen(m->path) : 0;
        memcpy(l->full, m->path, above);
        l->full[above] = '/';
        l->path = l->full + above + 1;
        walk(l, resume);
        while (l->count > 0)
            free(l->items[--l->count].name);
        scope_close(&l->dir);
    }
    free(items);
    free(l);
}
