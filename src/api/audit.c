/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/audit: the broker's record, read from its files; everybody sees what concerns their own. */
#include "audit/audit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "base/clock.h"
#include "base/fd.h"

enum {
    LOOKS_A_CHECK = 60,       /* of the key */
    LOOK_MS = 250,            /* the broker writes, and nothing tells us */
    BYTES_A_TURN = 128 << 10, /* read, parsed and looked up while others wait */
    TURNS_A_PAGE = 64,        /* for what does not fit the filters, too */
    MILLISECONDS = 23,        /* characters of a time, up to those */
};

struct reading {
    struct call *call;
    struct audit_reader *reader;
    const char *workspace; /* filters; NULL: any */
    const char *operation;
    const char *actor;
    struct timer look;
    struct buf out;
    size_t out_at;
    unsigned looks;
    bool revoked;
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
               actor_may_see(&call->actor, w.owner) && is_of(record, &w);
    arena_clear(&arena);
    return own;
}

/* The next record that fits, as an object; NULL: none for now. */
static json_t *next_record(struct reading *r, unsigned *budget, struct err *err, int *ret_failed)
{
    const char *line;
    size_t n;

    *ret_failed = 0;
    r->out_of_budget = true;
    while (*budget > 0) {
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
        if (record && same(record, "workspace", r->workspace) &&
            same(record, "operation", r->operation) && same(record, "actor", r->actor) &&
            may_see(r->call, record))
            return record;
        json_decref(record);
    }
    return NULL;
}

static void finish(struct call *call)
{
    struct reading *r = call->context;

    timer_stop(call->front->events, &r->look);
    audit_reader_close(r->reader);
    json_decref(r->records);
    buf_clear(&r->out);
    free(r);
    call->context = NULL;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct reading *r = context;
    struct err err;
    unsigned budget = BYTES_A_TURN;
    int failed;

    while (r->out_at == r->out.n) {
        if (r->revoked)
            return -EACCES;
        json_t *record = next_record(r, &budget, &err, &failed);
        if (!record)
            return failed < 0 ? -EIO : -EAGAIN; /* the timer comes back */
        char *text = json_dumps(record, JSON_COMPACT);
        json_decref(record);
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

static void look(struct timer *timer)
{
    struct reading *r = (struct reading *)(void *)((char *)timer - offsetof(struct reading, look));

    ignore(timer_set(r->call->front->events, timer, now_ms() + LOOK_MS));
    if (++r->looks % LOOKS_A_CHECK == 0)
        r->revoked = call_is_revoked(r->call);
    if (r->call->x)
        http_wake(r->call->x);
}

/* Looks for the records of a page, a turn at a time, as others wait meanwhile. It ends when it is
 * full, at the end of the record, or when much was looked at: then `next` says where to go on. */
static void list(struct timer *timer)
{
    struct reading *r = (struct reading *)(void *)((char *)timer - offsetof(struct reading, look));
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
    bool more = full || r->out_of_budget;
    if (more && !full && ++r->turns < TURNS_A_PAGE &&
        timer_set(call->front->events, timer, now_ms()) == 0)
        return;
    call_json(call, 200,
              json_pack("{s:O, s:o}", "records", r->records, "next",
                        more ? json_integer(r->last) : json_null()));
}

void records_list(struct call *call)
{
    struct reading *r = calloc(1, sizeof(*r));
    uint64_t after;
    uint64_t follow;
    struct err err;

    if (!r) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    r->call = call;
    buf_init(&r->out, 1UL << 20);
    call->context = r;
    call->abandoned = finish;
    if (!call_number(call, "after", INT64_MAX, 0, &after) || !call_limit(call, &r->limit) ||
        !call_number(call, "follow", 1, 0, &follow) ||
        !call_text(call, "workspace", &r->workspace) ||
        !call_text(call, "operation", &r->operation) || !call_text(call, "actor", &r->actor))
        return;
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
    r->look.ring = look;
    ignore(timer_set(call->front->events, &r->look, now_ms() + LOOK_MS));
    call_stream(call, 200, "application/x-ndjson", "Cache-Control: no-store\r\n", pull, r);
}
