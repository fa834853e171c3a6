/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/audit: the broker's record, read from its files; everybody sees what concerns their own. */
#include "audit/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/retain.h"
#include "base/clock.h"
#include "base/fd.h"
#include "front/core/live.h"
#include "front/routes.h"

enum {
    LOOK_MS = 250,            /* the broker writes, and nothing tells us */
    BYTES_A_TURN = 128 << 10, /* read, parsed and looked up while others wait */
    TURNS_A_PAGE = 64,        /* for what does not fit the filters, too */
    MILLISECONDS = 23,        /* characters of a time, up to those */
};

#define MOST_HEADS (32L << 20) /* bytes of them that are answered, the newest */

/* NULL or "": any. */
struct filter {
    const char *workspace;
    const char *operation; /* a final '*' stands for any end */
    const char *actor;
    const char *result;
    char from[AUDIT_TIME]; /* at or after */
    char to[AUDIT_TIME];   /* before */
    uint64_t until;        /* the last number; 0: any */
};

struct reading {
    struct call *call;
    struct audit_reader *reader;
    struct filter filter;
    bool is_past; /* what is wanted is all behind us */
    struct timer look;
    struct buf out;
    size_t out_at;
    char *last_word; /* the stream is over: a line, until it is sent */
    bool over;
    bool out_of_budget; /* there may be more, for the next call */
    json_t *records;    /* of a page */
    uint64_t limit;
    unsigned turns;
    json_int_t last; /* sequence number of the last record looked at */
};

static bool same(const json_t *record, const char *member, const char *wanted)
{
    const char *text = json_string_value(json_object_get(record, member));

    return !wanted || (text && strcmp(text, wanted) == 0);
}

static bool matches(const json_t *record, const char *member, const char *wanted)
{
    const char *text = json_string_value(json_object_get(record, member));
    size_t n = wanted ? strlen(wanted) : 0;

    if (n == 0 || wanted[n - 1] != '*')
        return same(record, member, wanted);
    return text && strncmp(text, wanted, n - 1) == 0;
}

/* Whether the record is of this workspace, and not of an earlier one that had its id. */
static bool is_of(const json_t *record, const struct store_workspace *w)
{
    const char *when = json_string_value(json_object_get(record, "time"));
    json_t *made = time_json(w->created_ms);
    const char *text = json_string_value(made);
    bool later = when && text && strncmp(when, text, MILLISECONDS) >= 0;

    json_decref(made);
    return later;
}

/* Their own workspaces, and what they did themselves. */
static bool may_see(struct call *call, const json_t *record)
{
    const char *id = json_string_value(json_object_get(record, "workspace"));
    struct store_workspace w;
    struct arena arena;
    struct err err;

    if (call->actor.scopes & SCOPE_ADMIN)
        return true;
    if (!id || !*id)
        return same(record, "actor", call->actor.name);
    arena_init(&arena, 1UL << 20);
    bool own = store_workspace_get(call->front->store, &arena, id, &w, &err) == 1 &&
               actor_may_see(&call->actor, w.owner, w.id) && is_of(record, &w);
    arena_clear(&arena);
    return own;
}

/* Numbers and times only grow: what is beyond the last of them ends the search. */
static bool is_wanted(struct reading *r, const json_t *record)
{
    const struct filter *f = &r->filter;
    const char *time = json_string_value(json_object_get(record, "time"));

    if (!time || (f->until && (uint64_t)r->last > f->until) ||
        (*f->to && strcmp(time, f->to) >= 0)) {
        r->is_past = true;
        return false;
    }
    return strcmp(time, f->from) >= 0 && same(record, "workspace", f->workspace) &&
           matches(record, "operation", f->operation) && same(record, "actor", f->actor) &&
           same(record, "result", f->result) && may_see(r->call, record);
}

/* The next record that fits, as an object; NULL: none for now. */
static json_t *next_record(struct reading *r, unsigned *budget, struct err *err, int *ret_failed)
{
    const char *line;
    size_t n;

    *ret_failed = 0;
    r->out_of_budget = true;
    while (*budget > 0 && !r->is_past) {
        int got = audit_reader_next(r->reader, &line, &n, err);
        if (got <= 0) {
            *ret_failed = got;
            r->out_of_budget = false;
            return NULL;
        }
        unsigned cost = 64 + (unsigned)(n < BYTES_A_TURN ? n : BYTES_A_TURN);
        *budget -= cost < *budget ? cost : *budget;
        json_t *record = json_loadb(line, n, 0, NULL);
        r->last = record ? json_integer_value(json_object_get(record, "seq")) : r->last;
        if (record && is_wanted(r, record))
            return record;
        json_decref(record);
    }
    r->out_of_budget &= !r->is_past;
    return NULL;
}

static void finish(struct call *call)
{
    struct reading *r = call->context;

    timer_stop(call->front->events, &r->look);
    audit_reader_close(r->reader);
    json_decref(r->records);
    free(r->last_word);
    buf_clear(&r->out);
    free(r);
    call->context = NULL;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct reading *r = context;
    struct err err;
    unsigned budget = BYTES_A_TURN;
    int failed = 0;

    while (r->out_at == r->out.n) {
        if (r->is_past || (r->over && !r->last_word))
            return 0;
        json_t *record = r->over ? NULL : next_record(r, &budget, &err, &failed);
        if (!record && !r->over)
            return failed < 0 ? -EIO : -EAGAIN; /* the timer comes back */
        char *text = r->over ? r->last_word : json_dumps(record, JSON_COMPACT);
        json_decref(record);
        r->last_word = NULL;
        buf_clear(&r->out);
        buf_init(&r->out, 1UL << 20);
        r->out_at = 0;
        buf_str(&r->out, text ? text : "");
        buf_str(&r->out, "\n");
        free(text);
        if (buf_done(&r->out) < 0)
            return -ENOMEM;
    }
    size_t n = r->out.n - r->out_at < size ? r->out.n - r->out_at : size;
    memcpy(bytes, r->out.p + r->out_at, n);
    r->out_at += n;
    return (ssize_t)n;
}

/* As they are in the files; what is no record is told as a line that is none either. */
static ssize_t pull_raw(void *context, char *bytes, size_t size)
{
    struct reading *r = context;
    struct err err;
    const char *line;
    size_t n;

    if (r->out_at == r->out.n) {
        int got = audit_reader_next(r->reader, &line, &n, &err);
        if (got == 0)
            return 0;
        buf_clear(&r->out);
        buf_init(&r->out, 1UL << 20);
        r->out_at = 0;
        if (got < 0)
            buf_str(&r->out, "(damaged)");
        else
            buf_add(&r->out, line, n);
        buf_str(&r->out, "\n");
        if (buf_done(&r->out) < 0)
            return -ENOMEM;
    }
    size_t part = r->out.n - r->out_at < size ? r->out.n - r->out_at : size;
    memcpy(bytes, r->out.p + r->out_at, part);
    r->out_at += part;
    return (ssize_t)part;
}

static void say_last(struct call *call, const struct ending *ending)
{
    struct reading *r = call->context;

    if (r->over)
        return;
    r->over = true;
    r->last_word = ending_line(ending);
    http_wake(call->x);
}

static void look(struct timer *timer)
{
    struct reading *r = container_of(timer, struct reading, look);

    ignore(timer_set(r->call->front->events, timer, now_ms() + LOOK_MS));
    if (r->call->x)
        http_wake(r->call->x);
}

/* Looks for the records of a page, a turn at a time, as others wait meanwhile. It ends when it is
 * full, at the end of the record, or when much was looked at: then `next` says where to go on. */
static void list(struct timer *timer)
{
    struct reading *r = container_of(timer, struct reading, look);
    struct call *call = r->call;
    json_t *record = NULL;
    struct err err;
    unsigned budget = BYTES_A_TURN;
    int failed = 0;

    while (json_array_size(r->records) < r->limit &&
           (record = next_record(r, &budget, &err, &failed)))
        json_array_append_new(r->records, record);
    if (failed < 0) {
        call_fail(call, &err);
        return;
    }
    bool full = json_array_size(r->records) >= r->limit;
    bool more = (full || r->out_of_budget) && !r->is_past;
    if (more && !full && ++r->turns < TURNS_A_PAGE &&
        timer_set(call->front->events, timer, now_ms()) == 0)
        return;
    call_json(call, 200,
              json_pack("{s:O, s:o}", "records", r->records, "next",
                        more ? json_integer(r->last) : json_null()));
}

static struct reading *begin(struct call *call)
{
    struct reading *r = calloc(1, sizeof(*r));

    if (!r) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    r->call = call;
    buf_init(&r->out, 1UL << 20);
    call->context = r;
    call->abandoned = finish;
    return r;
}

static bool take_time(struct call *call, const char *name, char ret[AUDIT_TIME])
{
    const char *text = NULL;

    if (!call_text(call, name, &text))
        return false;
    if (!text || audit_time_parse(text, ret))
        return true;
    call_error(call, 400, "invalid_request",
               "'%s' must be a time such as 2026-01-02T03:04:05Z or a day such as 2026-01-02, in "
               "UTC",
               name);
    return false;
}

static bool take_span(struct call *call, struct filter *f)
{
    return take_time(call, "from", f->from) && take_time(call, "to", f->to) &&
           call_number(call, "until", INT64_MAX, 0, &f->until);
}

static bool take_filter(struct call *call, struct filter *f)
{
    return call_text(call, "workspace", &f->workspace) &&
           call_text(call, "operation", &f->operation) && call_text(call, "actor", &f->actor) &&
           call_text(call, "result", &f->result) && take_span(call, f);
}

/* What its filter says, from a place on: a page, or all that comes. */
static void read_records(struct call *call, struct reading *r)
{
    uint64_t after;
    uint64_t follow;
    struct err err;

    if (!call_number(call, "after", INT64_MAX, 0, &after) || !call_limit(call, &r->limit) ||
        !call_number(call, "follow", 1, 0, &follow))
        return;
    uint64_t before = r->filter.from[0] ? audit_seq_before("audit", r->filter.from) : 0;
    after = before > after ? before : after;
    if (audit_reader_open(&r->reader, "audit", after, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    if (!follow) {
        r->look.ring = list;
        r->records = json_array();
        list(&r->look);
        return;
    }
    if (!live_hold(call, HTTP_NEWS))
        return;
    call->ending = say_last;
    r->look.ring = look;
    ignore(timer_set(call->front->events, &r->look, now_ms() + LOOK_MS));
    call_stream(call, 200, "application/x-ndjson", "Cache-Control: no-store\r\n", pull, r);
}

void records_list(struct call *call)
{
    struct reading *r = begin(call);

    if (r && take_filter(call, &r->filter))
        read_records(call, r);
}

void records_net(struct call *call)
{
    struct reading *r = begin(call);

    if (!r || !take_span(call, &r->filter))
        return;
    r->filter.workspace = call->workspace.id;
    r->filter.operation = "net.*";
    read_records(call, r);
}

void records_raw(struct call *call)
{
    struct reading *r = begin(call);
    uint64_t after;
    struct err err;

    if (!r || !call_number(call, "after", INT64_MAX, 0, &after))
        return;
    if (audit_reader_open(&r->reader, "audit", after, &err) < 0) {
        call_fail(call, &err);
        return;
    }
    call_stream(call, 200, "application/x-ndjson", "Cache-Control: no-store\r\n", pull_raw, r);
}

/* The newest lines of a small file. */
static void answer_file(struct call *call, const char *path, const char *type)
{
    scoped_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        if (errno == ENOENT)
            call_bytes(call, type, "", 0);
        else
            call_error(call, 500, "internal", "the heads cannot be read");
        return;
    }
    off_t from = st.st_size > MOST_HEADS ? st.st_size - MOST_HEADS : 0;
    char *bytes = malloc((size_t)(st.st_size - from) + 1);
    ssize_t n = bytes ? pread(fd, bytes, (size_t)(st.st_size - from), from) : -1;
    if (n < 0) {
        free(bytes);
        call_error(call, 503, "unavailable", "the heads cannot be read now");
        return;
    }
    const char *start = bytes;
    const char *cut = from ? memchr(bytes, '\n', (size_t)n) : NULL;
    if (cut)
        start = cut + 1;
    call_bytes(call, type, start, (size_t)(bytes + n - start));
    free(bytes);
}

void records_heads(struct call *call)
{
    answer_file(call, "heads/heads.jsonl", "application/x-ndjson");
}

void records_keys(struct call *call)
{
    answer_file(call, "heads/keys", "text/plain; charset=utf-8");
}
