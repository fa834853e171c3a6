/* SPDX-License-Identifier: Apache-2.0 */
/* Their list of sandboxes: of all that a key may see, those that are wanted, by when they began. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "front/e2b/sandbox.h"
#include "http/head.h"

enum {
    PAGE_MOST = 100,
    ALL_MOST = 100000,
};

struct found {
    int64_t started_ms;
    char id[FRONT_ID];
};

struct listing {
    struct call *call;
    json_t *metadata; /* all of these */
    const char *template;
    bool running;
    bool paused;
    int64_t after_ms;
    bool ascending;
    uint64_t limit;
    const char *token;
    struct found *found;
    size_t n;
    size_t room;
    bool failed;
};

static bool has_metadata(const struct store_workspace *w, json_t *wanted)
{
    json_t *labels = json_parsed(w->labels);
    const char *name;
    json_t *value;
    bool all = true;

    json_object_foreach(wanted, name, value) all =
        all && json_equal(json_object_get(labels, name), value);
    json_decref(labels);
    return all;
}

static bool is_wanted(struct listing *l, const struct store_workspace *w, const struct lifetime *t)
{
    struct call *call = l->call;

    if ((t->paused ? !l->paused : !l->running) || t->started_ms < l->after_ms)
        return false;
    if (json_object_size(l->metadata) && !has_metadata(w, l->metadata))
        return false;
    return !l->template || strcmp(sandbox_note(call, w, "template"), l->template) == 0;
}

static bool look(void *context, const struct store_workspace *w)
{
    struct listing *l = context;
    struct lifetime t;
    struct arena arena;

    arena_init(&arena, 65536);
    bool wanted = lifetime_of(w, &arena, &t) && is_wanted(l, w, &t);
    arena_clear(&arena);
    if (!wanted)
        return true;
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct found *more = room <= ALL_MOST ? reallocarray(l->found, room, sizeof(*more)) : NULL;
        l->failed = !more;
        if (!more)
            return false;
        l->found = more;
        l->room = room;
    }
    l->found[l->n].started_ms = t.started_ms;
    snprintf(l->found[l->n++].id, FRONT_ID, "%s", w->id);
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;

    if (x->started_ms != y->started_ms)
        return x->started_ms < y->started_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

/* --- what is asked for --- */

/* name=value&…, of which each part was encoded twice more. */
static bool read_metadata(struct call *call, json_t **ret)
{
    const char *text = NULL;

    *ret = json_object();
    if (!e2b_query(call, "metadata", &text))
        return false;
    while (text && *text) {
        size_t n = strcspn(text, "&");
        char *pair = arena_copy(&call->arena, text, n);
        char *value = pair ? strchr(pair, '=') : NULL;
        text += n + (text[n] == '&');
        if (!value) {
            call_bad_field(call, "metadata", "name=value, with & between");
            return false;
        }
        *value++ = '\0';
        char *parts[2] = {pair, value};
        for (size_t i = 0; i < 2; i++) {
            for (char *c = parts[i]; *c; c++)
                *c = *c == '+' ? ' ' : *c;
            if (!http_decode(parts[i]) || !http_decode(parts[i])) {
                call_bad_field(call, "metadata", "properly encoded");
                return false;
            }
        }
        json_object_set_new(*ret, pair, json_string(value));
    }
    return true;
}

/* "2026-01-02T03:04:05.678Z", or with an offset. */
static bool read_time(struct call *call, const char *text, int64_t *ret)
{
    struct tm parts = {.tm_year = 0};
    const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &parts) : NULL;
    int64_t ms = 0;
    int hours = 0;
    int minutes = 0;

    if (!text)
        return true;
    if (rest && *rest == '.') {
        int64_t digit = 100;
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, digit /= 10)
            ms += (*rest - '0') * digit;
    }
    bool is_utc = rest && (strcmp(rest, "Z") == 0 || strcmp(rest, "z") == 0);
    bool has_offset = rest && (*rest == '+' || *rest == '-') &&
                      sscanf(rest + 1, "%2d:%2d", &hours, &minutes) == 2; // NOLINT(cert-err34-c)
    if (!is_utc && !has_offset) {
        call_bad_field(call, "startedAfter", "a time such as 2026-01-02T03:04:05Z");
        return false;
    }
    int64_t offset =
        ((int64_t)hours * 3600 + (int64_t)minutes * 60) * (has_offset && *rest == '-' ? -1 : 1);
    *ret = (timegm(&parts) - offset) * 1000 + ms;
    return true;
}

static bool read_state(struct call *call, struct listing *l)
{
    const char *state = NULL;

    if (!e2b_query(call, "state", &state))
        return false;
    l->running = !state || strstr(state, "running");
    l->paused =
        state ? strstr(state, "paused") != NULL : strcmp(call->route->path, "/sandboxes") != 0;
    if (l->running || l->paused)
        return true;
    call_bad_field(call, "state", "\"running\", \"paused\", or both with a comma between");
    return false;
}

static bool read_query(struct call *call, struct listing *l)
{
    const char *after = NULL;
    const char *order = NULL;

    if (!read_metadata(call, &l->metadata) || !read_state(call, l) ||
        !e2b_query(call, "startedAfter", &after) || !read_time(call, after, &l->after_ms) ||
        !e2b_query(call, "order", &order) || !e2b_query(call, "template", &l->template) ||
        !e2b_query(call, "nextToken", &l->token) ||
        !call_number(call, "limit", PAGE_MOST, PAGE_MOST, &l->limit))
        return false;
    l->ascending = order && strcmp(order, "asc") == 0;
    if (order && !l->ascending && strcmp(order, "desc") != 0) {
        call_bad_field(call, "order", "\"asc\" or \"desc\"");
        return false;
    }
    if (l->template && strchr(l->template, ':')) {
        call_bad_field(call, "template", "a name without a tag");
        return false;
    }
    if (l->limit)
        return true;
    call_bad_field(call, "limit", "from 1 to 100");
    return false;
}

/* Tokens are TIME__ID of the last one that was told. */
static bool read_token(struct call *call, const struct listing *l, struct found *ret)
{
    const char *at = l->token ? strstr(l->token, "__") : NULL;
    char *end = NULL;

    *ret = (struct found){.started_ms = 0};
    if (!l->token || !*l->token)
        return true;
    ret->started_ms = strtoll(l->token, &end, 10);
    if (at && end == at && strlen(at + 2) < sizeof(ret->id)) {
        snprintf(ret->id, sizeof(ret->id), "%s", at + 2);
        return true;
    }
    call_error(call, 400, "invalid_request", "Invalid next token");
    return false;
}

static void answer(struct listing *l, const struct found *from)
{
    struct call *call = l->call;
    json_t *list = json_array();
    char headers[160] = "";
    size_t told = 0;

    qsort(l->found, l->n, sizeof(*l->found), compare);
    for (size_t i = 0; i < l->n; i++) {
        const struct found *f = &l->found[l->ascending ? i : l->n - 1 - i];
        int order = *from->id ? compare(f, from) : 0;
        struct store_workspace w;
        struct lifetime t;
        struct err err;
        if (*from->id && (l->ascending ? order <= 0 : order >= 0))
            continue;
        if (told == l->limit)
            break;
        if (store_workspace_get(call->front->store, &call->arena, f->id, &w, &err) != 1 ||
            !lifetime_of(&w, &call->arena, &t))
            continue;
        json_array_append_new(list, sandbox_listed(call, &w, &t));
        told++;
        bool more = l->ascending ? i + 1 < l->n : l->n - 1 - i > 0;
        snprintf(headers, sizeof(headers), "X-Next-Token: %jd__%s\r\n", (intmax_t)f->started_ms,
                 f->id);
        if (!more || told < l->limit)
            headers[0] = '\0';
    }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (text)
        call_reply(call, 200, "application/json", headers, text, strlen(text));
    else
        call_error(call, 503, "unavailable", "out of memory");
    free(text);
}

void e2b_list(struct call *call)
{
    struct listing l = {.call = call};
    struct found from;
    struct err err;

    if (read_query(call, &l) && read_token(call, &l, &from)) {
        struct store_whose whose = {.owner = NULL};
        if (!(call->actor.scopes & SCOPE_ADMIN))
            whose = (struct store_whose){.owner = call->actor.owner, .ids = call->actor.workspaces};
        if (store_workspaces(call->front->store, &whose, false, NULL, SIZE_MAX, look, &l, &err) < 0)
            call_fail(call, &err);
        else if (l.failed)
            call_error(call, 503, "unavailable", "there are too many sandboxes to list");
        else
            answer(&l, &from);
    }
    json_decref(l.metadata);
    free(l.found);
}
