/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of a plain directory, without a daemon: plan/local/files.h says where they are, carrel-plan
 * does the work.
 *
 *   state.json is changed in one step, before the tree is ("applying") and after ("applied"): what
 * is found in the middle was broken off. Then carrel-plan takes back or finishes it before anything
 * else is done (make_whole, at every opening), and its journal, not the word that was found, says
 * what the plan is (plan/core/state.h).
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fd.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/plan/plan.h"
#include "plan/local/files.h"
#include "plan/local/recover.h"
#include "plan/local/tool.h"

enum {
    ANSWER_MAX = 256 << 20,
    MOST_PLANS = 10000,
};

static int open_plan(const struct plan_address *place, const char *plan, struct err *err)
{
    int fd = place->plans < 0 ? -1 : plan_open_place(place->plans, plan);

    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "'%.200s' has no plan '%.64s'; see: carrel plan list --dir", place->dir,
                       plan);
    return fd;
}

/* One plan is worked on at a time. */
static int lock(struct plan_address *place, int dir, const char *plan, struct err *err)
{
    scope_close(&place->lock);
    place->lock = plan_lock(dir, plan, err);
    return place->lock < 0 ? -1 : plan_lock_layer(dir, plan, err);
}

/* To work on it: not while a command runs in it. */
static int open_locked(struct plan_address *place, const char *plan, struct err *err)
{
    scoped_fd int dir = open_plan(place, plan, err);

    return dir < 0 || lock(place, dir, plan, err) < 0 ? -1 : take_fd(&dir);
}

static void set_now(json_t *object, const char *name)
{
    json_object_set_new(object, name, plan_time_now());
}

/* --- carrel-plan --- */

/* One object in answer; `job` is consumed. */
static int tool(const struct plan_address *place, int dir, const char *verb, json_t *job,
                json_t **ret, struct err *err)
{
    char *text = json_dumps(job, JSON_COMPACT);

    json_decref(job);
    if (!text)
        return err_set(err, ERR_INVALID, 0, "the request cannot be written as JSON: is it UTF-8?");
    int r = plan_tool_answer(place->tree, dir, verb, text, ret, err);
    free(text);
    return r;
}

/* --- what is asked --- */

static int compare_created(const void *left, const void *right)
{
    const char *a = client_text(*(json_t *const *)left, "created");
    const char *b = client_text(*(json_t *const *)right, "created");

    return strcmp(b ? b : "", a ? a : ""); /* the last one first */
}

static json_t *state_of(const struct plan_address *place, const char *name)
{
    struct err unheard;
    scoped_fd int dir = open_plan(place, name, &unheard);
    json_t *state = dir < 0 ? NULL : plan_read_state(dir);

    if (state)
        json_object_set_new(state, "id", json_string(name));
    return state;
}

static int list(struct plan_address *place, const char *wanted, json_t **ret, struct err *err)
{
    int again =
        place->plans < 0 ? -1 : openat(place->plans, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = again < 0 ? NULL : fdopendir(again);
    json_t **found = calloc(MOST_PLANS, sizeof(json_t *));
    json_t *all = json_array();
    struct dirent *entry;
    size_t count = 0;

    while (stream && found && count < MOST_PLANS &&
           (entry = readdir(stream))) { /* one thread; NOLINT(concurrency-mt-unsafe) */
        json_t *state = state_of(place, entry->d_name);
        const char *word = client_text(state, "state");
        if (state && (!wanted || (word && strcmp(word, wanted) == 0)))
            found[count++] = state;
        else
            json_decref(state);
    }
    if (stream)
        closedir(stream);
    if (found)
        qsort(found, count, sizeof(json_t *), compare_created);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, found[i]);
    free(found);
    *ret = all;
    return all ? 0 : err_set(err, ERR_LIMIT, 0, "out of memory");
}

/* A line is the plan's head, a flaw or an operation. */
static int take_lines(const struct buf *text, json_t *plan, json_t *operations, struct err *err)
{
    const char *at = text->p;
    const char *end = text->p + text->n;
    json_t *flaws = json_array();

    json_object_set_new(plan, "flaws", flaws);
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = newline ? (size_t)(newline - at) : (size_t)(end - at);
        json_t *line = json_loadb(at, n, JSON_ALLOW_NUL, NULL);
        if (!line)
            return err_set(err, ERR_IO, 0, "a line of the plan cannot be read");
        if (json_object_get(line, "op"))
            json_array_append(operations, line);
        else if (json_object_get(line, "flaw"))
            json_array_append(flaws, line);
        json_decref(line);
        at += n + 1;
    }
    return 0;
}

static int get(struct plan_address *place, const char *plan, json_t **ret, json_t **ret_operations,
               struct err *err)
{
    scoped_fd int dir = open_plan(place, plan, err);
    json_t *state = dir < 0 ? NULL : plan_read_state(dir);
    json_t *operations = NULL;
    struct buf text;
    int r = 0;

    if (dir < 0)
        return -1;
    if (!state)
        return err_set(err, ERR_CONFLICT, 0,
                       "plan '%.64s' is incomplete: its command was interrupted; discard the plan",
                       plan);
    json_object_set_new(state, "id", json_string(plan));
    if (ret_operations) {
        operations = json_array();
        buf_init(&text, ANSWER_MAX);
        r = plan_tool(place->tree, dir, "show", "{}", &text, err);
        if (r == 0)
            r = take_lines(&text, state, operations, err);
        buf_clear(&text);
    }
    if (r < 0) {
        json_decref(state);
        json_decref(operations);
        return -1;
    }
    *ret = state;
    if (ret_operations)
        *ret_operations = operations;
    return 0;
}

static int diff(struct plan_address *place, const char *plan, const char *path, struct buf *ret,
                struct err *err)
{
    scoped_fd int dir = open_plan(place, plan, err);
    json_t *job = json_object();

    if (path)
        json_object_set_new(job, "path", json_string(path));
    char *text = json_dumps(job, JSON_COMPACT);
    json_decref(job);
    int r = dir < 0 ? -1
            : !text ? err_set(err, ERR_INVALID, 0, "--path: only UTF-8 can be sent")
                    : plan_tool(place->tree, dir, "diff", text, ret, err);
    free(text);
    return r;
}

static int remove_plan(struct plan_address *place, int dir, const char *plan, struct err *err)
{
    json_t *answer = NULL;

    if (tool(place, dir, "drop", json_object(), &answer, err) < 0)
        return -1;
    json_decref(answer);
    if (unlinkat(place->plans, plan, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return err_set(err, ERR_IO, errno, "the directory of the plan cannot be removed");
    return 0;
}

static int discard(struct plan_address *place, const char *plan, struct err *err)
{
    scoped_fd int dir = open_locked(place, plan, err);

    return dir < 0 ? -1 : remove_plan(place, dir, plan, err);
}

/* Made when the first plan is. */
static int open_plans(struct plan_address *place, bool make, struct err *err)
{
    char whole[PATH_MAX];
    char home[PATH_MAX];
    bool made = false;

    if (place->plans >= 0)
        return 0;
    if (plan_name_home(place->dir, whole, home, err) < 0)
        return -1;
    return make ? plan_make_home(home, &made, &place->plans, err)
                : plan_open_home(home, &place->plans, err);
}

static int make_plan(struct plan_address *place, char id[PLAN_ID_SIZE], struct err *err)
{
    if (open_plans(place, true, err) < 0 || plan_make_id(id, err) < 0)
        return -1;
    scoped_fd int dir = plan_make_place(place->plans, id, err);
    return dir < 0 || lock(place, dir, id, err) < 0 ? -1 : take_fd(&dir);
}

/* What carrel-plan said of a plan when it was made or closed becomes part of its state. */
static int keep_answer(int dir, json_t *state, json_t *answer, struct err *err)
{
    json_object_update(state, answer);
    json_decref(answer);
    return plan_change_state(dir, state, PLAN_EVENT_MADE, 0, err);
}

static int submit(struct plan_address *place, json_t *body, json_t **ret, struct err *err)
{
    json_t *answer = NULL;
    struct err unheard;
    char id[PLAN_ID_SIZE] = "";
    scoped_fd int dir = make_plan(place, id, err);

    if (dir < 0 || plan_own(place->tree, dir, err) < 0) {
        json_decref(body);
        return -1;
    }
    if (tool(place, dir, "submit", body, &answer, err) < 0) {
        (void)remove_plan(place, dir, id, &unheard);
        return -1;
    }
    json_t *state = json_pack("{s:s,s:s}", "id", id, "origin", "submitted");
    set_now(state, "created");
    if (keep_answer(dir, state, answer, err) < 0) {
        (void)remove_plan(place, dir, id, &unheard);
        json_decref(state);
        return -1;
    }
    *ret = state;
    return 0;
}

/* --- what is done --- */

/* One that is being worked on, by its state as it is on disk. */
struct work {
    struct plan_address *place;
    int dir;
    json_t *state;
    json_t *body; /* what was asked */
};

/* Without a daemon one state allows each action. */
static int wants(const struct work *w, enum plan_action action, enum plan_state state,
                 struct err *err)
{
    enum plan_state now = plan_state_of(w->state);

    if (plan_state_allows(now, action))
        return 0;
    return err_set(err, ERR_CONFLICT, 0, "the plan is %s; it must be %s",
                   now == PLAN_NONE ? "broken" : plan_state_name(now), plan_state_name(state));
}

static int close_it(struct work *w, struct err *err)
{
    json_t *answer = NULL;

    if (wants(w, PLAN_ACT_CONTINUE, PLAN_OPEN, err) < 0)
        return -1;
    if (tool(w->place, w->dir, "derive",
             json_pack("{s:s,s:b}", "mode", "close", "privileged",
                       json_is_true(json_object_get(w->state, "privileged"))),
             &answer, err) < 0)
        return -1;
    return keep_answer(w->dir, w->state, answer, err);
}

/* By the default policy; what was found is in the state, and on disk. */
static int judge(struct work *w, struct err *err)
{
    json_t *answer = NULL;

    if (tool(w->place, w->dir, "verify", json_pack("{s:{}}", "policy"), &answer, err) < 0)
        return -1;
    json_object_update(w->state, answer);
    json_decref(answer);
    return plan_write_state(w->dir, w->state, err);
}

static int verify(struct work *w, struct err *err)
{
    if (json_object_get(w->body, "check"))
        return err_set(err, ERR_INVALID, 0,
                       "--check goes with a workspace of the daemon; here run it yourself: carrel "
                       "plan run --plan PLAN --keep-open");
    return wants(w, PLAN_ACT_APPLY, PLAN_CLOSED, err) < 0 ? -1 : judge(w, err);
}

/* What the plan itself has done looks like a change of somebody else's, where the state does not
 * say that it did: the journal knows. */
static void believe_journal(const struct work *w)
{
    json_t *answer = NULL;
    struct err unheard;

    if (tool(w->place, w->dir, "recover", json_object(), &answer, &unheard) == 0 &&
        plan_in_force(answer) > 0)
        (void)plan_change_state(w->dir, w->state, PLAN_EVENT_SETTLED_CLOSED, plan_in_force(answer),
                                &unheard);
    json_decref(answer);
}

/* The first one for which the plan is refused, in words. */
static void tell_refusal(const json_t *state, json_int_t refused, struct err *err)
{
    const json_t *findings = json_object_get(state, "findings");
    const json_t *first = NULL;
    char more[64] = "";

    for (size_t i = 0; !first && i < json_array_size(findings); i++) {
        const json_t *one = json_array_get(findings, i);
        const char *severity = client_text(one, "severity");
        first = severity && strcmp(severity, "refuse") == 0 ? one : NULL;
    }
    const char *path = client_text(first, "path");
    const char *message = client_text(first, "message");
    if (refused > 1)
        snprintf(more, sizeof(more), " (and %lld more)", (long long)refused - 1);
    (void)err_set(err, ERR_DENIED, 0, "the plan is refused: '%.100s' %.250s%s", path ? path : "",
                  message ? message : "", more);
}

/* What has changed since can be left out by who applies it; what may never be done cannot. */
static int refuse_if_judged_so(const struct work *w, struct err *err)
{
    json_int_t refused = json_integer_value(json_object_get(w->state, "refused"));
    json_int_t changed = json_integer_value(json_object_get(w->state, "changed"));
    bool keep_going = json_is_true(json_object_get(w->body, "keep_going"));

    if (refused == 0 || (keep_going && refused == changed))
        return 0;
    believe_journal(w);
    if (refused == changed)
        return err_set(err, ERR_CONFLICT, 0,
                       "the plan no longer fits: %lld of the files it touches have changed; make a "
                       "new plan, or apply the rest with --keep-going",
                       (long long)refused);
    tell_refusal(w->state, refused, err);
    return -1;
}

/* The state after `event` is on disk while carrel-plan changes the tree, so that whoever comes
 * after a crash knows of it. An error mostly means that everything is as it was; where it does not,
 * the journal knows, and what it says is on disk then. */
static int change(struct work *w, const char *verb, enum plan_event event, json_t **ret,
                  struct err *err)
{
    struct err unheard;

    if (plan_own(w->place->tree, w->dir, err) < 0 ||
        plan_change_state(w->dir, w->state, event, 0, err) < 0)
        return -1;
    if (tool(w->place, w->dir, verb, json_incref(w->body), ret, err) == 0)
        return 0;
    (void)plan_make_whole(w->place->tree, w->dir, &unheard);
    return -1;
}

static int apply(struct work *w, struct err *err)
{
    const char *asked = client_text(w->body, "hash");
    const char *hash = client_text(w->state, "hash");
    json_t *answer = NULL;

    if (json_object_get(w->body, "async"))
        return err_set(err, ERR_INVALID, 0, "--async goes with a workspace of the daemon");
    if (wants(w, PLAN_ACT_APPLY, PLAN_CLOSED, err) < 0)
        return -1;
    if (!asked || !hash || strcmp(asked, hash) != 0)
        return err_set(err, ERR_CONFLICT, 0,
                       "the plan has another hash: it has changed since you reviewed it");
    if (judge(w, err) < 0 || refuse_if_judged_so(w, err) < 0)
        return -1;
    if (change(w, "apply", PLAN_EVENT_APPLY, &answer, err) < 0)
        return -1;
    set_now(answer, "at");
    json_object_set_new(w->state, "apply", answer);
    return plan_change_state(w->dir, w->state, PLAN_EVENT_APPLIED, 0, err);
}

static int undo(struct work *w, struct err *err)
{
    json_t *answer = NULL;

    if (wants(w, PLAN_ACT_UNDO, PLAN_APPLIED, err) < 0 ||
        change(w, "undo", PLAN_EVENT_UNDO, &answer, err) < 0)
        return -1;
    set_now(answer, "at");
    json_object_set_new(w->state, "undo", answer);
    return plan_change_state(w->dir, w->state, PLAN_EVENT_UNDONE, plan_in_force(answer), err);
}

static int refuse(struct work *w, struct err *err)
{
    (void)w;
    return err_set(err, ERR_INVALID, 0,
                   "only the daemon has approvals and background work; in a plain directory apply "
                   "the plan directly");
}

static const struct {
    const char *verb;
    int (*run)(struct work *, struct err *);
} works[] = {
    {"close", close_it}, {"verify", verify}, {"apply", apply},   {"undo", undo},
    {"approve", refuse}, {"reject", refuse}, {"cancel", refuse},
};

static int act(struct plan_address *place, const char *plan, const char *verb, json_t *body,
               json_t **ret, struct err *err)
{
    scoped_fd int dir = open_locked(place, plan, err);
    struct work work = {place, dir, dir < 0 ? NULL : plan_read_state(dir), body};
    int r = -1;

    if (dir >= 0 && !work.state)
        err_set(err, ERR_CONFLICT, 0, "plan '%.64s' is incomplete; discard the plan", plan);
    for (size_t i = 0; work.state && i < sizeof(works) / sizeof(works[0]); i++) {
        if (strcmp(verb, works[i].verb) == 0)
            r = works[i].run(&work, err);
    }
    json_decref(body);
    if (r < 0)
        json_decref(work.state);
    else
        *ret = work.state;
    return r;
}

static void close_local(struct plan_address *place)
{
    scope_close(&place->tree);
    scope_close(&place->plans);
    scope_close(&place->lock);
}

/* One at a time, and nobody sees a tree that is half changed. */
static int make_whole(const struct plan_address *place, struct err *err)
{
    if (place->plans >= 0 && flock(place->plans, LOCK_EX | LOCK_NB) < 0)
        return err_set(
            err, ERR_CONFLICT, 0,
            "another command is working on the plans of '%.200s'; wait until it has finished",
            place->dir);
    return plans_make_whole(place->tree, place->plans, err);
}

int plan_open_local(struct plan_address *ret, const char *dir, struct err *err)
{
    static const struct plan_ways ways = {list, get, act, submit, discard, diff, close_local};

    *ret = (struct plan_address){.ways = &ways, .dir = dir, .plans = -1, .lock = -1};
    ret->tree = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (ret->tree < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open '%.200s'", dir);
    if (open_plans(ret, false, err) == 0 && make_whole(ret, err) == 0)
        return 0;
    close_local(ret);
    return -1;
}
