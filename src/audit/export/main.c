/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-export: started by carrel-serve in the state directory, or by `carrel audit export`. */
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "audit/export/export.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "sys/landlock.h"
#include "sys/privileges.h"

enum {
    LOOK_MS = 200, /* the record is written by somebody else, and nothing tells us */
    FIRST_PAUSE_MS = 250,
    LONGEST_PAUSE_MS = 30000,
    FAILED = 125,
    MOST_PLACES = 24,
};

volatile sig_atomic_t export_told_to_stop;

static void on_signal(int signal)
{
    (void)signal;
    export_told_to_stop = 1;
}

/* --- options --- */

static const char help[] =
    "usage: carrel-export --to TARGET [--record DIR] [--spool DIR] [--index NAME] [--auth FILE]\n"
    "                     [--ca FILE] [--gzip] [--once] [--heads-to URL [--heads FILE]]\n\n"
    "Sends the audit record to https://HOST:PORT (Elasticsearch or OpenSearch), file:/PATH,\n"
    "syslog:, syslog+unix:/PATH, syslog+udp://HOST:PORT or syslog+tcp://HOST:PORT; each record\n"
    "at least once, under an id of its own. See carrel-audit(1).\n";

static int set_fd(const char *text, int *ret)
{
    char *end;
    long fd = strtol(text, &end, 10);

    if (*end || fd < 3 || fd > 1000)
        return -1;
    *ret = (int)fd;
    return fcntl(*ret, F_SETFD, FD_CLOEXEC);
}

static int set_file(const char *path, int *ret, struct err *err)
{
    *ret = open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
    return *ret < 0 ? err_set(err, ERR_IO, errno, "open '%s'", path) : 0;
}

static int parse_one(struct options *o, const char *name, const char *value, struct err *err)
{
    const struct {
        const char *name;
        const char **to;
    } texts[] = {{"--to", &o->to},
                 {"--record", &o->record},
                 {"--spool", &o->spool},
                 {"--index", &o->index},
                 {"--ca", &o->ca},
                 {"--heads", &o->heads},
                 {"--heads-to", &o->heads_to}};

    const struct {
        const char *name;
        int *to;
        bool is_file;
    } fds[] = {{"--auth-fd", &o->auth_fd, false},
               {"--heads-auth-fd", &o->heads_auth_fd, false},
               {"--report-fd", &o->report_fd, false},
               {"--auth", &o->auth_fd, true},
               {"--heads-auth", &o->heads_auth_fd, true}};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].to = value;
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (strcmp(name, fds[i].name) != 0)
            continue;
        if (fds[i].is_file)
            return set_file(value, fds[i].to, err);
        return set_fd(value, fds[i].to) < 0
                   ? err_set(err, ERR_INVALID, 0, "%s: not a descriptor", name)
                   : 0;
    }
    return err_set(err, ERR_INVALID, 0, "'%.64s' is not an option", name);
}

static int parse(struct options *o, char **argv, struct err *err)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";

    for (int i = 1; argv[i]; i++) {
        if (strcmp(argv[i], "--gzip") == 0)
            o->gzip = true;
        else if (strcmp(argv[i], "--once") == 0)
            o->once = true;
        else if (!argv[i + 1])
            return err_set(err, ERR_INVALID, 0, "'%.64s' is not an option, or lacks its value",
                           argv[i]);
        else if (parse_one(o, argv[i], argv[i + 1], err) < 0)
            return -1;
        else
            i++;
    }
    if (!o->to && !o->heads_to)
        return err_set(err, ERR_INVALID, 0, "say where to: --to TARGET");
    if (!*o->index || strspn(o->index, safe) != strlen(o->index) || strlen(o->index) > 255)
        return err_set(err, ERR_INVALID, 0,
                       "'%.64s' is not the name of an index: small letters, digits, '.', '_' and "
                       "'-'",
                       o->index);
    return 0;
}

/* --- confinement --- */

static const char *above(const char *path, char *copy, size_t size)
{
    snprintf(copy, size, "%s", path);
    char *slash = strrchr(copy, '/');
    if (!slash)
        return ".";
    slash[slash == copy] = '\0'; /* "/" stays */
    return copy;
}

static int confine(const struct options *o, const struct target *t, const struct target *heads,
                   struct err *err)
{
    char of_file[1024];
    struct landlock_place places[MOST_PLACES] = {{.path = o->record},
                                                 {.path = o->spool, .writes = true},
                                                 {.path = "/dev/null", .writes = true}};
    /* Names of hosts and certificate authorities. */
    static const char *const shared[] = {"/etc",
                                         "/lib",
                                         "/lib64",
                                         "/usr/lib",
                                         "/usr/lib64",
                                         "/usr/share/ca-certificates",
                                         "/usr/local/share/ca-certificates",
                                         "/run/systemd/resolve",
                                         "/dev/urandom"};
    size_t n = 3;
    const uint16_t ports[] = {53, t->port ? t->port : 53, heads->port ? heads->port : 53};

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        places[n++] = (struct landlock_place){.path = shared[i], .may_lack = true};
    if (o->heads_to)
        places[n++] = (struct landlock_place){.path = above(o->heads, of_file, sizeof(of_file)),
                                              .may_lack = true};
    if (o->ca)
        places[n++] = (struct landlock_place){.path = o->ca};
    char of_target[1024];
    if (t->kind == TARGET_FILE && o->to)
        places[n++] = (struct landlock_place){.path = above(t->path, of_target, sizeof(of_target)),
                                              .writes = true};
    int r = privileges_give_up();
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give up privileges");
    r = landlock_confine(places, n, ports, sizeof(ports) / sizeof(ports[0]));
    if (r == -ENOSYS) {
        log_warning("no_landlock", "message",
                    "this kernel has no Landlock; the files that can be reached are "
                    "bounded by the user alone",
                    NULL);
        return 0;
    }
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "enter a Landlock domain") : 0;
}

/* --- records --- */

struct exporter {
    struct options options;
    struct sender sender;
    struct cursor cursor;
    struct batch_source source;
    struct batch batch;
    struct head_sender heads;
    char host[256];
    uint64_t due_ms;
    uint64_t pause_ms;
    bool has_looked; /* where the record begins */
};

static const struct sender_calls *const senders[TARGET_COUNT_] = {
    [TARGET_BULK] = &elastic_calls,       [TARGET_FILE] = &lines_calls,
    [TARGET_SYSLOG_UNIX] = &syslog_calls, [TARGET_SYSLOG_UDP] = &syslog_calls,
    [TARGET_SYSLOG_TCP] = &syslog_calls,
};

static void report(const struct exporter *e)
{
    if (e->options.report_fd >= 0)
        ignore(send(e->options.report_fd, &e->cursor.seq, sizeof(e->cursor.seq),
                    MSG_NOSIGNAL | MSG_DONTWAIT));
}

static uint64_t seconds_of(const char *time)
{
    struct tm tm = {.tm_isdst = 0};

    return strptime(time, "%Y-%m-%dT%H:%M:%S", &tm) ? (uint64_t)timegm(&tm) : 0;
}

/* What was put away before it was sent is gone for us: say so. */
static void look_for_gap(struct exporter *e)
{
    uint64_t first = e->batch.facts[0].seq;
    char text[160];

    if (first > e->cursor.seq + 1 && (e->cursor.seq || !e->has_looked)) {
        snprintf(text, sizeof(text), "records %ju to %ju were put away before they were exported",
                 (uintmax_t)e->cursor.seq + 1, (uintmax_t)first - 1);
        log_warning("export_gap", "message", text, NULL);
    }
    e->has_looked = true;
}

/* All have a verdict. What cannot be taken is kept aside before the cursor goes past it. */
static int settle(struct exporter *e, struct err *err)
{
    struct cursor *c = &e->cursor;
    struct batch *b = &e->batch;

    for (size_t i = 0; i < b->count; i++) {
        if (b->items[i].verdict != BULK_DEAD)
            continue;
        if (cursor_bury(c, &b->items[i], b->docs.p, err) < 0)
            return -1;
        log_warning("export_dead_letter", "message", b->items[i].reason, NULL);
        c->dead++;
        b->items[i].verdict = BULK_DONE; /* once, also when what follows fails */
    }
    struct cursor next = *c;
    next.sent += b->count;
    next.seq = b->facts[b->count - 1].seq;
    memcpy(next.id, b->items[b->count - 1].id, sizeof(next.id));
    next.error[0] = '\0';
    next.behind_since = 0;
    if (cursor_save(&next, err) < 0)
        return -1;
    *c = next;
    report(e);
    batch_clear(&e->batch);
    e->pause_ms = 0;
    return 0;
}

/* Longer each time, never all at once with others, and never sooner than asked for. */
static void put_off(struct exporter *e, const struct err *err)
{
    uint32_t dice = 0;
    char text[sizeof(e->cursor.error)];

    e->pause_ms = e->pause_ms ? e->pause_ms * 2 : FIRST_PAUSE_MS;
    if (e->pause_ms > LONGEST_PAUSE_MS)
        e->pause_ms = LONGEST_PAUSE_MS;
    ignore(getrandom(&dice, sizeof(dice), GRND_NONBLOCK)); /* 0 will do */
    uint64_t wait = e->pause_ms / 2 + dice % (e->pause_ms / 2 + 1);
    if (wait < e->sender.least_wait_ms)
        wait = e->sender.least_wait_ms;
    e->due_ms = now_ms() + wait;
    e->cursor.retries++;
    e->cursor.behind_since = e->batch.count ? seconds_of(e->batch.facts[0].time) : 0;
    (void)err_text(err, text, sizeof(text));
    if (strcmp(text, e->cursor.error) != 0)
        log_warning("export_failed", "message", text, NULL);
    memcpy(e->cursor.error, text, sizeof(text));
    cursor_tell(&e->cursor);
}

static size_t count_pending(const struct batch *b)
{
    size_t count = 0;

    for (size_t i = 0; i < b->count; i++)
        count += b->items[i].verdict == BULK_RETRY;
    return count;
}

/* 1: go on at once, 0: nothing to do for now. */
static int step(struct exporter *e, bool *ret_all_sent)
{
    struct err err = {.code = ERR_NONE};

    *ret_all_sent = false;
    if (now_ms() < e->due_ms)
        return 0;
    if (!e->batch.count && batch_fill(&e->batch, &e->source, e->cursor.seq, &err) < 0) {
        put_off(e, &err);
        return 0;
    }
    *ret_all_sent = e->batch.count == 0;
    if (!e->batch.count)
        return 0;
    look_for_gap(e);
    size_t pending = count_pending(&e->batch);
    /* None is pending where only the cursor could not be written: what was taken is not sent again.
     */
    if ((pending > 0 && senders[e->sender.target.kind]->send(&e->sender, &e->batch, &err) < 0) ||
        settle(e, &err) < 0) {
        if (count_pending(&e->batch) < pending)
            e->pause_ms = 0; /* it does get on */
        if (!export_told_to_stop)
            put_off(e, &err);
        return 0;
    }
    return 1;
}

static int open_records(struct exporter *e, struct err *err)
{
    struct sender *s = &e->sender;

    s->options = &e->options;
    s->cursor = &e->cursor;
    s->host = e->host;
    s->fd = -1;
    e->cursor.is_main = e->options.report_fd >= 0;
    if (senders[s->target.kind]->open(s, err) < 0)
        return -1;
    report(e);
    cursor_tell(&e->cursor);
    e->source = (struct batch_source){.record = e->options.record, .host = e->host};
    return audit_reader_open(&e->source.reader, e->options.record, e->cursor.seq, err);
}

static int run(struct exporter *e)
{
    bool records = e->options.to;
    bool heads = e->options.heads_to;
    struct err err;

    while (!export_told_to_stop) {
        bool all_sent = true;
        int more = records ? step(e, &all_sent) : 0;
        bool all_heads = !heads || heads_step(&e->heads, &err) == 1;
        if (e->options.once && all_sent && all_heads && !more)
            return 0;
        if (!more)
            (void)poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

static int fail(const struct err *err)
{
    char text[512];

    fprintf(stderr, "carrel-export: %s\n", err_text(err, text, sizeof(text)));
    return FAILED;
}

static int prepare(struct exporter *e, struct err *err)
{
    struct options *o = &e->options;

    if (o->to && (target_parse(o->to, &e->sender.target, err) < 0 ||
                  cursor_open(&e->cursor, o->spool, o->to,
                              e->sender.target.kind == TARGET_BULK ? o->index : "", err) < 0))
        return -1;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return err_set(err, ERR_LIMIT, ENOMEM, "open libcurl");
    if (o->heads_to && heads_open(&e->heads, o, err) < 0)
        return -1;
    if (gethostname(e->host, sizeof(e->host) - 1) < 0 || !*e->host)
        memcpy(e->host, "-", 2);
    if (confine(o, &e->sender.target, &e->heads.target, err) < 0)
        return -1;
    return o->to ? open_records(e, err) : 0;
}

int main(int argc, char **argv)
{
    static struct exporter e = {.options = {.record = "audit",
                                            .heads = "heads/heads.jsonl",
                                            .spool = "export",
                                            .index = "logs-carrel.audit-default",
                                            .auth_fd = -1,
                                            .heads_auth_fd = -1,
                                            .report_fd = -1}};
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: it ends a wait */
    struct err err = {.code = ERR_NONE};

    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0;
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGINT, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)umask(027);
    if (parse(&e.options, argv, &err) < 0 || prepare(&e, &err) < 0)
        return fail(&err);
    int status = run(&e);
    audit_reader_close(e.source.reader);
    batch_clear(&e.batch);
    if (e.sender.post.curl)
        post_close(&e.sender.post);
    if (e.heads.post.curl)
        post_close(&e.heads.post);
    scope_close(&e.sender.fd);
    return export_told_to_stop && e.options.once ? FAILED : status;
}
