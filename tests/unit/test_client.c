/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the command line's client. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "client/core/args.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/core/where.h"
#include "client/files/files.h"
#include "unit.h"

static bool escapes_to(const char *bytes, size_t n, const char *expected)
{
    struct buf b;

    buf_init(&b, 4096);
    text_escape(&b, bytes, n);
    bool same = buf_done(&b) == 0 && strcmp(b.p, expected) == 0;
    if (!same)
        printf("    got '%s'\n", b.p ? b.p : "");
    buf_clear(&b);
    return same;
}

TEST(text_that_drives_a_terminal_is_escaped)
{
    static const struct {
        const char *from;
        const char *to;
    } rows[] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\x1b[2J\r\n\t\x7f", "\\x1b[2J\\x0d\\x0a\\x09\\x7f"},
        {"\xc2\x9b", "\\u{9b}"},       /* CSI in one character */
        {"\xe2\x80\xae", "\\u{202e}"}, /* right to left from here */
        {"\xef\xbb\xbf", "\\u{feff}"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"\xc0\xaf", "\\xc0\\xaf"},          /* overlong */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* half of a pair */
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].to, escapes_to(rows[i].from, strlen(rows[i].from), rows[i].to));
    CHECK(escapes_to("a\0b", 3, "a\\x00b"));
    CHECK(text_width("gr\xc3\xbc\xc3\x9f") == 4);
    return 0;
}

static int decode(const char *text, struct buf *b)
{
    buf_init(b, 4096);
    int r = bytes_add_decoded(b, text, strlen(text));
    if (buf_done(b) < 0)
        return -1;
    return r;
}

TEST(base64_is_decoded_or_refused)
{
    static const char *const bad[] = {
        "A",        "AAA",  "AA=A", "A===",     "====", "AA*=", "AAAA=AAA",
        "AA==AAAA", "A=BC", "=AAA", "====AAAA", "AB==", "AAB=", "AA\xc3\xa9"};
    struct buf b;

    CHECK(decode("", &b) == 0 && b.n == 0);
    buf_clear(&b);
    CHECK(decode("AP/+", &b) == 0 && b.n == 3 && memcmp(b.p, "\0\xff\xfe", 3) == 0);
    buf_clear(&b);
    CHECK(decode("aGk=", &b) == 0 && b.n == 2 && memcmp(b.p, "hi", 2) == 0);
    buf_clear(&b);
    CHECK(decode("aGVsbG8hIQ==", &b) == 0 && b.n == 7 && memcmp(b.p, "hello!!", 7) == 0);
    buf_clear(&b);
    for (size_t i = 0; i < LENGTH(bad); i++) {
        CHECK_FOR(bad[i], decode(bad[i], &b) < 0);
        buf_clear(&b);
    }
    return 0;
}

TEST(names_are_encoded_for_a_path)
{
    struct buf b;

    buf_init(&b, 256);
    text_url(&b, "a/b?c=%&\xc3\xbc ~._-");
    CHECK(buf_done(&b) == 0 && strcmp(b.p, "a%2Fb%3Fc%3D%25%26%C3%BC%20~._-") == 0);
    buf_clear(&b);
    return 0;
}

TEST(times_are_read_and_told)
{
    char text[TEXT_SHORT];
    int64_t then = text_parse_time("2026-01-02T03:04:05.678Z");

    CHECK(then == 1767323045678);
    CHECK(text_parse_time("2026-01-02T03:04:05.678901Z") == then);
    CHECK(text_parse_time("2026-01-02T03:04:05Z") == then - 678);
    CHECK(text_parse_time("2026-01-02") == -1);
    CHECK(text_parse_time("2026-01-02T03:04:05+01:00") == -1);
    CHECK(text_parse_time("") == -1);
    CHECK(strcmp(text_ago(then + 5000, then, text), "5s ago") == 0);
    CHECK(strcmp(text_ago(then - 5000, then, text), "0s ago") == 0);
    CHECK(strcmp(text_ago(then + 180000, then, text), "3m ago") == 0);
    CHECK(strcmp(text_ago(then + 26 * 3600000LL, then, text), "26h ago") == 0);
    CHECK(strcmp(text_ago(then + 9 * 86400000LL, then, text), "9d ago") == 0);
    CHECK(strcmp(text_ago(then + 90 * 86400000LL, then, text), "2026-01-02") == 0);
    return 0;
}

TEST(sizes_are_short)
{
    char text[TEXT_SHORT];

    CHECK(strcmp(text_bytes(0, text), "0") == 0);
    CHECK(strcmp(text_bytes(1023, text), "1023") == 0);
    CHECK(strcmp(text_bytes(1536, text), "1.5K") == 0);
    CHECK(strcmp(text_bytes(12UL << 20, text), "12M") == 0);
    CHECK(strcmp(text_bytes(UINT64_MAX, text), "16E") == 0);
    return 0;
}

TEST(signals_have_names_and_numbers)
{
    CHECK(text_signal("TERM") == SIGTERM && text_signal("sigint") == SIGINT);
    CHECK(text_signal("9") == SIGKILL && text_signal("64") == 64);
    CHECK(!text_signal("0") && !text_signal("65") && !text_signal("FOO") && !text_signal("") &&
          !text_signal("9x") && !text_signal("-9") && !text_signal("SIG"));
    return 0;
}

TEST(columns_are_aligned_and_cut)
{
    static const char *const heads[] = {"ID", "STATE", "NAME", NULL};
    static const char *const first[] = {"w\xc3\xbc", "awake", "a\nb"};
    static const char *const second[] = {"longer", NULL, "0123456789abcdef"};
    struct table table;
    struct buf b;

    table_open(&table, heads);
    table_add(&table, first);
    table_add(&table, second);
    buf_init(&b, 4096);
    CHECK(table_print(&table, &b, 0, false) == 0);
    CHECK(strcmp(b.p, "ID      STATE  NAME\n"
                      "w\xc3\xbc      awake  a\\x0ab\n"
                      "longer  -      0123456789abcdef\n") == 0);
    buf_clear(&b);
    CHECK(table_print(&table, &b, 25, true) == 0);
    CHECK(strstr(b.p, "\033[32mawake\033[0m  a\\x0ab\n") && strstr(b.p, "-      0123456789\n"));
    buf_clear(&b);
    table_close(&table);
    return 0;
}

struct parsed {
    struct args_common common;
    bool flag;
    const char *text;
    struct args_list list;
    const char *words[4];
    struct err err;
};

static int parse(struct parsed *p, const char **argv)
{
    const struct args_rule rules[] = {{"--flag", NULL, NULL, ARGS_FLAG, &p->flag},
                                      {"-n", "TEXT", "a text", ARGS_TEXT, &p->text},
                                      {"--list", "ITEM", "one more", ARGS_EVERY, &p->list},
                                      {0}};

    memset(p, 0, sizeof(*p));
    p->common.verb = "verb";
    return args_all((char **)argv, rules, &p->common, p->words, 2, &p->err);
}

TEST(options_and_words_mix)
{
    static struct parsed p;

    CHECK(parse(&p, (const char *[]){"a", "--flag", "-n", "3", "b", "--list=x=y", "--list", "z",
                                     "--json", "--state", "d", NULL}) == 0);
    CHECK(p.flag && p.common.json && !p.common.help && strcmp(p.text, "3") == 0);
    CHECK(strcmp(p.words[0], "a") == 0 && strcmp(p.words[1], "b") == 0 && !p.words[2]);
    CHECK(p.list.count == 2 && strcmp(p.list.items[0], "x=y") == 0);
    CHECK(strcmp(p.common.state, "d") == 0);
    CHECK(parse(&p, (const char *[]){"--", "--flag", "-", NULL}) == 0);
    CHECK(!p.flag && strcmp(p.words[0], "--flag") == 0 && strcmp(p.words[1], "-") == 0);
    CHECK(parse(&p, (const char *[]){"-", NULL}) == 0 && strcmp(p.words[0], "-") == 0);
    return 0;
}

TEST(options_that_make_no_sense_are_refused)
{
    static struct parsed p;

    CHECK(parse(&p, (const char *[]){"--fla", NULL}) < 0 &&
          strstr(p.err.msg, "carrel verb --help"));
    CHECK(parse(&p, (const char *[]){"--flag=1", NULL}) < 0);
    CHECK(parse(&p, (const char *[]){"-n", NULL}) < 0);
    CHECK(parse(&p, (const char *[]){"-n=3", NULL}) < 0);
    CHECK(parse(&p, (const char *[]){"a", "b", "c", NULL}) < 0);
    return 0;
}

TEST(the_daemon_is_found_in_order)
{
    static struct where w;
    struct err err;

    (void)unsetenv("CARREL_URL");
    (void)unsetenv("CARREL_KEY");
    (void)setenv("CARREL_SOCKET", "/run/c.sock", 1);
    CHECK(where_daemon(NULL, &w, &err) == 0 && strcmp(w.socket, "/run/c.sock") == 0 && !w.key);
    CHECK(where_daemon("dir", &w, &err) == 0 && strcmp(w.socket, "dir/carrel.sock") == 0);
    (void)setenv("CARREL_URL", "http://h:1//", 1);
    (void)setenv("CARREL_KEY", "ck_1", 1);
    CHECK(where_daemon(NULL, &w, &err) == 0 && !w.socket[0] && strcmp(w.url, "http://h:1") == 0);
    CHECK(strcmp(w.key, "ck_1") == 0);
    CHECK(where_daemon("dir", &w, &err) == 0 && w.socket[0]);
    (void)setenv("CARREL_URL", "file:///etc/passwd", 1);
    CHECK(where_daemon(NULL, &w, &err) < 0);
    (void)unsetenv("CARREL_URL");
    (void)unsetenv("CARREL_SOCKET");
    CHECK(where_daemon("", &w, &err) < 0);
    CHECK(where_daemon("/a/path/that/is/longer/than/the/kernel/takes/for/a/socket/which/is/"
                       "one/hundred/and/seven/bytes/not/more",
                       &w, &err) < 0);
    return 0;
}

TEST(the_state_has_a_default)
{
    char path[WHERE_PATH];
    struct err err;

    (void)setenv("HOME", "/home/u", 1);
    (void)setenv("XDG_STATE_HOME", "relative", 1);
    CHECK(where_state(NULL, path, sizeof(path), &err) == 0);
    CHECK(strcmp(path, geteuid() == 0 ? "/var/lib/carrel" : "/home/u/.local/state/carrel") == 0);
    (void)setenv("XDG_STATE_HOME", "/s", 1);
    CHECK(where_state(NULL, path, sizeof(path), &err) == 0);
    CHECK(strcmp(path, geteuid() == 0 ? "/var/lib/carrel" : "/s/carrel") == 0);
    CHECK(where_state("x", path, sizeof(path), &err) == 0 && strcmp(path, "x") == 0);
    CHECK(where_state("xxxx", path, 4, &err) < 0);
    return 0;
}

TEST(places_are_told_apart)
{
    static const struct {
        const char *word;
        const char *workspace; /* "": here */
        const char *path;      /* NULL: refused */
        bool folder;
    } rows[] = {
        {"desk:/a/b", "desk", "/a/b", false},
        {"desk:", "desk", "/", false},
        {"desk:/", "desk", "/", true},
        {"desk:a//./b/", "desk", "/a/b", true},
        {"a.b-c_1:/x", "a.b-c_1", "/x", false},
        {"desk:/a:b", "desk", "/a:b", false},
        {"desk:/\xff\n", "desk", "/\xff\n", false},
        {"desk:/...", "desk", "/...", false},
        {"desk:/a/../b", "desk", NULL, false},
        {"desk:..", "desk", NULL, false},
        {"/a:b", "", "/a:b", false},
        {"/nowhere/a", "", "/nowhere/a", false},
        {"-x:/usr", "", "", false}, /* an id begins with a letter or digit */
        {"../a:b", "", "", false},
        {"", "", NULL, false},
    };
    static struct client_path place;
    struct err err;
    char big[FILES_PATH + 16];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        int r = place_parse(rows[i].word, &place, &err);
        CHECK_FOR(rows[i].word, (r == 0) == (rows[i].path != NULL));
        if (r < 0)
            continue;
        CHECK_FOR(rows[i].word, place.local == (rows[i].workspace[0] == '\0'));
        CHECK_FOR(rows[i].word, strcmp(place.workspace, rows[i].workspace) == 0);
        CHECK_FOR(rows[i].word, !rows[i].path[0] || strcmp(place.path, rows[i].path) == 0);
        CHECK_FOR(rows[i].word, place.folder == rows[i].folder);
        CHECK_FOR(rows[i].word, place.path[0] == '/');
    }
    memset(big, 'x', sizeof(big));
    memcpy(big, "w:", 2);
    big[2 + FILES_PATH - 2] = '\0'; /* with its slash: 4095 */
    CHECK(place_parse(big, &place, &err) == 0);
    CHECK(place_enter(&place, "y", &err) < 0);
    big[2 + FILES_PATH - 2] = 'x';
    big[2 + FILES_PATH - 1] = '\0';
    CHECK(place_parse(big, &place, &err) < 0);
    memset(big, 'w', PLACE_ID); /* one more than an id has */
    memcpy(big + PLACE_ID, ":/x", 4);
    CHECK(place_parse(big, &place, &err) == 0 && place.local);
    return 0;
}

TEST(places_below_others)
{
    static struct client_path place;
    struct err err;

    CHECK(place_parse("w:/", &place, &err) == 0 && place_name(&place)[0] == '\0');
    CHECK(place_enter(&place, "a", &err) == 0 && strcmp(place.path, "/a") == 0);
    CHECK(place_enter(&place, "b", &err) == 0 && strcmp(place.path, "/a/b") == 0);
    CHECK(strcmp(place_name(&place), "b") == 0);
    return 0;
}
