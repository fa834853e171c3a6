/* SPDX-License-Identifier: Apache-2.0 */
/* The files that heads and exported records are in: what a full disk, a failed sync and a power cut
 * leave there, and that nobody else's is spoiled. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "audit/export/export.h"
#include "audit/head.h"
#include "audit/sink/keep.h"
#include "base/fd.h"

/* --- the disk, as the tests want it --- */

static int sync_error;

int fdatasync(int fd)
{
    errno = sync_error;
    return sync_error ? -1 : (int)syscall(SYS_fdatasync, fd);
}

static void files_end_at(off_t size) /* -1: nowhere */
{
    struct rlimit limit;

    (void)signal(SIGXFSZ, SIG_IGN);
    (void)getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = size < 0 ? limit.rlim_max : (rlim_t)size;
    (void)setrlimit(RLIMIT_FSIZE, &limit);
}

/* --- scene: the working directory is one of its own --- */

static char scene[4096];

static bool open_scene(void)
{
    const char *folder = getenv("TMPDIR");

    snprintf(scene, sizeof(scene), "%s/carrel-unit.XXXXXX", folder ? folder : "/tmp");
    return mkdtemp(scene) && chdir(scene) == 0 && mkdir("sink", 0700) == 0 &&
           mkdir("heads", 0700) == 0 && mkdir("audit", 0700) == 0;
}

static void close_scene(void)
{
    static const char *const names[] = {
        "sink/key", "heads/keys", "heads/heads.jsonl", "audit/000000001.jsonl", "elsewhere",
        "out",      "out.1"};
    static const char *const folders[] = {"sink", "heads", "audit", scene};

    files_end_at(-1);
    sync_error = 0;
    for (size_t i = 0; i < LENGTH(names); i++)
        (void)unlink(names[i]);
    for (size_t i = 0; i < LENGTH(folders); i++)
        (void)rmdir(folders[i]);
    ignore(chdir("/") == 0); /* the next scene has its own */
}

static void write_file(const char *name, const char *text)
{
    scoped_fd int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    ignore(write(fd, text, strlen(text)) < 0); /* what is there is looked at */
}

static bool holds(const char *name, const char *text)
{
    scoped_buf struct buf bytes;
    struct err err;

    return audit_read_file(AT_FDCWD, name, &bytes, &err) == 0 && bytes.n == strlen(text) &&
           (bytes.n == 0 || memcmp(bytes.p, text, bytes.n) == 0);
}

static off_t size_of(const char *name)
{
    struct stat st;

    return stat(name, &st) == 0 ? st.st_size : -1;
}

/* The number of lines, when each is a head; or -1. */
static int count_heads(const char *name)
{
    scoped_buf struct buf text;
    struct audit_head head;
    struct err err;
    int count = 0;

    if (audit_read_file(AT_FDCWD, name, &text, &err) < 0)
        return -1;
    for (size_t at = 0; at < text.n; count++) {
        const char *end = memchr(text.p + at, '\n', text.n - at);
        if (!end || !audit_head_parse(text.p + at, (size_t)(end - text.p) - at, &head))
            return -1;
        at = (size_t)(end - text.p) + 1;
    }
    return count;
}

static const char a_hash[AUDIT_HEX] =
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static int open_elsewhere(void)
{
    return open("elsewhere", O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* --- heads --- */

TEST(a_head_that_did_not_fit_leaves_nothing_in_the_sinks_file)
{
    struct keep keep;
    struct err err;

    CHECK(open_scene());
    scoped_fd int file = open_elsewhere();
    CHECK(keep_open(&keep, "file", file, &err) == 0 && keep_head(&keep, 1, a_hash, &err) == 0);
    off_t size = size_of("elsewhere");
    files_end_at(size + 100);
    CHECK(keep_head(&keep, 2, a_hash, &err) < 0 && strstr(err.msg, "sink's file"));
    CHECK(size_of("elsewhere") == size && size_of("heads/heads.jsonl") == size);
    files_end_at(-1);
    sync_error = EIO;
    CHECK(keep_head(&keep, 2, a_hash, &err) < 0 && size_of("elsewhere") == size);
    sync_error = 0;
    CHECK(keep_head(&keep, 2, a_hash, &err) == 0 && keep.last.seq == 2);
    CHECK(count_heads("elsewhere") == 2 && count_heads("heads/heads.jsonl") == 2);
    keep_close(&keep);
    close_scene();
    return 0;
}

TEST(what_a_power_cut_tore_is_cut_off_and_what_others_wrote_is_not)
{
    static const char *const foreign[] = {"a note", "a note\n", "a note\n{\"head\":1,\"seq",
                                          "{\"hea, no"};
    struct keep keep;
    struct err err;

    CHECK(open_scene());
    scoped_fd int file = open_elsewhere();
    for (int i = 0; i < 2; i++) { /* as the first line, and after a whole one */
        write_file("elsewhere", "{\"head\":1,\"seq\":12,\"ha");
        write_file("heads/heads.jsonl", "{\"he");
        CHECK(keep_open(&keep, "file", file, &err) == 0);
        CHECK(keep.last.seq == (uint64_t)i && keep_head(&keep, (uint64_t)i + 1, a_hash, &err) == 0);
        CHECK(count_heads("elsewhere") == i + 1 && count_heads("heads/heads.jsonl") == i + 1);
        keep_close(&keep);
    }
    for (size_t i = 0; i < LENGTH(foreign); i++) {
        CHECK(ftruncate(file, 0) == 0);
        write_file("elsewhere", foreign[i]);
        CHECK_FOR(foreign[i], keep_open(&keep, "file", file, &err) == 0);
        CHECK_FOR(foreign[i], holds("elsewhere", foreign[i]));
        keep_close(&keep);
    }
    write_file("heads/heads.jsonl", "no head\n");
    CHECK(keep_open(&keep, "none", -1, &err) < 0 && err.code == ERR_CONFLICT);
    keep_close(&keep);
    close_scene();
    return 0;
}

TEST(heads_are_found_without_reading_all_of_them)
{
    enum {
        COUNT = 900
    };
    struct audit_head head;
    struct keep keep;
    struct err err;

    CHECK(open_scene() && keep_open(&keep, "none", -1, &err) == 0);
    for (uint64_t seq = 2; seq <= 2 * COUNT; seq += 2)
        CHECK(keep_head(&keep, seq, a_hash, &err) == 0);
    scoped_fd int fd = open("heads/heads.jsonl", O_RDONLY | O_CLOEXEC);
    off_t size = size_of("heads/heads.jsonl");
    for (uint64_t seq = 0; seq <= 2 * COUNT + 2; seq++) {
        bool is_there = seq && seq % 2 == 0 && seq <= 2 * COUNT;
        CHECK(audit_heads_find(AT_FDCWD, "heads/heads.jsonl", seq, &head) == is_there);
        CHECK(!is_there || head.seq == seq);
        off_t about = size * (off_t)(seq < 2 ? 0 : seq - 2) / (2 * COUNT);
        CHECK(labs(audit_heads_seek(fd, seq) - about) < 3 * 4096);
    }
    CHECK(!audit_heads_find(AT_FDCWD, "heads/none", 2, &head));
    CHECK(keep_forget(&keep, 1001, &err) == 0 && count_heads("heads/heads.jsonl") == COUNT - 500);
    CHECK(!audit_heads_find(AT_FDCWD, "heads/heads.jsonl", 1000, &head));
    CHECK(audit_heads_find(AT_FDCWD, "heads/heads.jsonl", 1002, &head));
    CHECK(keep_head(&keep, 9999, a_hash, &err) == 0 &&
          count_heads("heads/heads.jsonl") == COUNT - 499);
    keep_close(&keep);
    close_scene();
    return 0;
}

TEST(the_last_head_of_a_huge_file_is_read_from_its_end)
{
    struct keep keep;
    struct err err;

    CHECK(open_scene() && keep_open(&keep, "none", -1, &err) == 0);
    CHECK(ftruncate(keep.heads, 4LL << 30) == 0 && write(keep.heads, "\n", 1) == 1);
    CHECK(keep_head(&keep, 77, a_hash, &err) == 0);
    off_t size = size_of("heads/heads.jsonl");
    keep_close(&keep);
    CHECK(keep_open(&keep, "none", -1, &err) == 0 && keep.last.seq == 77);
    CHECK(size_of("heads/heads.jsonl") == size);
    keep_close(&keep);
    close_scene();
    return 0;
}

/* --- records, exported --- */

static bool write_record(int count)
{
    struct audit *audit;
    struct err err;

    if (audit_open(&audit, "audit", -1, 1 << 20, &err) < 0)
        return false;
    for (int i = 0; i < count; i++)
        (void)audit_add(audit, &(struct audit_record){"key:k", "", "", "key.create", "ok", ""});
    audit_close(audit);
    return true;
}

TEST(a_record_that_made_no_document_is_read_again)
{
    static struct batch batch;
    struct batch_source source = {.record = "audit", .host = "\xff"}; /* is in no document */
    struct err err;

    CHECK(open_scene() && write_record(5));
    CHECK(batch_fill(&batch, &source, 2, &err) < 0 && err.code == ERR_LIMIT && batch.count == 0);
    source.host = "host";
    CHECK(batch_fill(&batch, &source, 2, &err) == 0 && batch.count == 3);
    CHECK(batch.facts[0].seq == 3 && batch.facts[2].seq == 5);
    CHECK(batch_fill(&batch, &source, 5, &err) == 0 && batch.count == 0);
    batch_clear(&batch);
    audit_reader_close(source.reader);
    close_scene();
    return 0;
}

TEST(a_record_is_not_sent_before_it_is_on_disk)
{
    static struct batch batch;
    struct batch_source source = {.record = "audit", .host = "host"};
    struct err err;

    CHECK(open_scene() && write_record(5));
    sync_error = EIO;
    CHECK(batch_fill(&batch, &source, 2, &err) < 0 && err.os_errno == EIO && batch.count == 0);
    sync_error = EROFS; /* where nothing can be lost */
    CHECK(batch_fill(&batch, &source, 2, &err) == 0 && batch.count == 3);
    CHECK(batch.facts[0].seq == 3);
    sync_error = 0;
    batch_clear(&batch);
    audit_reader_close(source.reader);
    close_scene();
    return 0;
}

static struct sender make_sender(struct cursor *cursor)
{
    struct sender s = {.target = {.kind = TARGET_FILE}, .cursor = cursor, .fd = -1};

    snprintf(s.target.path, sizeof(s.target.path), "out");
    return s;
}

TEST(lines_that_were_not_synced_are_not_there_twice)
{
    static struct batch batch;
    struct batch_source source = {.record = "audit", .host = "host"};
    struct cursor cursor = {0};
    struct sender s = make_sender(&cursor);
    struct err err;

    CHECK(open_scene() && write_record(3) && batch_fill(&batch, &source, 0, &err) == 0);
    CHECK(lines_calls.open(&s, &err) == 0);
    sync_error = EIO;
    CHECK(lines_calls.send(&s, &batch, &err) < 0 && size_of("out") == 0);
    sync_error = 0;
    files_end_at((off_t)batch.docs.n - 5);
    CHECK(lines_calls.send(&s, &batch, &err) < 0 && size_of("out") == 0);
    files_end_at(-1);
    CHECK(lines_calls.send(&s, &batch, &err) == 0 && size_of("out") == (off_t)batch.docs.n);
    write_file("out", "{\"@timesta");
    CHECK(lines_calls.open(&s, &err) == 0 && cursor.seq == 3);
    CHECK(size_of("out") == (off_t)batch.docs.n);
    batch_clear(&batch);
    audit_reader_close(source.reader);
    scope_close(&s.fd);
    close_scene();
    return 0;
}

TEST(a_file_of_somebody_elses_is_left_as_it_is)
{
    static const struct {
        const char *text;
        bool is_ours;
    } rows[] = {
        {"", true},
        {"{\"@time", true}, /* the first line, torn */
        {"{\"@timestamp\":\"2026-01-02T", true},
        {"root:x:0:0", false},
        {"root:x:0:0\n", false},
        {"root:x:0:0\n{\"@timestamp\":\"", false},
        {"{\"event\":{\"sequence\":7}}\n", false},
        {"{\"event\":{\"sequence\":7,\"module\":\"other\"}}\n", false},
        {"{\"event\":{\"module\":\"carrel\"}}\ntorn", false},
        {"\n", false},
    };
    static struct batch batch;
    struct cursor cursor = {0};
    struct sender s = make_sender(&cursor);
    struct err err;

    CHECK(open_scene());
    for (size_t i = 0; i < LENGTH(rows); i++) {
        (void)unlink("out");
        write_file("out", rows[i].text);
        int r = lines_calls.open(&s, &err);
        CHECK_FOR(rows[i].text, (r == 0) == rows[i].is_ours && cursor.seq == 0);
        CHECK_FOR(rows[i].text, holds("out", rows[i].is_ours ? "" : rows[i].text));
        CHECK_FOR(rows[i].text, r == 0 || strstr(err.msg, "belongs to another program"));
    }
    (void)unlink("out"); /* also one that was put in the place of ours */
    CHECK(lines_calls.open(&s, &err) == 0 && rename("out", "out.1") == 0);
    write_file("out", "a note");
    CHECK(lines_calls.send(&s, &batch, &err) < 0 && holds("out", "a note"));
    scope_close(&s.fd);
    close_scene();
    return 0;
}
