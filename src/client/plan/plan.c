/* SPDX-License-Identifier: Apache-2.0 */
/* carrel plan: what a command would change, looked at before it is done, and undone after. */
#include "client/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/plan/plan_tree.h"

enum {
    CLI_NO = 1, /* exit status: the answer is no */
    RESULT_MAX = 64 << 20,
    SOME_LEFT_OUT = 20,
};

static const char help[] =
    "usage: carrel plan run [options] WS -- COMMAND [ARG...]\n"
    "       carrel plan submit WS FILE\n"
    "       carrel plan list [WS] [--in-state STATE]\n"
    "       carrel plan show WS PLAN [--all] [--diff [--path PATH]]\n"
    "       carrel plan verify WS PLAN [--check LINE]\n"
    "       carrel plan approve WS PLAN --hash HASH [--comment TEXT] [--operation N]...\n"
    "       carrel plan reject WS PLAN [--comment TEXT]\n"
    "       carrel plan apply WS PLAN [--hash HASH] [--keep-going] [--async]\n"
    "       carrel plan undo WS PLAN [PATH...] [--force]\n"
    "       carrel plan close|discard|cancel WS PLAN\n"
    "\n"
    "Runs a command on a view of the workspace that keeps its changes apart. The changes\n"
    "become a plan, which can be shown, verified, approved, applied as a whole, and undone.\n"
    "With --dir DIR instead of WS, the plan is one of a plain directory and needs no daemon.\n"
    "\n" HELP_OPTIONS "\n"
    "Exit status: of run, the command's; otherwise 0; 1 when the plan is refused or only a\n"
    "part of it was done; 125 when Carrel failed.\n"
    "\n"
    "examples:\n"
    "  carrel plan run desk -- python3 tidy.py\n"
    "  carrel plan show desk PLAN\n"
    "  carrel plan apply desk PLAN\n"
    "  carrel plan undo desk PLAN notes/today.txt\n"
    "  carrel plan run --dir ./papers -c 'mkdir old && mv *.pdf old'\n";

/* --- answers --- */

static int put(struct buf *text)
{
    int status = buf_done(text) == 0 ? cli_put(text->p) : cli_fail("too much to show; use --json");

    buf_clear(text);
    return status;
}

static bool refused(const json_t *answer)
{
    const char *verdict = client_text(answer, "verdict");

    return verdict && strncmp(verdict, "refuse", 6) == 0;
}

/* "p1: closed", and how to go on. */
static int tell_plan(const struct plan_address *place, const struct plan_options *o, json_t *plan)
{
    struct buf text;

    if (o->common.json)
        return client_print(plan);
    buf_init(&text, RESULT_MAX);
    const char *id = client_text(plan, "id");
    const char *state = client_text(plan, "state");
    buf_printf(&text, "%s %s, ", id ? id : "?", state ? state : "?");
    changes_print_number(&text, (uint64_t)json_integer_value(json_object_get(plan, "operations")));
    buf_str(&text, " changes; see: carrel plan show ");
    plan_print_where(&text, place, id ? id : "?");
    buf_str(&text, "\n");
    json_decref(plan);
    return put(&text);
}

static bool was_done(const json_t *operation)
{
    const char *outcome = client_text(operation, "outcome");

    return outcome && (strcmp(outcome, "applied") == 0 || strcmp(outcome, "undone") == 0);
}

/* What was not done of it; returns how much that is. */
static size_t print_left_out(struct buf *text, const json_t *result)
{
    const json_t *operations = json_object_get(result, "operations");
    const json_t *operation;
    size_t count = 0;
    size_t i;

    json_array_foreach(operations, i, operation)
    {
        const char *path = client_text(operation, "path");
        const char *message = client_text(operation, "message");
        if (was_done(operation) || count++ >= SOME_LEFT_OUT)
            continue;
        buf_str(text, "left out: ");
        if (path)
            text_escape(text, path, strlen(path));
        else
            buf_printf(text, "operation %lld",
                       (long long)json_integer_value(json_object_get(operation, "index")));
        buf_str(text, message ? ": " : "");
        text_escape(text, message ? message : "", strlen(message ? message : ""));
        buf_str(text, "\n");
    }
    if (count > SOME_LEFT_OUT) {
        buf_str(text, "\xe2\x80\xa6 and ");
        changes_print_number(text, count - SOME_LEFT_OUT);
        buf_str(text, " more; see: carrel plan show --json\n");
    }
    return count;
}

/* --- what there is to do --- */

static int submit(struct plan_address *place, const struct plan_options *o,
                  const char *const *words, struct err *err)
{
    json_error_t where;
    json_t *body = NULL;
    json_t *plan = NULL;
    struct buf text;

    buf_init(&text, PLAN_TEXT);
    int r = client_read_file(words[0], &text, err);
    if (r == 0) {
        body = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &where);
        if (!body)
            r = err_set(err, ERR_INVALID, 0, "'%.120s', line %d: %.160s", words[0], where.line,
                        where.text);
    }
    buf_clear(&text);
    if (r == 0)
        r = place->ways->submit(place, body, &plan, err);
    return r < 0 ? client_fail(err) : tell_plan(place, o, plan);
}

static int close_plan(struct plan_address *place, const struct plan_options *o,
                      const char *const *words, struct err *err)
{
    json_t *plan = NULL;

    if (place->ways->act(place, words[0], "close", json_object(), &plan, err) < 0)
        return client_fail(err);
    return tell_plan(place, o, plan);
}

static int cancel(struct plan_address *place, const struct plan_options *o,
                  const char *const *words, struct err *err)
{
    json_t *plan = NULL;

    if (place->ways->act(place, words[0], "cancel", json_object(), &plan, err) < 0)
        return client_fail(err);
    return tell_plan(place, o, plan);
}

static int discard(struct plan_address *place, const struct plan_options *o,
                   const char *const *words, struct err *err)
{
    (void)o;
    return place->ways->discard(place, words[0], err) < 0 ? client_fail(err) : 0;
}

static int verify(struct plan_address *place, const struct plan_options *o,
                  const char *const *words, struct err *err)
{
    json_t *answer = NULL;
    json_t *body = json_object();
    struct buf text;

    if (o->check)
        json_object_set_new(body, "check", json_pack("[sss]", "/bin/sh", "-c", o->check));
    if (place->ways->act(place, words[0], "verify", body, &answer, err) < 0)
        return client_fail(err);
    int status = refused(answer) ? CLI_NO : 0;
    if (o->common.json) {
        int printed = client_print(answer);
        return printed ? printed : status;
    }
    const json_t *findings = json_object_get(answer, "findings");
    buf_init(&text, RESULT_MAX);
    buf_str(&text, status                          ? "refused\n"
                   : json_array_size(findings) > 0 ? "may be applied; look at this first\n"
                                                   : "may be applied\n");
    plan_print_findings(&text, findings, table_colours());
    json_decref(answer);
    int printed = put(&text);
    return printed ? printed : status;
}

static int add_operations(json_t *body, const struct args_list *list, struct err *err)
{
    json_t *numbers = json_array();

    if (list->count == 0) {
        json_decref(numbers);
        return 0;
    }
    json_object_set_new(body, "operations", numbers);
    for (size_t i = 0; i < list->count; i++) {
        char *end;
        long number = strtol(list->items[i], &end, 10);
        if (end == list->items[i] || *end || number < 0)
            return err_set(err, ERR_INVALID, 0, "--operation '%.80s': write a number from 0",
                           list->items[i]);
        json_array_append_new(numbers, json_integer(number));
    }
    return 0;
}

static int decide(struct plan_address *place, const struct plan_options *o,
                  const char *const *words, const char *decision, struct err *err)
{
    json_t *body = json_object();
    json_t *plan = NULL;

    if (o->hash)
        json_object_set_new(body, "hash", json_string(o->hash));
    if (o->comment && json_object_set_new(body, "comment", json_string(o->comment)) < 0) {
        json_decref(body);
        return cli_fail("--comment: only UTF-8 can be sent");
    }
    if (add_operations(body, &o->operations, err) < 0) {
        json_decref(body);
        return client_fail(err);
    }
    if (place->ways->act(place, words[0], decision, body, &plan, err) < 0)
        return client_fail(err);
    return tell_plan(place, o, plan);
}

static int approve(struct plan_address *place, const struct plan_options *o,
                   const char *const *words, struct err *err)
{
    if (!o->hash)
        return cli_fail("approve: --hash is missing; 'carrel plan show' prints the hash of the "
                        "plan you reviewed");
    return decide(place, o, words, "approve", err);
}

static int reject(struct plan_address *place, const struct plan_options *o,
                  const char *const *words, struct err *err)
{
    return decide(place, o, words, "reject", err);
}

/* What is applied is what is there at this moment, or what --hash names. */
static int add_hash(struct plan_address *place, const struct plan_options *o, const char *plan,
                    json_t *body, struct err *err)
{
    json_t *now = NULL;

    if (o->hash) {
        json_object_set_new(body, "hash", json_string(o->hash));
        return 0;
    }
    if (place->ways->get(place, plan, &now, NULL, err) < 0)
        return -1;
    const char *hash = client_text(now, "hash");
    if (hash)
        json_object_set_new(body, "hash", json_string(hash));
    json_decref(now);
    return 0;
}

/* Says what was done; returns whether it was all. */
static int tell_done(const struct plan_options *o, json_t *answer, const char *part,
                     const char *done)
{
    const json_t *result = json_object_get(answer, part);
    const char *state = client_text(answer, "state");
    const json_t *count = json_object_get(result, done);
    struct buf text;

    result = json_is_object(result) ? result : answer;
    buf_init(&text, RESULT_MAX);
    size_t left_out = print_left_out(&text, result);
    if (o->common.json) {
        buf_clear(&text);
        int printed = client_print(answer);
        return printed ? printed : left_out ? CLI_NO : 0;
    }
    buf_str(&text, state ? state : done);
    if (json_is_integer(count)) {
        buf_str(&text, ": ");
        changes_print_number(&text, (uint64_t)json_integer_value(count));
        buf_str(&text, json_integer_value(count) == 1 ? " change" : " changes");
    }
    buf_str(&text, "\n");
    json_decref(answer);
    int printed = put(&text);
    return printed ? printed : left_out ? CLI_NO : 0;
}

/* Why it is refused, one by one, as verify tells it; then the error. */
static int fail_with_findings(struct plan_address *place, const struct plan_options *o,
                              const char *name, const struct err *err)
{
    struct err unheard;
    json_t *plan = NULL;
    struct buf text;

    if (err->code != ERR_DENIED || place->ways->get(place, name, &plan, NULL, &unheard) < 0)
        return client_fail(err);
    if (o->common.json) {
        (void)client_print(plan);
        return client_fail(err);
    }
    buf_init(&text, RESULT_MAX);
    if (refused(plan))
        plan_print_findings(&text, json_object_get(plan, "findings"), table_colours());
    json_decref(plan);
    (void)put(&text);
    return client_fail(err);
}

static int apply(struct plan_address *place, const struct plan_options *o, const char *const *words,
                 struct err *err)
{
    json_t *body = json_object();
    json_t *answer = NULL;

    if (add_hash(place, o, words[0], body, err) < 0) {
        json_decref(body);
        return client_fail(err);
    }
    if (o->keep_going)
        json_object_set_new(body, "keep_going", json_true());
    if (o->async)
        json_object_set_new(body, "async", json_true());
    if (place->ways->act(place, words[0], "apply", body, &answer, err) < 0)
        return fail_with_findings(place, o, words[0], err);
    return tell_done(o, answer, "apply", "applied");
}

static int undo(struct plan_address *place, const struct plan_options *o, const char *const *words,
                struct err *err)
{
    json_t *body = json_object();
    json_t *paths = json_array();
    json_t *answer = NULL;

    for (size_t i = 1; words[i]; i++) {
        if (json_array_append_new(paths, json_string(words[i])) < 0) {
            json_decref(body);
            json_decref(paths);
            return cli_fail("undo: a path must be UTF-8; undo its directory instead");
        }
    }
    if (json_array_size(paths) > 0)
        json_object_set(body, "paths", paths);
    json_decref(paths);
    if (o->force)
        json_object_set_new(body, "force", json_true());
    if (place->ways->act(place, words[0], "undo", body, &answer, err) < 0)
        return client_fail(err);
    return tell_done(o, answer, "undo", "undone");
}

/* --- the command line --- */

static const struct action {
    const char *name;
    plan_fn *run;
    size_t least; /* words after the place */
    size_t most;
    const char *wants;
} actions[] = {
    {"submit", submit, 1, 1, "a file"},    {"list", plan_list, 0, 0, NULL},
    {"show", plan_show, 1, 1, "a plan"},   {"verify", verify, 1, 1, "a plan"},
    {"approve", approve, 1, 1, "a plan"},  {"reject", reject, 1, 1, "a plan"},
    {"apply", apply, 1, 1, "a plan"},      {"undo", undo, 1, PLAN_WORDS, "a plan"},
    {"close", close_plan, 1, 1, "a plan"}, {"discard", discard, 1, 1, "a plan"},
    {"cancel", cancel, 1, 1, "a plan"},
};

static const struct action *find(const char *name)
{
    for (size_t i = 0; name && i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    }
    return NULL;
}

static int dispatch(const struct plan_options *o, const char *const *words, struct err *err)
{
    const struct action *action = find(words[0]);
    const char *workspace = o->dir ? NULL : words[0] ? words[1] : NULL;
    struct plan_address place;
    size_t count = 0;

    if (!action)
        return client_no_action(
            "no action given: carrel plan run, submit, list, show, verify, approve, "
            "reject, apply, undo, close, discard or cancel; see 'carrel plan --help'",
            words[0], actions, sizeof(actions) / sizeof(actions[0]), sizeof(actions[0]));
    const char *const *rest = words + 1 + (workspace != NULL);
    while (rest[count])
        count++;
    if ((!o->dir && action->run != plan_list && (!workspace || !*workspace)) ||
        count < action->least || count > action->most) {
        err_set(err, ERR_INVALID, 0, "%s: %s%s%s; see 'carrel plan --help'", action->name,
                count > action->most ? "too many arguments" : "name ",
                count > action->most ? ""
                : o->dir             ? ""
                                     : "a workspace (or --dir) and ",
                count > action->most ? "" : action->wants);
        return client_fail(err);
    }
    int r = o->dir ? plan_open_local(&place, o->dir, err)
                   : plan_open_remote(&place, o->common.state, workspace, err);
    int status = r < 0 ? client_fail(err) : action->run(&place, o, rest, err);
    if (r == 0)
        place.ways->close(&place);
    return status;
}

/* `run` has a command behind its options, which are not ours to read. */
static int dispatch_run(char **argv, struct plan_options *o, const struct args_rule *rules,
                        struct err *err)
{
    int at = 0;

    if (args_options(argv, &at, rules, &o->common, err) < 0)
        return client_fail(err);
    if (!o->dir && argv[at] && strcmp(argv[at], "--") != 0)
        o->exec.workspace = argv[at++];
    if (args_options(argv, &at, rules, &o->common, err) < 0)
        return client_fail(err);
    if (o->common.help)
        return args_help(help, rules);
    if (!o->dir && (!o->exec.workspace || !*o->exec.workspace))
        return cli_fail("run: name a workspace, or a directory with --dir; for example: "
                        "carrel plan run desk -- ls");
    if (argv[at] && strcmp(argv[at], "--") == 0)
        at++;
    o->exec.argv = argv + at;
    if (o->exec.line && argv[at])
        return cli_fail("give either -c 'shell line' or a command, not both");
    if (!o->exec.line && !argv[at])
        return cli_fail("no command given; for example: carrel plan run desk -- ls");
    o->exec.common = o->common;
    return plan_run(o, err);
}

int client_plan(char **argv)
{
    static struct plan_options o = {.common.verb = "plan"};
    const struct args_rule rules[] = {
        {"--dir", "DIR", "use the plans of this directory, which are in DIR.carrel-plans",
         ARGS_TEXT, &o.dir},
        {"--hash", "HASH",
         "approve, apply: only if the plan still has this hash: what you reviewed", ARGS_TEXT,
         &o.hash},
        {"--comment", "TEXT", "approve, reject: keep this text with the decision", ARGS_TEXT,
         &o.comment},
        {"--check", "LINE", "verify: also run this line in the planned view; it must exit with 0",
         ARGS_TEXT, &o.check},
        {"--in-state", "STATE",
         "list: only plans in this state\none of open, closed, pending, approved, rejected, "
         "expired,\nqueued, applying, applied, undone, stale, failed",
         ARGS_TEXT, &o.in_state},
        {"--path", "PATH", "show: with --diff, only those of this file", ARGS_TEXT, &o.path},
        {"--operation", "N", "approve: only this change, by its number in 'show --json', from 0",
         ARGS_EVERY, &o.operations},
        {"--diff", NULL, "show: print the differences in text; with --json exact", ARGS_FLAG,
         &o.diff},
        {"--all", NULL, "show: print every change, however many", ARGS_FLAG, &o.all},
        {"--keep-going", NULL, "apply: leave out what cannot be done, and report it", ARGS_FLAG,
         &o.keep_going},
        {"--async", NULL, "apply: return at once; the plan is applied in the background", ARGS_FLAG,
         &o.async},
        {"--force", NULL, "undo: also what has changed since", ARGS_FLAG, &o.force},
        {"-c", "LINE", "run: run a line in the shell", ARGS_TEXT, &o.exec.line},
        {"--plan", "PLAN", "run: go on with an open plan", ARGS_TEXT, &o.plan},
        {"--keep-open", NULL, "run: leave the plan open for further commands", ARGS_FLAG,
         &o.keep_open},
        {"--cwd", "PATH", "run: start the command in PATH, inside", ARGS_TEXT, &o.exec.cwd},
        {"--env", "NAME=VALUE", "run: set a variable", ARGS_EVERY, &o.exec.env},
        {"--timeout", "TIME", "run: end the command after TIME", ARGS_TEXT, &o.exec.timeout},
        {"--user", "user|root", "run: be this user inside", ARGS_TEXT, &o.exec.user},
        {"--stdin", "FILE", "run: read standard input from FILE", ARGS_TEXT, &o.exec.stdin_path},
        {"--json", NULL, "print JSON", ARGS_FLAG, &o.common.json},
        {0},
    };
    static const char *words[PLAN_WORDS + 1];
    struct err err = {0};

    if (argv[1] && strcmp(argv[1], "run") == 0)
        return dispatch_run(argv + 2, &o, rules, &err);
    int status = client_begin(argv + 1, help, rules, &o.common, words, PLAN_WORDS);
    if (status >= 0)
        return status;
    return dispatch(&o, words, &err);
}
