/* SPDX-License-Identifier: Apache-2.0 */
/* carrel put, get, cat: bytes between here and a workspace, in constant memory. Trees go as tar:
 * packed and unpacked by file servers at both ends, neither of which leaves its directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/files/files.h"

enum {
    LINE_MOST = 65536, /* of a text for a terminal, that is kept until its end has come */
};

struct transfer {
    struct files f;
    bool recursive;
    const char *mode;
    const char *if_match;
    struct progress progress;
    int fd;                     /* what is read, or written; -1: the stream */
    struct local_stream stream; /* of the file server here */
    bool broken;                /* that one broke off */
    int os_errno;               /* reading or writing fd failed */
};

/* What was carried, for --json; for people only what was left out. */
static int show_end(struct transfer *t, json_t *answer)
{
    const json_t *skipped = json_object_get(answer, "skipped");
    size_t n = json_array_size(skipped);
    char line[512];

    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(skipped, i);
        const char *path = client_text(item, "path");
        const char *why = client_text(item, "why");
        snprintf(line, sizeof(line), "left out: %.300s: %.120s", path ? path : "?",
                 why ? why : "?");
        cli_say(line);
    }
    int status = t->f.common.json && answer ? client_print(json_incref(answer)) : 0;
    json_decref(answer);
    return status;
}

/* --- put --- */

static ssize_t give_file(void *context, char *bytes, size_t size)
{
    struct transfer *t = context;
    ssize_t n;

    do {
        n = read(t->fd, bytes, size);
    } while (n < 0 && errno == EINTR);
    t->os_errno = n < 0 ? errno : 0;
    if (n > 0)
        progress_add(&t->progress, (uint64_t)n);
    return n;
}

static ssize_t give_tree(void *context, char *bytes, size_t size)
{
    struct transfer *t = context;
    ssize_t n = local_read(&t->stream, bytes, size);

    t->broken = n < 0;
    if (n > 0)
        progress_add(&t->progress, (uint64_t)n);
    return n;
}

static int put_file(struct transfer *t, const char *word, const struct client_path *to,
                    struct err *err)
{
    bool standard = strcmp(word, "-") == 0;
    scoped_fd int fd = standard ? -1 : open(word, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    struct files_message m = {.op = FILES_WRITE, .mode = FILES_MOST};
    struct stat st = {0};
    json_t *answer = NULL;

    t->os_errno = 0;
    t->fd = standard ? STDIN_FILENO : fd;
    if (t->fd < 0 || fstat(t->fd, &st) < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "'%.200s' cannot be read", word);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "'%.200s' is a directory; -r takes directories", word);
    if (S_ISREG(st.st_mode) && !standard)
        m.mode = st.st_mode & 0777;
    if (files_mode(t->mode, &m.mode, err) < 0 || files_if_match(t->if_match, &m, err) < 0)
        return -1;
    progress_begin(&t->progress, word, (uint64_t)(S_ISREG(st.st_mode) ? st.st_size : 0));
    int r = files_push(&t->f, to, &m, &(struct files_source){give_file, t}, &answer, err);
    progress_end(&t->progress);
    if (t->os_errno)
        return err_set(err, ERR_IO, t->os_errno, "'%.200s' cannot be read", word);
    if (r < 0)
        files_explain_match(err);
    return r < 0 ? -1 : show_end(t, answer);
}

static int put_tree(struct transfer *t, const char *word, const struct client_path *to,
                    struct err *err)
{
    static const char *const none[] = {NULL};
    struct files_message pack = {.op = FILES_PACK, .to = FILES_MOST, .globs = none};
    struct files_message unpack = {.op = FILES_UNPACK, .mode = FILES_MOST};
    struct client_path from;
    json_t *answer = NULL;

    if (place_parse(word, &from, err) < 0)
        return -1;
    if (!from.local)
        return err_set(err, ERR_INVALID, 0, "'%.120s' is read as a workspace; write ./%.120s", word,
                       word);
    t->broken = false;
    pack.path = from.path;
    int r = local_start(&t->f, &pack, &t->stream, err);
    if (r == 0 && local_answer(&t->stream, err) < 0)
        r = err_wrap(err, "here");
    if (r == 0) {
        progress_begin(&t->progress, word, 0);
        r = files_push(&t->f, to, &unpack, &(struct files_source){give_tree, t}, &answer, err);
        progress_end(&t->progress);
    }
    if (t->broken)
        r = err_set(err, ERR_IO, 0, "'%.200s' changed while it was read; try again", word);
    local_stop(&t->stream);
    return r < 0 ? -1 : show_end(t, answer);
}

/* "dir/." is what is in it: there is no name to take along. */
static int own_name(const char *word, char name[256])
{
    size_t n = strlen(word);
    size_t start;

    while (n > 1 && word[n - 1] == '/')
        n--;
    for (start = n; start > 0 && word[start - 1] != '/'; start--)
        continue;
    name[0] = '\0';
    if (n - start >= 256)
        return -1;
    snprintf(name, 256, "%.*s", (int)(n - start), word + start);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "/") == 0)
        name[0] = '\0';
    return 0;
}

static int put_one(struct transfer *t, const char *word, const struct client_path *to, bool into,
                   struct err *err)
{
    struct client_path end = *to;
    struct stat st;
    char name[256];
    bool tree = t->recursive && stat(word, &st) == 0 && S_ISDIR(st.st_mode);

    if (own_name(word, name) < 0)
        return err_set(err, ERR_INVALID, 0, "the name of '%.120s...' is too long", word);
    if (into && strcmp(word, "-") == 0)
        return err_set(err, ERR_INVALID, 0,
                       "standard input has no name: write a file name after the directory");
    if (into && *name && place_enter(&end, name, err) < 0)
        return -1;
    return tree ? put_tree(t, word, &end, err) : put_file(t, word, &end, err);
}

static int put_all(struct transfer *t, const char **words)
{
    struct files_kind kind;
    struct err err = {0};
    struct client_path to;
    size_t count = 0;
    int status = 0;

    while (words[count])
        count++;
    if (place_parse(words[count - 1], &to, &err) < 0)
        return client_fail(&err);
    if (to.local)
        return cli_fail("put copies files to a workspace: write WS:/path as the last word; on this "
                        "host use cp");
    if (files_look(&t->f, &to, &kind, &err) < 0)
        return files_fail(words[count - 1], &err);
    bool into = to.folder || strcmp(kind.type, "directory") == 0;
    if (count > 2 && !into)
        return cli_fail("several files go to a directory: end the last word with a slash");
    if (t->if_match && (count > 2 || t->recursive))
        return cli_fail("--if-match works for one file: put the files one by one, without -r");
    for (size_t i = 0; i + 1 < count; i++) {
        int one = put_one(t, words[i], &to, into, &err);
        one = one < 0 ? files_fail(strstr(err.msg, words[i]) ? words[i] : words[count - 1], &err)
                      : one;
        status = status ? status : one;
    }
    return status;
}

int client_put(char **argv)
{
    static const char help[] =
        "usage: carrel put [-r] [--mode MODE] [--if-match ETAG] FILE... WS:/PATH\n"
        "\n"
        "Copies files from this host to a workspace; -: standard input. If the path is a\n"
        "directory or ends with a slash, copies into it. A file appears whole or not at all.\n"
        "\n" HELP_OPTIONS "\n"
        "examples:\n"
        "  carrel put a.txt desk:/notes/\n"
        "  carrel put -r src desk:/src\n"
        "  date | carrel put - desk:/now.txt\n";
    static struct transfer t = {.stream.fd = -1};
    const struct args_rule rules[] = {
        {"-r", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"-R", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"--recursive", NULL, "copy directories, too; DIR/. copies only what is in DIR", ARGS_FLAG,
         &t.recursive},
        {"--mode", "MODE", "set the mode, in octal digits; default: that of the file here",
         ARGS_TEXT, &t.mode},
        {"--if-match", "ETAG", "act only if the file still has this etag, from 'carrel stat'",
         ARGS_TEXT, &t.if_match},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &t.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 2, FILES_WORDS,
                                    "say what goes where: carrel put FILE WS:/path"};
    const char *words[FILES_WORDS + 1] = {NULL};
    int status = files_begin(&t.f, argv, &verb, words);

    return status >= 0 ? status : files_end(&t.f, put_all(&t, words));
}

/* --- get --- */

static size_t take_to_server(void *context, const char *bytes, size_t n)
{
    struct transfer *t = context;

    progress_add(&t->progress, n);
    t->broken = local_send(&t->stream, bytes, n) < 0;
    return t->broken ? 0 : n;
}

/* From the workspace's file server into ours, which has the last word on how it went. */
static int carry(struct transfer *t, const struct client_path *from, struct files_message *read,
                 struct files_message *write, struct err *err)
{
    static const char *const none[] = {NULL};
    json_t *answer = NULL;
    struct err here = {0};

    write->globs = none;
    t->broken = false;
    int r = local_start(&t->f, write, &t->stream, err);
    if (r == 0)
        r = files_pull(&t->f, from, read, take_to_server, t, err);
    /* Without its good end, what has come so far is dropped. */
    if (t->broken || (r == 0 && local_send_end(&t->stream) < 0) || r == 0) {
        r = local_json(&t->stream, &answer, &here);
        if (r < 0) {
            *err = here;
            err_wrap(err, "here");
        }
    }
    local_stop(&t->stream);
    return r < 0 ? -1 : show_end(t, answer);
}

static int get_one(struct transfer *t, const struct client_path *from, const struct client_path *to,
                   const struct files_kind *kind, struct err *err)
{
    bool tree = strcmp(kind->type, "directory") == 0;
    struct files_message read = {.op = tree ? FILES_PACK : FILES_READ, .to = FILES_MOST};
    struct files_message write = {.op = tree ? FILES_UNPACK : FILES_WRITE,
                                  .path = to->path,
                                  .flags = FILES_PARENTS,
                                  .to = FILES_MOST,
                                  .mode = FILES_MOST};
    mode_t mask = umask(0);

    (void)umask(mask);
    if (!tree && kind->mode != FILES_MOST)
        write.mode = kind->mode & ~(uint64_t)mask;
    progress_begin(&t->progress, place_name(from), tree ? 0 : kind->size);
    int r = carry(t, from, &read, &write, err);
    progress_end(&t->progress);
    return r;
}

static size_t take_to_output(void *context, const char *bytes, size_t n)
{
    struct transfer *t = context;

    t->broken = files_put_out(bytes, n) != 0;
    return t->broken ? 0 : n;
}

static int get_to_output(struct transfer *t, const struct client_path *from, struct err *err)
{
    struct files_message m = {.op = FILES_READ, .to = FILES_MOST};
    int r = files_pull(&t->f, from, &m, take_to_output, t, err);

    return t->broken ? CLI_FAILED : r;
}

static int get_word(struct transfer *t, const char *word, const char *local, bool into,
                    struct err *err)
{
    struct files_kind kind;
    struct client_path from;
    struct client_path to;

    if (place_parse(word, &from, err) < 0)
        return -1;
    if (from.local)
        return err_set(err, ERR_INVALID, 0,
                       "get copies files from a workspace: write WS:/path instead of '%.120s'",
                       word);
    if (strcmp(local, "-") == 0)
        return get_to_output(t, &from, err);
    if (files_look(&t->f, &from, &kind, err) < 0)
        return -1;
    if (!kind.type[0])
        return err_set(err, ERR_NOT_FOUND, 0,
                       "there is no '%.200s'; 'carrel ls' shows what there is", word);
    if (strcmp(kind.type, "directory") == 0 && !t->recursive)
        return err_set(err, ERR_INVALID, 0, "'%.200s' is a directory; -r takes directories", word);
    if (place_parse(local, &to, err) < 0 || /* the root has no name to take along */
        (into && *place_name(&from) && place_enter(&to, place_name(&from), err) < 0))
        return -1;
    return get_one(t, &from, &to, &kind, err);
}

static int get_all(struct transfer *t, const char **words)
{
    struct err err = {0};
    struct client_path last;
    struct stat st;
    size_t count = 0;
    int status = 0;

    while (words[count])
        count++;
    if (place_parse(words[count - 1], &last, &err) < 0)
        return client_fail(&err);
    bool named = count > 1 && (last.local || strcmp(words[count - 1], "-") == 0);
    const char *local = named ? words[count - 1] : ".";
    count -= named;
    bool exists = stat(local, &st) == 0 && S_ISDIR(st.st_mode);
    bool into = strcmp(local, "-") != 0 && (exists || (named && last.folder));
    if (count > 1 && !into && strcmp(local, "-") != 0)
        return cli_fail("several files go to a directory: end the last word with a slash");
    for (size_t i = 0; i < count; i++) {
        int one = get_word(t, words[i], local, into, &err);
        one = one < 0 ? files_fail(words[i], &err) : one;
        status = status ? status : one;
    }
    return status;
}

int client_get(char **argv)
{
    static const char help[] =
        "usage: carrel get [-r] WS:/PATH... [LOCAL]\n"
        "\n"
        "Copies files from a workspace to the current directory, or to LOCAL; -: standard\n"
        "output. If LOCAL is a directory, copies into it. A file appears whole or not at all,\n"
        "and nothing is ever written outside of that directory.\n"
        "\n" HELP_OPTIONS "\n"
        "examples:\n"
        "  carrel get desk:/a.txt\n"
        "  carrel get -r desk:/src copy\n";
    static struct transfer t = {.stream.fd = -1};
    const struct args_rule rules[] = {
        {"-r", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"-R", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"--recursive", NULL, "copy directories, too", ARGS_FLAG, &t.recursive},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &t.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name a file: carrel get WS:/path [LOCAL]"};
    const char *words[FILES_WORDS + 1] = {NULL};
    int status = files_begin(&t.f, argv, &verb, words);

    return status >= 0 ? status : files_end(&t.f, get_all(&t, words));
}

/* --- cat --- */

struct cat {
    bool escapes; /* a terminal: nothing may drive it */
    struct buf line;
    int status;
};

/* Lines and tabs stay what they are. */
static int show_text(const char *bytes, size_t n)
{
    scoped_buf struct buf out;

    buf_init(&out, 16 << 20);
    while (n > 0) {
        size_t plain = 0;
        while (plain < n && bytes[plain] != '\n' && bytes[plain] != '\t')
            plain++;
        text_escape(&out, bytes, plain);
        if (plain < n)
            buf_add(&out, bytes + plain++, 1);
        bytes += plain;
        n -= plain;
    }
    return buf_done(&out) == 0 ? files_put_out(out.p, out.n) : cli_fail("a line is too long");
}

static size_t take_text(void *context, const char *bytes, size_t n)
{
    struct cat *cat = context;

    if (!cat->escapes) {
        cat->status = files_put_out(bytes, n);
        return cat->status ? 0 : n;
    }
    /* Up to the last line that is whole, so that no character is torn. */
    buf_add(&cat->line, bytes, n);
    const char *end = cat->line.n ? memrchr(cat->line.p, '\n', cat->line.n) : NULL;
    size_t whole = end                       ? (size_t)(end - cat->line.p) + 1
                   : cat->line.n > LINE_MOST ? cat->line.n
                                             : 0;
    if (cat->line.failed)
        cat->status = cli_fail("a line is too long");
    else if (whole)
        cat->status = show_text(cat->line.p, whole);
    cat->line.n -= whole;
    if (whole)
        memmove(cat->line.p, cat->line.p + whole, cat->line.n);
    return cat->status ? 0 : n;
}

static int cat_bytes(struct files *f, const struct client_path *place, struct err *err)
{
    struct files_message m = {.op = FILES_READ, .to = FILES_MOST};
    struct cat cat = {.escapes = isatty(STDOUT_FILENO) != 0};

    buf_init(&cat.line, 4 << 20);
    int r = files_pull(f, place, &m, take_text, &cat, err);
    if (cat.status == 0 && cat.line.n > 0)
        cat.status = show_text(cat.line.p, cat.line.n);
    buf_clear(&cat.line);
    return cat.status ? cat.status : r;
}

/* A page ends where it was asked to, or where it is full. */
static void say_more(const struct client_path *place, const json_t *page)
{
    const json_t *next = json_object_get(page, "next_offset");
    char text[320];

    if (json_is_integer(next))
        snprintf(text, sizeof(text), "%.200s: there are more lines; --offset %lld goes on",
                 place->path, (long long)json_integer_value(next));
    else if (json_is_true(json_object_get(page, "truncated")))
        snprintf(text, sizeof(text),
                 "%.200s: the last line is longer than a page, and was cut; without --offset and "
                 "--limit it is whole",
                 place->path);
    else
        return;
    cli_say(text);
}

static int cat_lines(struct files *f, const struct client_path *place, struct files_message m,
                     struct err *err)
{
    struct cat cat = {.escapes = isatty(STDOUT_FILENO) != 0};
    json_t *page = NULL;

    if (files_ask(f, place, &m, NULL, &page, err) < 0)
        return -1;
    if (f->common.json)
        return client_print(page);
    scoped_buf struct buf content;
    buf_init(&content, CALL_MOST_ANSWER);
    if (files_bytes(page, "content", &content))
        cat.status =
            cat.escapes ? show_text(content.p, content.n) : files_put_out(content.p, content.n);
    say_more(place, page);
    json_decref(page);
    return cat.status;
}

int client_cat(char **argv)
{
    static const char help[] =
        "usage: carrel cat [--offset N] [--limit N] PLACE...\n"
        "\n"
        "Prints files byte by byte. On a terminal, control characters are escaped.\n"
        "\n" HELP_OPTIONS "\n"
        "examples:\n"
        "  carrel cat desk:/a.txt\n"
        "  carrel cat --offset 100 --limit 20 desk:/log.txt\n";
    struct files f;
    const char *offset = NULL;
    const char *limit = NULL;
    const struct args_rule rules[] = {
        {"--offset", "N", "leave out the first N lines", ARGS_TEXT, &offset},
        {"--limit", "N", "print at most N lines, and say if there are more", ARGS_TEXT, &limit},
        {"--json", NULL, "print a page of the text for each path as one JSON object", ARGS_FLAG,
         &f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name a file: carrel cat WS:/path, or a path here"};
    const char *words[FILES_WORDS + 1] = {NULL};
    struct files_message m = {.op = FILES_TEXT, .limit = 2000, .to = FILES_MOST};
    struct err err = {0};
    struct client_path place;

    int status = files_begin(&f, argv, &verb, words);
    if (status >= 0)
        return status;
    status = 0;
    if (files_number("--offset", offset, 0, INT64_MAX, &m.offset, &err) < 0 ||
        files_number("--limit", limit, 1, INT64_MAX, &m.limit, &err) < 0)
        return client_fail(&err);
    for (size_t i = 0; words[i]; i++) {
        int one = place_parse(words[i], &place, &err);
        if (one == 0)
            one = offset || limit || f.common.json ? cat_lines(&f, &place, m, &err)
                                                   : cat_bytes(&f, &place, &err);
        one = one < 0 ? files_fail(words[i], &err) : one;
        status = status ? status : one;
    }
    return files_end(&f, status);
}
