/* SPDX-License-Identifier: Apache-2.0 */
/* Operations are sorted so that what lies below a directory follows it: each directory is a range
 * of them, and the tree is walked without being built. */
#include "client/plan/plan_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "client/core/text.h"

enum {
    FEW_LINES =
        4, /* of a directory that must be cut: its name, two of what it has, how many more */
    NAME_COLUMNS = 40,
    NAMED_ATTRIBUTES = 3,   /* of one file; the rest is counted */
    MOST_COMPONENTS = 2050, /* of a path of 4095 bytes */
};

static const struct {
    const char *mark;
    const char *colour;
    const char *one;  /* "1 ..." */
    const char *done; /* "3 ..." */
} looks[] = {
    [CHANGE_MKDIR] = {"+", "\033[32m", "directory made", "directories made"},
    [CHANGE_CREATE] = {"+", "\033[32m", "created", "created"},
    [CHANGE_WRITE] = {"~", "\033[33m", "written", "written"},
    [CHANGE_SYMLINK] = {"+", "\033[32m", "link", "links"},
    [CHANGE_MOVE] = {"\xe2\x86\x92", "\033[36m", "moved", "moved"},
    [CHANGE_DELETE] = {"-", "\033[31m", "deleted", "deleted"},
    [CHANGE_CHMOD] = {"~", "\033[33m", "mode changed", "modes changed"},
};

_Static_assert(sizeof(looks) / sizeof(looks[0]) == CHANGE_KIND_COUNT_, "one look for each kind");

/* What is being printed, and as what. */
struct printer {
    const struct changes *changes;
    struct buf *b;
    bool colours;
};

/* The changes in a directory: items[first..last), whose paths begin with the same `skip` bytes. */
struct range {
    size_t first;
    size_t last;
    size_t skip;
    int depth; /* of indentation */
};

/* One name in a directory: its own operations, and those of what lies below it. */
struct entry {
    struct range own;
    struct range below;
};

static unsigned rank(char c)
{
    return c == '\0' ? 0 : c == '/' ? 1 : (unsigned char)c + 1U;
}

static int by_path(const void *left, const void *right)
{
    const struct change *a = left;
    const struct change *b = right;
    const char *x = a->path;
    const char *y = b->path;

    while (*x && *x == *y) {
        x++;
        y++;
    }
    if (*x != *y)
        return rank(*x) < rank(*y) ? -1 : 1;
    /* What goes away from a place is told before what comes there. */
    return (b->kind == CHANGE_DELETE) - (a->kind == CHANGE_DELETE);
}

/* --- reading --- */

static int kind_of(const char *name)
{
    static const char *const names[] = {"mkdir", "create", "write", "symlink",
                                        "move",  "delete", "chmod"};

    for (int i = 0; name && i < CHANGE_KIND_COUNT_; i++) {
        if (strcmp(name, names[i]) == 0)
            return i;
    }
    return -1;
}

/* A name is text under `name`, or bytes under the name with _b64 behind it. NULL: neither. */
static const char *read_name(struct arena *arena, const json_t *operation, const char *name)
{
    json_t *text = json_object_get(operation, name);
    char key[32];
    struct buf bytes;

    if (json_is_string(text))
        return arena_copy(arena, json_string_value(text), json_string_length(text));
    snprintf(key, sizeof(key), "%s_b64", name);
    text = json_object_get(operation, key);
    if (!json_is_string(text))
        return NULL;
    buf_init(&bytes, 65536);
    int r = bytes_add_decoded(&bytes, json_string_value(text), json_string_length(text));
    const char *copy = r == 0 && buf_done(&bytes) == 0 ? arena_copy(arena, bytes.p, bytes.n) : NULL;
    buf_clear(&bytes);
    return copy;
}

static uint32_t read_mode(const json_t *object)
{
    const json_t *mode = json_object_get(object, "mode");

    if (json_is_string(mode))
        return (uint32_t)strtoul(json_string_value(mode), NULL, 8);
    return (uint32_t)json_integer_value(mode);
}

static uint64_t read_number(const json_t *object, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(object, name));

    return value > 0 ? (uint64_t)value : 0;
}

/* Values are in the JSON: what a person must not miss is that there are some. */
static const char *read_attributes(struct arena *arena, json_t *attributes)
{
    size_t count = json_object_size(attributes);
    size_t n = 0;
    const char *name;
    json_t *value;
    struct buf names;

    if (count == 0)
        return NULL;
    buf_init(&names, 65536);
    json_object_foreach(attributes, name, value)
    {
        if (n++ == NAMED_ATTRIBUTES)
            break;
        buf_str(&names, n > 1 ? ", " : "");
        text_escape(&names, name, strlen(name));
    }
    if (count > NAMED_ATTRIBUTES)
        buf_printf(&names, " and %zu more", count - NAMED_ATTRIBUTES);
    const char *copy = buf_done(&names) == 0 ? arena_copy(arena, names.p, names.n) : NULL;
    buf_clear(&names);
    return copy ? copy : "attributes";
}

static int read_change(struct changes *changes, const json_t *operation, struct err *err)
{
    struct change *change = &changes->items[changes->count];
    const json_t *base = json_object_get(operation, "base");
    const char *type = json_string_value(json_object_get(operation, "type"));
    int kind = kind_of(json_string_value(json_object_get(operation, "op")));

    *change = (struct change){.kind = (enum change_kind)(kind < 0 ? 0 : kind)};
    change->path = read_name(&changes->arena, operation, "path");
    if (kind < 0 || !change->path)
        return err_set(err, ERR_IO, 0, "operation %zu of the plan cannot be read",
                       changes->count + 1);
    change->from = read_name(&changes->arena, operation, "from");
    change->target = read_name(&changes->arena, operation, "target");
    change->link = read_name(&changes->arena, operation, "link");
    change->attributes = read_attributes(&changes->arena, json_object_get(operation, "attributes"));
    change->mode = read_mode(operation);
    change->base_mode = read_mode(base);
    change->size = read_number(operation, "size");
    change->base_size = read_number(base, "size");
    change->entries = read_number(operation, "entries");
    change->bytes = read_number(operation, "bytes");
    change->copied = json_is_true(json_object_get(operation, "copied"));
    change->directory = kind == CHANGE_MKDIR || (type && strcmp(type, "directory") == 0);
    change->symlink = kind == CHANGE_SYMLINK || (type && strcmp(type, "symlink") == 0);
    if ((kind == CHANGE_CREATE && !change->link) || kind == CHANGE_WRITE || change->copied)
        changes->bytes += change->size;
    changes->of_kind[kind]++;
    changes->count++;
    return 0;
}

int changes_read(struct changes *ret, const json_t *operations, struct err *err)
{
    json_t *operation;
    size_t i;

    *ret = (struct changes){.items = NULL};
    arena_init(&ret->arena, (size_t)1 << 30);
    ret->items = calloc(json_array_size(operations) + 1, sizeof(*ret->items));
    if (!ret->items)
        return err_set(err, ERR_LIMIT, 0, "out of memory for the operations");
    json_array_foreach(operations, i, operation)
    {
        if (read_change(ret, operation, err) < 0)
            return -1;
    }
    qsort(ret->items, ret->count, sizeof(*ret->items), by_path);
    return 0;
}

void changes_clear(struct changes *changes)
{
    free(changes->items);
    changes->items = NULL;
    arena_clear(&changes->arena);
}

/* --- walking --- */

/* Takes the first name off a directory's range; false when there is none left. */
static bool next_entry(const struct changes *changes, struct range *rest, struct entry *ret)
{
    size_t at = rest->first;

    if (at >= rest->last)
        return false;
    const char *name = changes->items[at].path + rest->skip;
    size_t n = strcspn(name, "/");
    ret->own = *rest;
    while (at < rest->last && strncmp(changes->items[at].path + rest->skip, name, n) == 0 &&
           changes->items[at].path[rest->skip + n] == '\0')
        at++;
    ret->own.last = at;
    ret->below = (struct range){at, at, rest->skip + n + 1, rest->depth + 1};
    while (at < rest->last && strncmp(changes->items[at].path + rest->skip, name, n) == 0 &&
           changes->items[at].path[rest->skip + n] == '/')
        at++;
    ret->below.last = at;
    rest->first = at;
    return true;
}

static size_t size_of(const struct range *range)
{
    return range->last - range->first;
}

/* A directory in which nothing but one other directory has changes is written in one line with it:
 * "a/b/c/". */
static void join_lone(const struct changes *changes, struct entry *entry)
{
    struct range rest = entry->below;
    struct entry only;

    while (size_of(&entry->own) == 0 && next_entry(changes, &rest, &only) && size_of(&rest) == 0 &&
           size_of(&only.own) == 0) {
        entry->below.skip = only.below.skip;
        rest = entry->below;
    }
}

/* How many lines it takes to print it all, about: one for each change, one for each directory that
 * is named only because of what is in it. */
static size_t lines_of(const struct changes *changes, const struct range *range)
{
    size_t lines = size_of(range);
    const char *before = "";
    size_t before_n = 0;

    for (size_t i = range->first; i < range->last; i++) {
        const char *name = changes->items[i].path + range->skip;
        const char *slash = strrchr(name, '/');
        size_t n = slash ? (size_t)(slash - name) : 0;
        lines += n > 0 && (n != before_n || strncmp(name, before, n) != 0);
        before = name;
        before_n = n;
    }
    return lines;
}

/* --- printing --- */

void changes_print_number(struct buf *b, uint64_t number)
{
    char digits[32];
    int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);

    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf_str(b, ",");
        buf_add(b, digits + i, 1);
    }
}

static void print_size(struct buf *b, uint64_t bytes)
{
    char text[TEXT_SHORT];

    buf_str(b, text_bytes(bytes, text));
}

static void start_detail(struct buf *b, size_t begin)
{
    buf_str(b, b->n > begin ? ", " : "");
}

static void print_origin(struct buf *b, size_t begin, const struct change *change)
{
    if (!change->from)
        return;
    start_detail(b, begin);
    buf_str(b, change->kind == CHANGE_MOVE ? "moved from " : "was ");
    text_escape(b, change->from, strlen(change->from));
    if (change->copied)
        buf_str(b, " (copied)");
}

static void print_modes(struct buf *b, size_t begin, const struct change *change)
{
    bool compares = change->base_mode && change->kind != CHANGE_DELETE;
    bool gains = change->kind != CHANGE_DELETE && !change->directory && (change->mode & 0111) &&
                 !change->symlink && !(change->base_mode & 0111);

    if (compares && (change->mode & 07777) != (change->base_mode & 07777) && !change->symlink) {
        start_detail(b, begin);
        buf_printf(b, "mode %04o, was %04o", change->mode & 07777, change->base_mode & 07777);
    }
    if (gains) {
        start_detail(b, begin);
        buf_str(b, change->base_mode ? "becomes executable (x)" : "executable (x)");
    }
}

static void print_content(struct buf *b, size_t begin, const struct change *change)
{
    if (change->kind == CHANGE_WRITE || change->kind == CHANGE_CREATE) {
        print_size(b, change->size);
        if (change->base_mode && change->size != change->base_size) {
            buf_str(b, ", was ");
            print_size(b, change->base_size);
        }
    } else if (change->kind == CHANGE_DELETE && change->directory) {
        changes_print_number(b, change->entries);
        buf_str(b, change->entries == 1 ? " thing in it, " : " things in it, ");
        print_size(b, change->bytes);
    } else if (change->kind == CHANGE_DELETE && !change->symlink) {
        print_size(b, change->base_size);
    }
    if (change->link) {
        start_detail(b, begin);
        buf_str(b, "the same file as ");
        text_escape(b, change->link, strlen(change->link));
    }
}

static void print_details(const struct printer *p, const struct change *change, size_t width)
{
    struct buf details;

    buf_init(&details, 65536);
    print_content(&details, 0, change);
    print_modes(&details, 0, change);
    if (change->attributes) {
        start_detail(&details, 0);
        buf_printf(&details, "with %s", change->attributes);
    }
    print_origin(&details, 0, change);
    if (buf_done(&details) == 0 && details.n > 0) {
        size_t pad = width < NAME_COLUMNS ? NAME_COLUMNS - width : 0;
        buf_printf(p->b, "%*s%s%s%s", (int)pad + 2, "", p->colours ? "\033[2m" : "", details.p,
                   p->colours ? "\033[0m" : "");
    }
    buf_clear(&details);
}

/* Returns how many columns it took. */
static size_t print_name(const struct printer *p, const char *name, size_t n, const char *after)
{
    struct buf safe;

    buf_init(&safe, 65536);
    text_escape(&safe, name, n);
    buf_str(&safe, after);
    size_t width = buf_done(&safe) == 0 ? text_width(safe.p) : 0;
    buf_str(p->b, width ? safe.p : "?");
    buf_clear(&safe);
    return width;
}

static void print_change(const struct printer *p, const struct change *change,
                         const struct range *in)
{
    const char *name = change->path + in->skip;
    const char *colour = p->colours ? looks[change->kind].colour : "";

    buf_printf(p->b, "%*s%s%s ", 2 * in->depth, "", colour, looks[change->kind].mark);
    size_t width = print_name(p, name, strlen(name), change->directory ? "/" : "");
    buf_str(p->b, p->colours ? "\033[0m" : "");
    if (change->target) {
        buf_str(p->b, " -> ");
        width += 4 + print_name(p, change->target, strlen(change->target), "");
    }
    print_details(p, change, width + 2 * (size_t)in->depth);
    buf_str(p->b, "\n");
}

/* A directory that does not change itself. */
static void print_directory(const struct printer *p, const struct entry *entry)
{
    const char *path = p->changes->items[entry->below.first].path;

    buf_printf(p->b, "%*s%s", 2 * entry->own.depth, "", p->colours ? "\033[1m" : "");
    print_name(p, path + entry->own.skip, entry->below.skip - entry->own.skip, "");
    buf_printf(p->b, "%s\n", p->colours ? "\033[0m" : "");
}

/* "... and 1,932 more in invoices/": `of` is any range in that directory. */
static void print_more(const struct printer *p, size_t count, const struct range *of)
{
    if (count == 0)
        return;
    buf_printf(p->b, "%*s%s\xe2\x80\xa6 and ", 2 * of->depth, "", p->colours ? "\033[2m" : "");
    changes_print_number(p->b, count);
    buf_str(p->b, " more");
    if (of->skip > 0) {
        buf_str(p->b, " in ");
        print_name(p, p->changes->items[of->first].path, of->skip, "");
    }
    buf_printf(p->b, "%s\n", p->colours ? "\033[0m" : "");
}

/* A directory that is being printed. */
struct level {
    struct range all;
    struct range rest; /* not yet looked at */
    bool fits;         /* all of it is printed; otherwise: */
    size_t plain;      /* lines left for what is no directory with changes below, */
    size_t lines;      /* lines for those that are, by how many changes they have, */
    size_t below;      /* ... of all these changes; */
    size_t credit;     /* what was not used of it, in changes times lines, */
    size_t more;       /* and how many changes were left out */
};

static void count_entries(const struct changes *changes, struct range range, size_t *ret_plain,
                          size_t *ret_below)
{
    struct entry entry;

    while (next_entry(changes, &range, &entry)) {
        size_t below = size_of(&entry.below);
        *ret_plain += below > 0 ? 0 : size_of(&entry.own);
        *ret_below += below;
    }
}

/* Everything if it fits. Otherwise some of what the directory itself holds; the directories in it
 * get lines as they have changes, and those that are due none are counted. The first is always
 * due some. */
static struct level start_level(const struct changes *changes, struct range range, size_t lines)
{
    struct level level = {.all = range, .rest = range};
    size_t plain = 0;

    level.fits = lines == SIZE_MAX || lines_of(changes, &range) <= lines;
    if (level.fits)
        return level;
    count_entries(changes, range, &plain, &level.below);
    level.lines = lines > 1 ? lines - 1 : 0;
    level.plain = level.below ? level.lines / 3 + (level.lines > 0) : level.lines;
    level.plain = plain < level.plain ? plain : level.plain;
    level.lines -= level.plain;
    size_t first = level.lines < FEW_LINES ? level.lines : FEW_LINES;
    level.lines -= first;
    level.credit = first * level.below;
    return level;
}

/* How many lines an entry gets; 0: it is only counted. */
static size_t share_of(const struct changes *changes, struct level *level,
                       const struct entry *entry)
{
    size_t own = size_of(&entry->own);

    if (level->fits)
        return SIZE_MAX;
    if (size_of(&entry->below) == 0) {
        size_t lines = level->plain >= own ? own : 0;
        level->plain -= lines;
        return lines;
    }
    level->credit += level->lines * size_of(&entry->below);
    size_t share = level->credit / level->below;
    size_t wants = own + 1 + lines_of(changes, &entry->below);
    share = share < wants ? share : wants;
    if (share < own + 2 || (share < FEW_LINES && share < wants))
        return 0;
    level->credit -= share * level->below;
    return share;
}

void changes_print(const struct changes *changes, struct buf *b, size_t lines, bool colours)
{
    const struct printer p = {changes, b, colours};
    struct level *levels = calloc(MOST_COMPONENTS, sizeof(*levels));
    struct entry entry;
    size_t depth = 1;

    if (!levels)
        return;
    levels[0] = start_level(changes, (struct range){0, changes->count, 0, 1}, lines);
    while (depth > 0) {
        struct level *level = &levels[depth - 1];
        if (!next_entry(changes, &level->rest, &entry)) {
            print_more(&p, level->more, &level->all);
            depth--;
            continue;
        }
        join_lone(changes, &entry);
        size_t share = share_of(changes, level, &entry);
        if (share == 0) {
            level->more += size_of(&entry.own) + size_of(&entry.below);
            continue;
        }
        for (size_t i = entry.own.first; i < entry.own.last; i++)
            print_change(&p, &changes->items[i], &entry.own);
        size_t used = size_of(&entry.own) ? size_of(&entry.own) : 1;
        if (size_of(&entry.below) == 0 || depth == MOST_COMPONENTS)
            continue;
        if (size_of(&entry.own) == 0)
            print_directory(&p, &entry);
        levels[depth++] =
            start_level(changes, entry.below, share == SIZE_MAX ? share : share - used);
    }
    free(levels);
}

void changes_print_summary(const struct changes *changes, struct buf *b)
{
    bool first = true;

    changes_print_number(b, changes->count);
    buf_str(b, changes->count == 1 ? " change" : " changes");
    for (int i = 0; i < CHANGE_KIND_COUNT_; i++) {
        if (changes->of_kind[i] == 0)
            continue;
        buf_str(b, first ? ": " : ", ");
        changes_print_number(b, changes->of_kind[i]);
        buf_printf(b, " %s", changes->of_kind[i] == 1 ? looks[i].one : looks[i].done);
        first = false;
    }
    if (changes->bytes > 0) {
        buf_str(b, "; ");
        print_size(b, changes->bytes);
        buf_str(b, " of new content");
    }
    buf_str(b, "\n");
}
