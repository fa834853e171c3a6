/* SPDX-License-Identifier: Apache-2.0 */
/* audit/: a chain that goes on, that no text can forge, and whose every damage is found where it
 * is. Over 800 lines: each kind of damage is a test of its own, and all need the same scene. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "audit/audit.h"
#include "audit/line.h"
#include "base/fd.h"

/* --- the disk, as the tests want it --- */

static atomic_int syncs;
static atomic_int sync_error;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: no sync ends */

int fdatasync(int fd)
{
    syncs++;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    if (sync_error) {
        errno = sync_error;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

/* --- scene --- */

enum {
    SEGMENT = 1 << 20,
    FILE_MAX = 4 << 20
};

static char dir[64];

static const char *path_of(uint32_t number)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%09u.jsonl", dir, number);
    return path;
}

static void new_dir(void)
{
    snprintf(dir, sizeof(dir), "audit-XXXXXX");
    if (!mkdtemp(dir))
        abort();
}

static int remove_dir(void)
{
    DIR *stream = opendir(dir);
    struct dirent *entry;

    while (stream && (entry = readdir(stream)))
        (void)unlinkat(dirfd(stream), entry->d_name, 0);
    if (stream)
        closedir(stream);
    return rmdir(dir);
}

static uint64_t add(struct audit *audit, const char *operation, const char *details)
{
    uint64_t seq = audit_add(audit, &(struct audit_record){.actor = "key:k1",
                                                           .workspace = "w1",
                                                           .request = "r1",
                                                           .operation = operation,
                                                           .result = "ok",
                                                           .details = details});
    audit_push(audit);
    return seq;
}

/* Until it is on disk; false when writing failed. */
static bool wait_for(struct audit *audit, uint64_t seq)
{
    struct pollfd fd = {.fd = audit_fd(audit), .events = POLLIN};
    struct err err;

    while (audit_synced(audit) < seq) {
        if (audit_has_failed(audit, &err))
            return false;
        (void)poll(&fd, 1, -1);
    }
    return true;
}

/* A chain of n records, each in a batch of its own. */
static int make_chain(int n, uint64_t segment_bytes)
{
    struct audit *audit;
    struct err err;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, segment_bytes, &err) == 0);
    for (int i = 0; i < n; i++)
        CHECK(wait_for(audit, add(audit, "exec.start", "{\"argv\":[\"true\"]}")));
    audit_close(audit);
    return 0;
}

static char *read_file(uint32_t number, size_t *ret_n)
{
    static char bytes[FILE_MAX];
    scoped_fd int fd = open(path_of(number), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes) - 1);

    *ret_n = n < 0 ? 0 : (size_t)n;
    bytes[*ret_n] = '\0';
    return bytes;
}

static void write_file(uint32_t number, const char *bytes, size_t n)
{
    scoped_fd int fd = open(path_of(number), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (write(fd, bytes, n) != (ssize_t)n)
        abort();
}

static char *line_at(char *text, int line)
{
    for (; line > 1; line--)
        text = strchr(text, '\n') + 1;
    return text;
}

static struct audit_report verify(const char *head)
{
    struct audit_report report = {0};
    struct err err = {0};

    if (audit_verify(dir, head, &report, &err) < 0)
        snprintf(report.problem, sizeof(report.problem), "cannot be read: %.200s", err.msg);
    return report;
}

/* --- the chain --- */

TEST(a_chain_is_whole_and_goes_on_after_it_was_opened_again)
{
    struct audit *audit;
    struct err err;
    size_t n;

    CHECK(make_chain(3, SEGMENT) == 0);
    struct audit_report before = verify(NULL);
    CHECK(!before.problem[0] && before.records == 3 && before.last_seq == 3);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(audit_synced(audit) == 3);
    CHECK(add(audit, "key.create", "") == 4);
    audit_close(audit); /* writes what is left */
    struct audit_report after = verify(before.head);
    CHECK(!after.problem[0] && after.records == 4 && after.last_seq == 4);
    CHECK(strcmp(after.head, before.head) != 0);
    char *fourth = line_at(read_file(1, &n), 4);
    CHECK(strstr(fourth, before.head) && strstr(fourth, "\"details\":{}"));
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(an_empty_record_is_whole_and_its_head_is_zeros)
{
    struct audit *audit;
    struct err err;

    new_dir();
    struct audit_report report = verify(NULL);
    CHECK(!report.problem[0] && report.records == 0 && strspn(report.head, "0") == 64);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    audit_close(audit);
    CHECK(!verify(report.head).problem[0]);
    CHECK(audit_verify("/nonexistent", NULL, &report, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(audit_verify(dir, "123", &report, &err) < 0 && err.code == ERR_INVALID);
    CHECK(audit_open(&audit, "/nonexistent", -1, SEGMENT, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(segments_follow_each_other_and_belong_to_their_group)
{
    struct audit *audit;
    struct stat st;
    struct err err;

    CHECK(make_chain(10, 1) == 0);
    CHECK(stat(path_of(10), &st) == 0 && (st.st_mode & 07777) == 0600);
    struct audit_report report = verify(NULL);
    CHECK(!report.problem[0] && report.records == 10);
    CHECK(audit_open(&audit, dir, (int64_t)getgid(), 1, &err) == 0);
    mode_t mask = umask(0077);
    CHECK(wait_for(audit, add(audit, "exec.end", "")));
    audit_close(audit);
    umask(mask);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 11);
    CHECK(stat(path_of(11), &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_gid == getgid());
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_thousand_records_share_a_few_syncs)
{
    struct audit *audit;
    struct err err;
    uint64_t last = 0;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    syncs = 0;
    pthread_mutex_lock(&gate); /* the first sync lasts until all are added */
    for (int i = 0; i < 1000; i++)
        last = add(audit, "exec.start", "{\"argv\":[\"true\"]}");
    CHECK(last == 1000 && audit_synced(audit) == 0);
    pthread_mutex_unlock(&gate);
    CHECK(wait_for(audit, last));
    CHECK(syncs >= 1 && syncs <= 2);
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 1000);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(the_queue_is_bounded_and_what_it_refuses_leaves_no_gap)
{
    static char details[60001];
    struct audit *audit;
    struct err err;
    uint64_t added = 0;

    memset(details, 'x', sizeof(details) - 1);
    memcpy(details, "{\"x\":\"", 6);
    memcpy(details + sizeof(details) - 3, "\"}", 2);
    new_dir();
    CHECK(audit_open(&audit, dir, -1, 64 << 20, &err) == 0);
    pthread_mutex_lock(&gate);
    while (added < 1000 && add(audit, "exec.start", details))
        added++;
    CHECK(added >= 139 && added < 300); /* 8 MiB, and at most as much under way */
    CHECK(!audit_has_failed(audit, &err));
    pthread_mutex_unlock(&gate);
    CHECK(wait_for(audit, added));
    CHECK(add(audit, "exec.end", "") == added + 1);
    audit_close(audit);
    struct audit_report report = verify(NULL);
    CHECK(!report.problem[0] && report.records == added + 1);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(the_time_never_runs_backwards)
{
    struct audit *audit;
    struct err err;
    size_t n;

    CHECK(make_chain(1, SEGMENT) == 0);
    /* As if the clock had been far ahead, once. */
    char *text = read_file(1, &n);
    memcpy(strstr(text, "\"time\":\"") + 8, "2999", 4);
    write_file(1, text, n);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    add(audit, "exec.end", "");
    audit_close(audit);
    CHECK(!verify(NULL).problem[0]);
    CHECK(strstr(line_at(read_file(1, &n), 2), "\"time\":\"2999"));
    CHECK(remove_dir() == 0);
    return 0;
}

/* --- what texts cannot do --- */

TEST(no_text_can_end_a_line_or_a_string_or_add_a_member)
{
    static const struct {
        const char *given;
        const char *written;
    } texts[] = {
        {"a\n{\"seq\":2}", "a\\u000a{\\\"seq\\\":2}"},
        {"\",\"result\":\"ok", "\\\",\\\"result\\\":\\\"ok"},
        {"\\", "\\\\"},
        {"\\\"", "\\\\\\\""},
        {"\x1b[2J\r\t\x7f", "\\u001b[2J\\u000d\\u0009\\u007f"},
        {"\xff\xfe\xc3", "\\ufffd\\ufffd\\ufffd"},
        {"\xc0\xaf\xe0\x80\xaf", "\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd"}, /* overlong */
        {"\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd"},                       /* half a pair */
        {"\xf4\x90\x80\x80", "\\ufffd\\ufffd\\ufffd\\ufffd"},            /* beyond Unicode */
        {"\xc2\x9b\xe2\x80\xae\xe2\x80\xa8", "\\u009b\\u202e\\u2028"},   /* obeyed or shown wrong */
        {"na\xc3\xafve \xf0\x9f\x98\x80", "na\xc3\xafve \xf0\x9f\x98\x80"}, /* stays as it is */
    };

    for (size_t i = 0; i < LENGTH(texts); i++) {
        struct audit_chain chain;
        struct audit_line line;
        scoped_buf struct buf b;
        char expected[256];
        const char *t = texts[i].given;

        buf_init(&b, AUDIT_LINE);
        audit_chain_init(&chain);
        audit_encode(&b, &chain, "2026-01-02T03:04:05.678901Z",
                     &(struct audit_record){t, t, t, t, t, ""});
        CHECK(buf_done(&b) == 0);
        snprintf(expected, sizeof(expected), "\"actor\":\"%s\",\"workspace\":\"%s\",",
                 texts[i].written, texts[i].written);
        CHECK_FOR(texts[i].written, strstr(b.p, expected));
        CHECK_FOR(texts[i].written, !memchr(b.p, '\n', b.n) && audit_parse(b.p, b.n, &line));
        json_t *json = json_loadb(b.p, b.n, JSON_REJECT_DUPLICATES, NULL);
        CHECK_FOR(texts[i].written, json && json_object_size(json) == 9);
        json_decref(json);
    }
    return 0;
}

TEST(long_texts_are_cut_and_the_longest_record_fits)
{
    static char text[5000];
    static char details[AUDIT_DETAILS + 2];
    struct audit *audit;
    struct err err;

    memset(text, '\1', sizeof(text) - 1);
    memset(details, 'x', sizeof(details) - 1);
    memcpy(details, "{\"x\":\"", 6);
    for (size_t i = 6; i + 3 < AUDIT_DETAILS; i += 2)
        memcpy(details + i, "\xc2\x9b", 2);
    memcpy(details + AUDIT_DETAILS - 2, "\"}", 3);
    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(audit_add(audit, &(struct audit_record){text, text, text, text, text, details}) == 1);
    audit_close(audit);
    struct audit_report report = verify(NULL);
    CHECK(!report.problem[0] && report.records == 1);
    size_t n;
    CHECK(strstr(read_file(1, &n), "\\u0001...\",\"workspace\"") &&
          strstr(read_file(1, &n), "\\u009b"));
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(details_that_are_not_one_object_are_refused_and_the_record_is_kept)
{
    static const char *const bad[] = {
        "[]",
        "1",
        "{",
        "}",
        "{}x",
        "{} ",
        "{\"a\":1},\"seq\":9",
        "{\"a\":1}\n{\"seq\":2}",
        "{\"a\":\n1}",
        "{\"a\":\t1}",
        "{\"a\":\"\x01\"}",
        "{\"a\":\"\xff\"}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{\"a\":[1,]}",
        "{\"a\":[1}",
        "{\"a\":{]}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.1}",
        "{\"a\":1e}",
        "{\"a\":+1}",
        "{\"a\":tru}",
        "{\"a\":\"\\x\"}",
        "{\"a\":\"\\u12g4\"}",
        "{\"a\":\"\\ud800\"}",
        "{\"a\":\"\\udc00\"}",
        "{\"a\":\"}",
        "{a:1}",
        "{\"a\":1 2}",
        "{\"a\" 1}",
        "[{}]",
        "{\"a\":-}",
    };
    static const char *const good[] = {
        "{}",
        "{ }",
        "{\"a\":1}",
        "{ \"a\" : [ 1 , -2.5e+3 , true , false , null , {} , [] ] }",
        "{\"a\":\"\\u00e9\\ud83d\\ude00\\n\"}",
        "{\"a\":{\"b\":{\"c\":[[[]]]}},\"d\":0}",
        "{\"\":\"\xc3\xa9\"}",
        "{\"a\":0.0,\"a\":1E-2}",
    };
    static char deep[200];

    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i], !audit_is_object(bad[i], strlen(bad[i])));
    for (size_t i = 0; i < LENGTH(good); i++)
        CHECK_FOR(good[i], audit_is_object(good[i], strlen(good[i])));
    memcpy(deep, "{\"a\":", 5);
    memset(deep + 5, '[', 64);
    CHECK(!audit_is_object(deep, 69));
    memset(deep + 68, ']', 63);
    deep[131] = '}';
    CHECK(audit_is_object(deep, 132));

    struct audit *audit;
    struct err err;
    static char big[AUDIT_DETAILS + 2];
    size_t n;
    memset(big, ' ', sizeof(big) - 1);
    big[0] = '{';
    big[AUDIT_DETAILS] = '}';
    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(add(audit, "denial", "{}\n{\"seq\":2}") == 1);
    CHECK(add(audit, "denial", big) == 2);
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 2);
    CHECK(strstr(read_file(1, &n),
                 "\"details\":{\"refused\":\"details\",\"why\":\"not a JSON object\"}"));
    CHECK(strstr(read_file(1, &n), "\"details\":{\"refused\":\"details\",\"why\":\"too long\"}"));
    CHECK(remove_dir() == 0);
    return 0;
}

/* --- damage --- */

TEST(a_torn_last_line_is_named_then_cut_off_and_that_is_recorded)
{
    struct audit *audit;
    struct err err;
    size_t n;

    CHECK(make_chain(3, SEGMENT) == 0);
    char *text = read_file(1, &n);
    write_file(1, text, n - 20);
    struct audit_report report = verify(NULL);
    CHECK(strstr(report.problem, "no end") && report.line == 3 && report.records == 2);
    CHECK(report.torn > 0);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(add(audit, "exec.start", "") == 4);
    audit_close(audit);
    report = verify(NULL);
    CHECK(!report.problem[0] && report.records == 4);
    CHECK(strstr(line_at(read_file(1, &n), 3), "\"operation\":\"audit.repair\""));
    CHECK(strstr(line_at(read_file(1, &n), 3), "\"details\":{\"cut_bytes\":"));
    CHECK(remove_dir() == 0);
    return 0;
}

/* Each changes a chain of six in one file. */
static size_t alter(char *text, size_t n)
{
    *strstr(line_at(text, 3), "exec.start") = 'E';
    return n;
}

static size_t alter_details(char *text, size_t n)
{
    memcpy(strstr(line_at(text, 5), "true"), "TRUE", 4);
    return n;
}

static size_t alter_time_within_the_second(char *text, size_t n)
{
    char *at = strstr(line_at(text, 4), "Z\",\"actor\"") - 1;
    *at = *at == '9' ? '8' : (char)(*at + 1);
    return n;
}

static size_t alter_hash(char *text, size_t n)
{
    char *at = strstr(line_at(text, 4), "\"prev\":\"") + 8;
    *at = *at == 'a' ? 'b' : 'a';
    return n;
}

static size_t cut_out(char *text, size_t n, int line)
{
    char *from = line_at(text, line);
    char *to = line_at(from, 2);
    memmove(from, to, n - (size_t)(to - text));
    return n - (size_t)(to - from);
}

static size_t delete_line(char *text, size_t n)
{
    return cut_out(text, n, 3);
}

static size_t delete_line_and_number_anew(char *text, size_t n)
{
    n = cut_out(text, n, 3);
    text[n] = '\0';
    for (int line = 3; line <= 5; line++)
        line_at(text, line)[7] = (char)('0' + line);
    return n;
}

static size_t delete_first_line(char *text, size_t n)
{
    return cut_out(text, n, 1);
}

static size_t double_line(char *text, size_t n)
{
    char *from = line_at(text, 3);
    size_t length = (size_t)(line_at(from, 2) - from);
    memmove(from + length, from, n - (size_t)(from - text));
    return n + length;
}

static size_t reorder(char *text, size_t n)
{
    char third[1000];
    char *at = line_at(text, 3);
    size_t length = (size_t)(line_at(at, 2) - at);
    memcpy(third, at, length);
    n = cut_out(text, n, 3);
    at = line_at(text, 4);
    memmove(at + length, at, n - (size_t)(at - text));
    memcpy(at, third, length);
    return n + length;
}

static size_t truncate_line(char *text, size_t n)
{
    char *end = line_at(text, 5) - 1; /* the newline of the fourth */
    memmove(end - 30, end, n - (size_t)(end - text));
    return n - 30;
}

static size_t add_forged_line(char *text, size_t n)
{
    static const char forged[] = "{\"seq\":4,\"operation\":\"key.create\"}\n";
    char *at = line_at(text, 4);
    memmove(at + sizeof(forged) - 1, at, n - (size_t)(at - text));
    memcpy(at, forged, sizeof(forged) - 1);
    return n + sizeof(forged) - 1;
}

static size_t add_empty_line(char *text, size_t n)
{
    char *at = line_at(text, 2);
    memmove(at + 1, at, n - (size_t)(at - text));
    *at = '\n';
    return n + 1;
}

static size_t add_a_member(char *text, size_t n)
{
    char *at = strstr(line_at(text, 2), ",\"details\"");
    memmove(at + 8, at, n - (size_t)(at - text));
    memcpy(at, ",\"seq\":9", 8);
    return n + 8;
}

static size_t add_spaces(char *text, size_t n)
{
    char *at = strstr(line_at(text, 6), "{\"argv\"") + 1;
    memmove(at + 1, at, n - (size_t)(at - text));
    *at = ' ';
    return n + 1;
}

static size_t run_backwards(char *text, size_t n)
{
    memcpy(strstr(line_at(text, 6), "\"time\":\"") + 8, "1999", 4);
    return n;
}

TEST(every_change_is_found_at_the_line_that_was_changed)
{
    static const struct {
        const char *name;
        size_t (*change)(char *text, size_t n);
        uint64_t line;
        const char *words;
        bool needs_head; /* nothing follows that would tell */
    } cases[] = {
        {"alter", alter, 3, "changed", false},
        {"alter details", alter_details, 5, "changed", false},
        {"alter time", alter_time_within_the_second, 4, "", false},
        {"alter hash", alter_hash, 4, "changed", false},
        {"delete", delete_line, 3, "missing", false},
        {"delete and number", delete_line_and_number_anew, 3, "changed", false},
        {"delete first", delete_first_line, 1, "missing", false},
        {"double", double_line, 4, "out of order", false},
        {"reorder", reorder, 3, "missing", false},
        {"truncate", truncate_line, 4, "not a record", false},
        {"forge", add_forged_line, 4, "not a record", false},
        {"empty line", add_empty_line, 2, "not a record", false},
        {"add a member", add_a_member, 2, "not a record", false},
        {"spaces in the last", add_spaces, 6, "cut off or written anew", true},
        {"time of the last", run_backwards, 6, "time", false},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        size_t n;
        CHECK(make_chain(6, SEGMENT) == 0);
        struct audit_report whole = verify(NULL);
        char *text = read_file(1, &n);
        n = cases[i].change(text, n);
        write_file(1, text, n);
        struct audit_report report = verify(NULL);
        if (cases[i].needs_head) {
            CHECK_FOR(cases[i].name, !report.problem[0]);
            report = verify(whole.head);
        }
        if (report.line != cases[i].line || !strstr(report.problem, cases[i].words))
            printf("    %s line %ju: %s\n", report.file, (uintmax_t)report.line, report.problem);
        CHECK_FOR(cases[i].name, report.line == cases[i].line);
        CHECK_FOR(cases[i].name, report.problem[0] && strstr(report.problem, cases[i].words));
        CHECK_FOR(cases[i].name, strcmp(report.file, "000000001.jsonl") == 0);
        struct audit *audit;
        struct err err;
        if (!cases[i].needs_head)
            CHECK_FOR(cases[i].name,
                      audit_open(&audit, dir, -1, SEGMENT, &err) < 0 && strstr(err.msg, ", line "));
        CHECK(remove_dir() == 0);
    }
    return 0;
}

TEST(a_chain_cut_off_or_rolled_back_is_found_with_a_hash_kept_elsewhere)
{
    struct audit *audit;
    struct err err;
    size_t n;

    CHECK(make_chain(6, SEGMENT) == 0);
    struct audit_report whole = verify(NULL);
    char *text = read_file(1, &n);
    write_file(1, text, (size_t)(line_at(text, 5) - text));
    CHECK(!verify(NULL).problem[0]); /* nothing in the files can tell */
    struct audit_report report = verify(whole.head);
    CHECK(strstr(report.problem, "cut off") && report.line == 4 && report.records == 4);
    /* Rolled back within the second, and written on to the same length. */
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    add(audit, "exec.start", "");
    add(audit, "exec.start", "");
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 6);
    CHECK(strstr(verify(whole.head).problem, "written anew"));
    CHECK(remove_dir() == 0);
    return 0;
}

static int make_segments(void)
{
    return make_chain(6, 1); /* one record in each */
}

TEST(segments_that_are_missing_or_swapped_are_found)
{
    struct audit_report report;
    struct audit *audit;
    struct err err;

    CHECK(make_segments() == 0);
    report = verify(NULL);
    CHECK(!report.problem[0] && report.records == 6);
    char *keep = strdup(path_of(3));
    char moved[128];
    snprintf(moved, sizeof(moved), "%s/moved", dir);

    CHECK(rename(keep, moved) == 0); /* one in the middle is gone */
    report = verify(NULL);
    CHECK(strcmp(report.file, "000000003.jsonl") == 0 && strstr(report.problem, "missing"));
    CHECK(audit_open(&audit, dir, -1, 1, &err) < 0 && strstr(err.msg, "000000003.jsonl"));

    CHECK(rename(path_of(4), keep) == 0 && rename(moved, path_of(4)) == 0); /* 3 and 4 swapped */
    report = verify(NULL);
    CHECK(strcmp(report.file, "000000003.jsonl") == 0 && report.line == 1 && report.problem[0]);

    CHECK(rename(path_of(4), moved) == 0 && rename(keep, path_of(4)) == 0 &&
          rename(moved, keep) == 0);
    CHECK(!verify(NULL).problem[0]);

    write_file(3, "", 0); /* emptied */
    report = verify(NULL);
    CHECK(strcmp(report.file, "000000004.jsonl") == 0 && report.line == 1 && report.problem[0]);
    CHECK(unlink(path_of(1)) ==
          0); /* the oldest put away: the verifier says so, the daemon starts */
    CHECK(unlink(path_of(2)) == 0 && unlink(path_of(3)) == 0);
    report = verify(NULL);
    CHECK(strcmp(report.file, "000000001.jsonl") == 0 && strstr(report.problem, "missing"));
    CHECK(audit_open(&audit, dir, -1, 1, &err) == 0 && add(audit, "exec.end", "") == 7);
    audit_close(audit);
    free(keep);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_change_in_the_last_line_of_a_segment_is_found_there)
{
    size_t n;

    CHECK(make_segments() == 0);
    char *text = read_file(3, &n);
    *strstr(text, "exec.start") = 'E';
    write_file(3, text, n);
    struct audit_report report = verify(NULL);
    CHECK(strcmp(report.file, "000000003.jsonl") == 0 && report.line == 1);
    CHECK(strstr(report.problem, "changed"));
    text = read_file(3, &n);
    *strstr(text, "Exec.start") = 'e';
    write_file(3, text, n - 1); /* no newline, and a file follows */
    report = verify(NULL);
    CHECK(strcmp(report.file, "000000003.jsonl") == 0 && report.line == 1 && report.problem[0]);
    CHECK(remove_dir() == 0);
    return 0;
}

/* --- a disk that fails --- */

TEST(a_full_disk_fails_what_is_written_and_opening_again_repairs)
{
    struct rlimit limit;
    struct rlimit before;
    struct audit *audit;
    struct err err = {0};

    CHECK(make_chain(2, SEGMENT) == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    limit = before;
    limit.rlim_cur = 600; /* in the middle of the next line */
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    uint64_t seq = add(audit, "exec.start", "{\"argv\":[\"true\",\"and\",\"a\",\"few\",\"more\"]}");
    bool is_written = wait_for(audit, seq);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(seq == 3 && !is_written);
    CHECK(audit_has_failed(audit, &err) && err.code == ERR_IO && err.os_errno == EFBIG);
    CHECK(audit_synced(audit) == 2);
    CHECK(add(audit, "exec.start", "") == 0); /* also when the disk has room again */
    audit_close(audit);
    CHECK(verify(NULL).line == 3);
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(wait_for(audit, add(audit, "exec.start", "")));
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 4);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_sync_that_fails_is_never_taken_for_done)
{
    struct audit *audit;
    struct err err = {0};

    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    CHECK(wait_for(audit, add(audit, "exec.start", "")));
    sync_error = EIO;
    CHECK(!wait_for(audit, add(audit, "exec.end", "")));
    sync_error = 0;
    CHECK(audit_has_failed(audit, &err) && err.os_errno == EIO);
    CHECK(audit_synced(audit) == 1 && add(audit, "exec.end", "") == 0);
    audit_close(audit);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_file_that_somebody_else_writes_or_removes_is_noticed)
{
    struct audit *audit;
    struct err err = {0};

    for (int i = 0; i < 3; i++) {
        CHECK(make_chain(2, SEGMENT) == 0);
        CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
        if (i == 0)
            CHECK(truncate(path_of(1), 0) == 0);
        else if (i == 1)
            write_file(1, "{}\n", 3);
        else
            CHECK(unlink(path_of(1)) == 0);
        CHECK(!wait_for(audit, add(audit, "exec.start", "")));
        CHECK(audit_has_failed(audit, &err) && strstr(err.msg, i < 2 ? "changed" : "removed"));
        audit_close(audit);
        CHECK(remove_dir() == 0);
    }
    return 0;
}

/* Adds records until it is killed, and tells which are on disk. */
static void add_until_killed(int pipe_fd)
{
    struct audit *audit;
    struct err err;

    if (audit_open(&audit, dir, -1, 5000, &err) < 0)
        _exit(1);
    for (;;) {
        uint64_t seq = 0;
        for (int i = 0; i < 10; i++)
            seq = add(audit, "exec.start", "{\"argv\":[\"true\"]}");
        if (!wait_for(audit, seq) || write(pipe_fd, &seq, sizeof(seq)) != sizeof(seq))
            _exit(1);
    }
}

TEST(everything_acknowledged_is_there_after_the_process_was_killed)
{
    for (uint64_t round = 0; round < 5; round++) {
        struct audit *audit;
        struct err err;
        uint64_t last = 0;
        uint64_t got;
        int ends[2];
        int status;

        new_dir();
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        pid_t child = fork();
        if (child == 0)
            add_until_killed(ends[1]);
        close(ends[1]);
        while (read(ends[0], &got, sizeof(got)) == sizeof(got)) {
            last = got;
            if (last == 300 + round * 70)
                CHECK(kill(child, SIGKILL) == 0);
        }
        close(ends[0]);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && last >= 300);
        CHECK(audit_open(&audit, dir, -1, 5000, &err) == 0);
        CHECK(audit_synced(audit) >= last);
        audit_close(audit);
        struct audit_report report = verify(NULL);
        CHECK(!report.problem[0] && report.records >= last);
        CHECK(remove_dir() == 0);
    }
    return 0;
}

/* --- reading --- */

static uint64_t next_seq(struct audit_reader *reader)
{
    struct audit_line line;
    const char *text;
    struct err err;
    size_t n;

    int rc = audit_reader_next(reader, &text, &n, &err);
    if (rc <= 0)
        return rc < 0 ? UINT64_MAX : 0;
    return audit_parse(text, n, &line) ? line.seq : UINT64_MAX;
}

TEST(a_reader_begins_anywhere_and_follows_across_segments)
{
    struct audit_reader *reader;
    struct audit *audit;
    struct err err;

    new_dir();
    CHECK(audit_reader_open(&reader, dir, 0, &err) == 0); /* before there is anything */
    CHECK(next_seq(reader) == 0);
    CHECK(audit_open(&audit, dir, -1, 1000, &err) == 0);
    for (uint64_t seq = 1; seq <= 50; seq++) {
        CHECK(wait_for(audit, add(audit, "exec.start", "")));
        CHECK(next_seq(reader) == seq && next_seq(reader) == 0);
    }
    audit_reader_close(reader);
    for (uint64_t after = 0; after <= 51; after++) {
        CHECK(audit_reader_open(&reader, dir, after, &err) == 0);
        CHECK(next_seq(reader) == (after < 50 ? after + 1 : 0));
        CHECK(next_seq(reader) == (after < 49 ? after + 2 : 0));
        audit_reader_close(reader);
    }
    audit_close(audit);
    CHECK(audit_reader_open(&reader, "/nonexistent", 0, &err) < 0 && err.code == ERR_NOT_FOUND);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_reader_finds_its_place_in_a_large_segment)
{
    struct audit_reader *reader;
    struct audit *audit;
    struct err err;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, 64 << 20, &err) == 0);
    for (int i = 0; i < 3000; i++)
        add(audit, "exec.start",
            i % 100 ? "{\"argv\":[\"true\"]}" : "{\"argv\":[\"a longer one, now\"]}");
    audit_close(audit);
    for (uint64_t after = 0; after < 3000; after += 37) {
        CHECK(audit_reader_open(&reader, dir, after, &err) == 0);
        CHECK(next_seq(reader) == after + 1);
        audit_reader_close(reader);
    }
    CHECK(audit_reader_open(&reader, dir, 3000, &err) == 0);
    CHECK(next_seq(reader) == 0);
    audit_reader_close(reader);
    CHECK(remove_dir() == 0);
    return 0;
}

TEST(a_reader_hands_out_records_only_and_goes_on_behind_damage)
{
    static char big[FILE_MAX];
    struct audit_reader *reader;
    struct err err;
    size_t n;

    CHECK(make_chain(4, SEGMENT) == 0);
    char *text = read_file(1, &n);
    n = add_forged_line(text, n);
    write_file(1, text, n - 5); /* and a torn last line */
    CHECK(audit_reader_open(&reader, dir, 0, &err) == 0);
    CHECK(next_seq(reader) == 1 && next_seq(reader) == 2 && next_seq(reader) == 3);
    CHECK(next_seq(reader) == UINT64_MAX);
    CHECK(next_seq(reader) == 0 && next_seq(reader) == 0);
    write_file(1, text, n); /* its end arrives */
    CHECK(next_seq(reader) == 4 && next_seq(reader) == 0);
    audit_reader_close(reader);

    memset(big, 'x', sizeof(big)); /* a line longer than any */
    memcpy(big + 2000000, "\n", 1);
    memcpy(big + 2000001, text, n);
    write_file(1, big, 2000001 + n);
    CHECK(verify(NULL).line == 1 && strstr(verify(NULL).problem, "longer"));
    CHECK(audit_reader_open(&reader, dir, 0, &err) == 0);
    uint64_t seq;
    for (int i = 0; (seq = next_seq(reader)) == UINT64_MAX && i < 10; i++)
        ;
    CHECK(seq == 1);
    audit_reader_close(reader);
    CHECK(remove_dir() == 0);
    return 0;
}
