/* SPDX-License-Identifier: Apache-2.0 */
/* carrel audit: the record of everything that was done. */
#include "audit/audit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/client.h"
#include "client/lines.h"
#include "client/text.h"

enum {
    MOST_TAIL = 100000,
    PAGE = 500
};

static const char help[] =
    "usage: carrel audit tail [-f] [-n N] [--workspace ID] [--operation NAME] [--actor ACTOR]\n"
    "       carrel audit verify [--head HASH]\n"
    "\n"
    "tail prints the last records; verify reads the files in the state directory, without\n"
    "the daemon, and says whether every record is there and as it was written. Keep the\n"
    "hash of the head elsewhere: with it verify also sees records cut off at the end.\n"
    "\n"
    "  -f, --follow      go on with new records\n"
    "  -n N              how many of the last (default 20)\n"
    "  --workspace ID    of one workspace\n"
    "  --operation NAME  of one kind, such as exec.start\n"
    "  --actor ACTOR     of one key, such as key:kabcdefgh\n"
    "  --head HASH       a head printed before, which must still be in the chain\n"
    "  --json            one JSON object a line\n"
    "  --state DIR       the state directory\n"
    "\n"
    "Exit status of verify: 0 whole, 1 broken, 125 cannot be read.\n"
    "\n"
    "examples:\n"
    "  carrel audit tail -f --workspace desk\n"
    "  carrel audit verify --state /var/lib/carrel\n";

struct audit_options {
    struct args_common common;
    bool follow;
    const char *count;
    const char *workspace;
    const char *operation;
    const char *actor;
    const char *head;
};

struct trail {
    struct daemon *daemon;
    const struct audit_options *o;
};

static void make_path(const struct trail *t, struct buf *path, uint64_t after, const char *rest)
{
    const char *const filters[][2] = {{"&workspace=", t->o->workspace},
                                      {"&operation=", t->o->operation},
                                      {"&actor=", t->o->actor}};

    buf_init(path, 16384);
    buf_printf(path, "/v1/audit?after=%llu%s", (unsigned long long)after, rest);
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (!filters[i][1])
            continue;
        buf_str(path, filters[i][0]);
        text_url(path, filters[i][1]);
    }
}

static int print_record(const struct audit_options *o, json_t *record)
{
    char *details =
        json_dumps(json_object_get(record, "details"), JSON_COMPACT | JSON_REAL_PRECISION(6));
    const char *cells[] = {client_text(record, "time"), client_text(record, "actor"),
                           client_text(record, "workspace"), client_text(record, "operation"),
                           client_text(record, "result")};
    static const int widths[] = {27, 20, 16, 16, 0};
    char number[TEXT_SHORT];
    struct buf line;

    if (o->common.json) {
        free(details);
        return client_print(json_incref(record));
    }
    buf_init(&line, 1 << 20);
    const char *seq = client_number(record, "seq", number);
    buf_printf(&line, "%6s  ", seq ? seq : "-");
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++) {
        const char *cell = cells[i] && *cells[i] ? cells[i] : "-";
        size_t before = line.n;
        text_escape(&line, cell, strlen(cell));
        buf_printf(&line, "%*s  ",
                   (int)(line.n - before) < widths[i] ? widths[i] - (int)(line.n - before) : 0, "");
    }
    if (details && strcmp(details, "{}") != 0)
        text_escape(&line, details, strlen(details));
    free(details);
    while (line.n > 0 && line.p[line.n - 1] == ' ')
        line.n--;
    buf_str(&line, "\n");
    int status = buf_done(&line) == 0 ? cli_put(line.p) : 0;
    buf_clear(&line);
    return status;
}

/* Adds the records after `after` to `all`, keeping the last `most`; at most one where `one`. */
static int collect(const struct trail *t, uint64_t after, size_t most, bool one, json_t *all,
                   struct err *err)
{
    char limit[32];

    snprintf(limit, sizeof(limit), "&limit=%d", one ? 1 : PAGE);
    for (;;) {
        json_t *page = NULL;
        struct buf path;
        make_path(t, &path, after, limit);
        if (client_do(t->daemon, "GET", &path, NULL, &page, err) < 0)
            return -1;
        json_array_extend(all, json_object_get(page, "records"));
        json_t *next = json_object_get(page, "next");
        uint64_t at = json_is_string(next) ? strtoull(json_string_value(next), NULL, 10)
                                           : (uint64_t)json_integer_value(next);
        bool more = next && !json_is_null(next) && at > after;
        json_decref(page);
        while (json_array_size(all) > most)
            json_array_remove(all, 0);
        if (!more || (one && json_array_size(all) > 0))
            return 0;
        after = at;
    }
}

/* Whether a record that we may see and want comes after `after`; if so *ret_seq is its number. */
static int any_after(const struct trail *t, uint64_t after, uint64_t *ret_seq, struct err *err)
{
    json_t *found = json_array();
    int r = collect(t, after, 1, true, found, err);

    *ret_seq = (uint64_t)json_integer_value(json_object_get(json_array_get(found, 0), "seq"));
    json_decref(found);
    return r < 0 ? -1 : *ret_seq > 0;
}

/* The number of the last record, 0 when there is none: doubling, then halving. */
static int find_last(const struct trail *t, uint64_t *ret, struct err *err)
{
    uint64_t have = 0;
    uint64_t step = 1;
    uint64_t seq = 0;
    int r;

    while ((r = any_after(t, have + step - 1, &seq, err)) > 0) {
        have = seq;
        step *= 2;
    }
    if (r < 0)
        return -1;
    uint64_t none = have + step; /* nothing has this number or a higher one */
    while (have + 1 < none) {
        uint64_t middle = have + (none - have) / 2;
        r = any_after(t, middle - 1, &seq, err);
        if (r < 0)
            return -1;
        if (r > 0)
            have = seq;
        else
            none = middle;
    }
    *ret = have;
    return 0;
}

/* The last `count`: looks back further and further. */
static int last_records(const struct trail *t, uint64_t last, size_t count, json_t **ret,
                        struct err *err)
{
    uint64_t window = count;

    for (;;) {
        json_t *all = json_array();
        uint64_t after = last > window ? last - window : 0;
        if (collect(t, after, count, false, all, err) < 0) {
            json_decref(all);
            return -1;
        }
        if (json_array_size(all) >= count || after == 0) {
            *ret = all;
            return 0;
        }
        json_decref(all);
        window *= 4;
    }
}

static int take_line(void *context, char *line)
{
    const struct trail *t = context;
    json_t *record = *line ? json_loads(line, 0, NULL) : NULL;
    int status = record ? print_record(t->o, record) : 0;

    json_decref(record);
    return status;
}

static int tail(const struct audit_options *o, struct daemon *daemon, struct err *err)
{
    struct trail t = {.daemon = daemon, .o = o};
    char *end = NULL;
    unsigned long count = o->count ? strtoul(o->count, &end, 10) : 20;
    uint64_t last = 0;
    json_t *records = NULL;
    json_t *record;
    struct buf path;
    size_t i;
    int status = 0;

    if (end && (o->count[0] < '0' || o->count[0] > '9' || *end || count > MOST_TAIL))
        return cli_fail("-n: write a number from 0 to 100000");
    if (find_last(&t, &last, err) < 0 ||
        (count > 0 && last_records(&t, last, count, &records, err) < 0))
        return client_fail(err);
    json_array_foreach(records, i, record)
    {
        status = status ? status : print_record(o, record);
        last = (uint64_t)json_integer_value(json_object_get(record, "seq"));
    }
    json_decref(records);
    if (status || !o->follow)
        return status;
    make_path(&t, &path, last, "&follow=1");
    status = buf_done(&path) < 0
                 ? cli_fail("the request is too long")
                 : lines_follow(daemon, path.p, "application/x-ndjson", take_line, &t);
    buf_clear(&path);
    return status;
}

static int verify(const struct audit_options *o, struct err *err)
{
    char dir[WHERE_PATH];
    char place[WHERE_PATH + 8];
    struct audit_report report = {0};
    char text[1024];

    if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
        return client_fail(err);
    snprintf(place, sizeof(place), "%s/audit", dir);
    if (audit_verify(place, o->head, &report, err) < 0)
        return client_fail(err);
    bool whole = report.problem[0] == '\0';
    if (o->common.json) {
        json_t *object = json_pack("{s:b,s:I,s:I,s:s}", "whole", (int)whole, "records",
                                   (json_int_t)report.records, "last_seq",
                                   (json_int_t)report.last_seq, "head", report.head);
        if (!whole)
            json_object_set_new(object, "problem",
                                json_pack("{s:s,s:s,s:I,s:I}", "what", report.problem, "file",
                                          report.file, "line", (json_int_t)report.line,
                                          "torn_bytes", (json_int_t)report.torn));
        int status = client_print(object);
        return status ? status : !whole;
    }
    snprintf(text, sizeof(text), "records  %llu\nhead     %s\n", (unsigned long long)report.records,
             report.head);
    int status = cli_put(text);
    if (whole)
        return status ? status : cli_put("the chain is whole\n");
    snprintf(text, sizeof(text), "%s: %s, line %llu: %s",
             report.torn ? "the chain is whole but for its end" : "the chain is broken",
             report.file, (unsigned long long)report.line, report.problem);
    cli_say(text);
    return 1;
}

int client_audit(char **argv)
{
    static struct audit_options o = {.common.verb = "audit"};
    const struct args_rule rules[] = {
        {"-f", ARGS_FLAG, &o.follow},
        {"--follow", ARGS_FLAG, &o.follow},
        {"-n", ARGS_TEXT, &o.count},
        {"--workspace", ARGS_TEXT, &o.workspace},
        {"--operation", ARGS_TEXT, &o.operation},
        {"--actor", ARGS_TEXT, &o.actor},
        {"--head", ARGS_TEXT, &o.head},
        {NULL, ARGS_FLAG, NULL},
    };
    const char *words[2] = {NULL};
    struct daemon daemon = {0};
    struct err err = {0};

    if (args_all(argv + 1, rules, &o.common, words, 1, &err) < 0)
        return client_fail(&err);
    if (o.common.help)
        return cli_put(help);
    if (words[0] && strcmp(words[0], "verify") == 0)
        return verify(&o, &err);
    if (!words[0] || strcmp(words[0], "tail") != 0)
        return cli_fail("say what to do: carrel audit tail or carrel audit verify");
    if (daemon_open(&daemon, o.common.state, &err) < 0)
        return client_fail(&err);
    int status = tail(&o, &daemon, &err);
    daemon_close(&daemon);
    return status;
}
