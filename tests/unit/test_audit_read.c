/* SPDX-License-Identifier: Apache-2.0 */
/* audit/: every damage of a chain is found where it is, and readers go on behind it. */
#include "audit_scene.h"

#include "audit/line.h"

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
