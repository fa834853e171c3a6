/* SPDX-License-Identifier: Apache-2.0 */
/* carrel grep, watch: what is in files, and what happens to them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/lines.h"
#include "client/core/text.h"
#include "client/files/files.h"

enum {
    OUTPUT_MOST = 256 << 20,
    CONTEXT_MOST = 100,
    LIMIT = 10000,
    NOT_FOUND_STATUS = 1, /* as grep has it */
};

struct grep {
    struct files f;
    bool ignore_case;
    bool regex;
    const char *context;
    const char *limit;
    struct args_list globs;
    struct buf out;
    struct buf path; /* of the file that is being shown */
    json_int_t last; /* the last line of it that was; 0: none */
    bool separates;  /* groups of lines */
};

static void show_line(struct grep *g, json_int_t number, char mark, const json_t *line)
{
    scoped_buf struct buf text;

    buf_init(&text, 16 << 20);
    if (number <= g->last)
        return;
    if (g->separates && g->out.n > 0 && number != g->last + 1)
        buf_str(&g->out, "--\n");
    files_show(&g->out, g->path.p, g->path.n);
    buf_printf(&g->out, "%c%lld%c", mark, (long long)number, mark);
    if (json_is_string(line))
        files_show(&g->out, json_string_value(line), json_string_length(line));
    else if (files_bytes(line, "text", &text))
        files_show(&g->out, text.p, text.n);
    buf_str(&g->out, "\n");
    g->last = number;
}

/* Lines around a match are text, or {"b64": …}. */
static void show_around(struct grep *g, const json_t *line, json_int_t number)
{
    const json_t *encoded = json_object_get(line, "b64");
    json_t *named = encoded ? json_pack("{s:O}", "text_b64", encoded) : NULL;

    show_line(g, number, '-', named ? named : line);
    json_decref(named);
}

/* `next` is the match behind it: what comes after this one ends there. */
static void show_match(struct grep *g, const json_t *match, const json_t *next)
{
    const json_t *before = json_object_get(match, "before");
    const json_t *after = json_object_get(match, "after");
    json_int_t number = json_integer_value(json_object_get(match, "line"));
    size_t n = json_array_size(before);
    scoped_buf struct buf path;

    buf_init(&path, 65536);
    if (!files_bytes(match, "path", &path))
        return;
    if (path.n != g->path.n || (path.n && memcmp(path.p, g->path.p, path.n) != 0)) {
        g->path.n = 0;
        buf_add(&g->path, path.p, path.n);
        g->last = 0;
    }
    for (size_t i = 0; i < n; i++)
        show_around(g, json_array_get(before, i), number - (json_int_t)(n - i));
    show_line(g, number, ':', match);
    json_int_t end = number + 1 + (json_int_t)json_array_size(after);
    if (next && files_bytes(next, "path", &path) && path.n == g->path.n &&
        memcmp(path.p, g->path.p, path.n) == 0) {
        json_int_t other = json_integer_value(json_object_get(next, "line"));
        end = other < end ? other : end;
    }
    for (json_int_t at = number + 1; at < end; at++)
        show_around(g, json_array_get(after, (size_t)(at - number - 1)), at);
}

static int show_matches(struct grep *g, json_t *answer)
{
    json_t *matches = json_object_get(answer, "matches");
    size_t count = json_array_size(matches);

    if (g->f.common.json) {
        int printed = client_print(answer);
        return printed ? printed : count ? 0 : NOT_FOUND_STATUS;
    }
    buf_init(&g->out, OUTPUT_MOST);
    buf_init(&g->path, 65536);
    for (size_t i = 0; i < count; i++)
        show_match(g, json_array_get(matches, i), json_array_get(matches, i + 1));
    int status = buf_done(&g->out) == 0 ? files_put_out(g->out.p, g->out.n)
                                        : cli_fail("too much to show; use --limit");
    if (json_is_true(json_object_get(answer, "truncated")))
        cli_say("there are more matches; raise --limit, or narrow the search");
    buf_clear(&g->out);
    buf_clear(&g->path);
    json_decref(answer);
    return status ? status : count ? 0 : NOT_FOUND_STATUS;
}

static int search(struct grep *g, const char *const *words, struct err *err)
{
    struct files_message m = {.op = FILES_GREP,
                              .pattern = words[0],
                              .limit = LIMIT,
                              .to = FILES_MOST,
                              .flags = (g->regex ? FILES_REGEX : 0U) |
                                       (g->ignore_case ? FILES_IGNORE_CASE : 0U)};
    const char *globs[FILES_GLOBS + 1] = {NULL};
    json_t *answer = NULL;
    struct client_path place;

    if (g->globs.count > FILES_GLOBS)
        return err_set(err, ERR_LIMIT, 0, "more than %d times --glob", FILES_GLOBS);
    memcpy(globs, g->globs.items, g->globs.count * sizeof(*globs));
    m.globs = globs;
    if (files_number("-C", g->context, 0, CONTEXT_MOST, &m.context, err) < 0 ||
        files_number("--limit", g->limit, 1, 1000000, &m.limit, err) < 0 ||
        place_parse(words[1], &place, err) < 0 ||
        files_ask(&g->f, &place, &m, NULL, &answer, err) < 0)
        return -1;
    g->separates = m.context > 0;
    return show_matches(g, answer);
}

int client_grep(char **argv)
{
    static const char help[] =
        "usage: carrel grep [-i] [-E] [-C N] [--limit N] [--glob GLOB]... PATTERN PLACE\n"
        "\n"
        "Prints the lines that contain a text, from all files below a directory.\n"
        "\n" HELP_OPTIONS "\n"
        "Exit status: 0 when the text was found, 1 when not, 125 when Carrel failed.\n"
        "\n"
        "example: carrel grep -i --glob '*.py' todo desk:/src\n";
    static struct grep g;
    const struct args_rule rules[] = {
        {"-i", NULL, NULL, ARGS_FLAG, &g.ignore_case},
        {"--ignore-case", NULL, "ignore the difference of capital and small letters", ARGS_FLAG,
         &g.ignore_case},
        {"-E", NULL, NULL, ARGS_FLAG, &g.regex},
        {"--regex", NULL, "read the pattern as a regular expression", ARGS_FLAG, &g.regex},
        {"-C", NULL, NULL, ARGS_TEXT, &g.context},
        {"--context", "N", "print N lines before and after each match", ARGS_TEXT, &g.context},
        {"--limit", "N", "print at most N matches (default 10000)", ARGS_TEXT, &g.limit},
        {"--glob", "GLOB",
         "search only files whose path matches\n!GLOB: only files whose path does not", ARGS_EVERY,
         &g.globs},
        {0},
    };
    const struct files_verb verb = {help, rules, 2, 2,
                                    "name a text and a place: carrel grep TEXT WS:/path"};
    const char *words[3] = {NULL};
    struct err err = {0};

    int status = files_begin(&g.f, argv, &verb, words);
    if (status >= 0)
        return status;
    status = search(&g, words, &err);
    return files_end(&g.f, status < 0 ? files_fail(words[1], &err) : status);
}

/* --- watch --- */

static int show_event(void *context, char *line)
{
    const bool *json = context;
    json_t *event = *line ? json_loads(line, 0, NULL) : NULL;
    const char *name = client_text(event, "event");
    scoped_buf struct buf path;
    scoped_buf struct buf out;
    int status = 0;

    buf_init(&path, 65536);
    buf_init(&out, 1 << 20);
    if (!event)
        return 0;
    if (*json)
        return client_print(event);
    if (name && strcmp(name, "ready") != 0) {
        buf_printf(&out, "%-8s ", name);
        if (files_bytes(event, "path", &path))
            files_show(&out, path.p, path.n);
        if (files_bytes(event, "to", &path)) {
            buf_str(&out, " -> ");
            files_show(&out, path.p, path.n);
        }
        buf_str(&out, "\n");
        status = buf_done(&out) == 0 ? files_put_out(out.p, out.n) : 0;
    }
    json_decref(event);
    return status;
}

int client_watch(char **argv)
{
    static const char help[] =
        "usage: carrel watch [--flat] PLACE\n"
        "\n"
        "Prints changes to the files below a directory as they happen: create, modify,\n"
        "delete, move, attrib; overflow when changes were missed.\n"
        "\n" HELP_OPTIONS "\n"
        "example: carrel watch desk:/src\n";
    struct files f;
    bool flat = false;
    const struct args_rule rules[] = {
        {"--flat", NULL, "watch only the directory itself, not those below", ARGS_FLAG, &flat},
        {"--json", NULL, "print one JSON object a line; the first is \"ready\"", ARGS_FLAG,
         &f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, 1,
                                    "name a place: carrel watch WS:/path, or a path here"};
    const char *words[2] = {NULL};
    struct err err = {0};
    struct client_path place;
    struct lines lines;

    int status = files_begin(&f, argv, &verb, words);
    if (status >= 0)
        return status;
    struct files_message m = {
        .op = FILES_WATCH, .flags = flat ? 0 : FILES_RECURSIVE, .to = FILES_MOST};
    lines_open(&lines, show_event, &f.common.json);
    int r = place_parse(words[0], &place, &err) < 0
                ? -1
                : files_pull(&f, &place, &m, lines_take, &lines, &err);
    status = lines.status ? lines.status : r < 0 ? files_fail(words[0], &err) : 0;
    lines_close(&lines);
    return files_end(&f, status);
}
