/* SPDX-License-Identifier: Apache-2.0 */
/* carrel audit: the record of everything that was done. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/retain.h"
#include "cli/cli.h"
#include "client/audit/audit_verify.h"
#include "client/core/client.h"
#include "client/core/lines.h"
#include "client/core/text.h"
#include "policy/units.h"

enum {
    MOST_TAIL = 100000,
    PAGE = 500
};

static const char help[] =
    "usage: carrel audit tail [-f] [-n N] [--workspace ID] [--operation NAME] [--actor ACTOR]\n"
    "                         [--result RESULT] [--from TIME] [--to TIME] [--after SEQ]\n"
    "                         [--until SEQ]\n"
    "       carrel audit verify [--head FILE|URL|HASH] [--key KEY|FILE] [--remote]\n"
    "       carrel audit key [--pem] [--remote]\n"
    "       carrel audit export --to TARGET [-f] [--index NAME] [--auth FILE] [--ca FILE] "
    "[--gzip]\n"
    "                           [--spool DIR]\n"
    "\n"
    "'tail' prints the last records. 'verify' reads the files in the state directory, without\n"
    "the daemon. It checks that every record is there and unchanged, and compares the record\n"
    "with its signed heads: those beside it, and those kept elsewhere (--head). 'key' prints\n"
    "the public key. 'export' sends the record to another place, once or continuously.\n"
    "\n" HELP_OPTIONS "\n"
    "Exit status of verify: 0 whole, 1 broken, 125 cannot be read.\n"
    "\n"
    "examples:\n"
    "  carrel audit tail -f --workspace desk --operation 'file.*'\n"
    "  carrel audit verify --head /var/log/carrel-heads.jsonl --key heads.key\n"
    "  carrel audit export --to file:/tmp/records.jsonl\n";

struct trail {
    struct daemon *daemon;
    const struct audit_options *o;
    uint64_t least; /* no record up to this one */
};

static void make_path(const struct trail *t, struct buf *path, uint64_t after, const char *rest)
{
    const char *const filters[][2] = {{"&workspace=", t->o->workspace},
                                      {"&operation=", t->o->operation},
                                      {"&actor=", t->o->actor},
                                      {"&result=", t->o->result},
                                      {"&until=", t->o->until},
                                      {"&from=", t->o->from},
                                      {"&to=", t->o->to}};

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
        uint64_t after = last > window + t->least ? last - window : t->least;
        if (collect(t, after, count, false, all, err) < 0) {
            json_decref(all);
            return -1;
        }
        if (json_array_size(all) >= count || after == t->least) {
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

/* --after: where the search for the last ones ends. */
static int first_wanted(const struct audit_options *o, uint64_t *ret)
{
    char *end = NULL;

    *ret = o->after ? strtoull(o->after, &end, 10) : 0;
    return end && (o->after[0] < '0' || o->after[0] > '9' || *end) ? -1 : 0;
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
    if (first_wanted(o, &t.least) < 0)
        return cli_fail("--after: write the number of a record");
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

/* "2h" is two hours ago; times go as they are, and the daemon judges them. */
static void resolve_time(const char **text, char ret[AUDIT_TIME])
{
    uint64_t ms;

    if (!*text || units_parse_duration(*text, &ms) < 0)
        return;
    audit_time_ago(ms, ret);
    *text = ret;
}

static int tail_records(struct audit_options *o, struct err *err)
{
    static char from[AUDIT_TIME];
    static char to[AUDIT_TIME];
    struct daemon daemon = {0};

    resolve_time(&o->from, from);
    resolve_time(&o->to, to);
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    int status = tail(o, &daemon, err);
    daemon_close(&daemon);
    return status;
}

int client_audit(char **argv)
{
    static struct audit_options o = {.common.verb = "audit"};
    const struct args_rule rules[] = {
        {"-f", NULL, NULL, ARGS_FLAG, &o.follow},
        {"--follow", NULL, "wait for new records", ARGS_FLAG, &o.follow},
        {"-n", "N", "tail: print the last N records (default 20)", ARGS_TEXT, &o.count},
        {"--workspace", "WORKSPACE", "tail: only records of this workspace", ARGS_TEXT,
         &o.workspace},
        {"--operation", "NAME", "tail: only this operation, such as exec.start, or 'exec.*'",
         ARGS_TEXT, &o.operation},
        {"--actor", "ACTOR", "tail: only this actor, such as key:kabcdefgh", ARGS_TEXT, &o.actor},
        {"--result", "RESULT", "tail: only this result, such as ok or denied", ARGS_TEXT,
         &o.result},
        {"--from", "TIME",
         "tail: not before TIME\n2026-01-02, 2026-01-02T03:04:05Z, or 2h: two hours ago", ARGS_TEXT,
         &o.from},
        {"--to", "TIME", "tail: before TIME; export: the target", ARGS_TEXT, &o.to},
        {"--after", "SEQ", "tail: only records with a larger number", ARGS_TEXT, &o.after},
        {"--until", "SEQ", "tail: only records up to this number", ARGS_TEXT, &o.until},
        {"--head", "FILE|URL|HASH",
         "verify: compare with heads kept elsewhere, or the hash of a record", ARGS_TEXT, &o.head},
        {"--key", "KEY|FILE", "verify: check signatures with this public key, or the one in a file",
         ARGS_TEXT, &o.key},
        {"--remote", NULL, "ask the daemon for record, heads and key; read no files", ARGS_FLAG,
         &o.remote},
        {"--pem", NULL, "key: print the key in the form that openssl reads", ARGS_FLAG, &o.pem},
        {"--index", "NAME", "export: the index or data stream of Elasticsearch or OpenSearch",
         ARGS_TEXT, &o.index},
        {"--auth", "FILE", "export: a file with 'ApiKey ...', 'Bearer ...' or 'user:password'",
         ARGS_TEXT, &o.auth},
        {"--ca", "FILE", "export: a file with the certificate authority of the target", ARGS_TEXT,
         &o.ca},
        {"--gzip", NULL, "export: compress what is sent", ARGS_FLAG, &o.gzip},
        {"--spool", "DIR",
         "export: remember in DIR what was sent\ndefault: export in the state directory", ARGS_TEXT,
         &o.spool},
        {"--json", NULL, "print one JSON object a line", ARGS_FLAG, &o.common.json},
        {"--state", "DIR",
         "use this state directory\nwithout it, export takes the record of the daemon "
         "that\nCARREL_SOCKET or CARREL_URL names",
         ARGS_TEXT, &o.common.state},
        {0},
    };
    const char *words[2] = {NULL};
    struct err err = {0};
    int status = client_begin(argv + 1, help, rules, &o.common, words, 1);
    if (status >= 0)
        return status;
    if (words[0] && strcmp(words[0], "tail") == 0)
        return tail_records(&o, &err);
    if (words[0] && strcmp(words[0], "verify") == 0)
        return audit_verify_verb(&o, &err);
    if (words[0] && strcmp(words[0], "key") == 0)
        return audit_key_verb(&o, &err);
    if (words[0] && strcmp(words[0], "export") == 0)
        return audit_export_verb(&o, &err);
    return cli_fail("no action given: carrel audit tail, verify, key or export");
}
