/* SPDX-License-Identifier: Apache-2.0 */
/* carrel rm, mkdir, mv, cp, edit. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/files/files.h"

/* Whether its last name is . or .., whatever slashes come behind. */
static bool ends_in_dots(const char *path)
{
    size_t n = strlen(path);
    size_t name;

    while (n > 0 && path[n - 1] == '/')
        n--;
    name = n;
    while (name > 0 && path[name - 1] != '/')
        name--;
    return (n - name == 1 || n - name == 2) && strspn(path + name, ".") >= n - name;
}

/* A link that is written as the directory that it leads to, as a shell completes it. */
static bool is_link_with_slash(const char *word)
{
    size_t n = strlen(word);
    char path[PATH_MAX];
    struct stat st;

    while (n > 1 && word[n - 1] == '/')
        n--;
    if (n == strlen(word) || n >= sizeof(path))
        return false;
    memcpy(path, word, n);
    path[n] = '\0';
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* What is removed has a name of its own: "." and ".." are where one is, and come about by mistake,
 * such as a pattern of the shell that also matches them. */
static int refuse_unnamed(const char *word, const struct client_path *place, struct err *err)
{
    if (place->local && is_link_with_slash(word))
        return err_set(err, ERR_INVALID, 0,
                       "'%.200s' is not removed: with a slash at the end the name means the target "
                       "of the link; write it without the slash",
                       word);
    if (!ends_in_dots(place->local ? word : strchr(word, ':') + 1))
        return 0;
    return err_set(err, ERR_INVALID, 0,
                   "'%.200s' is not removed: '.' and '..' are refused; write the directory's name",
                   word);
}

/* The same for each place. The answers are printed with --json, where there are any. */
static int each_place(struct files *f, const struct files_message *wanted, const char *const *words)
{
    int status = 0;

    for (size_t i = 0; words[i]; i++) {
        struct files_message m = *wanted;
        struct err err = {0};
        struct client_path place;
        json_t *answer = NULL;
        int one = 0;
        if (place_parse(words[i], &place, &err) < 0 ||
            (m.op == FILES_REMOVE && refuse_unnamed(words[i], &place, &err) < 0) ||
            files_ask(f, &place, &m, NULL, &answer, &err) < 0)
            one = files_fail(words[i], &err);
        else if (f->common.json && !json_is_null(answer))
            one = client_print(json_incref(answer));
        json_decref(answer);
        status = status ? status : one;
    }
    return status;
}

int client_rm(char **argv)
{
    static const char help[] =
        "usage: carrel rm [-r] PLACE...\n"
        "\n"
        "Removes files and empty directories; with -r directories with everything in them.\n"
        "'.' and '..' are refused.\n"
        "\n" HELP_OPTIONS "\n"
        "examples:\n"
        "  carrel rm desk:/a.txt\n"
        "  carrel rm -r desk:/build\n";
    struct files f;
    bool recursive = false;
    const struct args_rule rules[] = {
        {"-r", NULL, NULL, ARGS_FLAG, &recursive},
        {"-R", NULL, NULL, ARGS_FLAG, &recursive},
        {"--recursive", NULL, "remove directories, too, with everything in them", ARGS_FLAG,
         &recursive},
        {"--json", NULL, "print nothing but errors", ARGS_FLAG, &f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name what to remove: carrel rm WS:/path"};
    const char *words[FILES_WORDS + 1] = {NULL};

    int status = files_begin(&f, argv, &verb, words);
    if (status >= 0)
        return status;
    struct files_message m = {.op = FILES_REMOVE, .to = FILES_MOST, .mode = FILES_MOST};
    m.flags = recursive ? FILES_RECURSIVE : 0;
    return files_end(&f, each_place(&f, &m, words));
}

int client_mkdir(char **argv)
{
    static const char help[] = "usage: carrel mkdir [--mode MODE] PLACE...\n"
                               "\n"
                               "Makes directories, and missing directories above them.\n"
                               "\n" HELP_OPTIONS "\n"
                               "example: carrel mkdir desk:/src/parts\n";
    struct files f;
    const char *mode = NULL;
    const struct args_rule rules[] = {
        {"--mode", "MODE", "set the mode, in octal digits such as 0755", ARGS_TEXT, &mode},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, FILES_WORDS,
                                    "name what to make: carrel mkdir WS:/path"};
    const char *words[FILES_WORDS + 1] = {NULL};
    struct err err = {0};

    int status = files_begin(&f, argv, &verb, words);
    if (status >= 0)
        return status;
    struct files_message m = {
        .op = FILES_MKDIR, .to = FILES_MOST, .mode = FILES_MOST, .flags = FILES_PARENTS};
    if (files_mode(mode, &m.mode, &err) < 0)
        return client_fail(&err);
    return files_end(&f, each_place(&f, &m, words));
}

/* --- mv, cp --- */

struct two {
    struct files f;
    bool keep; /* what is there already */
    bool recursive;
    enum files_op op;
};

static int move_one(struct two *t, const char *word, const struct client_path *to, bool into,
                    struct err *err)
{
    struct client_path from;
    struct client_path end = *to;
    json_t *answer = NULL;

    if (place_parse(word, &from, err) < 0)
        return -1;
    if (!place_same_side(&from, to))
        return err_set(err, ERR_INVALID, 0,
                       "'%.120s' is on the other side: use carrel put and carrel get to copy files "
                       "between this host and a workspace",
                       word);
    if (into && place_enter(&end, place_name(&from), err) < 0)
        return -1;
    struct files_message m = {.op = t->op, .other = end.path, .to = FILES_MOST, .mode = FILES_MOST};
    m.flags = FILES_PARENTS | (t->keep ? 0U : FILES_REPLACE) |
              (t->recursive || t->op == FILES_MOVE ? FILES_RECURSIVE : 0U);
    if (files_ask(&t->f, &from, &m, NULL, &answer, err) < 0) {
        struct err plain = *err;
        if (t->op == FILES_COPY && !t->recursive && plain.said == SAID_IS_DIRECTORY)
            err_set(err, plain.code, 0, "%.280s; -r copies directories", plain.msg);
        err->said = plain.said;
        return -1;
    }
    int status = t->f.common.json && !json_is_null(answer) ? client_print(json_incref(answer)) : 0;
    json_decref(answer);
    return status;
}

static int move_all(struct two *t, const char **words)
{
    struct files_kind kind;
    struct err err = {0};
    struct client_path to;
    size_t count = 0;
    int status = 0;

    while (words[count])
        count++;
    if (place_parse(words[count - 1], &to, &err) < 0 || files_look(&t->f, &to, &kind, &err) < 0)
        return files_fail(words[count - 1], &err);
    bool into = to.folder || strcmp(kind.type, "directory") == 0;
    if (count > 2 && !into) {
        err_set(&err, ERR_INVALID, 0,
                "'%.200s' is not a directory, so only one file can be moved or copied there",
                words[count - 1]);
        return client_fail(&err);
    }
    for (size_t i = 0; i + 1 < count; i++) {
        int one = move_one(t, words[i], &to, into, &err);
        one = one < 0 ? files_fail(words[i], &err) : one;
        status = status ? status : one;
    }
    return status;
}

static int run_two(struct two *t, char **argv, const struct files_verb *verb)
{
    const char *words[FILES_WORDS + 1] = {NULL};
    int status = files_begin(&t->f, argv, verb, words);

    return status >= 0 ? status : files_end(&t->f, move_all(t, words));
}

int client_mv(char **argv)
{
    static const char help[] =
        "usage: carrel mv [-n] FROM... TO\n"
        "\n"
        "Moves or renames files and directories within a workspace. If TO is a directory,\n"
        "moves them into it.\n"
        "\n" HELP_OPTIONS "\n"
        "example: carrel mv desk:/a.txt desk:/old/\n";
    struct two t = {.op = FILES_MOVE};
    const struct args_rule rules[] = {
        {"-n", NULL, NULL, ARGS_FLAG, &t.keep},
        {"--no-replace", NULL, "do not replace an existing file", ARGS_FLAG, &t.keep},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &t.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 2, FILES_WORDS,
                                    "say what goes where: carrel mv WS:/from WS:/to"};

    return run_two(&t, argv, &verb);
}

int client_cp(char **argv)
{
    static const char help[] =
        "usage: carrel cp [-r] [-n] FROM... TO\n"
        "\n"
        "Copies files within a workspace; with -r also directories. If TO is a directory,\n"
        "copies into it.\n"
        "\n" HELP_OPTIONS "\n"
        "example: carrel cp -r desk:/src desk:/backup\n";
    struct two t = {.op = FILES_COPY};
    const struct args_rule rules[] = {
        {"-n", NULL, NULL, ARGS_FLAG, &t.keep},
        {"--no-replace", NULL, "do not replace an existing file", ARGS_FLAG, &t.keep},
        {"-r", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"-R", NULL, NULL, ARGS_FLAG, &t.recursive},
        {"--recursive", NULL, "copy directories, too, with everything in them", ARGS_FLAG,
         &t.recursive},
        {"--json", NULL, "print one JSON object for each path", ARGS_FLAG, &t.f.common.json},
        {0},
    };
    const struct files_verb verb = {help, rules, 2, FILES_WORDS,
                                    "say what goes where: carrel cp WS:/from WS:/to"};

    return run_two(&t, argv, &verb);
}

/* --- edit --- */

int client_edit(char **argv)
{
    static const char help[] =
        "usage: carrel edit PLACE --old TEXT --new TEXT [--all] [--if-match ETAG]\n"
        "\n"
        "Replaces a text in a file, and prints how many times. Without --all the text must\n"
        "stand in the file exactly once. If another program writes the file at the same time,\n"
        "the edit is made on the newer content; nothing that was written is lost.\n"
        "\n" HELP_OPTIONS "\n"
        "example: carrel edit desk:/a.py --old 'x = 1' --new 'x = 2'\n";
    struct files f;
    const char *texts[2] = {NULL, NULL};
    const char *if_match = NULL;
    bool all = false;
    const struct args_rule rules[] = {
        {"--old", "TEXT", "replace this text, taken literally", ARGS_TEXT, &texts[0]},
        {"--new", "TEXT", "put this text in its place", ARGS_TEXT, &texts[1]},
        {"--if-match", "ETAG", "act only if the file still has this etag, from 'carrel stat'",
         ARGS_TEXT, &if_match},
        {"--all", NULL, "replace the text wherever it stands", ARGS_FLAG, &all},
        {0},
    };
    const struct files_verb verb = {help, rules, 1, 1,
                                    "name a file: carrel edit WS:/path --old TEXT --new TEXT"};
    const char *words[2] = {NULL};
    struct err err = {0};
    struct client_path place;
    json_t *answer = NULL;
    char line[64];

    int status = files_begin(&f, argv, &verb, words);
    if (status >= 0)
        return status;
    if (!texts[0] || !*texts[0] || !texts[1])
        return cli_fail("--old or --new is missing: carrel edit WS:/path --old TEXT --new TEXT");
    struct files_message m = {.op = FILES_EDIT, .to = FILES_MOST, .mode = FILES_MOST};
    m.flags = all ? FILES_ALL : 0;
    if (place_parse(words[0], &place, &err) < 0 || files_if_match(if_match, &m, &err) < 0 ||
        files_ask(&f, &place, &m, texts, &answer, &err) < 0) {
        files_explain_match(&err);
        struct err plain = err;
        if (plain.said == SAID_MULTIPLE_OCCURRENCES)
            err_set(&err, plain.code, 0, "%.300s; use --all", plain.msg);
        return files_end(&f, files_fail(words[0], &err));
    }
    if (f.common.json)
        return files_end(&f, client_print(answer));
    snprintf(line, sizeof(line), "%lld\n",
             (long long)json_integer_value(json_object_get(answer, "occurrences")));
    json_decref(answer);
    return files_end(&f, cli_put(line));
}
