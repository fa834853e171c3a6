/* SPDX-License-Identifier: Apache-2.0 */
/* How a plan is shown to a person. */
#include <stdlib.h>
#include <string.h>

#include "client/plan/plan_tree.h"
#include "unit.h"

static bool shown(const char *json, size_t lines, bool colours, struct buf *ret)
{
    json_t *operations = json_loads(json, 0, NULL);
    struct changes changes;
    struct err err = {0};

    buf_init(ret, 1 << 24);
    bool read = changes_read(&changes, operations, &err) == 0;
    if (read) {
        changes_print(&changes, ret, lines, colours);
        changes_print_summary(&changes, ret);
    }
    changes_clear(&changes);
    json_decref(operations);
    return buf_done(ret) == 0 && read;
}

static bool shows(const char *json, const char *expected)
{
    struct buf b;
    bool same = shown(json, SIZE_MAX, false, &b) && strcmp(b.p, expected) == 0;

    if (!same)
        printf("    got\n%s", b.p ? b.p : "nothing\n");
    buf_clear(&b);
    return same;
}

TEST(each_kind_has_its_mark_and_what_matters_of_it)
{
    static const struct {
        const char *json;
        const char *text;
    } rows[] = {
        {"[]", "0 changes\n"},
        {"[{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"0755\"}]",
         "  + a/\n1 change: 1 directory made\n"},
        {"[{\"op\":\"create\",\"path\":\"run\",\"type\":\"file\",\"mode\":\"0755\",\"size\":2048}]",
         "  + run                                     2.0K, executable (x)\n"
         "1 change: 1 created; 2.0K of new content\n"},
        {"[{\"op\":\"write\",\"path\":\"n\",\"type\":\"file\",\"mode\":\"0644\",\"size\":5,"
         "\"base\":{\"mode\":\"0644\",\"size\":3}}]",
         "  ~ n                                       5, was 3\n"
         "1 change: 1 written; 5 of new content\n"},
        {"[{\"op\":\"symlink\",\"path\":\"l\",\"target\":\"/etc/x\",\"type\":\"symlink\","
         "\"mode\":\"0777\"}]",
         "  + l -> /etc/x\n1 change: 1 link\n"},
        {"[{\"op\":\"move\",\"path\":\"b/f\",\"from\":\"a/f\",\"type\":\"file\",\"mode\":\"0644\","
         "\"base\":{\"mode\":\"0644\",\"size\":9}}]",
         "  b/\n    \xe2\x86\x92 f                                     moved from a/f\n"
         "1 change: 1 moved\n"},
        {"[{\"op\":\"delete\",\"path\":\"old\",\"type\":\"directory\",\"mode\":\"0755\","
         "\"entries\":1932,\"bytes\":4096,\"base\":{\"mode\":\"0755\",\"size\":4096}}]",
         "  - old/                                    1,932 things in it, 4.0K\n"
         "1 change: 1 deleted\n"},
        {"[{\"op\":\"chmod\",\"path\":\"s\",\"type\":\"file\",\"mode\":\"0755\","
         "\"base\":{\"mode\":\"0644\",\"size\":1}}]",
         "  ~ s                                       mode 0755, was 0644, becomes executable (x)\n"
         "1 change: 1 mode changed\n"},
        {"[{\"op\":\"mkdir\",\"path\":\"d\",\"type\":\"directory\",\"mode\":\"0755\","
         "\"attributes\":{\"user.a\":\"\",\"user.b\\u001b\":\"\"}}]",
         "  + d/                                      with user.a, user.b\\x1b\n"
         "1 change: 1 directory made\n"},
        {"[{\"op\":\"create\",\"path\":\"f\",\"type\":\"file\",\"mode\":\"0644\",\"size\":1,"
         "\"attributes\":{\"user.a\":\"\",\"user.b\":\"\",\"user.c\":\"\",\"user.d\":\"\",\"user."
         "e\":"
         "\"\"}}]",
         "  + f                                       1, with user.a, user.b, user.c and 2 more\n"
         "1 change: 1 created; 1 of new content\n"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].json, shows(rows[i].json, rows[i].text));
    return 0;
}

TEST(what_lies_in_a_directory_stands_below_it)
{
    CHECK(shows("[{\"op\":\"create\",\"path\":\"a.b\",\"type\":\"file\",\"mode\":\"0644\"},"
                "{\"op\":\"create\",\"path\":\"a/c\",\"type\":\"file\",\"mode\":\"0644\"},"
                "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"0755\"},"
                "{\"op\":\"create\",\"path\":\"x/y/z/1\",\"type\":\"file\",\"mode\":\"0644\"},"
                "{\"op\":\"create\",\"path\":\"x/y/z/2\",\"type\":\"file\",\"mode\":\"0644\"},"
                "{\"op\":\"delete\",\"path\":\"a\",\"type\":\"file\",\"mode\":\"0644\","
                "\"base\":{\"mode\":\"0644\",\"size\":7}}]",
                "  - a                                       7\n"
                "  + a/\n"
                "    + c                                     0\n"
                "  + a.b                                     0\n"
                "  x/y/z/\n"
                "    + 1                                     0\n"
                "    + 2                                     0\n"
                "6 changes: 1 directory made, 4 created, 1 deleted\n"));
    return 0;
}

TEST(names_cannot_drive_the_terminal)
{
    struct buf b;

    /* "\x1b[2J" as bytes that are no UTF-8 either, a target with a newline, an origin that turns */
    CHECK(
        shown("[{\"op\":\"create\",\"path_b64\":\"/xtbMko=\",\"type\":\"file\",\"mode\":\"0644\"},"
              "{\"op\":\"symlink\",\"path\":\"l\",\"target\":\"x\\ny\",\"type\":\"symlink\"},"
              "{\"op\":\"move\",\"path\":\"m\",\"from\":\"\\u202ertl\\u001b\",\"type\":\"file\"}]",
              SIZE_MAX, true, &b));
    CHECK(strstr(b.p, "\\xff\\x1b[2J") && strstr(b.p, "x\\x0ay") &&
          strstr(b.p, "\\u{202e}rtl\\x1b"));
    for (const char *at = b.p; (at = strchr(at, '\033')); at++)
        CHECK(at[1] == '[' && at[2 + strspn(at + 2, "0123456789")] == 'm'); /* colours of ours */
    buf_clear(&b);
    CHECK(!shown("[{\"op\":\"teleport\",\"path\":\"a\"}]", 1, false, &b));
    buf_clear(&b);
    CHECK(!shown("[{\"op\":\"create\",\"path_b64\":\"***\"}]", 1, false, &b));
    buf_clear(&b);
    return 0;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;

    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* `folders` at the top, as many in each of them, `files` in each. */
static bool many(int folders, int files, size_t lines, struct buf *ret)
{
    struct buf json;

    buf_init(&json, 1 << 26);
    buf_str(&json, "[");
    for (int i = 0; i < folders; i++)
        for (int j = 0; j < folders; j++)
            for (int k = 0; k < files; k++)
                buf_printf(&json,
                           "%s{\"op\":\"create\",\"path\":\"f%02d/g%02d/%04d\",\"type\":\"file\"}",
                           json.n > 1 ? "," : "", i, j, k);
    buf_str(&json, "]");
    bool done = buf_done(&json) == 0 && shown(json.p, lines, false, ret);
    buf_clear(&json);
    return done;
}

TEST(many_changes_are_cut_and_counted)
{
    static const int sizes[][2] = {{1, 5000}, {3, 700}, {17, 20}, {40, 3}, {60, 1}};
    struct buf b;

    for (size_t i = 0; i < LENGTH(sizes); i++) {
        CHECK(many(sizes[i][0], sizes[i][1], 60, &b));
        if (count_lines(b.p) > 75 || count_lines(b.p) < 15)
            printf("%s", b.p);
        CHECK(count_lines(b.p) <= 75 && count_lines(b.p) >= 15);
        unsigned long told = 0;
        for (const char *at = b.p; (at = strstr(at, "and ")); at++) {
            char *end;
            unsigned long n = strtoul(at + 4, &end, 10);
            while (*end == ',')
                n = n * 1000 + strtoul(end + 1, &end, 10);
            told += n;
        }
        for (const char *at = b.p; (at = strstr(at, "+ ")); at++)
            told++;
        CHECK(told == (unsigned long)(sizes[i][0] * sizes[i][0] * sizes[i][1]));
        buf_clear(&b);
        CHECK(many(sizes[i][0], sizes[i][1], SIZE_MAX, &b) && !strstr(b.p, "more"));
        buf_clear(&b);
    }
    CHECK(many(1, 5000, 60, &b) && strstr(b.p, "\xe2\x80\xa6 and 4,9") &&
          strstr(b.p, " more in f00/g00/\n"));
    buf_clear(&b);
    return 0;
}

TEST(where_most_happens_most_is_shown)
{
    struct buf json;
    struct buf b;

    buf_init(&json, 1 << 22);
    buf_str(&json, "[");
    for (int i = 0; i < 300; i++)
        buf_printf(&json, "{\"op\":\"delete\",\"path\":\"d%03d/x\",\"type\":\"file\"},", i);
    for (int i = 0; i < 9000; i++)
        buf_printf(&json, "%s{\"op\":\"create\",\"path\":\"z/%d/%d\",\"type\":\"file\"}",
                   i ? "," : "", i / 3000, i);
    buf_str(&json, "]");
    CHECK(buf_done(&json) == 0 && shown(json.p, 60, false, &b));
    CHECK(strstr(b.p, "  z/\n") && strstr(b.p, "+ 0 ") && strstr(b.p, "more in z/2/\n"));
    CHECK(count_lines(strstr(b.p, "  z/\n")) > 30);
    buf_clear(&json);
    buf_clear(&b);
    return 0;
}

TEST(a_path_of_two_thousand_names_is_shown)
{
    struct buf json;
    struct buf b;

    buf_init(&json, 65536);
    buf_str(&json, "[");
    for (int n = 2046; n <= 2047; n++) {
        buf_printf(&json, "%s{\"op\":\"create\",\"type\":\"file\",\"path\":\"",
                   n == 2047 ? "," : "");
        for (int i = 0; i < n; i++)
            buf_str(&json, "a/");
        buf_str(&json, "b\"}");
    }
    buf_str(&json, "]");
    CHECK(buf_done(&json) == 0 && shown(json.p, SIZE_MAX, false, &b));
    buf_clear(&b);
    CHECK(shown(json.p, 5, false, &b));
    buf_clear(&json);
    buf_clear(&b);
    return 0;
}
