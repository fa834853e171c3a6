/* SPDX-License-Identifier: Apache-2.0 */
/* base/: errors by value, bounded buffers, arenas, owned descriptors, misspelt names. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/answers.h"
#include "base/buf.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/names.h"
#include "base/near.h"
#include "base/text.h"

/* --- err --- */

TEST(each_code_of_an_answer_is_there_once_with_a_status_of_an_error)
{
    CHECK(err_answer(SAID_NOTHING)->code == NULL && err_answer(SAID_NOTHING)->status == 500);
    for (unsigned i = SAID_NOTHING + 1; i < SAID_COUNT_; i++) {
        const struct err_answer *answer = err_answer((enum err_said)i);
        CHECK_FOR(answer->code, answer->status >= 400 && answer->status < 600);
        CHECK_FOR(answer->code, err_said_of(answer->code) == (enum err_said)i);
    }
    return 0;
}

/* Whether a row of the table of this status names the code. */
static bool is_in_row(FILE *f, const struct err_answer *answer)
{
    char line[2048];
    char status[16];
    char code[64];
    bool found = false;

    snprintf(status, sizeof(status), "| %d |", answer->status);
    snprintf(code, sizeof(code), "`%s`", answer->code);
    rewind(f);
    while (!found && fgets(line, sizeof(line), f))
        found = strncmp(line, status, strlen(status)) == 0 && strstr(line, code);
    return found;
}

TEST(each_code_of_an_answer_is_documented_with_its_status)
{
    const char *src = getenv("SRC");
    char path[4096];

    snprintf(path, sizeof(path), "%s/docs/errors.md", src ? src : ".");
    FILE *f = fopen(path, "re");
    CHECK_FOR(path, f);
    for (unsigned i = SAID_NOTHING + 1; i < SAID_COUNT_; i++) {
        const struct err_answer *answer = err_answer((enum err_said)i);
        CHECK_FOR(answer->code, is_in_row(f, answer));
    }
    fclose(f);
    return 0;
}

TEST(what_carrel_plan_says_means_the_error_that_it_had)
{
    static const struct {
        enum err_code code;
        const char *says;
    } rows[] = {
        {ERR_NONE, "io_error"},
        {ERR_INVALID, "plan_invalid"},
        {ERR_DENIED, "plan_refused"},
        {ERR_LIMIT, "plan_limit"},
        {ERR_NOT_FOUND, "plan_not_found"},
        {ERR_CONFLICT, "plan_conflict"},
        {ERR_KERNEL, "unsupported"},
        {ERR_IO, "io_error"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct err_answer *answer = err_answer(err_said_by_plan(rows[i].code));
        CHECK_FOR(rows[i].says, strcmp(answer->code, rows[i].says) == 0);
        CHECK_FOR(rows[i].says, rows[i].code == ERR_NONE || answer->plan == rows[i].code);
    }
    CHECK(LENGTH(rows) == ERR_CODE_COUNT_);
    CHECK(err_answer(SAID_DISK_FULL)->plan == ERR_IO);
    CHECK(err_answer(SAID_PLAN_STALE)->plan == ERR_CONFLICT);
    CHECK(err_answer(SAID_FORBIDDEN)->plan == ERR_NONE);
    return 0;
}

TEST(codes_of_answers_are_told_apart_whole)
{
    struct err err = {.said = SAID_RESERVED};

    CHECK(err_said_of("not_found") == SAID_NOT_FOUND);
    CHECK(err_said_of("file_not_found") == SAID_FILE_NOT_FOUND);
    CHECK(err_said_of("reserved") == SAID_RESERVED);
    CHECK(err_said_of("not_foun") == SAID_NOTHING && err_said_of("not_found ") == SAID_NOTHING);
    CHECK(err_said_of("") == SAID_NOTHING && err_said_of(NULL) == SAID_NOTHING);
    CHECK(err_set(&err, ERR_IO, 0, "(not_found)") < 0 && err.said == SAID_NOTHING);
    err.said = SAID_READ_ONLY;
    CHECK(err_wrap(&err, "more") < 0 && err.said == SAID_READ_ONLY);
    return 0;
}

TEST(err_set_fills_all_fields_and_returns_minus_one)
{
    struct err err = {0};

    CHECK(err_set(&err, ERR_NOT_FOUND, ENOENT, "open '%s'", "/x") == -1);
    CHECK(err.code == ERR_NOT_FOUND);
    CHECK(err.os_errno == ENOENT);
    CHECK(strcmp(err.msg, "open '/x'") == 0);
    return 0;
}

TEST(err_wrap_puts_the_context_in_front_and_keeps_the_cause)
{
    struct err err = {0};

    err_set(&err, ERR_DENIED, EACCES, "open root");
    CHECK(err_wrap(&err, "start '%s'", "a1") == -1);
    CHECK(strcmp(err.msg, "start 'a1': open root") == 0);
    CHECK(err.code == ERR_DENIED);
    CHECK(err.os_errno == EACCES);
    return 0;
}

TEST(err_text_adds_the_systems_words_once_and_only_when_there_are_some)
{
    struct err err = {0};
    char text[128];

    err_set(&err, ERR_IO, EIO, "read");
    CHECK(strcmp(err_text(&err, text, sizeof(text)), "read: Input/output error") == 0);
    err_set(&err, ERR_INVALID, 0, "no command");
    CHECK(strcmp(err_text(&err, text, sizeof(text)), "no command") == 0);
    err_set(&err, ERR_IO, 123456, "odd"); /* as a hostile pid 1 might send */
    CHECK(strcmp(err_text(&err, text, sizeof(text)), "odd") == 0);
    return 0;
}

TEST(err_messages_are_cut_never_overrun)
{
    char big[4096];
    char small[8];
    struct err err;

    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    err_set(&err, ERR_IO, 0, "%s", big);
    CHECK(strlen(err.msg) == sizeof(err.msg) - 1);
    err_wrap(&err, "%s", big);
    CHECK(strlen(err.msg) == sizeof(err.msg) - 1);
    err_set(&err, ERR_IO, 0, "%.200s", big);
    err_wrap(&err, "%.300s", big);
    CHECK(strlen(err.msg) == sizeof(err.msg) - 1);
    CHECK(strlen(err_text(&err, small, sizeof(small))) == sizeof(small) - 1);
    return 0;
}

/* --- buf --- */

TEST(buf_keeps_what_was_added_in_order_and_terminated)
{
    scoped_buf struct buf b;

    buf_init(&b, 1000);
    buf_add(&b, "a\0b", 3);
    buf_str(&b, "-text-");
    buf_printf(&b, "%d", 42);
    buf_add(&b, "", 0);
    CHECK(buf_done(&b) == 0);
    CHECK(b.n == 11);
    CHECK(memcmp(b.p, "a\0b-text-42", 12) == 0);
    return 0;
}

TEST(buf_that_got_nothing_is_an_empty_text)
{
    scoped_buf struct buf b;

    buf_init(&b, 0);
    CHECK(buf_done(&b) == 0);
    CHECK(b.n == 0);
    CHECK(b.p[0] == '\0'); /* malloc gives it other bytes, the sanitizer's surely */
    return 0;
}

TEST(buf_fills_to_its_max_and_not_one_byte_further)
{
    scoped_buf struct buf exact;
    scoped_buf struct buf over;
    scoped_buf struct buf printed;

    buf_init(&exact, 5);
    buf_str(&exact, "12345");
    CHECK(buf_done(&exact) == 0);
    buf_init(&over, 5);
    buf_str(&over, "123456");
    CHECK(buf_done(&over) == -1);
    buf_init(&printed, 5);
    buf_printf(&printed, "%s", "123456");
    CHECK(buf_done(&printed) == -1);
    return 0;
}

TEST(buf_failure_sticks)
{
    scoped_buf struct buf b;

    buf_init(&b, 4);
    buf_str(&b, "ab");
    buf_str(&b, "cde");
    buf_str(&b, "f"); /* would fit by itself: a hole in the middle must not go unseen */
    CHECK(buf_done(&b) == -1);
    CHECK(b.n == 2);
    buf_clear(&b);
    CHECK(b.max == 4);
    buf_str(&b, "abcd");
    CHECK(buf_done(&b) == 0);
    return 0;
}

TEST(buf_sizes_that_overflow_are_refused)
{
    scoped_buf struct buf b;

    buf_init(&b, SIZE_MAX);
    buf_str(&b, "abc");
    buf_add(&b, "", SIZE_MAX - 1); /* 3 + this wraps around: not one byte of it may be touched */
    CHECK(buf_done(&b) == -1);
    CHECK(b.n == 3);
    return 0;
}

TEST(buf_grows_through_many_small_additions)
{
    scoped_buf struct buf b;

    buf_init(&b, 1 << 20);
    for (unsigned i = 0; i < 100000; i++)
        buf_add(&b, &"0123456789"[i % 10], 1);
    CHECK(buf_done(&b) == 0);
    CHECK(b.n == 100000);
    for (unsigned i = 0; i < 100000; i++)
        CHECK(b.p[i] == "0123456789"[i % 10]);
    return 0;
}

/* --- arena --- */

#define scoped_arena __attribute__((cleanup(arena_clear)))

TEST(arena_refuses_past_its_max)
{
    scoped_arena struct arena a = {.max = 16};

    CHECK(arena_alloc(&a, 8) != NULL);
    CHECK(arena_alloc(&a, 9) == NULL);
    CHECK(arena_alloc(&a, 8) != NULL); /* a refusal uses nothing up */
    CHECK(arena_alloc(&a, 1) == NULL);
    return 0;
}

TEST(arena_sizes_that_overflow_are_refused)
{
    scoped_arena struct arena a;

    arena_init(&a, SIZE_MAX);
    CHECK(arena_alloc(&a, 1) != NULL);
    CHECK(arena_alloc(&a, SIZE_MAX) == NULL);     /* with what is used */
    CHECK(arena_alloc(&a, SIZE_MAX - 1) == NULL); /* with the block's own head */
    CHECK(arena_copy(&a, "", SIZE_MAX - 1) == NULL);
    return 0;
}

TEST(arena_memory_is_zeroed_aligned_and_apart)
{
    scoped_arena struct arena a;
    char *blocks[16];

    arena_init(&a, 4096);
    for (size_t i = 0; i < LENGTH(blocks); i++) {
        blocks[i] = arena_alloc(&a, i + 1);
        CHECK(blocks[i] != NULL);
        CHECK((uintptr_t)blocks[i] % _Alignof(max_align_t) == 0);
        for (size_t at = 0; at <= i; at++)
            CHECK(blocks[i][at] == 0);
        memset(blocks[i], (int)i, i + 1);
    }
    for (size_t i = 0; i < LENGTH(blocks); i++)
        CHECK(blocks[i][i] == (char)i);
    return 0;
}

TEST(arena_copies_are_terminated_and_counted)
{
    scoped_arena struct arena a;

    arena_init(&a, 4 + 3); /* "abc" and "42" with their ends */
    CHECK(strcmp(arena_copy(&a, "abcdef", 3), "abc") == 0);
    CHECK(strcmp(arena_printf(&a, "%d", 42), "42") == 0);
    CHECK(arena_copy(&a, "", 0) == NULL);
    CHECK(arena_printf(&a, "%s", "") == NULL);
    return 0;
}

TEST(arena_starts_anew_when_cleared)
{
    scoped_arena struct arena a;

    arena_init(&a, 8);
    CHECK(arena_alloc(&a, 8) != NULL);
    arena_clear(&a);
    CHECK(arena_alloc(&a, 8) != NULL);
    return 0;
}

/* --- near --- */

TEST(a_name_that_is_near_is_suggested_and_no_other)
{
    static const struct {
        const char *name;
        int other;
    } rows[] = {{"exec", 1},
                {"env", 2},
                {"template", 3},
                {"ls", 4},
                {"a-name-that-is-longer-than-forty-letters-are", 5}};

    static const struct {
        const char *word;
        const char *hint;
    } cases[] = {
        {"exce", "; did you mean 'exec'?"},
        {"xec", "; did you mean 'exec'?"},
        {"exexc", "; did you mean 'exec'?"},
        {"templates", "; did you mean 'template'?"},
        {"tmeplaet", "; did you mean 'template'?"},
        {"temp", ""},
        {"l", ""},
        {"sl", ""},
        {"cexe", ""},
        {"", ""},
        {"a-name-that-is-longer-than-forty-letters-ar", ""},
        {"entirely-different", ""},
    };

    char hint[NEAR_HINT];

    for (size_t i = 0; i < LENGTH(cases); i++) {
        const char *word = cases[i].word;
        (void)near_hint(hint, word, strlen(word), rows, LENGTH(rows), sizeof(rows[0]));
        CHECK_FOR(word, strcmp(hint, cases[i].hint) == 0);
    }
    CHECK(strcmp(near_hint(hint, "exec=x", 4, rows, 0, sizeof(rows[0])), "") == 0);
    return 0;
}

/* --- texts --- */

TEST(a_text_is_copied_as_far_as_there_is_room_and_always_ends)
{
    char room[4] = "???";

    CHECK(text_copy(room, sizeof(room), "abc") && strcmp(room, "abc") == 0);
    CHECK(text_copy(room, sizeof(room), "") && strcmp(room, "") == 0);
    CHECK(!text_copy(room, sizeof(room), "abcd") && strcmp(room, "abc") == 0);
    CHECK(!text_copy(room, 1, "x") && strcmp(room, "") == 0);
    return 0;
}

TEST(a_character_of_utf8_is_read_by_the_letter)
{
    static const struct {
        const char *bytes;
        size_t n;
        size_t length; /* 0: none */
        uint32_t code;
    } cases[] = {
        {"a", 1, 1, 'a'},
        {"\xc3\xa9", 2, 2, 0xe9},
        {"\xe2\x82\xac", 3, 3, 0x20ac},
        {"\xf0\x9f\x90\xb1", 4, 4, 0x1f431},
        {"\xf4\x8f\xbf\xbf", 4, 4, 0x10ffff},
        {"", 0, 0, 0},
        {"\xc3", 1, 0, 0},
        {"\xe2\x82", 2, 0, 0},
        {"\x80", 1, 0, 0},
        {"\xc0\xaf", 2, 0, 0},
        {"\xe0\x80\xaf", 3, 0, 0},
        {"\xf0\x80\x80\xaf", 4, 0, 0},
        {"\xed\xa0\x80", 3, 0, 0},
        {"\xf4\x90\x80\x80", 4, 0, 0},
        {"\xf5\x80\x80\x80", 4, 0, 0},
        {"\xe2\x28\xa1", 3, 0, 0},
    };

    char which[12];

    for (size_t i = 0; i < LENGTH(cases); i++) {
        uint32_t code = 0;
        snprintf(which, sizeof(which), "%zu", i);
        CHECK_FOR(which, utf8_next(cases[i].bytes, cases[i].n, &code) == cases[i].length);
        CHECK_FOR(which, code == cases[i].code);
        CHECK_FOR(which, bytes_are_utf8(cases[i].bytes, cases[i].n) ==
                             (cases[i].length > 0 || cases[i].n == 0));
    }
    CHECK(!bytes_are_utf8("a\0b", 3));
    CHECK(utf8_cut("a\xe2\x82", 3) == 2 && utf8_cut("\xe2\x82\xac", 3) == 0);
    CHECK(utf8_cut("", 0) == 0 && utf8_cut("\x80\x80", 2) == 0);
    return 0;
}

TEST(hex_digits_are_counted_to_the_end)
{
    CHECK(bytes_are_hex("00af", 4) && bytes_are_hex("", 0));
    CHECK(!bytes_are_hex("00af", 3) && !bytes_are_hex("00af", 5) && !bytes_are_hex("00AF", 4));
    return 0;
}

TEST(a_path_is_judged_by_its_first_name_alone)
{
    CHECK(name_kind("usr") == NAME_SYSTEM && name_kind("lib64/x") == NAME_SYSTEM);
    CHECK(name_kind(".cache/pip") == NAME_CARREL && name_kind("etc") == NAME_CARREL);
    CHECK(name_kind(".venv.carrel-old/bin") == NAME_STAGED);
    CHECK(name_kind("us") == NAME_FREE && name_kind("usrs") == NAME_FREE);
    CHECK(name_kind("a/usr") == NAME_FREE && name_kind("") == NAME_FREE);
    CHECK(name_kind_n("usrx", 3) == NAME_SYSTEM && name_kind_n("usr", 2) == NAME_FREE);
    return 0;
}

/* Names whose sums are alike under the plain hashes that are used for such tables. */
TEST(names_that_fall_on_one_place_without_a_key_are_apart)
{
    CHECK(hash_text("Ez") != hash_text("FY") && hash_text("EzEz") != hash_text("FYFY"));
    CHECK(hash_text("name") == hash_bytes("name", 4) && hash_text("") != hash_text("a"));
    CHECK(hash_bytes("12345678", 8) != hash_bytes("12345678\0", 9));
    return 0;
}

TEST(a_digest_is_sha256)
{
    unsigned char bytes[DIGEST_BYTES];
    char hex[DIGEST_HEX];
    char same[DIGEST_HEX];

    CHECK(digest_hex("abc", 3, hex) == 0 && digest_bytes("abc", 3, bytes) == 0);
    CHECK(strcmp(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad") == 0);
    bytes_to_hex(bytes, sizeof(bytes), same);
    CHECK(strcmp(hex, same) == 0);
    return 0;
}

/* --- fd --- */

TEST(scoped_fd_is_closed_at_the_end_of_its_scope_and_errno_survives)
{
    int number;
    {
        scoped_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        number = fd;
        errno = ESRCH;
    }
    CHECK(errno == ESRCH);
    CHECK(fcntl(number, F_GETFD) == -1);
    return 0;
}

TEST(taken_fd_outlives_its_scope)
{
    int kept;
    {
        scoped_fd int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        kept = take_fd(&fd);
        CHECK(fd == -1);
    }
    CHECK(fcntl(kept, F_GETFD) == FD_CLOEXEC);
    scope_close(&kept);
    CHECK(kept == -1);
    return 0;
}
