/* SPDX-License-Identifier: Apache-2.0 */
/* carrel ls, tree, stat, glob: what there is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/files/files.h"

enum {
    PAGE = 5000,
    DEPTH_MOST = 4096,
    OUTPUT_MOST = 256 << 20,
    GLOB_LIMIT = 100000,
};

struct listing {
    struct files f;
    bool brief; /* no more is asked for than names and types */
    bool longer;
    bool slashes; /* behind directories */
    bool recursive;
    bool follow;
    const char *depth;
    const char *limit;
};

static const char *marks(const json_t *entry, char ret[TEXT_SHORT])
{
    static const struct {
        const char *type;
        char letter;
    } types[] = {{"file", '-'}, {"directory", 'd'}, {"symlink", 'l'},
                 {"fifo", 'p'}, {"socket", 's'},    {"device", 'c'}};

    static const char letters[] = "rwxrwxrwx";
    const char *type = client_text(entry, "type");
    const char *mode = client_text(entry, "mode");
    unsigned long bits = mode ? strtoul(mode, NULL, 8) : 0;

    ret[0] = '?';
    for (size_t i = 0; type && i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(type, types[i].type) == 0)
            ret[0] = types[i].letter;
    }
    for (unsigned i = 0; i < 9; i++)
        ret[i + 1] = bits & (0400UL >> i) ? letters[i] : '-';
    if (!mode)
        memset(ret + 1, '?', 9);
    ret[10] = '\0';
    return ret;
}

static bool is_directory(const json_t *entry)
{
    const char *type = client_text(entry, "type");

    return type && strcmp(type, "directory") == 0;
}

static void add_name(struct buf *b, const json_t *entry, const char *name, size_t n)
{
    bool coloured = is_directory(entry) && table_colours();

    buf_str(b, coloured ? "\033[1;34m" : "");
    files_show(b, name, n);
    buf_str(b, coloured ? "\033[0m" : "");
}

/* A line for one entry; `skip` bytes of its path are not shown. */
static void add_entry(struct buf *b, const json_t *entry, size_t skip, const struct listing *l)
{
    char mode[TEXT_SHORT];
    char size[TEXT_SHORT];
    char ago[TEXT_SHORT];
    scoped_buf struct buf path;

    buf_init(&path, 65536);
    if (!files_bytes(entry, "path", &path) || path.n < skip)
        return;
    if (l->longer) {
        const char *when = client_ago(entry, "mtime", ago);
        const json_t *known =
            json_object_get(entry, "size"); /* not where it may not be looked at */
        json_int_t bytes = json_integer_value(known);
        buf_printf(b, "%s %6s  %10s  ", marks(entry, mode),
                   known ? text_bytes((uint64_t)(bytes > 0 ? bytes : 0), size) : "?",
                   when ? when : "-");
    }
    add_name(b, entry, path.p + skip, path.n - skip);
    buf_str(b, l->slashes && is_directory(entry) ? "/" : "");
    if (l->longer && files_bytes(entry, "target", &path)) {
        buf_str(b, " -> ");
        files_show(b, path.p, path.n);
    }
    buf_str(b, "\n");
}

static int put_buf(struct buf *b)
{
    int status =
        buf_done(b) == 0 ? files_put_out(b->p, b->n) : cli_fail("too much to show; use --json");

    buf_clear(b);
    return status;
}

/* How many bytes of a path below this place are the place. */
static size_t length_above(const struct client_path *place)
{
    return place->path[1] ? strlen(place->path) + 1 : 1;
}

/* One page after the other; each is handed over and gone. Returns the exit status. */
static int each_page(struct listing *l, const struct client_path *place, uint64_t depth,
                     int (*show)(struct listing *, const struct client_path *, json_t *, void *),
                     void *context, struct err *err)
{
    struct files_message m = {.op = FILES_LIST,
                              .flags = l->brief ? FILES_BRIEF : 0,
                              .depth = depth,
                              .limit = PAGE,
                              .to = FILES_MOST};
    char cursor[FILES_CURSOR] = "";
    int status = 0;

    do {
        json_t *page = NULL;
        m.cursor = cursor;
        if (files_ask(&l->f, place, &m, NULL, &page, err) < 0)
            return -1;
        const char *next = client_text(page, "next");
        if (next && *cursor && strcmp(next, cursor) == 0) {
            json_decref(page);
            return err_set(err, ERR_IO, 0, "the list of '%s' broke off; try again", place->path);
        }
        snprintf(cursor, sizeof(cursor), "%s", next ? next : "");
        status = show(l, place, json_object_get(page, "entries"), context);
        json_decref(page);
    } while (status == 0 && *cursor);
    return status;
}

static int show_page(struct listing *l, const struct client_path *place, json_t *entries,
                     void *context)
{
    json_t *entry;
    struct buf b;
    size_t i;

    (void)context;
    buf_init(&b, OUTPUT_MOST);
    json_array_foreach(entries, i, entry)
    {
        add_entry(&b, entry, length_above(place), l);
    }
    return put_buf(&b);
}

static int keep_page(struct listing *l, const struct client_path *place, json_t *entries,
                     void *context)
{
    (void)l;
    (void)place;
    return json_array_extend(context, entries) < 0 ? cli_fail("the answer has no entries") : 0;
}

/* What is no directory is listed by itself. */
static int show_one(struct listing *l, const struct client_path *place, const char *word,
                    struct err *err)
{
    struct files_message m = {.op = FILES_STAT, .to = FILES_MOST};
    json_t *entry = NULL;
    struct buf b;

    if (files_ask(&l->f, place, &m, NULL, &entry, err) < 0)
        return files_fail(word, err);
    if (l->f.common.json)
        return client_print(json_pack("{s:[o]}", "entries", entry));
    buf_init(&b, OUTPUT_MOST);
    add_entry(&b, entry, 0, l);
    json_decref(entry);
    return put_buf(&b);
}

static int list_place(struct listing *l, const char *word, uint64_t depth)
{
    struct err err = {0};
    struct client_path place;

    if (place_parse(word, &place, &err) < 0)
        return client_fail(&err);
    json_t *all = l->f.common.json ? json_array() : NULL;
    int status = each_page(l, &place, depth, all ? keep_page : show_page, all, &err);

    if (status == 0 && all) {
        json_t *object = json_pack("{s:O}", "entries", all);
        status = client_print(object);
    }
    json_decref(all);
    if (status >= 0)
        return status;
    return err.said == SAID_NOT_A_DIRECTORY ? show_one(l, &place, word, &err)
                                            : files_fail(word, &err);
}

int client_ls(char **argv)
{
    static const char help[] =
        "usage: carrel ls [-l] [-p] [-R | --depth N] PLACE...\n"
        "\n"
        "Lists directories. A place is WS:/path in a workspace, or a path on this host.\n"
        "\n" HELP_OPTIONS "\n"
        "examples:\n"
        "  carrel ls desk:/src\n"
        "  carrel ls -l desk:/\n";
    struct listing l = {.depth = NULL};
    const struct args_rule rules[] = {
        {"-l", NULL, NULL, ARGS_FLAG, &l.longer},
        {"--long", NULL, "show modes, sizes and times", ARGS_FLAG, &l.longer},
        {"-p", NULL, NULL, ARGS_FLAG, &l.slashes},
        {"--slash", NULL, "print a slash after the names of directories", ARGS_FLAG, &l.slashes},
        {"-R", NULL, NULL, ARGS_FLAG, &l.recursive},
        {"--recursive", NULL, "list everything below, too", ARGS_FLAG, &l.recursive},
        {"--depth", "N", "list N levels", ARGS_TEXT, &l.depth},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &l.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name a place: carrel ls WS:/path, or a path here"};
    const char *words[FILES_WORDS + 1] = {NULL};
    struct err err = {0};
    uint64_t depth = 1;

    int status = files_begin(&l.f, argv, &verb, words);
    if (status >= 0)
        return status;
    status = 0;
    l.brief = !l.longer && !l.f.common.json;
    depth = l.recursive ? DEPTH_MOST : 1;
    if (files_number("--depth", l.depth, 1, DEPTH_MOST, &depth, &err) < 0)
        return files_end(&l.f, client_fail(&err));
    for (size_t i = 0; words[i]; i++) {
        int one = list_place(&l, words[i], depth);
        status = status ? status : one;
    }
    return files_end(&l.f, status);
}

/* --- tree --- */

static size_t depth_of(const json_t *entry, size_t skip, struct buf *path)
{
    size_t depth = 0;

    if (!files_bytes(entry, "path", path) || path->n < skip)
        return 0;
    for (size_t i = skip; i < path->n; i++)
        depth += path->p[i] == '/';
    return depth < DEPTH_MOST ? depth : DEPTH_MOST - 1;
}

/* Which entries are the last in their directory: told from behind. */
static void mark_last(const json_t *entries, size_t skip, bool *last)
{
    static bool seen[DEPTH_MOST];
    size_t deepest = 0;
    scoped_buf struct buf path;

    buf_init(&path, 65536);
    memset(seen, 0, sizeof(seen));
    for (size_t i = json_array_size(entries); i-- > 0;) {
        size_t depth = depth_of(json_array_get(entries, i), skip, &path);
        while (deepest > depth)
            seen[deepest--] = false;
        deepest = depth;
        last[i] = !seen[depth];
        seen[depth] = true;
    }
}

static void add_branch(struct buf *b, const json_t *entry, size_t skip, bool last, bool *ended)
{
    scoped_buf struct buf path;

    buf_init(&path, 65536);
    size_t depth = depth_of(entry, skip, &path);
    for (size_t i = 0; i < depth; i++)
        buf_str(b, ended[i] ? "    " : "│   ");
    ended[depth] = last;
    buf_str(b, last ? "└── " : "├── ");
    const char *name = memrchr(path.p, '/', path.n);
    name = name ? name + 1 : path.p;
    add_name(b, entry, name, path.n - (size_t)(name - path.p));
    if (files_bytes(entry, "target", &path)) {
        buf_str(b, " -> ");
        files_show(b, path.p, path.n);
    }
    buf_str(b, "\n");
}

static int show_tree(const char *word, const struct client_path *place, const json_t *entries)
{
    static bool ended[DEPTH_MOST];
    size_t count = json_array_size(entries);
    bool *last = calloc(count + 1, sizeof(*last));
    size_t directories = 0;
    struct buf b;

    if (!last)
        return cli_fail("out of memory for the tree; use --depth");
    mark_last(entries, length_above(place), last);
    buf_init(&b, OUTPUT_MOST);
    files_show(&b, word, strlen(word));
    buf_str(&b, "\n");
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(entries, i);
        directories += is_directory(entry);
        add_branch(&b, entry, length_above(place), last[i], ended);
    }
    buf_printf(&b, "\n%zu %s, %zu %s\n", directories,
               directories == 1 ? "directory" : "directories", count - directories,
               count - directories == 1 ? "file" : "files");
    free(last);
    return put_buf(&b);
}

int client_tree(char **argv)
{
    static const char help[] = "usage: carrel tree [--depth N] PLACE\n"
                               "\n"
                               "Draws everything below a directory as a tree.\n"
                               "\n" HELP_OPTIONS "\n"
                               "example: carrel tree --depth 2 desk:/src\n";
    struct listing l = {.depth = NULL};
    const struct args_rule rules[] = {
        {"--depth", "N", "draw N levels", ARGS_TEXT, &l.depth},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, 1,
                                    "name a place: carrel tree WS:/path, or a path here"};
    const char *words[2] = {NULL};
    struct err err = {0};
    struct client_path place;
    uint64_t depth = DEPTH_MOST;

    int status = files_begin(&l.f, argv, &verb, words);
    if (status >= 0)
        return status;
    json_t *all = json_array();
    if (place_parse(words[0], &place, &err) < 0 ||
        files_number("--depth", l.depth, 1, DEPTH_MOST, &depth, &err) < 0)
        status = client_fail(&err);
    else
        status = each_page(&l, &place, depth, keep_page, all, &err);
    if (status < 0)
        status = files_fail(words[0], &err);
    else if (status == 0)
        status = l.f.common.json ? client_print(json_pack("{s:O}", "entries", all))
                                 : show_tree(words[0], &place, all);
    json_decref(all);
    return files_end(&l.f, status);
}

/* --- stat --- */

static int show_stat(json_t *entry)
{
    static const char *const names[] = {"path", "type", "size", "mode", "mtime", "etag", "target"};
    scoped_buf struct buf value;
    struct buf b;

    buf_init(&value, 65536);
    buf_init(&b, OUTPUT_MOST);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char number[TEXT_SHORT];
        const char *text = client_number(entry, names[i], number);
        if (!text && !files_bytes(entry, names[i], &value))
            continue;
        buf_printf(&b, "%-7s ", names[i]);
        if (text)
            buf_str(&b, text);
        else
            files_show(&b, value.p, value.n);
        buf_str(&b, "\n");
    }
    json_decref(entry);
    return put_buf(&b);
}

int client_stat(char **argv)
{
    static const char help[] = "usage: carrel stat [-L] PLACE...\n"
                               "\n"
                               "Prints the type, size, mode, time and etag of files.\n"
                               "\n" HELP_OPTIONS "\n"
                               "example: carrel stat desk:/a.txt\n";
    struct listing l = {.depth = NULL};
    const struct args_rule rules[] = {
        {"-L", NULL, NULL, ARGS_FLAG, &l.follow},
        {"--follow", NULL, "follow a symbolic link, and describe its target", ARGS_FLAG, &l.follow},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &l.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name a file: carrel stat WS:/path, or a path here"};
    const char *words[FILES_WORDS + 1] = {NULL};
    struct err err = {0};
    struct client_path place;

    int status = files_begin(&l.f, argv, &verb, words);
    if (status >= 0)
        return status;
    status = 0;
    for (size_t i = 0; words[i]; i++) {
        struct files_message m = {
            .op = FILES_STAT, .flags = l.follow ? FILES_FOLLOW : 0, .to = FILES_MOST};
        json_t *entry = NULL;
        int one = place_parse(words[i], &place, &err) < 0 ||
                          files_ask(&l.f, &place, &m, NULL, &entry, &err) < 0
                      ? files_fail(words[i], &err)
                  : l.f.common.json ? client_print(entry)
                                    : show_stat(entry);
        status = status ? status : one;
    }
    return files_end(&l.f, status);
}

/* --- glob --- */

static int show_matches(struct listing *l, json_t *answer)
{
    json_t *matches = json_object_get(answer, "matches");
    json_t *entry;
    struct buf b;
    size_t i;

    if (l->f.common.json)
        return client_print(answer);
    buf_init(&b, OUTPUT_MOST);
    json_array_foreach(matches, i, entry)
    {
        add_entry(&b, entry, 0, l);
    }
    int status = put_buf(&b);
    if (json_is_true(json_object_get(answer, "truncated")))
        cli_say("there are more matches; raise --limit, or narrow the pattern");
    json_decref(answer);
    return status;
}

int client_glob(char **argv)
{
    static const char help[] =
        "usage: carrel glob [-l] [--limit N] PATTERN PLACE\n"
        "\n"
        "Prints the files below a directory whose path from there matches the pattern:\n"
        "* and ? within a name, ** across directories, [a-z], {py,c}.\n"
        "\n" HELP_OPTIONS "\n"
        "example: carrel glob '**/*.{py,toml}' desk:/src\n";
    struct listing l = {.depth = NULL};
    const struct args_rule rules[] = {
        {"-l", NULL, NULL, ARGS_FLAG, &l.longer},
        {"--long", NULL, "show modes, sizes and times", ARGS_FLAG, &l.longer},
        {"--limit", "N", "print at most N files (default 100000)", ARGS_TEXT, &l.limit},
        {0},
    };
    const struct files_verb verb = {help, rules, 2, 2,
                                    "name a pattern and a place: carrel glob '**/*.py' WS:/path"};
    const char *words[3] = {NULL};
    struct files_message m = {.op = FILES_GLOB, .limit = GLOB_LIMIT, .to = FILES_MOST};
    struct err err = {0};
    struct client_path place;
    json_t *answer = NULL;

    int status = files_begin(&l.f, argv, &verb, words);
    if (status >= 0)
        return status;
    m.pattern = words[0];
    status = files_number("--limit", l.limit, 1, 1000000, &m.limit, &err) < 0 ||
                     place_parse(words[1], &place, &err) < 0 ||
                     files_ask(&l.f, &place, &m, NULL, &answer, &err) < 0
                 ? files_fail(words[1], &err)
                 : show_matches(&l, answer);
    return files_end(&l.f, status);
}
