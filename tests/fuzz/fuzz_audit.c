/* SPDX-License-Identifier: Apache-2.0 */
/* The audit record. The first byte chooses: the rest is the bytes of its files (0x1d begins the
 * next one), or the details of a record, or its texts, or what is done to a long record in order.
 * Whatever is taken for a record is JSON to another parser too; what the verifier calls whole, the
 * reader hands out line by line; and no text makes a line that is not one record. */
#include "fuzz.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/line.h"
#include "base/fd.h"

enum {
    FILES = 3
};

static char dir[] = "/tmp/fuzz-audit-XXXXXX";
static const char *const names[FILES] = {"000000001.jsonl", "000000002.jsonl", "000000003.jsonl"};
static int dir_fd = -1;

static void remove_dir(void)
{
    for (int i = 0; i < FILES; i++)
        (void)unlinkat(dir_fd, names[i], 0);
    (void)rmdir(dir);
}

static void make_dir(void)
{
    if (dir_fd >= 0)
        return;
    MUST(mkdtemp(dir));
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(dir_fd >= 0 && atexit(remove_dir) == 0);
}

/* Only numbers too large for it may be beyond jansson. */
static bool is_json(const char *p, size_t n)
{
    json_error_t error;
    json_t *json = json_loadb(p, n, JSON_ALLOW_NUL, &error);
    bool is_object =
        json ? json_is_object(json) : json_error_code(&error) == json_error_numeric_overflow;

    json_decref(json);
    return is_object;
}

static void write_file(int number, const char *p, size_t n)
{
    scoped_fd int fd =
        openat(dir_fd, names[number], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    /* Always whole lines: a torn one is waited for. */
    MUST(fd >= 0 && write(fd, p, n) == (ssize_t)n && write(fd, "\n", !n || p[n - 1] != '\n') >= 0);
}

static uint64_t read_all(uint64_t after)
{
    struct audit_reader *reader;
    const char *line;
    struct err err;
    uint64_t count = 0;
    size_t n;

    MUST(audit_reader_open(&reader, dir, after, &err) == 0);
    for (;;) {
        int rc = audit_reader_next(reader, &line, &n, &err);
        if (rc == 0)
            break;
        MUST(rc < 0 || (is_json(line, n) && !memchr(line, '\n', n)));
        count += rc > 0;
    }
    audit_reader_close(reader);
    return count;
}

static void try_files(const char *p, size_t n)
{
    struct audit_report report;
    struct err err;

    make_dir();
    for (int i = 0; i < FILES; i++) {
        const char *next = i + 1 < FILES && n ? memchr(p, 0x1d, n) : NULL;
        size_t length = next ? (size_t)(next - p) : n;
        if (p)
            write_file(i, p, length);
        else
            (void)unlinkat(dir_fd, names[i], 0);
        n -= next ? length + 1 : length;
        p = next ? next + 1 : NULL;
    }
    MUST(audit_verify(dir, NULL, &report, &err) == 0);
    MUST(!report.problem[0] == !report.file[0]);
    uint64_t count = read_all(0);
    if (report.problem[0])
        return;
    MUST(count == report.records && report.last_seq == count);
    MUST(read_all(count / 2) == count - count / 2 && read_all(count) == 0);
    MUST(audit_verify(dir, report.head, &report, &err) == 0 && !report.problem[0]);
}

static void try_record(const struct audit_record *record)
{
    struct audit_chain chain;
    struct audit_line line;
    struct buf b;

    audit_chain_init(&chain);
    buf_init(&b, AUDIT_LINE);
    audit_encode(&b, &chain, "2026-01-02T03:04:05.678901Z", record);
    MUST(buf_done(&b) == 0 && audit_parse(b.p, b.n, &line) && line.seq == 1);
    for (size_t i = 0; i < b.n; i++)
        MUST((unsigned char)b.p[i] >= 0x20 && b.p[i] != 0x7f);
    MUST(is_json(b.p, b.n));
    buf_clear(&b);
}

enum spoil {
    NOTHING,
    ONE_BYTE,    /* of the first file is another */
    SHORT_FIRST, /* the last line of the first file has no end */
    OTHER_HEAD,  /* another hash was kept elsewhere */
    LOST_FILE,   /* the second of three is gone */
    SPOILS
};

/* Adds one, and keeps the chain. */
static void add_record(struct buf *file, struct audit_chain *chain, const char *text)
{
    static const char time[] = "2026-01-02T03:04:05.678901Z";
    size_t at = file->n;

    audit_encode(file, chain, time, &(struct audit_record){text, "w", "r", "op", "ok", ""});
    MUST(buf_done(file) == 0 && audit_hash(file->p + at, file->n - at, chain->head) == 0);
    chain->seq++;
    memcpy(chain->time, time, AUDIT_TIME - 1);
    buf_str(file, "\n");
}

static void spoil(enum spoil how, struct buf *first, uint64_t where)
{
    scoped_fd int fd = openat(dir_fd, names[0], O_WRONLY | O_CLOEXEC);
    char byte = first->p[where % first->n];

    MUST(fd >= 0);
    byte = byte == 'x' ? 'y' : 'x';
    if (how == ONE_BYTE)
        MUST(pwrite(fd, &byte, 1, (off_t)(where % first->n)) == 1);
    else if (how == SHORT_FIRST)
        MUST(ftruncate(fd, (off_t)first->n - 1) == 0);
    else if (how == LOST_FILE)
        MUST(renameat(dir_fd, names[1], dir_fd, names[2]) == 0);
}

/* A record long enough to be searched by halving: 1 byte how long, 1 what is done to it, 2 where to
 * begin to read, the rest a text in it. */
static void try_long(const uint8_t *data, size_t size)
{
    static const char other[] = "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";
    uint64_t count = 2 + 2UL * data[0];
    enum spoil how = data[1] % SPOILS;
    uint64_t after = data[2] + 256UL * data[3];
    struct audit_report report;
    struct audit_chain chain;
    struct buf files[2];
    struct err err;
    char text[64] = "";

    make_dir();
    memcpy(text, data + 4, size - 4 < sizeof(text) - 1 ? size - 4 : sizeof(text) - 1);
    audit_chain_init(&chain);
    (void)unlinkat(dir_fd, names[2], 0);
    for (int i = 0; i < 2; i++) {
        buf_init(&files[i], 1 << 20);
        for (uint64_t n = 0; n < count / 2; n++)
            add_record(&files[i], &chain, text);
        MUST(buf_done(&files[i]) == 0);
        write_file(i, files[i].p, files[i].n);
    }
    spoil(how, &files[0], after * 7);
    MUST(audit_verify(dir, how == OTHER_HEAD ? other : chain.head, &report, &err) == 0);
    MUST(!report.problem[0] == (how == NOTHING));
    uint64_t got = read_all(after);
    MUST((how != NOTHING && how != OTHER_HEAD) || got == (after < count ? count - after : 0));
    buf_clear(&files[0]);
    buf_clear(&files[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    char *exact = malloc(size); /* the rest, and a NUL */
    memcpy(exact, data + 1, size - 1);
    exact[size - 1] = '\0';
    if (data[0] == 'd') {
        MUST(!audit_is_object(exact, size - 1) || is_json(exact, size - 1));
        try_record(&(struct audit_record){"", "", "", "", "", exact});
    } else if (data[0] == 't') {
        try_record(&(struct audit_record){exact, exact, exact, exact, exact, ""});
    } else if (data[0] == 'l' && size > 4) {
        try_long(data + 1, size - 1);
    } else {
        try_files(exact, size - 1);
    }
    free(exact);
    return 0;
}
