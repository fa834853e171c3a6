/* SPDX-License-Identifier: Apache-2.0 */
#include "front/files/call.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "front/core/live.h"
#include "front/core/quota.h"
#include "front/files/asleep.h"
#include "front/files/servers.h"
#include "front/plans/planned.h"

enum {
    SMALL = 65536,          /* answered in one piece */
    COLLECTED = 32768,      /* ... that comes by so many bytes: of a list of 100 entries, one */
    PATHS_RECORDED = 32768, /* bytes of the paths of one record, as they are there */
};

#define BODIES_MOST (128ULL << 20)    /* bytes of bodies that servers have not taken yet, of all */
#define BODIES_OWN  (BODIES_MOST / 2) /* ... of one owner, whose workspace may be locked */

struct file_call {
    struct call *call;
    struct files_stream *stream;
    struct sandbox_request wanted;
    struct files_message m; /* texts in the call's arena */
    const char *operation;
    json_t *paths; /* of a change to many, as far as they are recorded */
    size_t paths_n;
    size_t path_count;
    bool recording;  /* the record is not on disk yet */
    bool waits;      /* to begin, until it is */
    bool has_head;   /* the answer is there, and waits for that */
    bool unrecorded; /* it could not be written, while the change was under way */
    struct err why;  /* ... for this reason */
    struct files_head head;
    struct buf body; /* until the stream takes it */
    size_t body_at;
    size_t counted;           /* of it, in the sums of all and of its owner */
    struct owner_use *tenant; /* ... who is this, while it counts */
    bool has_body;
    bool body_ends;
    struct buf small; /* an answer that is collected */
    bool in_line;     /* what was pulled last ends in the middle of a line */
    char *last_word;  /* of lines, with the end of the one before it */
    size_t last_at;
};

/* False: there is no room for it. One body alone is always less than all of it. */
static bool count_body(struct file_call *f)
{
    struct front *front = f->call->front;
    struct owner_use *t = owner_use_use(front, f->call->workspace.owner);

    if (!t || front->file_bodies + f->body.n > BODIES_MOST ||
        (t->file_bodies > 0 && t->file_bodies + f->body.n > BODIES_OWN)) {
        if (t)
            owner_use_drop(front, t);
        return false;
    }
    f->tenant = t;
    f->counted = f->body.n;
    t->file_bodies += f->counted;
    front->file_bodies += f->counted;
    return true;
}

static void drop_body(struct file_call *f)
{
    struct front *front = f->call->front;

    if (f->tenant) {
        front->file_bodies -= f->counted;
        f->tenant->file_bodies -= f->counted;
        owner_use_drop(front, f->tenant);
    }
    f->tenant = NULL;
    f->counted = 0;
    f->body_at = 0;
    buf_clear(&f->body);
}

static void end(struct file_call *f)
{
    struct call *call = f->call;

    call->context = NULL;
    call->abandoned = NULL;
    call->piece = NULL;
    call->whole = NULL;
    call->ending = NULL;
    if (f->stream)
        files_free(f->stream);
    drop_body(f);
    buf_clear(&f->small);
    json_decref(f->paths);
    free(f->last_word);
    free(f);
}

/* --- the record --- */

static json_t *path_json(const char *key, const char *path)
{
    char name[32];
    json_t *text = json_string(path);
    scoped_buf struct buf b;

    buf_init(&b, 3UL * FILES_PATH);
    if (text)
        return json_pack("{s:o}", key, text);
    /* No UTF-8: as bytes in hex, which is enough to know it by. */
    for (const char *c = path; *c; c++)
        buf_printf(&b, "%02x", (unsigned char)*c);
    snprintf(name, sizeof(name), "%s_hex", key);
    return buf_done(&b) == 0 ? json_pack("{s:s}", name, b.p) : json_object();
}

static json_t *details(const struct file_call *f)
{
    json_t *object = path_json("path", f->m.path);
    json_t *other = *f->m.other ? path_json("to", f->m.other) : NULL;

    if (other)
        json_object_update(object, other);
    json_decref(other);
    if (f->wanted.plan.is_plan)
        json_object_set_new(object, "plan", json_string(f->wanted.plan.id));
    if (f->paths) {
        json_object_del(object, "path");
        json_object_set(object, "paths", f->paths);
        json_object_set_new(object, "count", json_integer((json_int_t)f->path_count));
    }
    return object;
}

static void answer_now(struct file_call *f);
static bool still_may(void *owner);

static void start(struct file_call *f)
{
    struct call *call = f->call;

    if (files_start(f->stream) == 0)
        return;
    end(f);
    call_error(call, 503, "unavailable", "out of memory");
}

/* The record failed after the change had begun: a code of its own, as after all other failures of
 * the record nothing was changed. */
static void answer_unrecorded(struct file_call *f, const char *what)
{
    struct call *call = f->call;
    char why[512];

    err_text(&f->why, why, sizeof(why));
    end(f);
    call_error(call, 500, "not_recorded", "%s: %.350s", what, why);
}

static void answer_unrecorded_head(struct file_call *f)
{
    struct call *call = f->call;
    struct err why = f->why;

    if (f->head.status < 400) {
        answer_unrecorded(f, "the change was made but is not on record");
        return;
    }
    end(f);
    call_fail(call, &why);
}

static void not_recorded(struct file_call *f, const struct err *err)
{
    struct call *call = f->call;

    f->unrecorded = true;
    f->why = *err;
    if (f->has_head) {
        answer_unrecorded_head(f);
    } else if (f->waits || call->piece) { /* without the end of its body nothing is done */
        end(f);
        call_fail(call, err);
    } /* else its answer tells */
}

static void recorded(struct call *call, struct answer *answer)
{
    struct file_call *f = call->context;
    struct err err;

    if (!f)
        return; /* the client has left, and what it asked for is done or not: the record has it */
    f->recording = false;
    if (answer_check(answer, &err) < 0) {
        not_recorded(f, &err);
    } else if (f->waits) {
        f->waits = false;
        if (still_may(f))
            start(f);
    } else if (f->has_head) {
        answer_now(f);
    }
}

static void record(struct file_call *f, const char *result, call_heard *then)
{
    call_record(f->call, f->call->workspace.id, f->operation, result, details(f), then);
}

static void no_matter(struct call *call, struct answer *answer)
{
    (void)call;
    (void)answer;
}

/* False: answered, and over. */
static bool still_may(void *owner)
{
    struct file_call *f = owner;
    struct call *call = f->call;

    bool open = planned_goes_on(call, &f->wanted.plan);
    if (open && call_still_may(call))
        return true;
    if (f->operation)
        record(f, open ? "failed: no longer allowed" : "failed: plan closed", no_matter);
    end(f);
    if (open)
        call_no_more(call);
    else
        call_error(call, 409, "conflict",
                   "the plan of this call has just been closed; send the call again");
    return false;
}

/* --- the answer --- */

static const char *const types[FILES_TYPE_COUNT_] = {
    [FILES_TYPE_JSON] = "application/json",
    [FILES_TYPE_NDJSON] = "application/x-ndjson",
    [FILES_TYPE_BYTES] = "application/octet-stream",
    [FILES_TYPE_TAR] = "application/x-tar",
    [FILES_TYPE_ZIP] = "application/zip",
};

static const char *write_headers(const struct files_head *head, char *text, size_t size)
{
    time_t seconds = (time_t)(head->mtime_ms / 1000);
    char when[64] = "";
    struct tm parts;
    size_t n = 0;

    text[0] = '\0';
    if (head->etag[0] && strpbrk(head->etag, "\r\n") == NULL)
        n += (size_t)snprintf(text + n, size - n, "ETag: %s\r\n", head->etag);
    if (head->mtime_ms && gmtime_r(&seconds, &parts) &&
        strftime(when, sizeof(when), "%a, %d %b %Y %H:%M:%S GMT", &parts))
        n += (size_t)snprintf(text + n, size - n, "Last-Modified: %s\r\n", when);
    if (head->type == FILES_TYPE_BYTES)
        n += (size_t)snprintf(text + n, size - n, "Accept-Ranges: bytes\r\n");
    if (head->status == 206)
        snprintf(text + n, size - n, "Content-Range: bytes %llu-%llu/%llu\r\n",
                 (unsigned long long)head->first,
                 (unsigned long long)(head->first + head->size - 1),
                 (unsigned long long)head->total);
    return text;
}

static ssize_t pull_last_word(struct file_call *f, char *bytes, size_t size)
{
    size_t n = strlen(f->last_word + f->last_at);

    n = n < size ? n : size;
    memcpy(bytes, f->last_word + f->last_at, n);
    f->last_at += n;
    return (ssize_t)n;
}

static ssize_t pull(void *context, char *bytes, size_t size)
{
    struct file_call *f = context;

    if (f->last_word)
        return pull_last_word(f, bytes, size);
    ssize_t n = files_stream_pull(f->stream, bytes, size);
    if (n > 0) {
        f->call->front->count.file_bytes_out += (uint64_t)n;
        f->in_line = bytes[n - 1] != '\n';
    }
    return n;
}

static void end_lines(struct file_call *f, const struct ending *ending)
{
    char *line = ending_line(ending);

    if (!f->last_word && line &&
        asprintf(&f->last_word, "%s%s\n", f->in_line ? "\n" : "", line) < 0)
        f->last_word = NULL;
    free(line);
    if (f->last_word)
        http_wake(f->call->x);
    else
        http_cut(f->call->x);
}

/* It has to end before its time. What was begun of a change may be done: that is on record, too. */
static void cut_short(struct call *call, const struct ending *ending)
{
    struct file_call *f = call->context;
    bool is_begun = !f->waits && !call->piece;

    if (http_is_answered(call->x)) {
        if (f->head.type == FILES_TYPE_NDJSON && f->head.size == FILES_MOST)
            end_lines(f, ending);
        else
            http_cut(call->x);
        return;
    }
    if (f->has_head)
        return; /* it is done, and answered when that is on disk */
    if (f->operation)
        record(f,
               is_begun         ? "failed: lost"
               : ending->reason ? "failed: no room"
                                : "failed: no longer allowed",
               no_matter);
    end(f);
    call_answer_ending(call, ending);
}

/* Whoever closes a plan ends its file server, also in the middle of a call. False: it is open. */
static bool answer_plan_closed(struct file_call *f)
{
    struct call *call = f->call;
    bool changes = f->operation != NULL;

    if (planned_goes_on(call, &f->wanted.plan))
        return false;
    end(f);
    call_error(call, 409, "conflict",
               "the plan that the call went into was closed in the middle of it%s",
               changes ? "; see in the plan whether the change is part of it, or send it "
                         "again, for the next one"
                       : "; send it again");
    return true;
}

static void collect(struct file_call *f)
{
    struct call *call = f->call;
    char bytes[COLLECTED];
    char headers[384];
    ssize_t n;

    while ((n = pull(f, bytes, sizeof(bytes))) > 0)
        buf_add(&f->small, bytes, (size_t)n);
    if (n == -EAGAIN)
        return;
    if (n < 0 || f->small.failed) {
        if (answer_plan_closed(f))
            return;
        end(f);
        call_error(call, 500, "io_error", "the answer of the file server was cut off");
        return;
    }
    struct buf small = f->small;
    struct files_head head = f->head;
    f->small = (struct buf){0};
    buf_init(&f->small, SMALL);
    end(f);
    call_reply(call, (int)head.status, types[head.type],
               write_headers(&head, headers, sizeof(headers)), small.p, small.n);
    buf_clear(&small);
}

static void answer_now(struct file_call *f)
{
    struct call *call = f->call;
    const struct files_head *head = &f->head;
    bool is_head = call->x && http_request_of(call->x)->method == HTTP_HEAD;
    char headers[384];

    if (f->operation && head->status >= 400) {
        snprintf(headers, sizeof(headers), "failed: %u", head->status);
        record(f, headers, no_matter);
    }
    write_headers(head, headers, sizeof(headers));
    if (head->status < 200 || head->status > 599 || head->type >= FILES_TYPE_COUNT_) {
        end(f);
        call_error(call, 500, "io_error", "the answer of the file server is malformed");
    } else if (head->status == 204 || head->status == 304) {
        int status = (int)head->status;
        end(f);
        call_reply(call, status, NULL, headers, "", 0);
    } else if (head->size <= SMALL && !is_head) {
        collect(f);
    } else {
        uint64_t size = head->size == FILES_MOST ? HTTP_SIZE_UNKNOWN : head->size;
        call_stream_sized(call, &(struct http_streamed){.status = (int)head->status,
                                                        .type = types[head->type],
                                                        .headers = headers,
                                                        .size = size,
                                                        .pull = pull,
                                                        .context = f});
    }
}

static void count(const struct file_call *f, unsigned status)
{
    f->call->front->count.file_calls[f->m.op][status / 100 < 6 ? status / 100 : 5]++;
    if (f->operation)
        f->call->front->tree_changed(f->call->front, f->call->workspace.id);
}

static void answered(void *owner, const struct files_head *head)
{
    struct file_call *f = owner;

    f->head = *head;
    f->has_head = true;
    count(f, head->status);
    if (f->unrecorded)
        answer_unrecorded_head(f);
    else if (!f->recording)
        answer_now(f);
}

static void failed(void *owner, const struct err *err)
{
    struct file_call *f = owner;
    struct call *call = f->call;

    count(f, planned_goes_on(call, &f->wanted.plan) ? 500 : 409);
    if (f->operation) /* whether it was done nobody knows: that is on record, too */
        record(f, "failed: lost", no_matter);
    if (f->unrecorded) {
        answer_unrecorded(f, "whether the change was made is not known, and it is not on record");
        return;
    }
    if (answer_plan_closed(f))
        return;
    end(f);
    call_fail(call, err);
}

static void over_quota(void *owner, const struct quota_answer *quota)
{
    struct file_call *f = owner;
    struct call *call = f->call;

    count(f, 429);
    end(f);
    call_quota(call, quota->setting, "%s", quota->why);
}

static void more(void *owner)
{
    struct file_call *f = owner;

    if (f->head.size <= SMALL)
        collect(f);
    else if (f->call->x)
        http_wake(f->call->x);
}

/* --- the body --- */

static size_t send_body(struct file_call *f, const char *bytes, size_t n)
{
    size_t taken = files_body(f->stream, bytes, n);

    f->call->front->count.file_bytes_in += taken;
    return taken;
}

static void feed(struct file_call *f)
{
    while (f->body_at < f->body.n) {
        size_t n = send_body(f, f->body.p + f->body_at, f->body.n - f->body_at);
        if (n == 0)
            return;
        f->body_at += n;
    }
    drop_body(f);
    if (f->body_ends)
        files_end_body(f->stream);
}

static void room(void *owner)
{
    struct file_call *f = owner;

    feed(f);
    if (f->call->piece && f->call->x)
        http_continue_body(f->call->x);
}

static const struct files_calls calls = {
    .answered = answered,
    .failed = failed,
    .over_quota = over_quota,
    .still_may = still_may,
    .room = room,
    .more = more,
};

static size_t piece(struct call *call, const char *bytes, size_t n)
{
    struct file_call *f = call->context;

    if (!f)
        return n;
    return send_body(f, bytes, n);
}

static void whole(struct call *call)
{
    struct file_call *f = call->context;

    if (!f || !still_may(f))
        return; /* without the end of its body nothing is done */
    call->piece = NULL;
    f->body_ends = true;
    files_end_body(f->stream);
}

/* --- the beginning --- */

static void left(struct call *call)
{
    end(call->context);
}

static const char *copy(struct call *call, const char *text)
{
    const char *made = arena_copy(&call->arena, text ? text : "", strlen(text ? text : ""));

    return made ? made : "";
}

/* Whether it may be done, and where: in the tree, or in the plan of an agent. False: answered. */
static bool find_place(struct call *call, const char *operation, struct sandbox_request *wanted)
{
    if (!call->planned)
        return !operation || !plan_locks_base(call);
    int found = planned_find(call, operation ? PLANNED_BEGINS : PLANNED_READS, &wanted->plan);
    if (found <= 0)
        return found == 0;
    wanted->message.plan = wanted->plan.id;
    return plan_request_begin(call, &wanted->plan, "", NULL);
}

bool file_call_begin(struct call *call, const struct files_message *m, const char *operation)
{
    static const char *const argv[] = {"files", NULL};
    struct file_call *f = calloc(1, sizeof(*f));

    if (!f) {
        call_error(call, 503, "unavailable", "out of memory");
        return false;
    }
    f->call = call;
    f->operation = operation;
    f->m = *m;
    f->m.path = copy(call, m->path);
    f->m.other = copy(call, m->other);
    buf_init(&f->body, 128UL << 20);
    buf_init(&f->small, SMALL);
    if (call->workspace.deleted_ms) {
        free(f);
        call_error(call, 409, "conflict", "the workspace is in the trash; undelete it first");
        return false;
    }
    if (!sandbox_request_plain(call, argv, &f->wanted) ||
        !find_place(call, operation, &f->wanted)) {
        free(f);
        return false;
    }
    char id[28];
    make_id('x', id);
    f->wanted.message.exec = id;
    const struct quota_request whose = sandbox_request_quota(call, &f->wanted);
    struct quota_answer quota = {.wait = QUOTA_NOTHING};
    if (!asleep_may_answer(&f->m, &f->wanted.message)) /* else when it turns out to need one */
        quota_check_sandbox(call->front, &whose, &quota);
    if (quota.wait == QUOTA_NOTHING)
        f->stream = files_stream_begin(call->front, &whose, &f->m, &f->wanted.message, &calls, f);
    if (!f->stream) {
        free(f);
        if (quota.wait != QUOTA_NOTHING)
            call_quota(call, quota.setting, "%s", quota.why);
        else
            call_error(call, 413, "too_large", "path or pattern are too long");
        return false;
    }
    call->context = f;
    call->abandoned = left;
    call->ending = cut_short;
    return true;
}

void file_call_path(struct call *call, const char *path)
{
    struct file_call *f = call->context;

    f->path_count++;
    if (f->paths_n > PATHS_RECORDED)
        return; /* to see how long it is there takes longer than all else, and others wait */
    json_t *text = json_string(path);
    json_t *one = text ? text : path_json("path", path);
    char *written = json_dumps(one, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    if (!f->paths)
        f->paths = json_array();
    f->paths_n += written ? strlen(written) + 1 : PATHS_RECORDED;
    free(written);
    if (f->paths_n <= PATHS_RECORDED)
        json_array_append_new(f->paths, one);
    else
        json_decref(one);
}

void file_call_body(struct call *call, const void *bytes, size_t n)
{
    struct file_call *f = call->context;

    f->has_body = true;
    buf_add(&f->body, bytes, n);
}

void file_call_drop(struct call *call)
{
    end(call->context);
}

void file_call_go(struct call *call, bool streamed)
{
    struct file_call *f = call->context;

    if (buf_done(&f->body) < 0) {
        end(f);
        call_error(call, 413, "too_large", "the body is too large");
        return;
    }
    if (f->body.n > 0 && !count_body(f)) {
        end(f);
        call_error(call, 503, "unavailable",
                   "earlier uploads are still waiting to be written; try again");
        return;
    }
    if (streamed) {
        call->piece = piece;
        call->whole = whole;
    }
    f->body_ends = f->has_body;
    /* It is done while it is recorded, as that goes well; unless it did not the last time. */
    f->waits = f->operation && call->front->unrecorded;
    if (f->operation) {
        f->recording = true;
        record(f, "asked", recorded);
    }
    feed(f);
    if (!f->waits)
        start(f);
}
