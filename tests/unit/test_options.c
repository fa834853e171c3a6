/* SPDX-License-Identifier: Apache-2.0 */
/* cli/options: the command line of `carrel run`; cli/encode: bytes in JSON. */
#include "unit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "json/encode.h"

/* One parsed command line. Every word is a block of its own, so that reading past its end is seen.
 */
struct line {
    struct run_options o;
    struct err err;
    char *words[CLI_MAX_ENV + 16];
    int count;
    int result;
};

static void line_clear(struct line *line)
{
    run_options_clear(&line->o);
    for (int i = 0; i < line->count; i++)
        free(line->words[i]);
}

static void line_add(struct line *line, const char *word, size_t n)
{
    line->words[line->count++] = strndup(word, n);
}

static void line_parse(struct line *line)
{
    line->result = run_options_parse(&line->o, line->count, line->words, &line->err);
}

/* `text` is the words after "run", with bars between them. */
static void line_read(struct line *line, const char *text)
{
    memset(line, 0, sizeof(*line));
    line_add(line, "run", 3);
    while (text) {
        line_add(line, text, strcspn(text, "|"));
        text = strchr(text, '|');
        text = text ? text + 1 : NULL;
    }
    line_parse(line);
}

#define LINE(name, text)                                                                           \
    __attribute__((cleanup(line_clear))) struct line name;                                         \
    line_read(&name, text)

static bool is(const char *text, const char *expected)
{
    return text && strcmp(text, expected) == 0;
}

/* --- what is understood --- */

TEST(nothing_asked_for_is_nothing_set)
{
    LINE(line, "--|true");
    const struct carrel_spec *spec = &line.o.spec;

    CHECK(line.result == 0);
    CHECK(!spec->workspace && !spec->create && !spec->at && !spec->cwd && !spec->tty);
    CHECK(spec->level == CARREL_LEVEL_AUTO);
    CHECK(spec->net == CARREL_NET_DEFAULT);
    CHECK(spec->user == CARREL_USER_DEFAULT);
    CHECK(spec->mount_count == 0);
    CHECK(spec->env && !spec->env[0]);
    CHECK(spec->timeout_ms == 0 && spec->tmp_bytes == 0 && spec->output_bytes == 0);
    CHECK(!spec->limits.memory_bytes && !spec->limits.pids && !spec->limits.cpu_milli);
    CHECK(!spec->limits.io_bytes && !spec->limits.disk_bytes && !spec->limits.disk_files);
    CHECK(!line.o.json && !line.o.explain && !line.o.help && !line.o.no_tty);
    CHECK(!line.o.policy_path && !line.o.stdin_path);
    return 0;
}

TEST(every_option_is_taken)
{
    LINE(line, "--workspace|W|--create|--level|dir|--net|host|--user|root|--env|A=1|--env|B=|"
               "--cwd|/c|--timeout|30s|--tmp-size|1M|--max-output|2K|--stdin|in|--no-tty|"
               "--policy|p|--json|--explain|--ro|/r|--rw|/w:/v|--memory|1G|--pids|7|--cpu|1.5|"
               "--io|3M|--disk=image:2G|--files|9|--layer|s:t:/d/e:L|--layer-ro=/s:/d:/l|--|true");
    const struct carrel_spec *spec = &line.o.spec;

    CHECK_FOR(line.err.msg, line.result == 0);
    CHECK(is(spec->workspace, "W") && spec->create);
    CHECK(spec->level == CARREL_LEVEL_DIR);
    CHECK(spec->net == CARREL_NET_HOST);
    CHECK(spec->user == CARREL_USER_ROOT);
    CHECK(is(spec->env[0], "A=1") && is(spec->env[1], "B=") && !spec->env[2]);
    CHECK(is(spec->cwd, "/c"));
    CHECK(spec->timeout_ms == 30000 && spec->tmp_bytes == 1 << 20 && spec->output_bytes == 2048);
    CHECK(spec->limits.memory_bytes == 1UL << 30 && spec->limits.pids == 7);
    CHECK(spec->limits.cpu_milli == 1500 && spec->limits.io_bytes == 3 << 20);
    CHECK(spec->limits.disk_bytes == 2UL << 30 && spec->limits.disk_image);
    CHECK(spec->limits.disk_files == 9);
    CHECK(is(line.o.stdin_path, "in") && is(line.o.policy_path, "p"));
    CHECK(line.o.no_tty && line.o.json && line.o.explain);
    CHECK(spec->mount_count == 4);
    CHECK(is(spec->mounts[0].source, "/r") && !spec->mounts[0].target);
    CHECK(!spec->mounts[0].writable && !spec->mounts[0].layer);
    CHECK(is(spec->mounts[1].source, "/w") && is(spec->mounts[1].target, "/v"));
    CHECK(spec->mounts[1].writable && !spec->mounts[1].layer);
    CHECK(is(spec->mounts[2].source, "s:t") && is(spec->mounts[2].target, "/d/e"));
    CHECK(spec->mounts[2].writable && is(spec->mounts[2].layer, "L"));
    CHECK(is(spec->mounts[3].source, "/s") && is(spec->mounts[3].target, "/d"));
    CHECK(!spec->mounts[3].writable && is(spec->mounts[3].layer, "/l"));
    return 0;
}

TEST(words_choose_levels_networks_and_users)
{
    LINE(first, "--level|ns|--net|none|--user|user|--at|/here|--tty|true");
    LINE(second, "--level=auto|true");

    CHECK(first.result == 0 && second.result == 0);
    CHECK(first.o.spec.level == CARREL_LEVEL_NS);
    CHECK(first.o.spec.net == CARREL_NET_NONE);
    CHECK(first.o.spec.user == CARREL_USER_USER);
    CHECK(is(first.o.spec.at, "/here"));
    CHECK(first.o.spec.tty);
    CHECK(second.o.spec.level != CARREL_LEVEL_DIR); /* whatever auto is, it is not that */
    return 0;
}

TEST(a_plan_begins_goes_on_and_stays_open)
{
    LINE(first, "--plan|true");
    LINE(second, "--plan|--plan-id|p1|--keep-open|--workspace|w|true");

    CHECK(first.result == 0 && first.o.plan && !first.o.plan_id && !first.o.keep_open);
    CHECK(second.result == 0 && second.o.plan && is(second.o.plan_id, "p1") && second.o.keep_open);
    CHECK(!second.o.spec.plan); /* where it lies is found out later */
    return 0;
}

TEST(the_last_of_an_option_given_twice_counts)
{
    LINE(line, "--net|host|--net|none|--timeout|1h|--timeout|1s|true");

    CHECK(line.result == 0);
    CHECK(line.o.spec.net == CARREL_NET_NONE);
    CHECK(line.o.spec.timeout_ms == 1000);
    return 0;
}

TEST(the_command_begins_at_the_first_word_that_is_no_option)
{
    static const char *const lines[] = {"--|echo|--json", "echo|--json", "--no-tty|--|echo|--json",
                                        "--no-tty|echo|--json"};

    for (size_t i = 0; i < LENGTH(lines); i++) {
        LINE(line, lines[i]);
        CHECK_FOR(lines[i], line.result == 0);
        CHECK_FOR(lines[i], is(line.o.spec.argv[0], "echo") && is(line.o.spec.argv[1], "--json"));
        CHECK_FOR(lines[i], !line.o.spec.argv[2]);
        CHECK_FOR(lines[i], !line.o.json);
    }
    return 0;
}

TEST(a_command_may_look_like_an_option_after_two_dashes)
{
    LINE(line, "--|--json|--");

    CHECK(line.result == 0);
    CHECK(is(line.o.spec.argv[0], "--json") && is(line.o.spec.argv[1], "--"));
    return 0;
}

TEST(a_shell_line_becomes_a_command_for_the_shell)
{
    LINE(line, "-c|echo hi; exit 3");

    CHECK(line.result == 0);
    CHECK(is(line.o.spec.argv[0], "/bin/sh") && is(line.o.spec.argv[1], "-c"));
    CHECK(is(line.o.spec.argv[2], "echo hi; exit 3") && !line.o.spec.argv[3]);
    return 0;
}

TEST(help_needs_no_command)
{
    LINE(longer, "--help");
    LINE(shorter, "-h");

    CHECK(longer.result == 0 && longer.o.help);
    CHECK(shorter.result == 0 && shorter.o.help);
    return 0;
}

TEST(a_mount_is_divided_at_the_last_colon_before_a_slash)
{
    static const struct {
        const char *text;
        const char *source;
        const char *target;
    } mounts[] = {
        {"/a", "/a", NULL},        {"/a:/b", "/a", "/b"},     {"a:/b", "a", "/b"},
        {"/a:b", "/a:b", NULL},    {"/a:b:/c", "/a:b", "/c"}, {"/a:/b:/c", "/a:/b", "/c"},
        {"/a:/b:c", "/a", "/b:c"}, {"/a:", "/a:", NULL},      {"/a::/b", "/a:", "/b"},
    };

    for (size_t i = 0; i < LENGTH(mounts); i++) {
        char text[64];
        snprintf(text, sizeof(text), "--ro|%s|true", mounts[i].text);
        LINE(line, text);
        CHECK_FOR(text, line.result == 0);
        CHECK_FOR(text, is(line.o.spec.mounts[0].source, mounts[i].source));
        CHECK_FOR(text, mounts[i].target ? is(line.o.spec.mounts[0].target, mounts[i].target)
                                         : !line.o.spec.mounts[0].target);
    }
    return 0;
}

/* --- what is refused, and the word the message must hold --- */

static const struct {
    const char *words;
    const char *says;
} refused[] = {
    {"--keep-open|--|true", "--plan"},
    {"--plan-id|p1|--|true", "--plan"},
    {"--plan|--plan-id||--|true", "--plan-id"},
    {"--plan|--workspace|w|--create|--|true", "--create"},
    {"--plan=x|--|true", "no value"},
    {"--", "no command"},
    {"--json", "no command"},
    {"-c|true|echo", "not both"},
    {"-c|true|--|echo", "not both"},
    {"-c", "-c"},
    {"--bogus|true", "--bogus"},
    {"-x|true", "-x"},
    {"-xy|true", "-x"},
    {"--create=yes|--workspace|w|true", "--create"},
    {"--timeo|1s|true", "--timeo"}, /* options are not guessed from their beginning */
    {"--workspace", "--workspace"},
    {"--workspace||true", "--workspace"},
    {"--workspace=|true", "--workspace"},
    {"--level||true", "--level"},
    {"--level|NS|true", "--level"},
    {"--level|landlock|true", "--level"},
    {"--net||true", "--net"},
    {"--net|all|true", "--net"},
    {"--user|0|true", "--user"},
    {"--user||true", "--user"},
    {"--cwd|sub|true", "--cwd"},
    {"--cwd||true", "--cwd"},
    {"--env|A|true", "--env"},
    {"--env||true", "--env"},
    {"--env|=x|true", "--env"},
    {"--timeout|0s|true", "--timeout"},
    {"--timeout|10|true", "--timeout"},
    {"--timeout|-1s|true", "--timeout"},
    {"--timeout|18446744073709552s|true", "--timeout"},
    {"--tmp-size|0|true", "--tmp-size"},
    {"--tmp-size|-1|true", "--tmp-size"},
    {"--tmp-size|16777217T|true", "--tmp-size"},
    {"--max-output|0|true", "--max-output"},
    {"--max-output|1x|true", "--max-output"},
    {"--ro||true", "--ro"},
    {"--ro|rel|true", "--ro"},
    {"--ro|:/x|true", "--ro"},
    {"--rw|../x|true", "--rw"},
    {"--rw|:|true", "--rw"},
    {"--layer|/s|true", "--layer"},
    {"--layer|/s:/d|true", "--layer"},
    {"--layer|/s:/d:|true", "--layer"},
    {"--layer|s:d:l|true", "--layer"},
    {"--layer|::|true", "--layer"},
    {"--layer-ro|:/d:/l|true", "--layer-ro"},
    {"--create|true", "--create"},
    {"--at|/x|--workspace|w|true", "--at"},
    {"--tty|--no-tty|true", "--tty"},
    {"--tty|--json|true", "--json"},
};

TEST(what_is_not_understood_or_does_not_go_together_is_refused_in_words)
{
    for (size_t i = 0; i < LENGTH(refused); i++) {
        LINE(line, refused[i].words);
        CHECK_FOR(refused[i].words, line.result == -1);
        CHECK_FOR(refused[i].words, line.err.code == ERR_INVALID);
        CHECK_FOR(line.err.msg, strstr(line.err.msg, refused[i].says) != NULL);
    }
    return 0;
}

TEST(a_run_without_any_word_is_refused)
{
    __attribute__((cleanup(line_clear))) struct line line = {0};

    line_add(&line, "run", 3);
    line_parse(&line);
    CHECK(line.result == -1);
    return 0;
}

/* --- ceilings --- */

TEST(as_many_mounts_and_variables_as_fit_and_not_one_more)
{
    static const struct {
        const char *word;
        int most;
    } options[] = {{"--ro=/m", CLI_MAX_MOUNTS}, {"--env=A=1", CLI_MAX_ENV}};

    for (size_t i = 0; i < LENGTH(options); i++) {
        for (int more = 0; more < 2; more++) {
            __attribute__((cleanup(line_clear))) struct line line = {0};
            line_add(&line, "run", 3);
            for (int n = 0; n < options[i].most + more; n++)
                line_add(&line, options[i].word, strlen(options[i].word));
            line_add(&line, "true", 4);
            line_parse(&line);
            CHECK_FOR(options[i].word, line.result == (more ? -1 : 0));
            CHECK_FOR(options[i].word, !more || line.err.code == ERR_LIMIT);
        }
    }
    return 0;
}

TEST(an_overlong_word_is_refused_without_overrunning_the_message)
{
    static char words[100000];

    memset(words, 'x', sizeof(words) - 1);
    memcpy(words, "--timeout|", 10);
    LINE(line, words);
    CHECK(line.result == -1);
    memcpy(words, "--xxxxxxxx", 10);
    LINE(unknown, words);
    CHECK(unknown.result == -1);
    return 0;
}

/* --- bytes in JSON --- */

TEST(text_stays_text_and_other_bytes_become_base64)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *key;
        const char *value;
    } cases[] = {
        {NULL, 0, "stdout", ""},
        {"", 0, "stdout", ""},
        {"hi\n", 3, "stdout", "hi\n"},
        {"\xc3\xa9", 2, "stdout", "\xc3\xa9"},
        {"\xff", 1, "stdout_b64", "/w=="},
        {"\xff\xfe", 2, "stdout_b64", "//4="},
        {"\xff\xfe\xfd", 3, "stdout_b64", "//79"},
        {"a\xff\x00z", 4, "stdout_b64", "Yf8Aeg=="},
        {"\xc3", 1, "stdout_b64", "ww=="},                 /* a character cut in half */
        {"\xc0\xaf", 2, "stdout_b64", "wK8="},             /* overlong */
        {"\xed\xa0\x80", 3, "stdout_b64", "7aCA"},         /* half a surrogate pair */
        {"\xf4\x90\x80\x80", 4, "stdout_b64", "9JCAgA=="}, /* beyond Unicode */
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        json_t *object = json_object();
        encode_bytes(object, "stdout", cases[i].bytes, cases[i].n);
        const char *value = json_string_value(json_object_get(object, cases[i].key));
        bool right = json_object_size(object) == 1 && is(value, cases[i].value);
        json_decref(object);
        CHECK_FOR(cases[i].value, right);
    }
    return 0;
}

TEST(a_nul_byte_in_text_survives)
{
    json_t *object = json_object();

    encode_bytes(object, "stderr", "a\0b", 3);
    size_t n = json_string_length(json_object_get(object, "stderr"));
    json_decref(object);
    CHECK(n == 3);
    return 0;
}
