/* SPDX-License-Identifier: Apache-2.0 */
/* carrel merge: what a fork has changed comes into a workspace, as a plan. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/snapshot/versions.h"
#include "protocol/broker.h"

static const char help[] =
    "usage: carrel merge FORK [--into WORKSPACE] [--ours | --theirs]\n"
    "\n"
    "Makes a plan that brings what FORK has changed into the workspace that it is a fork of.\n"
    "Nothing is changed before that plan is applied, and it can be undone. What only one of\n"
    "the two has changed is taken from it, text by its lines. Where both have changed the\n"
    "same in different ways, that is a conflict: it is refused, unless you say which side is\n"
    "taken. A second merge brings only what is new since the last one that was applied.\n"
    "\n" HELP_OPTIONS "\n"
    "examples:\n"
    "  carrel merge attempt-2\n"
    "  carrel merge attempt-2 --theirs --ours-of notes.txt\n";

struct merge_options {
    struct args_common common;
    const char *into;
    bool ours;
    bool theirs;
    struct args_list ours_of;
    struct args_list theirs_of;
};

int client_versions_plan(json_t *plan, bool json)
{
    const json_t *merge = json_object_get(plan, "merge");
    long long merged = (long long)json_integer_value(json_object_get(merge, "merged"));
    long long decided = (long long)json_integer_value(json_object_get(merge, "conflict_count"));
    const char *id = client_text(plan, "id");
    const char *workspace = client_text(plan, "workspace");
    struct buf b;

    if (json)
        return client_print(plan);
    buf_init(&b, 16384);
    buf_printf(&b, "%s\n  %lld operations", id,
               (long long)json_integer_value(json_object_get(plan, "operations")));
    if (merged > 0)
        buf_printf(&b, ", %lld file%s with lines of both", merged, merged == 1 ? "" : "s");
    if (decided > 0)
        buf_printf(&b, ", %lld conflict%s decided", decided, decided == 1 ? "" : "s");
    buf_printf(&b, "; nothing is changed yet\n  look: carrel plan show %s %s\n", workspace, id);
    buf_printf(&b, "  then: carrel plan apply %s %s\n", workspace, id);
    json_decref(plan);
    int status = buf_done(&b) < 0 ? cli_fail("out of memory") : cli_put(b.p);
    buf_clear(&b);
    return status;
}

/* The workspace that it is a fork of; NULL. */
static json_t *find_parent(struct daemon *daemon, const char *fork, struct err *err)
{
    json_t *answer = NULL;
    struct buf path;

    client_workspace_path(&path, fork, "");
    if (client_do(daemon, "GET", &path, NULL, &answer, err) < 0)
        return NULL;
    json_t *of = json_object_get(json_object_get(answer, "fork"), "workspace");
    json_incref(of);
    json_decref(answer);
    if (!of)
        err_set(err, ERR_INVALID, 0, "the workspace '%.80s' is no fork", fork);
    return of;
}

static json_t *make_body(const struct merge_options *o, const char *fork)
{
    json_t *body = json_pack("{s:s, s:{}}", "fork", fork, "decided");
    json_t *decided = json_object_get(body, "decided");

    for (size_t i = 0; i < o->ours_of.count; i++)
        json_object_set_new(decided, o->ours_of.items[i], json_string("ours"));
    for (size_t i = 0; i < o->theirs_of.count; i++)
        json_object_set_new(decided, o->theirs_of.items[i], json_string("theirs"));
    if (o->ours || o->theirs)
        json_object_set_new(body, "prefer", json_string(o->ours ? "ours" : "theirs"));
    return body;
}

static int merge(struct daemon *daemon, const struct merge_options *o, const char *fork,
                 struct err *err)
{
    json_t *into = o->into ? json_string(o->into) : find_parent(daemon, fork, err);
    json_t *body = make_body(o, fork);
    json_t *plan = NULL;
    struct buf path;

    if (!into || !body) {
        json_decref(into);
        json_decref(body);
        return o->into ? cli_fail("only UTF-8 can be sent") : client_fail(err);
    }
    client_workspace_path(&path, json_string_value(into), "/merge");
    json_decref(into);
    if (client_do(daemon, "POST", &path, body, &plan, err) < 0)
        return client_fail(err);
    return client_versions_plan(plan, o->common.json);
}

int client_merge(char **argv)
{
    static struct merge_options o = {.common.verb = "merge"};
    const struct args_rule rules[] = {
        {"--into", "WS", "bring it into this workspace, not that which it is a fork of", ARGS_TEXT,
         &o.into},
        {"--ours", NULL, "where both have changed the same, take what the workspace has", ARGS_FLAG,
         &o.ours},
        {"--theirs", NULL, "... take what the fork has", ARGS_FLAG, &o.theirs},
        {"--ours-of", "PATH", "take what the workspace has of this path; as often as needed",
         ARGS_EVERY, &o.ours_of},
        {"--theirs-of", "PATH", "take what the fork has of this path; likewise", ARGS_EVERY,
         &o.theirs_of},
        {0},
    };
    const char *words[2] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 1);

    if (status >= 0)
        return status;
    if (!words[0] || !words[0][0])
        return cli_fail("name a fork: carrel merge attempt-1");
    if (o.ours && o.theirs)
        return cli_fail("give one of --ours and --theirs; for single paths, --ours-of and "
                        "--theirs-of");
    if (daemon_open(&daemon, o.common.state, &err) < 0)
        return client_fail(&err);
    status = merge(&daemon, &o, words[0], &err);
    daemon_close(&daemon);
    return status;
}
