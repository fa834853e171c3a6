/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of paths. Braces are written out first, within bounds; each of what comes of it is a row
 * of parts, each part a row of tokens. A path goes through the parts as through a state machine, a
 * name through the tokens with one place to come back to: no pattern takes longer than its length
 * times that of the path.
 *
 *   "src/{a,b}*.[ch]"  ->  src/a*.[ch], src/b*.[ch]  ->  {s,r,c} {a,STAR,.,class 0}, ... */
#include "policy/glob.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ALTERNATIVES = 1024, /* after the braces */
    MOST_BYTES = 65536,       /* ... together; and a pattern is never longer */
    MOST_MADE = 1 << 20,      /* ... with all that was made on the way */
    MOST_PARTS = 4096,

    ANY = 256, /* tokens: a byte, or one of these */
    STAR,
    CLASS, /* and the number of the class */
};

static const char invalid[] = "invalid_pattern";
static const char too_broad[] = "pattern_too_broad";
static const char no_memory[] = "unavailable";

struct class
{
    uint8_t has[32]; /* a bit for each byte */
};

struct part {
    size_t first; /* of the tokens */
    size_t n;
    bool spans; /* "**" */
};

struct alternative {
    uint16_t *tokens;
    struct class *classes;
    struct part *parts;
    size_t token_count;
    size_t class_count;
    size_t n;
};

struct glob {
    struct alternative *alternatives;
    size_t n;
    bool dots;
};

/* --- braces --- */

struct texts {
    char *at[MOST_ALTERNATIVES];
    size_t n;
    size_t bytes; /* of all that there are */
    size_t made;  /* ... and were */
};

static void texts_free(struct texts *texts)
{
    if (!texts)
        return;
    for (size_t i = 0; i < texts->n; i++)
        free(texts->at[i]);
    free(texts);
}

struct braces {
    size_t open;
    size_t close;
};

/* The leftmost braces that close and have a comma of their own. 1 found, 0 none, -1 no memory. */
static int find_braces(const char *text, struct braces *ret)
{
    struct open {
        size_t at;
        bool comma;
    } *opens = calloc(strlen(text) + 1, sizeof(*opens));

    size_t depth = 0;
    bool found = false;

    if (!opens)
        return -1;
    for (size_t i = 0; text[i]; i++) {
        if (text[i] == '\\') {
            i += text[i + 1] != '\0';
        } else if (text[i] == '{') {
            opens[depth++] = (struct open){.at = i};
        } else if (text[i] == ',' && depth > 0) {
            opens[depth - 1].comma = true;
        } else if (text[i] == '}' && depth > 0) {
            const struct open *open = &opens[--depth];
            if (open->comma && (!found || open->at < ret->open))
                *ret = (struct braces){open->at, i};
            found = found || open->comma;
        }
    }
    free(opens);
    return found;
}

/* The end of the choice that begins at `from`: its comma, or the closing brace. */
static size_t choice_end(const char *text, size_t from, size_t close)
{
    size_t depth = 0;
    size_t i = from;

    for (; i < close; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] == '{')
            depth++;
        else if (text[i] == '}')
            depth--;
        else if (text[i] == ',' && depth == 0)
            break;
    }
    return i < close ? i : close;
}

static const char *add_text(struct texts *texts, const char *const pieces[3], const size_t sizes[3])
{
    size_t n = sizes[0] + sizes[1] + sizes[2];

    if (texts->n == MOST_ALTERNATIVES || texts->bytes + n > MOST_BYTES ||
        texts->made + n > MOST_MADE)
        return too_broad;
    char *text = malloc(n + 1);
    if (!text)
        return no_memory;
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        memcpy(text + at, pieces[i], sizes[i]);
        at += sizes[i];
    }
    text[n] = '\0';
    texts->at[texts->n++] = text;
    texts->bytes += n;
    texts->made += n + 1;
    return NULL;
}

/* Puts what the braces at `b` stand for in the place of the i-th text and behind all others. */
static const char *write_out(struct texts *texts, size_t i, const struct braces *b)
{
    char *text = texts->at[i];
    size_t n = strlen(text);
    const char *why = NULL;

    for (size_t from = b->open + 1; !why;) {
        size_t to = choice_end(text, from, b->close);
        why = add_text(texts, (const char *const[3]){text, text + from, text + b->close + 1},
                       (const size_t[3]){b->open, to - from, n - b->close - 1});
        if (to == b->close)
            break;
        from = to + 1;
    }
    if (why)
        return why;
    texts->at[i] = texts->at[--texts->n];
    texts->bytes -= n;
    free(text);
    return NULL;
}

static const char *expand(struct texts *texts)
{
    for (size_t i = 0; i < texts->n;) {
        struct braces braces = {0};
        int r = find_braces(texts->at[i], &braces);
        const char *why = r < 0 ? no_memory : r > 0 ? write_out(texts, i, &braces) : NULL;
        if (why)
            return why;
        if (r == 0)
            i++;
    }
    return NULL;
}

/* --- tokens --- */

/* The length of the class that begins at `text`, 0: it never ends. */
static size_t class_length(const char *text, size_t n)
{
    size_t first = n > 1 && (text[1] == '!' || text[1] == '^') ? 2 : 1;

    for (size_t i = first + 1; i < n; i++) {
        if (text[i] == ']')
            return i + 1;
    }
    return 0;
}

static void class_read(struct class *class, const char *text, size_t n)
{
    bool negated = text[1] == '!' || text[1] == '^';
    const unsigned char *at = (const unsigned char *)text + (negated ? 2 : 1);
    const unsigned char *end = (const unsigned char *)text + n - 1;

    while (at < end) {
        bool is_range = end - at > 2 && at[1] == '-';
        unsigned last = is_range ? at[2] : at[0];
        for (unsigned c = at[0]; c <= last; c++)
            class->has[c / 8] |= (uint8_t)(1U << c % 8);
        at += is_range ? 3 : 1;
    }
    for (size_t i = 0; negated && i < sizeof(class->has); i++)
        class->has[i] = (uint8_t) ~class->has[i];
}

/* One part of a pattern as tokens. `unclosed` remembers that no bracket closes any more. */
static void read_part(struct alternative *a, const char *text, size_t n)
{
    struct part *part = &a->parts[a->n];
    bool unclosed = false;

    *part = (struct part){.first = a->token_count, .spans = n == 2 && memcmp(text, "**", 2) == 0};
    for (size_t i = 0; i < n && !part->spans; i++) {
        uint16_t token = (unsigned char)text[i];
        size_t class = text[i] == '[' && !unclosed ? class_length(text + i, n - i) : 0;
        unclosed = unclosed || (text[i] == '[' && class == 0);
        if (class > 0) {
            token = (uint16_t)(CLASS + a->class_count);
            class_read(&a->classes[a->class_count++], text + i, class);
            i += class - 1;
        } else if (text[i] == '\\' && i + 1 < n) {
            token = (unsigned char)text[++i];
        } else if (text[i] == '?' || text[i] == '*') {
            token = text[i] == '?' ? ANY : STAR;
        }
        if (token != STAR || part->n == 0 || a->tokens[a->token_count - 1] != STAR) {
            a->tokens[a->token_count++] = token;
            part->n++;
        }
    }
}

static bool part_is(const struct alternative *a, const struct part *part, const char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n && part->n == n; i++) {
        if (a->tokens[part->first + i] != (unsigned char)text[i])
            return false;
    }
    return !part->spans && part->n == n;
}

static void add_part(struct alternative *a, const char *text, size_t n)
{
    read_part(a, text, n);
    const struct part *part = &a->parts[a->n];
    bool again = part->spans && a->n > 0 && a->parts[a->n - 1].spans;
    if (again || part_is(a, part, "."))
        a->token_count = part->first;
    else
        a->n++;
}

static const char *read_alternative(struct alternative *a, const char *text)
{
    size_t n = strlen(text);
    size_t most = n + 4;
    bool anchored = strchr(text, '/') != NULL;

    a->tokens = calloc(most, sizeof(a->tokens[0]));
    a->classes = calloc(most / 3 + 1, sizeof(a->classes[0]));
    a->parts = calloc(most, sizeof(a->parts[0]));
    if (!a->tokens || !a->classes || !a->parts)
        return no_memory;
    if (!anchored)
        add_part(a, "**", 2);
    size_t own = a->n;
    for (const char *at = text; *at;) {
        size_t length = strcspn(at, "/");
        if (length > 0)
            add_part(a, at, length);
        if (a->n > own && part_is(a, &a->parts[a->n - 1], ".."))
            return invalid;
        at += length + (at[length] == '/');
    }
    if (a->n == 0 || (a->n == own && own > 0 && strcmp(text, "**") != 0))
        return invalid;
    /* A directory by name is what is in it; and "**" at the end is something, not nothing. */
    if (anchored && text[n - 1] == '/' && !a->parts[a->n - 1].spans)
        add_part(a, "**", 2);
    if (a->parts[a->n - 1].spans)
        add_part(a, "*", 1);
    return a->n > MOST_PARTS ? too_broad : NULL;
}

void glob_free(struct glob *glob)
{
    if (!glob)
        return;
    for (size_t i = 0; i < glob->n; i++) {
        free(glob->alternatives[i].tokens);
        free(glob->alternatives[i].classes);
        free(glob->alternatives[i].parts);
    }
    free(glob->alternatives);
    free(glob);
}

static const char *read_texts(struct glob *glob, const struct texts *texts)
{
    const char *why = NULL;

    glob->alternatives = calloc(texts->n, sizeof(glob->alternatives[0]));
    if (!glob->alternatives)
        return no_memory;
    for (size_t i = 0; i < texts->n && !why; i++) {
        if (texts->at[i][0]) /* nothing, as in "{a,}", matches nothing */
            why = read_alternative(&glob->alternatives[glob->n++], texts->at[i]);
    }
    return why || glob->n > 0 ? why : invalid;
}

struct glob *glob_make(const char *pattern, const char **ret_why)
{
    struct texts *texts = calloc(1, sizeof(*texts));
    struct glob *glob = calloc(1, sizeof(*glob));
    const char *why = texts && glob ? NULL : no_memory;

    if (!why)
        why = pattern[0] == '\0' ? invalid
                                 : add_text(texts, (const char *const[3]){pattern, "", ""},
                                            (const size_t[3]){strlen(pattern), 0, 0});
    if (!why)
        why = expand(texts);
    if (!why)
        why = read_texts(glob, texts);
    texts_free(texts);
    if (!why)
        return glob;
    glob_free(glob);
    *ret_why = why;
    return NULL;
}

void glob_take_dots(struct glob *glob)
{
    glob->dots = true;
}

/* --- matching --- */

static bool token_takes(const struct alternative *a, uint16_t token, unsigned char c)
{
    if (token < ANY)
        return token == c;
    if (token < CLASS)
        return true;
    return a->classes[token - CLASS].has[c / 8] >> c % 8 & 1;
}

static bool part_matches(const struct alternative *a, const struct part *part, const char *name,
                         size_t n)
{
    const uint16_t *tokens = a->tokens + part->first;
    size_t at = 0;
    size_t token = 0;
    size_t star = SIZE_MAX; /* the last one passed, and where it has got to */
    size_t reach = 0;

    while (at < n) {
        if (token < part->n && tokens[token] == STAR) {
            star = token++;
            reach = at;
        } else if (token < part->n && token_takes(a, tokens[token], (unsigned char)name[at])) {
            token++;
            at++;
        } else if (star != SIZE_MAX) {
            token = star + 1;
            at = ++reach;
        } else {
            return false;
        }
    }
    while (token < part->n && tokens[token] == STAR)
        token++;
    return token == part->n;
}

/* The states after a path: states[i] that the first i parts are behind. */
static void run(const struct alternative *a, bool dots, const char *path, bool *states)
{
    bool next[MOST_PARTS + 1];

    memset(states, 0, a->n + 1);
    states[0] = true;
    for (const char *name = path; *name;) {
        size_t n = strcspn(name, "/");
        bool any = false;
        memset(next, 0, a->n + 1);
        for (size_t i = 0; i < a->n; i++) {
            const struct part *part = &a->parts[i];
            if (!states[i])
                continue;
            if (part->spans)
                states[i + 1] = true;
            bool shown = dots || name[0] != '.' || (part->n > 0 && a->tokens[part->first] == '.');
            if (!shown || (!part->spans && !part_matches(a, part, name, n)))
                continue;
            next[part->spans ? i : i + 1] = true;
            any = true;
        }
        memcpy(states, next, a->n + 1);
        if (!any)
            return;
        name += n + (name[n] == '/');
    }
}

bool glob_match(const struct glob *glob, const char *path)
{
    bool states[MOST_PARTS + 1];

    for (size_t i = 0; i < glob->n; i++) {
        run(&glob->alternatives[i], glob->dots, path, states);
        if (states[glob->alternatives[i].n])
            return true;
    }
    return false;
}

bool glob_may_match_below(const struct glob *glob, const char *directory)
{
    bool states[MOST_PARTS + 1];

    for (size_t i = 0; i < glob->n; i++) {
        run(&glob->alternatives[i], glob->dots, directory, states);
        if (memchr(states, true, glob->alternatives[i].n))
            return true;
    }
    return false;
}

/* --- for ripgrep --- */

size_t glob_count(const struct glob *glob)
{
    return glob->n;
}

static bool write_token(uint16_t token, struct buf *b, bool *exact)
{
    if (token == STAR || token >= ANY) {
        buf_str(b, token == STAR ? "*" : "?");
        *exact = *exact && token < CLASS;
        return true;
    }
    if (token <= ' ' || token > '~')
        return false;
    bool plain = (token >= 'a' && token <= 'z') || (token >= 'A' && token <= 'Z') ||
                 (token >= '0' && token <= '9') || strchr("._-+@=", token);
    const char text[2] = {'\\', (char)token};
    buf_add(b, plain ? text + 1 : text, plain ? 1 : 2);
    return true;
}

bool glob_write(const struct glob *glob, size_t i, struct buf *b, bool *ret_exact)
{
    const struct alternative *a = &glob->alternatives[i];

    *ret_exact = true;
    for (size_t p = 0; p < a->n; p++) {
        const struct part *part = &a->parts[p];
        if (p > 0 || !part->spans)
            buf_str(b, "/");
        if (part->spans)
            buf_str(b, "**");
        for (size_t t = 0; t < part->n; t++) {
            if (!write_token(a->tokens[part->first + t], b, ret_exact))
                return false;
        }
    }
    return !b->failed;
}
