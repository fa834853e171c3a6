/* SPDX-License-Identifier: Apache-2.0 */
/* carrel plan show, list: what a plan would do, for a person who decides on it. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/plan/plan.h"
#include "client/plan/plan_tree.h"
#include "plan/core/state.h"
#include "json/encode.h"

enum {
    SOME_LINES = 60, /* of changes */
    SOME_FINDINGS = 20,
    SHOWN_MAX = 256 << 20,
};

/* What a state means, and what may be typed next; %W is the place and the plan, %H the hash. */
static const struct {
    const char *means;
    const char *next[2];
} states[PLAN_STATE_COUNT_] = {
    [PLAN_OPEN] = {"can be gone on with", {"carrel plan close %W", "carrel plan discard %W"}},
    [PLAN_CLOSED] = {"nothing is changed yet", {"carrel plan apply %W", "carrel plan discard %W"}},
    [PLAN_PENDING] = {"waits for an approval",
                      {"carrel plan approve %W --hash %H", "carrel plan reject %W"}},
    [PLAN_APPROVED] = {"nothing is changed yet", {"carrel plan apply %W", NULL}},
    [PLAN_REJECTED] = {"will not be applied", {"carrel plan discard %W", NULL}},
    [PLAN_EXPIRED] = {"the plan was not approved in time", {"carrel plan discard %W", NULL}},
    [PLAN_QUEUED] = {"will be applied soon", {"carrel plan cancel %W", NULL}},
    [PLAN_APPLYING] = {"being applied", {"carrel plan cancel %W", NULL}},
    [PLAN_APPLIED] = {"the changes are made", {"carrel plan undo %W", NULL}},
    [PLAN_UNDOING] = {"being undone", {NULL, NULL}},
    [PLAN_UNDONE] = {"everything is as it was before", {"carrel plan discard %W", NULL}},
    [PLAN_STALE] = {"the files have changed since", {"carrel plan discard %W", NULL}},
    [PLAN_FAILED] = {"nothing was changed", {"carrel plan discard %W", NULL}},
    [PLAN_DISCARDED] = {"it is gone", {NULL, NULL}},
};

static const char *meaning_of(const json_t *plan)
{
    enum plan_state state = plan_state_from_name(client_text(plan, "state"));

    /* Where the daemon could not take back what was half done it says why there. */
    if (state == PLAN_FAILED && client_text(json_object_get(plan, "apply"), "message"))
        return "what is needed to take it back was lost; some of its changes may be in the files";
    return states[state].means;
}

static void print_safe(struct buf *b, const char *text)
{
    text_escape(b, text ? text : "?", strlen(text ? text : "?"));
}

/* As a shell takes it; nothing but letters and the like goes without quotes. */
static void print_quoted(struct buf *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "/._-+=:@%,";
    bool quotes = *word == '\0' || word[strspn(word, plain)] != '\0';

    if (quotes)
        buf_str(b, "'");
    for (; quotes && *word; word++) {
        if (*word == '\'')
            buf_str(b, "'\\''");
        else
            text_escape(b, word, 1);
    }
    buf_str(b, quotes ? "'" : word);
}

void plan_print_where(struct buf *b, const struct plan_address *place, const char *plan)
{
    if (place->dir)
        buf_str(b, "--dir ");
    print_quoted(b, place->dir ? place->dir : place->workspace ? place->workspace : "?");
    buf_str(b, " ");
    print_quoted(b, plan);
}

static void print_head(struct buf *b, const struct plan_address *place, const json_t *plan,
                       bool colours)
{
    const char *means = meaning_of(plan);
    const char *by = client_text(plan, "created_by");
    char ago[TEXT_SHORT];
    struct buf command;

    buf_str(b, colours ? "\033[1mplan " : "plan ");
    print_safe(b, client_text(plan, "id"));
    buf_str(b, colours ? "\033[0m of " : " of ");
    print_safe(b, place->dir ? place->dir : place->workspace);
    buf_str(b, ": ");
    print_safe(b, client_text(plan, "state"));
    if (means)
        buf_printf(b, ", %s", means);
    buf_str(b, "\n");
    if (client_ago(plan, "created", ago))
        buf_printf(b, "  made %s", ago);
    if (by && *by) {
        buf_str(b, " by ");
        print_safe(b, by);
    }
    buf_init(&command, 1 << 20);
    client_command(plan, &command);
    if (buf_done(&command) == 0 && command.n > 0) {
        buf_str(b, ": ");
        text_escape(b, command.p, command.n < 200 ? command.n : 200);
        buf_str(b, command.n < 200 ? "" : "\xe2\x80\xa6");
    }
    buf_clear(&command);
    buf_str(b, "\n\n");
}

static void print_finding(struct buf *b, const json_t *finding, bool colours)
{
    const char *severity = client_text(finding, "severity");
    const char *path = client_text(finding, "path");
    const char *remedy = client_text(finding, "remedy");
    bool refuses = severity && strcmp(severity, "refuse") == 0;
    json_t *operation = json_object_get(finding, "operation");

    buf_printf(b, "  %s%-6s%s ",
               !colours  ? ""
               : refuses ? "\033[31m"
                         : "\033[33m",
               refuses ? "refuse" : "review", colours ? "\033[0m" : "");
    if (path) {
        print_safe(b, path);
        buf_str(b, ": ");
    } else if (json_is_integer(operation) && json_integer_value(operation) >= 0) {
        buf_printf(b, "operation %lld: ", (long long)json_integer_value(operation));
    }
    print_safe(b, client_text(finding, "message"));
    buf_str(b, " (");
    print_safe(b, client_text(finding, "rule"));
    buf_str(b, ")");
    if (remedy && *remedy) {
        buf_str(b, "\n         ");
        print_safe(b, remedy);
    }
    buf_str(b, "\n");
}

void plan_print_findings(struct buf *b, const json_t *findings, bool colours)
{
    size_t count = json_array_size(findings);

    for (size_t i = 0; i < count && i < SOME_FINDINGS; i++)
        print_finding(b, json_array_get(findings, i), colours);
    if (count > SOME_FINDINGS) {
        buf_str(b, "  \xe2\x80\xa6 and ");
        changes_print_number(b, count - SOME_FINDINGS);
        buf_str(b, " more; see --json\n");
    }
}

static void print_command(struct buf *b, const char *form, const struct plan_address *place,
                          const json_t *plan)
{
    const char *hash = client_text(plan, "hash");

    for (; *form; form++) {
        if (strncmp(form, "%W", 2) == 0) {
            const char *id = client_text(plan, "id");
            plan_print_where(b, place, id ? id : "?");
            form++;
        } else if (strncmp(form, "%H", 2) == 0) {
            print_safe(b, hash);
            form++;
        } else {
            buf_add(b, form, 1);
        }
    }
    buf_str(b, "\n");
}

/* Approvals, applying and undoing, as far as there is something to tell. */
static void print_story(struct buf *b, const json_t *plan)
{
    const json_t *approval = json_object_get(plan, "approval");
    const char *by = client_text(approval, "by");
    const char *rejected = client_text(approval, "rejected_by");
    const char *comment = client_text(approval, "comment");
    const json_t *apply = json_object_get(plan, "apply");
    const char *error = client_text(json_object_get(apply, "error"), "message");
    json_t *steps = json_object_get(apply, "steps_done");

    if (by || rejected) {
        buf_str(b, by ? "approved by " : "rejected by ");
        print_safe(b, by ? by : rejected);
        buf_str(b, comment && *comment ? ": " : "");
        print_safe(b, comment ? comment : "");
        buf_str(b, "\n");
    }
    if (json_is_integer(steps))
        buf_printf(b, "%lld steps are done\n", (long long)json_integer_value(steps));
    if (error && *error) {
        buf_str(b, "it failed: ");
        print_safe(b, error);
        buf_str(b, "\n");
    }
}

static void print_tail(struct buf *b, const struct plan_address *place, const json_t *plan,
                       bool colours)
{
    const char *const *next = states[plan_state_from_name(client_text(plan, "state"))].next;
    const char *hash = client_text(plan, "hash");
    const json_t *findings = json_object_get(plan, "findings");

    if (json_array_size(findings) > 0) {
        buf_str(b, "\nfindings\n");
        plan_print_findings(b, findings, colours);
    }
    if (hash && *hash) {
        buf_str(b, "\nhash  ");
        print_safe(b, hash);
        buf_str(b, "\n");
    }
    print_story(b, plan);
    for (size_t i = 0; i < 2 && next[i]; i++) {
        buf_str(b, i == 0 ? "next  " : "  or  ");
        print_command(b, next[i], place, plan);
    }
}

/* Tabs stay: text is full of them, and they drive nothing. */
static void print_line(struct buf *b, const char *line, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *tab = memchr(line + at, '\t', n - at);
        size_t part = tab ? (size_t)(tab - line) - at : n - at;
        text_escape(b, line + at, part);
        buf_str(b, tab ? "\t" : "");
        at += part + (tab != NULL);
    }
}

/* Line by line, each safe: also what goes to a file is shown to somebody later. */
static void print_diff(struct buf *b, const struct buf *diff, bool colours)
{
    const char *at = diff->p;
    const char *end = diff->p + diff->n;

    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t n = newline ? (size_t)(newline - at) : (size_t)(end - at);
        const char *colour = n == 0 || !colours ? ""
                             : *at == '+'       ? "\033[32m"
                             : *at == '-'       ? "\033[31m"
                             : *at == '@'       ? "\033[36m"
                                                : "";
        buf_str(b, colour);
        print_line(b, at, n);
        buf_str(b, *colour ? "\033[0m\n" : "\n");
        at += n + 1;
    }
}

/* Every byte of it, for other tools. */
static int print_diff_json(const char *plan, const struct buf *diff)
{
    json_t *object = json_pack("{s:s}", "plan", plan);

    if (object)
        encode_bytes(object, "diff", diff->p, diff->n);
    return client_print(object);
}

static int show_diff(struct plan_address *place, const struct plan_options *o, const char *plan,
                     struct err *err)
{
    struct buf diff;
    struct buf text;

    buf_init(&diff, SHOWN_MAX);
    buf_init(&text, SHOWN_MAX);
    int r = place->ways->diff(place, plan, o->path, &diff, err);
    if (r == 0)
        print_diff(&text, &diff, table_colours());
    int status = 0;
    if (r < 0)
        status = client_fail(err);
    else if (o->common.json)
        status = print_diff_json(plan, &diff);
    else if (buf_done(&text) < 0)
        status = cli_fail("the differences are too long");
    else if (fwrite(text.p, 1, text.n, stdout) != text.n || fflush(stdout) != 0)
        status = cli_fail("standard output cannot be written");
    buf_clear(&diff);
    buf_clear(&text);
    return status;
}

static int show_tree(const struct plan_address *place, const struct plan_options *o,
                     const json_t *plan, const json_t *operations, struct err *err)
{
    bool colours = table_colours();
    struct changes changes;
    struct buf text;
    int status;

    buf_init(&text, SHOWN_MAX);
    if (changes_read(&changes, operations, err) < 0) {
        status = client_fail(err);
    } else {
        print_head(&text, place, plan, colours);
        changes_print(&changes, &text, o->all ? SIZE_MAX : SOME_LINES, colours);
        buf_str(&text, changes.count ? "\n" : "");
        changes_print_summary(&changes, &text);
        print_tail(&text, place, plan, colours);
        status = buf_done(&text) == 0 ? cli_put(text.p) : cli_fail("too much to show; use --json");
    }
    changes_clear(&changes);
    buf_clear(&text);
    return status;
}

int plan_show(struct plan_address *place, const struct plan_options *o, const char *const *words,
              struct err *err)
{
    json_t *plan = NULL;
    json_t *operations = NULL;
    int status;

    if (o->diff)
        return show_diff(place, o, words[0], err);
    if (place->ways->get(place, words[0], &plan, &operations, err) < 0)
        return client_fail(err);
    if (o->common.json) {
        json_object_set_new(plan, "items", operations);
        return client_print(plan);
    }
    status = show_tree(place, o, plan, operations, err);
    json_decref(plan);
    json_decref(operations);
    return status;
}

static void add_row(struct table *table, const json_t *plan, bool with_workspace)
{
    char operations[TEXT_SHORT];
    char created[TEXT_SHORT];
    char bytes[TEXT_SHORT];
    const json_t *size = json_object_get(plan, "bytes");
    const char *cells[TABLE_COLUMNS] = {client_text(plan, "workspace")};
    size_t at = with_workspace;
    struct buf command;

    buf_init(&command, 1 << 20);
    client_command(plan, &command);
    cells[at++] = client_text(plan, "id");
    cells[at++] = client_text(plan, "state");
    cells[at++] = client_number(plan, "operations", operations);
    cells[at++] = json_is_integer(size) && json_integer_value(size) >= 0
                      ? text_bytes((uint64_t)json_integer_value(size), bytes)
                      : NULL;
    cells[at++] = client_ago(plan, "created", created);
    cells[at++] = client_text(plan, "created_by");
    cells[at] = buf_done(&command) == 0 && command.n > 0 ? command.p : client_text(plan, "origin");
    table_add(table, cells);
    buf_clear(&command);
}

int plan_list(struct plan_address *place, const struct plan_options *o, const char *const *words,
              struct err *err)
{
    static const char *const heads[] = {"WORKSPACE", "PLAN", "STATE",   "CHANGES", "BYTES",
                                        "MADE",      "BY",   "COMMAND", NULL};
    bool with_workspace = !place->dir && !place->workspace;
    json_t *plans = NULL;
    json_t *plan;
    struct table table;
    size_t i;

    (void)words;
    if (place->ways->list(place, o->in_state, &plans, err) < 0)
        return client_fail(err);
    if (o->common.json)
        return client_print(json_pack("{s:o}", "plans", plans));
    table_open(&table, with_workspace ? heads : heads + 1);
    json_array_foreach(plans, i, plan)
    {
        add_row(&table, plan, with_workspace);
    }
    json_decref(plans);
    return table_show(&table);
}
