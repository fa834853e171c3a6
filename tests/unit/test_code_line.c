/* SPDX-License-Identifier: Apache-2.0 */
/* front/code/line: what a kernel may say, and nothing else. */
#include "unit.h"

#include <string.h>

#include "front/code/line.h"

static enum code_line read_text(const char *text, char **ret)
{
    uint64_t run = 0;
    json_t *line = NULL;
    enum code_line kind = code_line_read(text, strlen(text), &run, &line);

    *ret = line ? json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(line);
    return run == 7 || kind == LINE_BAD ? kind : LINE_KINDS;
}

TEST(each_kind_has_its_members_and_no_others)
{
    static const struct {
        const char *text;
        enum code_line kind;
        const char *is;
    } rows[] = {
        {"{\"run\":7,\"type\":\"ready\",\"more\":1}", LINE_READY, "{\"type\":\"ready\"}"},
        {"{\"run\":7,\"type\":\"failed\",\"text\":\"x\"}", LINE_FAILED,
         "{\"text\":\"x\",\"type\":\"failed\"}"},
        {"{\"run\":7,\"type\":\"number_of_executions\",\"execution_count\":3}", LINE_COUNT,
         "{\"execution_count\":3,\"type\":\"number_of_executions\"}"},
        {"{\"run\":7,\"type\":\"stderr\",\"text\":\"x\",\"timestamp\":\"y\"}", LINE_OUTPUT,
         "{\"text\":\"x\",\"type\":\"stderr\"}"},
        {"{\"run\":7,\"type\":\"result\",\"is_main_result\":true,\"text\":\"2\",\"html\":null,"
         "\"json\":[1],\"data\":{},\"else\":1}",
         LINE_RESULT,
         "{\"data\":{},\"is_main_result\":true,\"json\":[1],\"text\":\"2\",\"type\":\"result\"}"},
        {"{\"run\":7,\"type\":\"error\",\"name\":\"n\",\"value\":\"v\",\"traceback\":\"t\"}",
         LINE_ERROR, "{\"name\":\"n\",\"traceback\":\"t\",\"type\":\"error\",\"value\":\"v\"}"},
        {"{\"run\":7,\"type\":\"end_of_execution\"}", LINE_END, "{\"type\":\"end_of_execution\"}"},
    };

    char *text;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CHECK_FOR(rows[i].text, read_text(rows[i].text, &text) == rows[i].kind);
        CHECK_FOR(rows[i].text, text && strcmp(text, rows[i].is) == 0);
        free(text);
    }
    return 0;
}

TEST(what_no_kernel_says_is_refused)
{
    static const char *const rows[] = {
        "",
        "x",
        "{",
        "[]",
        "{}",
        "{\"run\":7}",
        "{\"type\":\"ready\"}",
        "{\"run\":-1,\"type\":\"ready\"}",
        "{\"run\":7.5,\"type\":\"ready\"}",
        "{\"run\":\"7\",\"type\":\"ready\"}",
        "{\"run\":7,\"type\":\"keepalive\"}",
        "{\"run\":7,\"type\":\"stdout\"}",
        "{\"run\":7,\"type\":\"stdout\",\"text\":5}",
        "{\"run\":7,\"type\":\"result\"}",
        "{\"run\":7,\"type\":\"result\",\"is_main_result\":1}",
        "{\"run\":7,\"type\":\"result\",\"is_main_result\":true,\"html\":{}}",
        "{\"run\":7,\"type\":\"result\",\"is_main_result\":true,\"chart\":[]}",
        "{\"run\":7,\"type\":\"error\",\"name\":\"n\",\"value\":\"v\"}",
        "{\"run\":7,\"type\":\"number_of_executions\",\"execution_count\":-1}",
        "{\"run\":7,\"run\":7,\"type\":\"ready\"}",
        "{\"run\":7,\"type\":\"ready\"} {}",
        "{\"run\":7,\"type\":\"stdout\",\"text\":\"\\ud800\"}",
        "{\"run\":7,\"type\":\"stdout\",\"text\":\"\xff\"}",
    };
    char *text;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_FOR(rows[i], read_text(rows[i], &text) == LINE_BAD && !text);
    return 0;
}
