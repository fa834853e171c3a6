/* SPDX-License-Identifier: Apache-2.0 */
/* audit/: a chain that goes on, that no text can forge, and that a failing disk, or the end of the
 * process, takes nothing acknowledged from. */
#include "audit_scene.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "audit/line.h"

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

/* --- the chain --- */

/* Else somebody who only wants to know would take the news from those that wait for it. */
TEST(to_ask_what_is_on_disk_takes_no_news_from_others)
{
    struct audit *audit;
    struct err err;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    struct pollfd fd = {.fd = audit_fd(audit), .events = POLLIN};
    CHECK(add(audit, "key.create", "") == 1);
    CHECK(poll(&fd, 1, 10000) == 1);
    CHECK(audit_synced(audit) == 1 && poll(&fd, 1, 0) == 1);
    CHECK(audit_hear(audit) == 1 && poll(&fd, 1, 0) == 0);
    audit_close(audit);
    return 0;
}

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

static void await_syncs(int n)
{
    while (syncs < n)
        usleep(1000);
}

/* A command's end may be told then. */
TEST(what_is_written_here_is_in_the_file_while_another_waits_for_the_disk)
{
    struct audit *audit;
    struct err err;
    size_t n;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, SEGMENT, &err) == 0);
    syncs = 0;
    pthread_mutex_lock(&gate);
    CHECK(add(audit, "key.create", "") == 1);
    await_syncs(1);
    CHECK(audit_add(audit, &(struct audit_record){"a", "w", "r", "exec.end", "exit", ""}) == 2);
    CHECK(!strstr(read_file(1, &n), "exec.end"));
    audit_write_here(audit);
    CHECK(strstr(read_file(1, &n), "exec.end") && audit_synced(audit) == 0);
    pthread_mutex_unlock(&gate);
    CHECK(wait_for(audit, 1));
    CHECK(audit_synced(audit) == 1); /* not what came after the sync had begun */
    audit_push(audit);
    CHECK(wait_for(audit, 2) && syncs == 2);
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 2);
    CHECK(remove_dir() == 0);
    return 0;
}

static void *open_gate(void *unused)
{
    usleep(20000);
    pthread_mutex_unlock(&gate);
    return unused;
}

TEST(a_segment_is_not_left_while_the_disk_is_waited_for)
{
    struct audit *audit;
    pthread_t other;
    struct err err;
    size_t n;

    new_dir();
    CHECK(audit_open(&audit, dir, -1, 1, &err) == 0);
    syncs = 0;
    pthread_mutex_lock(&gate);
    CHECK(add(audit, "key.create", "") == 1);
    await_syncs(1);
    CHECK(audit_add(audit, &(struct audit_record){"a", "w", "r", "exec.end", "exit", ""}) == 2);
    CHECK(pthread_create(&other, NULL, open_gate, NULL) == 0);
    audit_write_here(audit);
    CHECK(pthread_join(other, NULL) == 0);
    CHECK(audit_synced(audit) == 1 && strstr(read_file(2, &n), "exec.end"));
    audit_close(audit);
    CHECK(!verify(NULL).problem[0] && verify(NULL).records == 2);
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
