/* SPDX-License-Identifier: Apache-2.0 */
#include "files/search/grep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "files/core/search.h"
#include "policy/glob.h"

enum {
    MOST_MATCHES = 48 << 20 /* bytes of them, less than an emit keeps */
};

/* Where the matches of a file are in grep.e. */
struct grep_found {
    char *path;
    size_t from;
    size_t to;
};

/* --- the globs --- */

static bool matches_any(struct glob *const globs[FILES_GLOBS], const char *path)
{
    for (size_t i = 0; i < FILES_GLOBS && globs[i]; i++) {
        if (glob_match(globs[i], path))
            return true;
    }
    return false;
}

/* Whether it or a directory above it is one to be left. */
static bool is_left(const struct grep *g, const char *path)
{
    char above[FILES_PATH];
    size_t n = strlen(path);

    if (!g->leaves[0])
        return false;
    for (size_t i = 1; i < n && n < sizeof(above); i++) {
        if (path[i] != '/')
            continue;
        memcpy(above, path, i);
        above[i] = '\0';
        if (matches_any(g->leaves, above))
            return true;
    }
    return matches_any(g->leaves, path);
}

bool grep_wants(const struct grep *g, const char *path, bool is_dir)
{
    if (g->single)
        return true;
    if (is_dir)
        return !matches_any(g->leaves, path);
    return (!g->takes[0] || matches_any(g->takes, path)) && !is_left(g, path);
}

static bool make_globs(struct grep *g)
{
    const char *const *globs = g->call->m->globs;
    size_t takes = 0;
    size_t leaves = 0;

    for (size_t i = 0; globs[i] && i < FILES_GLOBS; i++) {
        bool leave = globs[i][0] == '!';
        char text[FILES_PATH];
        size_t n = strnlen(globs[i] + leave, sizeof(text) - 1);
        memcpy(text, globs[i] + leave, n);
        /* "!build/" is a directory of that name anywhere, like "!build". */
        while (leave && n > 1 && text[n - 1] == '/')
            n--;
        text[n] = '\0';
        struct glob *glob = glob_make(text, &g->why_not);
        if (!glob) {
            g->why = globs[i];
            return false;
        }
        glob_take_dots(glob);
        *(leave ? &g->leaves[leaves++] : &g->takes[takes++]) = glob;
    }
    return true;
}

/* --- lines become matches --- */

/* Where to cut without breaking a character. */
static size_t whole_characters(const char *text, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];
        if (c < 0x80)
            return n;
        if (c >= 0xc0)
            return bytes_are_utf8(text + n - back, back) ? n : n - back;
    }
    return n;
}

static void emit_lines(struct grep *g, const char *key, const struct grep_line *lines, size_t n)
{
    emit_raw(&g->e, key);
    for (size_t i = 0; i < n; i++)
        emit_value(&g->e, lines[i].text, lines[i].n);
    emit_raw(&g->e, "]");
}

/* The match and, in the window around it, the lines that are near enough. */
static void emit_match(struct grep *g, const struct grep_line *match, size_t before, size_t after)
{
    const char *path =
        g->single ? g->call->m->path
                  : search_path(&g->path, g->call->m->path, g->files[g->file_count - 1].path);

    if (!path)
        return;
    emit_comma(&g->e);
    emit_raw(&g->e, "{");
    emit_bytes(&g->e, "path", path, strlen(path));
    emit_number(&g->e, "line", (int64_t)match->number);
    emit_bytes(&g->e, "text", match->text, match->n);
    if (match->cut)
        emit_raw(&g->e, ",\"cut\":true");
    emit_lines(g, ",\"before\":[", match - before, before);
    emit_lines(g, ",\"after\":[", match + 1, after);
    emit_raw(&g->e, "}");
}

/* Matches of the window that have all their lines before line `number`. */
static void emit_complete(struct grep *g, uint64_t number)
{
    for (size_t i = 0; i < g->lines; i++) {
        struct grep_line *match = &g->window[i];
        size_t first = i;
        size_t last = i;
        if (!match->is_match)
            continue;
        if (match->number + g->context >= number)
            return;
        while (first > 0 && g->window[first - 1].number + g->context >= match->number)
            first--;
        while (last + 1 < g->lines && g->window[last + 1].number <= match->number + g->context)
            last++;
        emit_match(g, match, i - first, last - i);
        match->is_match = false; /* told */
    }
}

/* Forgets lines too far above every match still to be told, and above line `number`. */
static void forget(struct grep *g, uint64_t number)
{
    size_t n = 0;

    for (size_t i = 0; i < g->lines; i++) {
        if (g->window[i].is_match) {
            number = g->window[i].number;
            break;
        }
    }
    while (n < g->lines && g->window[n].number + g->context < number) {
        free((void *)(uintptr_t)g->window[n].text);
        n++;
    }
    g->lines -= n;
    memmove(g->window, g->window + n, g->lines * sizeof(g->window[0]));
}

static bool keep_line(struct grep *g, const struct grep_line *line)
{
    emit_complete(g, line->number);
    forget(g, line->number);
    char *text = malloc(line->n + 1);
    if (!text || g->lines == sizeof(g->window) / sizeof(g->window[0])) {
        free(text);
        return false;
    }
    memcpy(text, line->text, line->n);
    g->window[g->lines] = *line;
    g->window[g->lines++].text = text;
    return true;
}

bool grep_line(struct grep *g, const struct grep_line *line)
{
    struct grep_line told = *line;

    if (line->is_match && (g->found == g->call->m->limit || g->e.b.n > MOST_MATCHES)) {
        g->truncated = true;
        return false;
    }
    if (told.n > GREP_MOST_TEXT || told.cut) {
        told.n = told.n < GREP_MOST_TEXT ? told.n : GREP_MOST_TEXT;
        told.n = whole_characters(told.text, told.n);
        told.cut = true;
    }
    g->found += line->is_match;
    if (g->context > 0)
        return keep_line(g, &told);
    if (line->is_match)
        emit_match(g, &told, 0, 0);
    return !g->e.b.failed;
}

bool grep_begin_file(struct grep *g, const char *path)
{
    if (g->file_count == g->file_cap) {
        size_t cap = g->file_cap ? 2 * g->file_cap : 64;
        struct grep_found *files = reallocarray(g->files, cap, sizeof(*files));
        if (!files)
            return false;
        g->files = files;
        g->file_cap = cap;
    }
    struct grep_found *file = &g->files[g->file_count];
    *file = (struct grep_found){.path = strdup(path), .from = g->e.b.n};
    g->file_count += file->path != NULL;
    g->e.last = '[';
    return file->path != NULL;
}

void grep_end_file(struct grep *g)
{
    struct grep_found *file = &g->files[g->file_count - 1];

    emit_complete(g, UINT64_MAX);
    forget(g, UINT64_MAX);
    file->to = g->e.b.n;
    if (file->to > file->from)
        return;
    free(file->path); /* nothing in it */
    g->file_count--;
}

/* --- the answer --- */

/* The order of a walk: a directory, what is in it, then what comes after its name. */
static int compare(const void *a, const void *b)
{
    const char *x = ((const struct grep_found *)a)->path;
    const char *y = ((const struct grep_found *)b)->path;

    while (*x && *x == *y) {
        x++;
        y++;
    }
    int first = *x == '/' ? 1 : *x ? (unsigned char)*x + 1 : 0;
    int second = *y == '/' ? 1 : *y ? (unsigned char)*y + 1 : 0;
    return first - second;
}

static void answer(struct grep *g)
{
    struct emit e;

    emit_begin(&e, g->call, false, FILES_TYPE_JSON);
    emit_raw(&e, "{\"matches\":[");
    if (g->file_count > 1)
        qsort(g->files, g->file_count, sizeof(g->files[0]), compare);
    for (size_t i = 0; i < g->file_count; i++) {
        if (i > 0)
            emit_raw(&e, ",");
        buf_add(&e.b, g->e.b.p + g->files[i].from, g->files[i].to - g->files[i].from);
    }
    emit_raw(&e, g->truncated ? "],\"truncated\":true}" : "],\"truncated\":false}");
    emit_finish(&e, 200);
}

static void grep_clear(struct grep *g)
{
    for (size_t i = 0; i < g->file_count; i++)
        free(g->files[i].path);
    free(g->files);
    for (size_t i = 0; i < g->lines; i++)
        free((void *)(uintptr_t)g->window[i].text);
    for (size_t i = 0; i < FILES_GLOBS; i++) {
        glob_free(g->takes[i]);
        glob_free(g->leaves[i]);
    }
    scope_close(&g->file);
    buf_clear(&g->e.b);
    buf_clear(&g->path);
    free(g);
}

/* What is searched: a directory, or a file, which is opened here. */
static int look(struct grep *g)
{
    const char *path = g->call->m->path;
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return 0;
    g->single = true;
    g->file = files_open(path, true, &st);
    return g->file < 0 ? g->file : 0;
}

/* A file asked for by name may be no text, which the engines do not agree about. */
static bool is_binary(int fd)
{
    char bytes[GREP_BINARY];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);

    return n > 0 && memchr(bytes, '\0', (size_t)n);
}

static const char *refusal(const struct files_message *m)
{
    if (!m->pattern[0])
        return "the pattern is empty";
    if (strchr(m->pattern, '\n'))
        return "the search goes line by line: a pattern has no line break";
    return NULL;
}

static void search(struct grep *g, const char *program)
{
    int r = look(g);

    if (r == 0 && !(g->single && is_binary(g->file))) {
        r = program ? grep_by_ripgrep(g, program) : -ENOSYS;
        if (r == -ENOSYS)
            r = grep_by_ourselves(g);
    }
    if (r < 0)
        answer_errno(g->call, r, g->call->m->path);
    else if (r == 0)
        answer(g);
}

void grep_with(struct files_call *call, const char *program)
{
    struct grep *g = calloc(1, sizeof(*g));
    const char *no = refusal(call->m);

    if (!g) {
        answer_errno(call, ENOMEM, call->m->path);
        return;
    }
    g->call = call;
    g->file = -1;
    g->context = call->m->context < GREP_MOST_CONTEXT ? call->m->context : GREP_MOST_CONTEXT;
    emit_begin(&g->e, call, false, FILES_TYPE_JSON);
    if (no)
        answer_error(call, 400, "invalid_pattern", "%s", no);
    else if (!make_globs(g))
        search_refuse(call, g->why ? g->why : "", g->why_not);
    else
        search(g, program);
    grep_clear(g);
}

/* Only a program that nobody inside can have put there: on a mount that is read-only. */
static bool is_trusted(const char *program)
{
    struct statvfs st;

    return access(program, X_OK) == 0 && statvfs(program, &st) == 0 && st.f_flag & ST_RDONLY;
}

void files_grep(struct files_call *call)
{
    static const char ripgrep[] = "/usr/bin/rg";

    grep_with(call, is_trusted(ripgrep) ? ripgrep : NULL);
}
