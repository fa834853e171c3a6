/* SPDX-License-Identifier: Apache-2.0 */
/* A directory, and what is in it as deep as is asked for, by pages. The order is that of the bytes
 * of names, a directory before what is in it; it does not depend on what was there when an earlier
 * page was made, so nothing is told twice and nothing that stays is left out. A page keeps in
 * memory as many names as it has entries, whatever the size of the directories. Of a brief list
 * names and types are the directory's, and nothing is looked at, unless the file system does not
 * say what it is. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "sys/path.h"

enum {
    LIMIT_MOST = 10000,
    LIMIT_USUAL = 1000, /* up to here the answer is sent in one */
    DEPTH_MOST = 4096,  /* as a call may ask for: more than a path has parts */
    SCAN_BYTES = 32768,
    KEPT_BYTES = 8192,
    FEW = 128,                /* names that there is room for at first */
    BELOW = FILES_PATH + 300, /* a path below the base: the longest, and one name more */
};

struct name {
    uint64_t first; /* its first bytes as a number: most names differ in them */
    char *text;
    unsigned short n;
    unsigned char type; /* as the directory has it: DT_… */
};

struct item {
    struct name name;
    unsigned depth;
    unsigned level;     /* length of the path of the directory it is in */
    const char *resume; /* what of the cursor lies below it; NULL: it is new, "": all below it is */
};

struct list {
    struct files_call *call;
    struct emit e;
    int base;
    int dir;          /* the directory of the last entry, kept open */
    size_t dir_level; /* ... the length of its path; SIZE_MAX: none */
    char *path; /* below the base, of the directory or entry at hand: the last part of `full` */
    struct item *items; /* yet to come, the next one last */
    size_t count;
    size_t room;
    size_t above;  /* length of the path of the base */
    size_t kept_n; /* bytes of `kept` that are used up */
    size_t left;   /* entries that the page still takes */
    bool dropped;  /* something that is yet to come had no room */
    bool too_deep; /* something has a path or name that is too long to be asked for */
    /* Not cleared: large, and each is written before it is read. */
    char full[FILES_PATH + BELOW];
    char target[FILES_PATH];
    char resume[BELOW];    /* the entry that the page before ended with */
    char last[BELOW];      /* the last one that was dealt with */
    char kept[KEPT_BYTES]; /* names; those that find no room here are allocated */
    char scanned[SCAN_BYTES] __attribute__((aligned(8))); /* of a directory, as the kernel has it */
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
    struct name *names;
    size_t n;
    size_t room;
    size_t most;
    bool is_heap;
};

static uint64_t first_bytes(const char *text)
{
    uint64_t first = 0;

    for (unsigned i = 0; i < sizeof(first); i++) {
        first = first << 8 | (unsigned char)*text;
        text += *text != '\0';
    }
    return first;
}

static bool is_less(const struct name *a, const struct name *b)
{
    return a->first != b->first ? a->first < b->first : strcmp(a->text, b->text) < 0;
}

static void sink(struct pick *p, size_t i)
{
    struct name sinks = p->names[i];

    for (size_t child; (child = 2 * i + 1) < p->n; i = child) {
        if (child + 1 < p->n && is_less(&p->names[child], &p->names[child + 1]))
            child++;
        if (!is_less(&sinks, &p->names[child]))
            break;
        p->names[i] = p->names[child];
    }
    p->names[i] = sinks;
}

static void make_heap(struct pick *p)
{
    for (size_t i = p->n / 2; i-- > 0;)
        sink(p, i);
    p->is_heap = true;
}

/* Where names differ in their first bytes, in half the time of the library's, which calls a
 * function for each two. */
static void sort(struct pick *p)
{
    size_t n = p->n;

    if (!p->is_heap)
        make_heap(p);
    while (p->n > 1) {
        struct name greatest = p->names[0];
        p->names[0] = p->names[--p->n];
        p->names[p->n] = greatest;
        sink(p, 0);
    }
    p->n = n;
}

/* Most lists are short, and all of their names have room together. */
static char *keep(struct list *l, const struct name *name)
{
    size_t n = name->n + 1UL;
    bool fits = n <= sizeof(l->kept) - l->kept_n;
    char *copy = fits ? l->kept + l->kept_n : malloc(n);

    if (fits)
        l->kept_n += n;
    return copy ? memcpy(copy, name->text, n) : NULL;
}

static void drop(const struct list *l, char *text)
{
    if (text < l->kept || text >= l->kept + sizeof(l->kept))
        free(text);
}

static bool make_longer(struct pick *p)
{
    size_t room = p->room ? 2 * p->room : FEW;
    struct name *names = reallocarray(p->names, room, sizeof(*names));

    if (!names)
        return false;
    p->names = names;
    p->room = room;
    return true;
}

/* 0; 1: there was one too many; -ENOMEM. */
static int pick(struct list *l, struct pick *p, struct name name)
{
    bool full = p->n == p->most;

    if (full && !p->is_heap)
        make_heap(p);
    if (full && !is_less(&name, &p->names[0]))
        return 1;
    name.text = keep(l, &name);
    if (!name.text)
        return -ENOMEM;
    if (full) {
        drop(l, p->names[0].text);
        p->names[0] = name;
        sink(p, 0);
        return 1;
    }
    if (p->n == p->room && !make_longer(p)) {
        drop(l, name.text);
        return -ENOMEM;
    }
    p->names[p->n++] = name;
    return 0;
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

/* Whether a name is to come. The one the page before ended with is so only once, also where a file
 * system tells names twice: else a page could be full of it, and the next one too. */
static bool is_to_come(const char *name, const char *from, bool *had_from)
{
    int order = *from ? strcmp(name, from) : 1;

    if (order == 0 && *had_from)
        return false;
    *had_from |= order == 0;
    return order >= 0;
}

static int pick_names(struct list *l, int dir, const char *from, struct pick *p)
{
    bool is_root = files_is_root(dir);
    bool had_from = false;
    ssize_t n;

    while ((n = getdents64(dir, l->scanned, sizeof(l->scanned))) > 0) {
        struct dirent64 *entry;
        for (ssize_t at = 0; at < n; at += entry->d_reclen) {
            entry = (struct dirent64 *)(void *)(l->scanned + at);
            char *text = entry->d_name;
            size_t length = strlen(text);
            l->too_deep |= length > NAME_MAX; /* a FUSE file system may have such */
            if (length > NAME_MAX || path_is_dots(text) || !is_to_come(text, from, &had_from) ||
                (is_root && files_is_reserved_name(text)))
                continue;
            int r =
                pick(l, p,
                     (struct name){first_bytes(text), text, (unsigned short)length, entry->d_type});
            if (r < 0)
                return r;
            l->dropped |= r == 1;
        }
        if (files_client_left(l->call))
            return -EPIPE;
    }
    return n < 0 ? -errno : 0;
}

/* Room for so many on top; those that would come last make way. 0 or -ENOMEM. */
static int make_room(struct list *l, size_t n)
{
    size_t most = l->left + 1;
    size_t away = l->count + n > most ? l->count + n - most : 0;

    if (away > l->count)
        away = l->count;
    for (size_t i = 0; i < away; i++)
        drop(l, l->items[i].name.text);
    if (away > 0) {
        memmove(l->items, l->items + away, (l->count - away) * sizeof(*l->items));
        l->count -= away;
        l->dropped = true;
    }
    if (l->count + n <= l->room)
        return 0;
    struct item *items = reallocarray(l->items, l->count + n, sizeof(*items));
    if (!items)
        return -ENOMEM;
    l->items = items;
    l->room = l->count + n;
    return 0;
}

/* What is in the directory at l->path (of the length `level`) is to come next. */
static int push(struct list *l, int dir, unsigned level, unsigned depth, const char *resume)
{
    struct pick p = {.most = l->left + 1};
    char from[256] = "";
    const char *rest = resume ? split(resume, from) : NULL;

    int r = pick_names(l, dir, from, &p);
    if (r == 0)
        r = make_room(l, p.n);
    if (r == 0)
        sort(&p);
    for (size_t i = p.n; i-- > 0;) {
        bool is_from = resume && *resume && strcmp(p.names[i].text, from) == 0;
        bool again = r == 0 && i > 0 && strcmp(p.names[i].text, p.names[i - 1].text) == 0;
        if (r == 0 && !again)
            l->items[l->count++] = (struct item){p.names[i], depth, level, is_from ? rest : NULL};
        else
            drop(l, p.names[i].text);
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
    if (level == 0) {
        l->dir = fcntl(l->base, F_DUPFD_CLOEXEC, 3);
    } else {
        l->path[level] = '\0';
        l->dir = openat(l->base, l->path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        l->path[level] = '/';
    }
    l->dir_level = l->dir < 0 ? SIZE_MAX : level;
    return l->dir;
}

static void tell(struct list *l, const char *name, const struct stat *st)
{
    bool is_link = S_ISLNK(st->st_mode) && files_read_link(l->dir, name, l->target) >= 0;

    emit_entry(&l->e, l->full, st, is_link ? l->target : NULL);
    l->left--;
}

/* By name and type: all that is asked for, or all there is, as a directory that may be read but not
 * searched has names and of what is there no more than their types. Left out, it would look empty.
 */
static void tell_unlooked(struct list *l, mode_t type, int error)
{
    emit_unlooked(&l->e, l->full, type, error);
    l->left--;
}

/* 0: the file system does not say, or nothing that there is. */
static mode_t type_told(unsigned char told)
{
    static const unsigned char types[] = {DT_FIFO, DT_CHR, DT_DIR, DT_BLK, DT_REG, DT_LNK, DT_SOCK};

    return told && memchr(types, told, sizeof(types)) ? DTTOIF((mode_t)told) : 0;
}

/* The entry at hand is told, unless it was before. What it is, or 0: nothing more is known. */
static mode_t look(struct list *l, const struct item *item)
{
    mode_t type = type_told(item->name.type);
    bool brief = l->call->m->flags & FILES_BRIEF;
    struct stat st;

    if (brief && type) {
        if (!item->resume)
            tell_unlooked(l, type, 0);
        return type;
    }
    int dir = at_directory(l, item->level);
    if (dir < 0)
        return 0;
    if (fstatat(dir, item->name.text, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == EACCES && !item->resume)
            tell_unlooked(l, type, EACCES);
        return 0; /* or gone meanwhile */
    }
    if (!item->resume && brief)
        tell_unlooked(l, st.st_mode, 0);
    else if (!item->resume)
        tell(l, item->name.text, &st);
    return st.st_mode;
}

static int go_into(struct list *l, unsigned level, unsigned depth, const char *resume)
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
    unsigned at = item->level;
    unsigned end;

    if (at > 0)
        l->path[at++] = '/';
    memcpy(l->path + at, item->name.text, item->name.n + 1UL);
    end = at + item->name.n;
    if (!item->resume)
        memcpy(l->last, l->path, end + 1UL);
    if (l->above + 1 + end >= FILES_PATH) {
        l->too_deep = true;
        return 0;
    }
    mode_t type = look(l, item);
    uint64_t depth = l->call->m->depth ? l->call->m->depth : 1;
    if (!S_ISDIR(type) || item->depth >= depth || item->depth >= DEPTH_MOST)
        return 0;
    return go_into(l, end, item->depth + 1, item->resume);
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

static void walk(struct list *l)
{
    int r;

    emit_begin(&l->e, l->call, l->left > LIMIT_USUAL, FILES_TYPE_JSON);
    emit_raw(&l->e, "{");
    emit_bytes(&l->e, "path", l->call->m->path, strlen(l->call->m->path));
    emit_comma(&l->e);
    emit_raw(&l->e, "\"entries\":[");
    r = push(l, l->base, 0, 1, l->resume[0] ? l->resume : NULL);
    while (r == 0 && l->count > 0 && l->left > 0 && emit_alive(&l->e)) {
        struct item item = l->items[--l->count];
        r = see(l, &item);
        drop(l, item.name.text);
    }
    finish(l, r);
}

/* One page of the directory that is open; l->resume is set. */
static void list_directory(struct list *l, struct files_call *call, int base)
{
    const char *path = call->m->path;
    uint64_t limit = call->m->limit ? call->m->limit : LIMIT_USUAL;

    memset(l, 0, offsetof(struct list, full));
    l->left = limit < LIMIT_MOST ? limit : LIMIT_MOST;
    l->call = call;
    l->base = base;
    l->dir = -1;
    l->dir_level = SIZE_MAX;
    memcpy(l->last, l->resume, strlen(l->resume) + 1);
    l->above = path[1] ? strlen(path) : 0;
    memcpy(l->full, path, l->above);
    l->full[l->above] = '/';
    l->path = l->full + l->above + 1;
    walk(l);
    while (l->count > 0)
        drop(l, l->items[--l->count].name.text);
    free(l->items);
    scope_close(&l->dir);
}

void files_list(struct files_call *call)
{
    const char *path = call->m->path;
    struct list *l = malloc(sizeof(*l));

    if (!l) {
        answer_errno(call, ENOMEM, path);
    } else if (!decode(call->m->cursor, l->resume)) {
        answer_error(call, 400, "invalid_request", "the cursor is not one of this list");
    } else {
        /* Of all else that there may be, nothing is opened. */
        scoped_fd int base = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
        if (base >= 0)
            list_directory(l, call, base);
        else
            answer_errno(call, errno, path);
    }
    free(l);
}
