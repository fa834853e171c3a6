/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-plan show: {"cursor":"0", "limit":1000, "kinds":["delete"], "under":"a/b",
 * "summary":true}. JSON lines: the summary, the flaws, the operations with their numbers, and
 * {"next":"CURSOR"} where there are more. Without a limit all; of an open plan what was read off it
 * last. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "plan/core/findings.h"
#include "plan/core/verbs.h"

enum {
    MOST_LINE = 1 << 20,
    TOP_DIRECTORIES = 20,
};

struct show_request {
    size_t from;
    size_t limit;
    unsigned kinds; /* bits; all when nothing was said */
    const char *under;
    bool summary;
};

static int read_kinds(const json_t *kinds, unsigned *ret, struct err *err)
{
    if (!kinds)
        return 0;
    *ret = 0;
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const char *name = json_string_value(json_array_get(kinds, i));
        unsigned kind = 0;
        while (kind < PLAN_KIND_COUNT_ && (!name || strcmp(plan_kind_names[kind], name) != 0))
            kind++;
        if (kind == PLAN_KIND_COUNT_)
            return err_set(err, ERR_INVALID, 0, "\"kinds\": there is no such kind of operation");
        *ret |= 1U << kind;
    }
    return json_is_array(kinds) ? 0 : err_set(err, ERR_INVALID, 0, "\"kinds\" must be a list");
}

static int read_request(const struct verb_call *call, struct show_request *ret, struct err *err)
{
    const char *cursor = "0";
    json_int_t limit = PLAN_MAX_OPERATIONS;
    json_t *kinds = NULL;
    int summary = 0;
    char *end;

    *ret = (struct show_request){.kinds = ~0U};
    if (verb_read(call, err, "{s?s, s?I, s?o, s?s, s?b}", "cursor", &cursor, "limit", &limit,
                  "kinds", &kinds, "under", &ret->under, "summary", &summary) < 0 ||
        read_kinds(kinds, &ret->kinds, err) < 0)
        return -1;
    unsigned long long from = strtoull(cursor, &end, 10);
    if (cursor[0] < '0' || cursor[0] > '9' || *end || from > PLAN_MAX_OPERATIONS)
        return err_set(err, ERR_INVALID, 0, "\"cursor\" is none that was given");
    if (limit < 0 || limit > PLAN_MAX_OPERATIONS)
        return err_set(err, ERR_INVALID, 0, "\"limit\" must be from 0 to %d", PLAN_MAX_OPERATIONS);
    ret->from = (size_t)from;
    ret->limit = (size_t)limit;
    ret->summary = summary;
    return 0;
}

/* --- summary --- */

struct directory {
    const char *path;
    size_t n; /* of the path */
    uint64_t operations;
    uint64_t bytes;
};

static int compare_directories(const void *a, const void *b)
{
    const struct directory *x = a;
    const struct directory *y = b;

    return x->operations != y->operations ? (x->operations < y->operations ? 1 : -1)
           : x->n != y->n                 ? (x->n < y->n ? -1 : 1)
                                          : memcmp(x->path, y->path, x->n);
}

/* By the first name of the path; in canonical order those of one directory follow each other. */
static size_t gather_directories(const struct plan *plan, struct directory *all)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        size_t n = strcspn(operation->path, "/");
        struct directory *last = count > 0 ? &all[count - 1] : NULL;
        if (!last || last->n != n || memcmp(last->path, operation->path, n) != 0) {
            last = &all[count++];
            *last = (struct directory){.path = operation->path, .n = n};
        }
        last->operations++;
        last->bytes += operation->has_hash && !operation->link ? operation->size : 0;
    }
    qsort(all, count, sizeof(*all), compare_directories);
    return count;
}

static json_t *directory_json(const struct directory *directory)
{
    char name[PLAN_MAX_PATH + 1];
    json_t *object = json_pack("{s:I, s:I}", "operations", (json_int_t)directory->operations,
                               "bytes", (json_int_t)directory->bytes);

    if (directory->n >= sizeof(name))
        return object;
    memcpy(name, directory->path, directory->n);
    name[directory->n] = '\0';
    (void)plan_json_bytes(object, "path", name); /* without memory the object ends up incomplete */
    return object;
}

static json_t *top_directories(const struct plan *plan)
{
    struct directory *all = calloc(plan->count + 1, sizeof(*all));
    json_t *list = all ? json_array() : NULL;
    size_t count = list ? gather_directories(plan, all) : 0;

    for (size_t i = 0; i < count && i < TOP_DIRECTORIES; i++)
        (void)json_array_append_new(list, directory_json(&all[i]));
    free(all);
    return list;
}

static json_t *summarize(const struct plan *plan, const char *hash)
{
    json_int_t counts[PLAN_KIND_COUNT_] = {0};
    json_int_t deleted_files = 0;
    json_int_t deleted_bytes = 0;
    json_int_t copied = 0;
    json_t *kinds = json_object();

    for (size_t i = 0; i < plan->count; i++) {
        const struct plan_operation *operation = &plan->operations[i];
        counts[operation->kind]++;
        copied += operation->copied && operation->has_hash ? (json_int_t)operation->size : 0;
        if (operation->kind != PLAN_DELETE)
            continue;
        bool is_directory = S_ISDIR(operation->mode);
        deleted_files += is_directory ? (json_int_t)operation->entries : 1;
        deleted_bytes += (json_int_t)(is_directory ? operation->bytes : operation->base.size);
    }
    for (unsigned i = 0; i < PLAN_KIND_COUNT_; i++)
        (void)json_object_set_new(kinds, plan_kind_names[i], json_integer(counts[i]));
    return json_pack("{s:{s:s, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:o}}", "summary", "hash", hash,
                     "operations", (json_int_t)plan->count, "counts", kinds, "bytes",
                     (json_int_t)plan->bytes, "copied_bytes", copied, "deleted_entries",
                     deleted_files, "deleted_bytes", deleted_bytes, "flaws",
                     (json_int_t)plan->flaw_count, "directories", top_directories(plan));
}

/* --- lines --- */

static int put(struct buf *b, struct err *err)
{
    bool written = buf_done(b) == 0 && fwrite(b->p, 1, b->n, stdout) == b->n;

    b->n = 0;
    return written ? 0 : err_set(err, ERR_IO, errno, "write the answer");
}

static int put_object(json_t *object, struct err *err)
{
    int r = object && json_dumpf(object, stdout, JSON_COMPACT) == 0 && putchar('\n') >= 0
                ? 0
                : err_set(err, ERR_IO, errno, "write the answer");

    json_decref(object);
    return r;
}

static bool is_wanted(const struct show_request *wanted, const struct plan_operation *operation)
{
    if (!(wanted->kinds & 1U << operation->kind))
        return false;
    return !wanted->under || plan_is_below(operation->path, wanted->under) ||
           (operation->from && plan_is_below(operation->from, wanted->under));
}

static int put_flaws(const struct plan *plan, struct err *err)
{
    for (size_t i = 0; i < plan->flaw_count; i++) {
        json_t *object = json_pack("{s:s, s:s}", "flaw", plan_flaw_names[plan->flaws[i].kind],
                                   "message", plan_flaw_words[plan->flaws[i].kind]);
        if (plan_json_bytes(object, "path", plan->flaws[i].path) < 0 || put_object(object, err) < 0)
            return err_set(err, ERR_LIMIT, ENOMEM, "write the flaws");
    }
    return 0;
}

/* The manifest's own line, with its number in front. */
static int put_operation(struct buf *b, size_t number, const struct plan_operation *operation,
                         struct err *err)
{
    scoped_buf struct buf line = {0};

    buf_init(&line, MOST_LINE);
    plan_write_operation(operation, &line);
    if (buf_done(&line) < 0 || line.n < 2)
        return err_set(err, ERR_LIMIT, ENOMEM, "write an operation");
    buf_printf(b, "{\"number\":%zu,", number);
    buf_add(b, line.p + 1, line.n - 1);
    if (line.p[line.n - 1] != '\n')
        buf_str(b, "\n");
    return put(b, err);
}

static int put_operations(const struct plan *plan, const struct show_request *wanted,
                          struct err *err)
{
    scoped_buf struct buf b = {0};
    size_t told = 0;

    buf_init(&b, MOST_LINE);
    for (size_t i = wanted->from; i < plan->count; i++) {
        if (!is_wanted(wanted, &plan->operations[i]))
            continue;
        if (told++ == wanted->limit) {
            buf_printf(&b, "{\"next\":\"%zu\"}\n", i);
            return put(&b, err);
        }
        if (put_operation(&b, i, &plan->operations[i], err) < 0)
            return -1;
    }
    return 0;
}

int verb_show(const struct verb_call *call, json_t *answer, struct err *err)
{
    unsigned char hash[PLAN_HASH];
    char hex[2 * PLAN_HASH + 1];
    struct show_request wanted;
    struct plan plan;

    (void)answer;
    plan_init(&plan);
    if (read_request(call, &wanted, err) < 0 || plan_load_any(&plan, call->dir, hash, err) < 0)
        return -1;
    bytes_to_hex(hash, PLAN_HASH, hex);
    int r = wanted.summary ? put_object(summarize(&plan, hex), err) : 0;
    if (r == 0 && wanted.from == 0)
        r = put_flaws(&plan, err);
    if (r == 0)
        r = put_operations(&plan, &wanted, err);
    plan_clear(&plan);
    return r;
}
