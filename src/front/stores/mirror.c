/* SPDX-License-Identifier: Apache-2.0 */
#include "front/stores/mirror.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "front/core/router.h"
#include "front/stores/job.h"
#include "protocol/broker.h"

enum {
    MOST_AT_ONCE = 4,
    LONGEST_WAIT_MS = 5000, /* for changes to stop, from the first of them on */
    BUSY_MS = 10000,        /* while commands run, which tell nothing of what they write */
    FIRST_PAUSE_MS = 1000,  /* after a failure, twice as long each time */
    LONGEST_PAUSE_MS = 300000,
    SOON_MS = 200,
    EXCLUDES_TEXT = 4096,
};

/* Somebody waits for what is in the tree now to be in the store. */
struct waiter {
    struct waiter *next;
    struct call *call;
    uint64_t run; /* the first that counts */
};

/*   idle --(something changed)--> due --(the timer)--> runs --> idle, or due again */
struct mirror {
    struct mirror *next;
    struct front *front;
    char workspace[FRONT_ID];
    char bucket[FRONT_ID];
    char store[FRONT_ID];
    char *settings; /* as in the row */
    struct arena arena;
    const char **exclude;
    struct timer timer;
    struct store_work *work; /* NULL: none runs */
    uint64_t runs;           /* that have begun */
    bool changed;            /* since the last one began */
    bool dropped;            /* it goes when the one that runs has ended */
    uint64_t since_ms;       /* of the first change that is not in the store; 0: all is */
    uint64_t bytes;          /* that are not, as far as it is known */
    unsigned failures;       /* one after the other */
    int64_t synced_ms;       /* when all was in the store, as the wall has it; 0: never yet */
    char code[32];           /* of the last failure; "": it went well */
    char message[480];
    int status;
    json_t *last; /* what the last one has told */
    struct waiter *waiters;
};

static struct mirror *find(const struct front *front, const char *workspace)
{
    struct mirror *m = front->mirrors;

    while (m && (m->dropped || strcmp(m->workspace, workspace) != 0))
        m = m->next;
    return m;
}

static void free_mirror(struct mirror *m)
{
    struct mirror **at = &m->front->mirrors;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    timer_stop(m->front->events, &m->timer);
    json_decref(m->last);
    arena_clear(&m->arena);
    free(m->settings);
    free(m);
}

/* --- what is told --- */

static uint64_t seconds_behind(const struct mirror *m)
{
    return m->since_ms ? (now_ms() - m->since_ms) / 1000 : 0;
}

json_t *mirror_json(const struct front *front, const struct store_workspace *w)
{
    const struct mirror *m = find(front, w->id);
    json_t *object = w->store && *w->store ? json_parsed(w->store) : NULL;

    if (!json_is_object(object))
        return NULL;
    if (!m)
        return object; /* in the trash, or not looked at yet */
    json_object_set_new(object, "synced", time_json(m->synced_ms));
    json_object_set_new(object, "unsynced_bytes", json_integer((json_int_t)m->bytes));
    json_object_set_new(object, "unsynced_seconds", json_integer((json_int_t)seconds_behind(m)));
    json_object_set_new(object, "last_error",
                        *m->code ? json_pack("{s:s, s:s}", "code", m->code, "message", m->message)
                                 : json_null());
    if (m->last)
        json_object_set(object, "last", m->last);
    return object;
}

struct mirror_sums mirror_sums(const struct front *front)
{
    struct mirror_sums sums = {0};

    for (const struct mirror *m = front->mirrors; m; m = m->next) {
        uint64_t behind = seconds_behind(m);
        sums.workspaces++;
        sums.failing += *m->code != '\0';
        sums.unsynced_bytes += m->bytes;
        if (behind > sums.unsynced_seconds)
            sums.unsynced_seconds = behind;
    }
    return sums;
}

/* --- who waits --- */

static void answer_waiter(struct mirror *m, struct waiter *waiter)
{
    struct call *call = waiter->call;
    struct store_workspace w = {.id = m->workspace, .store = m->settings};

    if (m->dropped)
        call_error(call, 409, "conflict", "the workspace is mirrored to that store no longer");
    else if (*m->code)
        call_error(call, m->status, m->code, "%s", m->message);
    else
        call_json(call, 200, mirror_json(m->front, &w));
    call_release(call);
    free(waiter);
}

/* Those whose run it was: when all that was in the tree then is in the store, or it failed. */
static void answer_waiters(struct mirror *m, bool all)
{
    struct waiter *waiters = m->waiters;

    m->waiters = NULL;
    while (waiters) {
        struct waiter *waiter = waiters;
        waiters = waiter->next;
        if (waiter->run <= m->runs && (all || *m->code || m->dropped)) {
            answer_waiter(m, waiter);
            continue;
        }
        waiter->next = m->waiters;
        m->waiters = waiter;
    }
}

/* --- running --- */

static void ring(struct timer *timer);

static void set_timer(struct mirror *m, uint64_t after_ms)
{
    m->timer.ring = ring;
    ignore(timer_set(m->front->events, &m->timer, now_ms() + after_ms) == 0);
}

static size_t running(const struct front *front)
{
    size_t n = 0;

    for (const struct mirror *m = front->mirrors; m; m = m->next)
        n += m->work != NULL;
    return n;
}

static uint64_t pause_of(const struct mirror *m)
{
    uint64_t pause = FIRST_PAUSE_MS;

    for (unsigned i = 1; i < m->failures && pause < LONGEST_PAUSE_MS; i++)
        pause *= 2;
    return pause < LONGEST_PAUSE_MS ? pause : LONGEST_PAUSE_MS;
}

/* When the next one begins, if any. */
static void plan_next(struct mirror *m)
{
    if (m->failures)
        set_timer(m, m->waiters ? SOON_MS : pause_of(m));
    else if (m->changed || m->waiters)
        set_timer(m, m->front->settings->mirror_delay_ms);
    else if (front_execs_in(m->front, m->workspace) > 0)
        set_timer(m, BUSY_MS);
}

static void note_failure(struct mirror *m, const struct store_end *end)
{
    m->failures++;
    m->status = end->status;
    text_copy(m->code, sizeof(m->code), end->code);
    text_copy(m->message, sizeof(m->message), end->message);
    if (!m->since_ms)
        m->since_ms = now_ms();
}

static void note_success(struct mirror *m, json_t *done)
{
    bool all = json_integer_value(json_object_get(done, "due")) == 0;

    json_decref(m->last);
    m->last = json_incref(done);
    m->failures = 0;
    m->code[0] = m->message[0] = '\0';
    m->changed = m->changed || !all;
    if (m->changed)
        return;
    m->bytes = 0;
    m->since_ms = 0;
    m->synced_ms = wall_ms();
}

static void progress(void *owner, const json_t *told)
{
    struct mirror *m = owner;

    m->bytes = (uint64_t)json_integer_value(json_object_get(told, "bytes"));
    if (!m->since_ms && (m->bytes || json_integer_value(json_object_get(told, "files")) ||
                         json_integer_value(json_object_get(told, "removed"))))
        m->since_ms = now_ms();
}

static void ended(void *owner, const struct store_end *end)
{
    struct mirror *m = owner;

    m->work = NULL;
    if (end->done)
        note_success(m, end->done);
    else
        note_failure(m, end);
    bool all = end->done && json_integer_value(json_object_get(end->done, "due")) == 0;

    answer_waiters(m, all);
    if (m->dropped)
        free_mirror(m);
    else
        plan_next(m);
}

static void ring(struct timer *timer)
{
    static const struct store_calls calls = {.progress = progress, .ended = ended};
    struct mirror *m = container_of(timer, struct mirror, timer);
    struct store_job job = {.store = m->store,
                            .verb = "mirror",
                            .bucket = m->bucket,
                            .workspace = m->workspace,
                            .exclude = m->exclude};

    if (m->work || m->dropped)
        return;
    if (running(m->front) >= MOST_AT_ONCE) {
        set_timer(m, SOON_MS);
        return;
    }
    m->changed = false;
    m->runs++;
    m->work = store_work_start(m->front, &job, &calls, m);
    if (!m->work)
        set_timer(m, FIRST_PAUSE_MS);
}

void mirror_changed(struct front *front, const char *workspace)
{
    struct mirror *m = find(front, workspace);
    uint64_t now = now_ms();

    if (!m)
        return;
    m->changed = true;
    if (!m->since_ms)
        m->since_ms = now;
    if (m->work || m->failures)
        return; /* the next one is planned when it has ended */
    uint64_t delay = front->settings->mirror_delay_ms;
    if (!m->timer.due_ms || now + delay < m->since_ms + LONGEST_WAIT_MS)
        set_timer(m, delay);
}

/* --- which --- */

static bool read_settings(struct mirror *m, const char *settings)
{
    json_t *object = json_parsed(settings);
    const json_t *list = json_object_get(object, "exclude");
    const char *store = json_string_value(json_object_get(object, "mirror"));
    const json_t *one;
    size_t i;

    m->exclude = arena_alloc(&m->arena, (STORE_EXCLUDES + 1) * sizeof(*m->exclude));
    m->settings = strdup(settings);
    bool good = store && m->exclude && m->settings;
    json_array_foreach(list, i, one)
    {
        const char *text = json_string_value(one);
        if (good && text && i < STORE_EXCLUDES)
            m->exclude[i] = arena_copy(&m->arena, text, strlen(text));
    }
    if (good)
        text_copy(m->store, sizeof(m->store), store);
    json_decref(object);
    return good;
}

static void add(struct front *front, const struct store_workspace *w)
{
    struct mirror *m = calloc(1, sizeof(*m));

    if (!m)
        return;
    m->front = front;
    arena_init(&m->arena, 1 << 20);
    text_copy(m->workspace, sizeof(m->workspace), w->id);
    text_copy(m->bucket, sizeof(m->bucket), w->bucket);
    bool good = read_settings(m, w->store);
    m->next = front->mirrors;
    front->mirrors = m;
    if (!good) {
        free_mirror(m);
        return;
    }
    m->changed = true;
    set_timer(m, front->settings->mirror_delay_ms);
}

void mirror_drop(struct front *front, const char *workspace)
{
    struct mirror *m = find(front, workspace);

    if (!m)
        return;
    m->dropped = true;
    timer_stop(front->events, &m->timer);
    if (m->work) {
        store_work_cancel(m->work);
        return;
    }
    m->runs = UINT64_MAX; /* all are answered */
    answer_waiters(m, true);
    free_mirror(m);
}

void mirror_set(struct front *front, const struct store_workspace *w)
{
    const struct mirror *m = find(front, w->id);

    if (m && w->store && strcmp(m->settings, w->store) == 0)
        return;
    if (m)
        mirror_drop(front, w->id);
    if (w->store && *w->store && !w->deleted_ms)
        add(front, w);
}

static bool begin_one(void *context, const struct store_workspace *w)
{
    mirror_set(context, w);
    return true;
}

void mirror_begin(struct front *front)
{
    struct err err;

    if (store_workspaces(front->store, NULL, false, NULL, SIZE_MAX, begin_one, front, &err) < 0)
        fputs("level=error event=mirrors_not_begun message='the workspaces could not be listed'\n",
              stderr);
}

/* --- asking --- */

/* What is in the list of the settings, commas between. */
static json_t *usual_excludes(const struct front *front)
{
    json_t *list = json_array();
    const char *at = front->settings->mirror_exclude;

    while (*at) {
        size_t n = strcspn(at, ",");
        if (n)
            json_array_append_new(list, json_stringn(at, n));
        at += n + (at[n] == ',');
    }
    return list;
}

static bool is_exclude(const json_t *one)
{
    const char *text = json_string_value(one);

    return text && *text && *text != '-' && strlen(text) <= STORE_PATTERN;
}

/* False: answered. */
static bool read_excludes(struct call *call, const json_t *store, json_t *kept)
{
    json_t *list = json_object_get(store, "exclude");
    const json_t *one;
    size_t i;

    if (!list) {
        json_object_set_new(kept, "exclude", usual_excludes(call->front));
        return true;
    }
    json_array_foreach(list, i, one)
    {
        if (!is_exclude(one))
            break;
    }
    if (json_is_array(list) && i == json_array_size(list) && i <= STORE_EXCLUDES) {
        json_object_set(kept, "exclude", list);
        return true;
    }
    call_bad_field(call, "store.exclude",
                   "at most 64 patterns of names, such as \"*.tmp\", or of paths, such as "
                   "\"data/raw\"");
    return false;
}

/* NULL: there is none, or it was answered. */
static json_t *make_settings(struct call *call, const json_t *store, const char *name)
{
    json_t *kept = json_pack("{s:s}", "mirror", name);

    if (read_excludes(call, store, kept))
        return kept;
    json_decref(kept);
    return NULL;
}

/* The name of the store in the member, or NULL. False: answered. */
static bool read_name(struct call *call, const json_t *store, const char **ret)
{
    static const char *const known[] = {"mirror", "exclude", NULL};

    *ret = NULL;
    if (!json_is_object(store)) {
        call_bad_field(call, "store", "an object such as {\"mirror\": \"work\"}, or null");
        return false;
    }
    if (!fields_known(call, store, known) || !field_text(call, store, "mirror", PROTOCOL_ID, ret))
        return false;
    if (!*ret || protocol_id_is_valid(*ret))
        return true;
    call_bad_field(call, "store.mirror", "the name of a store");
    return false;
}

bool mirror_read(struct call *call, const char **ret)
{
    const char *usual = call->front->settings->mirror;
    const json_t *store = json_object_get(call->body, "store");
    const char *name = NULL;

    if (!store && (call->route->method == HTTP_PATCH || !*usual))
        return true; /* as it is */
    if (!store)
        name = usual;
    else if (!json_is_null(store) && !read_name(call, store, &name))
        return false;
    *ret = "";
    if (!name)
        return true;
    json_t *kept = make_settings(call, store, name);
    if (!kept)
        return false;
    *ret = json_compact(&call->arena, kept);
    json_decref(kept);
    if (!*ret)
        call_error(call, 413, "too_large", "the request is too large");
    return *ret != NULL;
}

static void sync_now(struct call *call, struct answer *answer)
{
    struct mirror *m = find(call->front, call->workspace.id);
    struct waiter *waiter = calloc(1, sizeof(*waiter));
    struct err err;

    if (answer_check(answer, &err) < 0) {
        free(waiter);
        call_fail(call, &err);
        return;
    }
    if (!m || !waiter) {
        free(waiter);
        call_error(call, m ? 503 : 409, m ? "unavailable" : "not_mirrored",
                   m ? "out of memory"
                     : "the workspace is mirrored to no store; set \"store\": {\"mirror\": NAME}");
        return;
    }
    *waiter = (struct waiter){.next = m->waiters, .call = call, .run = m->runs + 1};
    call->pending++;
    m->waiters = waiter;
    if (!m->work)
        set_timer(m, 0);
}

void mirror_sync(struct call *call)
{
    static const char *const known[] = {NULL};

    if (fields_known(call, call->body, known))
        call_record(call, call->workspace.id, "workspace.sync", "ok", NULL, sync_now);
}
