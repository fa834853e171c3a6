/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest as bytes. Each plan is written in one way only: the reader takes a line apart in
 * the order in which it is written, writes what it understood again, and refuses the line if that
 * is not the same to the byte. So nothing is in a manifest that nobody sees.
 *
 *   {"plan":1,"operations":2,"flaws":0,"bytes":3}
 *   {"op":"create","path":"a","type":"file","mode":"0644","size":3,"mtime_ns":…,"sha256":"…"}
 *   {"op":"delete","path":"b","type":"file","mode":"0644","base":{…}} */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/fd.h"
#include "plan/core/attributes.h"
#include "plan/core/plan.h"

/* --- writing --- */

static void add_bytes(struct buf *b, const char *key, const char *bytes)
{
    size_t n = bytes ? strlen(bytes) : 0;

    if (!bytes)
        return;
    bool is_text = bytes_are_utf8(bytes, n);
    buf_printf(b, ",\"%s%s\":", key, is_text ? "" : "_b64");
    if (is_text) {
        bytes_add_json(b, bytes, n);
        return;
    }
    buf_str(b, "\"");
    bytes_add_base64(b, bytes, n);
    buf_str(b, "\"");
}

static void add_hash(struct buf *b, const char *key, const unsigned char hash[PLAN_HASH])
{
    char text[2 * PLAN_HASH + 1];

    bytes_to_hex(hash, PLAN_HASH, text);
    buf_printf(b, ",\"%s\":\"%s\"", key, text);
}

static const char *type_name(uint32_t mode)
{
    return S_ISDIR(mode) ? "directory" : S_ISLNK(mode) ? "symlink" : "file";
}

static void add_base(struct buf *b, const struct plan_identity *base)
{
    buf_printf(b,
               ",\"base\":{\"dev\":\"%" PRIu64 "\",\"ino\":\"%" PRIu64
               "\",\"type\":\"%s\",\"mode\":\"%04o\",\"size\":%" PRIu64 ",\"mtime_ns\":%" PRId64
               ",\"ctime_ns\":%" PRId64 "}",
               base->dev, base->ino, type_name(base->mode), base->mode & 07777, base->size,
               base->mtime_ns, base->ctime_ns);
}

/* When content was made counts for what is new in the tree. */
static bool has_mtime(const struct plan_operation *o)
{
    return o->has_hash || o->kind == PLAN_MKDIR || o->kind == PLAN_SYMLINK;
}

static void add_operation(struct buf *b, const struct plan_operation *o)
{
    buf_printf(b, "{\"op\":\"%s\"", plan_kind_names[o->kind]);
    add_bytes(b, "path", o->path);
    add_bytes(b, "from", o->from);
    add_bytes(b, "target", o->target);
    add_bytes(b, "link", o->link);
    buf_printf(b, ",\"type\":\"%s\",\"mode\":\"%04o\"", type_name(o->mode), o->mode & 07777);
    if (o->has_hash)
        buf_printf(b, ",\"size\":%" PRIu64, o->size);
    if (has_mtime(o))
        buf_printf(b, ",\"mtime_ns\":%" PRId64, o->mtime_ns);
    if (o->has_hash)
        add_hash(b, "sha256", o->hash);
    if (o->attributes)
        buf_printf(b, ",\"attributes\":%s", o->attributes);
    if (o->copied)
        buf_str(b, ",\"copied\":true");
    if (o->has_base)
        add_base(b, &o->base);
    if (o->kind == PLAN_DELETE && S_ISDIR(o->mode)) {
        buf_printf(b, ",\"entries\":%" PRIu64 ",\"bytes\":%" PRIu64, o->entries, o->bytes);
        add_hash(b, "below", o->below);
    }
    buf_str(b, "}\n");
}

static void add_flaw(struct buf *b, const struct plan_flaw *flaw)
{
    buf_printf(b, "{\"flaw\":\"%s\"", plan_flaw_names[flaw->kind]);
    add_bytes(b, "path", flaw->path);
    buf_str(b, "}\n");
}

static void add_head(struct buf *b, const struct plan *plan)
{
    buf_printf(b, "{\"plan\":1,\"operations\":%zu,\"flaws\":%zu,\"bytes\":%" PRIu64, plan->count,
               plan->flaw_count, plan->bytes);
    if (plan->validations)
        buf_printf(b, ",\"validations\":%s", plan->validations);
    buf_str(b, "}\n");
}

void plan_write_operation(const struct plan_operation *operation, struct buf *b)
{
    add_operation(b, operation);
}

static int hash_plan(const void *bytes, size_t n, unsigned char hash[PLAN_HASH], struct err *err)
{
    return digest_bytes(bytes, n, hash) < 0 ? err_set(err, ERR_IO, 0, "hash the plan") : 0;
}

int plan_write(const struct plan *plan, int fd, unsigned char hash[PLAN_HASH], struct err *err)
{
    scoped_buf struct buf b = {0};

    buf_init(&b, PLAN_MAX_BYTES);
    add_head(&b, plan);
    for (size_t i = 0; i < plan->flaw_count; i++)
        add_flaw(&b, &plan->flaws[i]);
    for (size_t i = 0; i < plan->count && !b.failed; i++)
        add_operation(&b, &plan->operations[i]);
    if (buf_done(&b) < 0)
        return err_set(err, ERR_LIMIT, 0, "the plan's manifest would be larger than %d MiB",
                       PLAN_MAX_BYTES >> 20);
    if (hash_plan(b.p, b.n, hash, err) < 0)
        return -1;
    int r = fd_write_all(fd, b.p, b.n);
    return r < 0 ? err_set(err, ERR_IO, -r, "write the plan's manifest") : 0;
}

int plan_save(const struct plan *plan, int dir, const char *name, unsigned char hash[PLAN_HASH],
              struct err *err)
{
    char new[PLAN_MAX_NAME + 1];

    snprintf(new, sizeof(new), "%s.new", name);
    scoped_fd int fd =
        openat(dir, new, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "make the plan's manifest");
    if (plan_write(plan, fd, hash, err) < 0) {
        ignore(unlinkat(dir, new, 0)); /* the error is told already */
        return -1;
    }
    if (fsync(fd) < 0 || renameat(dir, new, dir, name) < 0 || fsync(dir) < 0)
        return err_set(err, ERR_IO, errno, "keep the plan's manifest");
    return 0;
}

/* --- reading --- */

/* Takes a line apart from its front. What does not fit sets `bad`, and nothing more is taken. */
struct cursor {
    const char *at;
    const char *end;
    struct arena *arena;
    bool bad;
};

static bool take(struct cursor *c, const char *literal)
{
    size_t n = strlen(literal);

    if (c->bad || (size_t)(c->end - c->at) < n || memcmp(c->at, literal, n) != 0)
        return false;
    c->at += n;
    return true;
}

static void must(struct cursor *c, const char *literal)
{
    if (!take(c, literal))
        c->bad = true;
}

static uint64_t take_unsigned(struct cursor *c)
{
    uint64_t value = 0;
    const char *first = c->at;

    while (!c->bad && c->at < c->end && *c->at >= '0' && *c->at <= '9') {
        uint64_t digit = (uint64_t)(*c->at++ - '0');
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            c->bad = true;
    }
    if (c->at == first)
        c->bad = true;
    return value;
}

static int64_t take_signed(struct cursor *c)
{
    bool negative = take(c, "-");
    uint64_t size = take_unsigned(c);

    if (size > (uint64_t)INT64_MAX)
        c->bad = true;
    return c->bad ? 0 : negative ? -(int64_t)size : (int64_t)size;
}

static uint32_t take_mode(struct cursor *c)
{
    uint32_t mode = 0;

    must(c, "\"");
    for (int i = 0; i < 4 && !c->bad; i++) {
        if (c->at >= c->end || *c->at < '0' || *c->at > '7')
            c->bad = true;
        else
            mode = mode << 3 | (uint32_t)(*c->at++ - '0');
    }
    must(c, "\"");
    return mode;
}

/* Up to the quote that ends a string; `at` is behind it afterwards. */
static size_t string_length(struct cursor *c)
{
    const char *first = c->at;

    for (; c->at < c->end && *c->at != '"'; c->at++) {
        if (*c->at == '\\' && c->at + 1 < c->end)
            c->at++;
    }
    size_t n = (size_t)(c->at - first);
    must(c, "\"");
    return n;
}

/* As bytes_add_json writes it; anything else is found when it is written again. */
static size_t unescape(const char *text, size_t n, char *ret)
{
    size_t made = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned char byte = 0;
        if (text[i] != '\\') {
            ret[made++] = text[i];
        } else if (i + 5 < n && text[i + 1] == 'u' && bytes_from_hex(text + i + 4, 1, &byte)) {
            ret[made++] = (char)byte;
            i += 5;
        } else {
            ret[made++] = '\n';
            i++;
        }
    }
    return made;
}

/* ,"KEY":"text" or ,"KEY_b64":"…", or nothing: NULL. */
static const char *take_bytes(struct cursor *c, const char *key)
{
    char plain[32];
    char coded[32];
    bool is_coded = false;

    snprintf(plain, sizeof(plain), ",\"%s\":\"", key);
    snprintf(coded, sizeof(coded), ",\"%s_b64\":\"", key);
    if (!take(c, plain) && !(is_coded = take(c, coded)))
        return NULL;
    const char *text = c->at;
    size_t n = string_length(c);
    char *copy = c->bad ? NULL : arena_alloc(c->arena, n + 1);
    ssize_t made = -1;
    if (copy)
        made = is_coded ? bytes_from_base64(text, n, copy) : (ssize_t)unescape(text, n, copy);
    if (made < 0 || memchr(copy, '\0', (size_t)made))
        c->bad = true;
    else
        copy[made] = '\0';
    return c->bad ? NULL : copy;
}

static void take_hash(struct cursor *c, unsigned char hash[PLAN_HASH])
{
    if (c->bad || c->end - c->at < 2L * PLAN_HASH || !bytes_from_hex(c->at, PLAN_HASH, hash)) {
        c->bad = true;
        return;
    }
    c->at += 2L * PLAN_HASH;
    must(c, "\"");
}

static size_t take_name(struct cursor *c, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct cursor before = *c;
        if (take(c, names[i]) && take(c, "\""))
            return i;
        *c = before;
    }
    c->bad = true;
    return 0;
}

static uint32_t take_type(struct cursor *c)
{
    static const char *const names[] = {"file", "directory", "symlink"};
    static const uint32_t types[] = {S_IFREG, S_IFDIR, S_IFLNK};

    return types[take_name(c, names, 3)];
}

static void take_base(struct cursor *c, struct plan_identity *base)
{
    must(c, "\"dev\":\"");
    base->dev = take_unsigned(c);
    must(c, "\",\"ino\":\"");
    base->ino = take_unsigned(c);
    must(c, "\",\"type\":\"");
    base->mode = take_type(c);
    must(c, ",\"mode\":");
    base->mode |= take_mode(c);
    must(c, ",\"size\":");
    base->size = take_unsigned(c);
    must(c, ",\"mtime_ns\":");
    base->mtime_ns = take_signed(c);
    must(c, ",\"ctime_ns\":");
    base->ctime_ns = take_signed(c);
    must(c, "}");
}

/* Of any number of texts with texts; what it has is looked at as a whole. */
static const char *take_attributes(struct cursor *c)
{
    const char *first = c->at;
    bool more = true;

    must(c, "{");
    while (more && !c->bad) {
        must(c, "\"");
        (void)string_length(c);
        must(c, ":\"");
        (void)string_length(c);
        more = take(c, ",");
    }
    must(c, "}");
    size_t n = (size_t)(c->at - first);
    const char *copy =
        !c->bad && attributes_are_sane(first, n) ? arena_copy(c->arena, first, n) : NULL;
    c->bad = c->bad || !copy;
    return copy;
}

static void take_operation(struct cursor *c, struct plan_operation *o)
{
    must(c, "{\"op\":\"");
    o->kind = (enum plan_kind)take_name(c, plan_kind_names, PLAN_KIND_COUNT_);
    o->path = take_bytes(c, "path");
    o->from = take_bytes(c, "from");
    o->target = take_bytes(c, "target");
    o->link = take_bytes(c, "link");
    must(c, ",\"type\":\"");
    o->mode = take_type(c);
    must(c, ",\"mode\":");
    o->mode |= take_mode(c);
    o->has_hash = take(c, ",\"size\":");
    if (o->has_hash)
        o->size = take_unsigned(c);
    if (take(c, ",\"mtime_ns\":"))
        o->mtime_ns = take_signed(c);
    if (take(c, ",\"sha256\":\""))
        take_hash(c, o->hash);
    if (take(c, ",\"attributes\":"))
        o->attributes = take_attributes(c);
    o->copied = take(c, ",\"copied\":true");
    o->has_base = take(c, ",\"base\":{");
    if (o->has_base)
        take_base(c, &o->base);
    if (take(c, ",\"entries\":")) {
        o->entries = take_unsigned(c);
        must(c, ",\"bytes\":");
        o->bytes = take_unsigned(c);
        must(c, ",\"below\":\"");
        take_hash(c, o->below);
    }
    must(c, "}\n");
    if (c->at != c->end || !o->path)
        c->bad = true;
}

/* What an operation of each kind has. */
enum has {
    NO,
    YES,
    MAY
};

static const struct shape {
    enum has from, target, link, hash, base;
} shapes[PLAN_KIND_COUNT_] = {
    [PLAN_MKDIR] = {NO, NO, NO, NO, NO},     [PLAN_CREATE] = {NO, NO, MAY, MAY, NO},
    [PLAN_WRITE] = {MAY, NO, MAY, MAY, YES}, [PLAN_SYMLINK] = {MAY, YES, NO, NO, MAY},
    [PLAN_MOVE] = {YES, MAY, NO, MAY, YES},  [PLAN_DELETE] = {NO, NO, NO, NO, YES},
    [PLAN_CHMOD] = {MAY, NO, NO, NO, YES},
};

static bool fits(enum has wanted, bool there)
{
    return wanted == MAY || (wanted == YES) == there;
}

/* Whether the type is one that this kind of operation makes of that base. */
static bool types_fit(const struct plan_operation *o)
{
    uint32_t type = o->mode & S_IFMT;
    bool as_base = !o->has_base || (o->base.mode & S_IFMT) == type;

    switch (o->kind) {
    case PLAN_MKDIR:
        return type == S_IFDIR;
    case PLAN_CREATE:
    case PLAN_WRITE:
        return type == S_IFREG && as_base && (o->has_hash || o->link);
    case PLAN_SYMLINK:
        return type == S_IFLNK && as_base;
    case PLAN_MOVE:
        return as_base && (!o->has_hash || (o->copied && type == S_IFREG)) &&
               (type == S_IFLNK) == (o->target != NULL);
    case PLAN_DELETE:
        return as_base;
    case PLAN_CHMOD:
        return as_base && type != S_IFLNK;
    case PLAN_KIND_COUNT_:
        break;
    }
    return false;
}

static int check_operation(const struct plan_operation *o, struct err *err)
{
    const struct shape *shape = &shapes[o->kind];
    const char *const paths[] = {o->path, o->from, o->link};

    if (!fits(shape->from, o->from != NULL) || !fits(shape->target, o->target != NULL) ||
        !fits(shape->link, o->link != NULL) || !fits(shape->hash, o->has_hash) ||
        !fits(shape->base, o->has_base) || (o->from && !o->has_base) ||
        (o->copied && o->kind != PLAN_MOVE) || !types_fit(o) ||
        (o->attributes && o->kind != PLAN_MKDIR && (!o->has_hash || o->link)) ||
        (o->kind != PLAN_DELETE && (o->mode & 07000)) ||
        (o->from && o->kind != PLAN_MOVE && strcmp(o->from, o->path) == 0) ||
        (o->link && strcmp(o->link, o->path) == 0))
        return err_set(err, ERR_INVALID, 0, "it is no '%s' of '%s'", plan_kind_names[o->kind],
                       o->path);
    if (o->target && (!*o->target || strlen(o->target) > PLAN_MAX_PATH))
        return err_set(err, ERR_INVALID, 0, "'%s' links to nothing that can be", o->path);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (paths[i] && plan_check_path(paths[i], strlen(paths[i]), err) < 0)
            return -1;
    }
    return 0;
}

static int read_flaw(struct plan *plan, struct cursor *c, struct buf *again, struct err *err)
{
    must(c, "{\"flaw\":\"");
    enum plan_flaw_kind kind = (enum plan_flaw_kind)take_name(c, plan_flaw_names, PLAN_FLAW_COUNT_);
    const char *path = take_bytes(c, "path");
    must(c, "}\n");
    if (c->bad || c->at != c->end || !path)
        return err_set(err, ERR_INVALID, 0, "it is no flaw");
    if (plan_add_flaw(plan, kind, path, err) < 0)
        return -1;
    add_flaw(again, &plan->flaws[plan->flaw_count - 1]);
    return 0;
}

static int read_operation(struct plan *plan, struct cursor *c, struct buf *again, struct err *err)
{
    struct plan_operation *o = plan_add(plan, err);

    if (!o)
        return -1;
    take_operation(c, o);
    if (c->bad)
        return err_set(err, ERR_INVALID, 0, "it is no operation");
    if (check_operation(o, err) < 0)
        return -1;
    add_operation(again, o);
    return 0;
}

/* The rest of the head: validations are JSON of any form, as the library writes it. */
static int read_validations(struct plan *plan, struct cursor *c, struct err *err)
{
    json_t *json = NULL;
    char *text = NULL;
    size_t n = (size_t)(c->end - c->at);

    if (n > 2)
        json = json_loadb(c->at, n - 2, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_array(json) && json_array_size(json) > 0)
        text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    if (text)
        plan->validations = arena_copy(&plan->arena, text, strlen(text));
    free(text);
    json_decref(json);
    if (!plan->validations)
        return err_set(err, ERR_INVALID, 0, "its validations cannot be read");
    c->at = c->end - 2;
    return 0;
}

struct head {
    uint64_t operations;
    uint64_t flaws;
    uint64_t bytes;
};

static int read_head(struct plan *plan, struct cursor *c, struct head *ret, struct err *err)
{
    must(c, "{\"plan\":1,\"operations\":");
    ret->operations = take_unsigned(c);
    must(c, ",\"flaws\":");
    ret->flaws = take_unsigned(c);
    must(c, ",\"bytes\":");
    ret->bytes = take_unsigned(c);
    if (take(c, ",\"validations\":") && read_validations(plan, c, err) < 0)
        return -1;
    must(c, "}\n");
    if (c->bad || c->at != c->end)
        return err_set(err, ERR_INVALID, 0, "it is no head of a plan");
    return 0;
}

static int read_line(struct plan *plan, struct cursor *c, struct head *head, size_t line,
                     struct err *err)
{
    scoped_buf struct buf again = {0};
    const char *first = c->at;
    int r;

    buf_init(&again, PLAN_MAX_BYTES);
    if (line == 0)
        r = read_head(plan, c, head, err);
    else if (line <= head->flaws)
        r = read_flaw(plan, c, &again, err);
    else
        r = read_operation(plan, c, &again, err);
    if (r < 0)
        return -1;
    size_t n = (size_t)(c->end - first);
    if (line > 0 && (buf_done(&again) < 0 || again.n != n || memcmp(again.p, first, n) != 0))
        return err_set(err, ERR_INVALID, 0, "it is written in another way than plans are");
    return 0;
}

static bool is_in_order(const struct plan *plan)
{
    for (size_t i = 1; i < plan->count; i++) {
        const struct plan_operation *a = &plan->operations[i - 1];
        const struct plan_operation *b = &plan->operations[i];
        int order = plan_compare_paths(a->path, b->path);
        if (order > 0 || (order == 0 && a->kind >= b->kind))
            return false;
    }
    for (size_t i = 1; i < plan->flaw_count; i++) {
        const struct plan_flaw *a = &plan->flaws[i - 1];
        const struct plan_flaw *b = &plan->flaws[i];
        int order = plan_compare_paths(a->path, b->path);
        if (order > 0 || (order == 0 && a->kind > b->kind))
            return false;
    }
    return true;
}

/* The head can be written again only when all has been counted. */
static int check_whole(struct plan *plan, const struct head *head, const char *bytes,
                       struct err *err)
{
    scoped_buf struct buf again = {0};

    buf_init(&again, PLAN_MAX_BYTES);
    if (!is_in_order(plan))
        return err_set(err, ERR_INVALID, 0, "it is not in order");
    if (plan_put_in_order(plan, err) < 0)
        return -1;
    add_head(&again, plan);
    if (buf_done(&again) < 0 || plan->count != head->operations ||
        memcmp(again.p, bytes, again.n) != 0)
        return err_set(err, ERR_INVALID, 0, "its head does not say what is in it");
    return 0;
}

static int read_lines(struct plan *plan, const char *bytes, size_t n, struct err *err)
{
    struct head head = {0};
    size_t line = 0;

    for (const char *at = bytes; at < bytes + n || line == 0; line++) {
        const char *newline = n ? memchr(at, '\n', (size_t)(bytes + n - at)) : NULL;
        if (!newline)
            return err_set(err, ERR_INVALID, 0, "line %zu of the manifest: it does not end",
                           line + 1);
        struct cursor c = {.at = at, .end = newline + 1, .arena = &plan->arena};
        if (read_line(plan, &c, &head, line, err) < 0)
            return err_wrap(err, "line %zu of the manifest", line + 1);
        at = newline + 1;
    }
    if (head.flaws != plan->flaw_count)
        return err_set(err, ERR_INVALID, 0, "the manifest: its head does not say what is in it");
    if (check_whole(plan, &head, bytes, err) < 0)
        return err_wrap(err, "the manifest");
    return 0;
}

static int read_whole(int fd, struct buf *b, struct err *err)
{
    char piece[32768];
    ssize_t got;

    while ((got = read(fd, piece, sizeof(piece))) != 0) {
        if (got < 0 && errno != EINTR)
            return err_set(err, ERR_IO, errno, "read the plan's manifest");
        buf_add(b, piece, got > 0 ? (size_t)got : 0);
        if (b->failed)
            return err_set(err, ERR_LIMIT, 0, "the manifest is larger than %d MiB",
                           PLAN_MAX_BYTES >> 20);
    }
    return 0;
}

int plan_read(struct plan *ret, int fd, unsigned char hash[PLAN_HASH], struct err *err)
{
    scoped_buf struct buf b = {0};

    buf_init(&b, PLAN_MAX_BYTES);
    if (read_whole(fd, &b, err) < 0)
        return -1;
    if (buf_done(&b) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "read the plan's manifest");
    plan_init(ret);
    if (hash_plan(b.p, b.n, hash, err) < 0 || read_lines(ret, b.p, b.n, err) < 0) {
        plan_clear(ret);
        return -1;
    }
    return 0;
}

int plan_load(struct plan *ret, int dir, const char *name, unsigned char hash[PLAN_HASH],
              struct err *err)
{
    scoped_fd int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd < 0)
        return err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                       "open the plan's manifest");
    return plan_read(ret, fd, hash, err);
}
