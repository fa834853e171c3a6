/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/form.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    KEPT = HTTP_PART_HEAD + 65536,
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The value of a parameter, "name=value" or "name="value"", behind the first ';' of a header. It
 * ends up in `ret`; false: there is none, or it has no room. What is quoted has no escapes but
 * those that browsers make: %22, %0D and %0A. */
static bool parameter(const char *header, const char *name, char *ret, size_t size)
{
    size_t name_n = strlen(name);
    const char *at = strchr(header, ';');

    while (at) {
        at++;
        while (is_blank(*at))
            at++;
        bool found = strncasecmp(at, name, name_n) == 0 && at[name_n] == '=';
        const char *value = strchr(at, '=');
        const char *next = strchr(at, ';');
        if (!value || (next && next < value)) {
            at = next;
            continue;
        }
        bool quoted = *++value == '"';
        value += quoted;
        size_t n = 0;
        while (value[n] && (quoted ? value[n] != '"' : value[n] != ';' && !is_blank(value[n])))
            n += quoted && value[n] == '\\' && value[n + 1] ? 2 : 1;
        if (found && n < size) {
            memcpy(ret, value, n);
            ret[n] = '\0';
            return true;
        }
        if (found)
            return false;
        at = strchr(value + n, ';');
    }
    return false;
}

/* As browsers write what would end the quotes or the line. */
static void undo_escapes(char *text)
{
    static const struct {
        const char *escape;
        char c;
    } table[] = {{"%22", '"'}, {"%0D", '\r'}, {"%0A", '\n'}};

    char *to = text;
    while (*text) {
        bool done = false;
        for (size_t i = 0; i < 3 && !done; i++) {
            done = strncasecmp(text, table[i].escape, 3) == 0;
            if (done)
                *to = table[i].c;
        }
        if (!done)
            *to = *text == '\\' && text[1] ? *++text : *text;
        text += done ? 3 : 1;
        to++;
    }
    *to = '\0';
}

bool form_begin(struct form *f, const char *type, const struct form_calls *calls, void *context)
{
    static const char multipart[] = "multipart/form-data";
    char boundary[HTTP_BOUNDARY + 1];

    *f = (struct form){.calls = calls, .context = context};
    if (!type || strncasecmp(type, multipart, sizeof(multipart) - 1) != 0 ||
        !parameter(type, "boundary", boundary, sizeof(boundary)) || !*boundary)
        return false;
    f->delimiter_n = (size_t)snprintf(f->delimiter, sizeof(f->delimiter), "\r\n--%s", boundary);
    buf_init(&f->kept, KEPT);
    buf_str(&f->kept, "\r\n"); /* as if a line had ended before the first */
    return buf_done(&f->kept) == 0;
}

void form_free(struct form *f)
{
    buf_clear(&f->kept);
}

static void take(struct form *f, size_t n)
{
    memmove(f->kept.p, f->kept.p + n, f->kept.n - n);
    f->kept.n -= n;
}

static bool broken(struct form *f, const char *why)
{
    f->state = FORM_BROKEN;
    f->why = why;
    return false;
}

/* Each of these returns whether it has come further. */
static bool step_before(struct form *f)
{
    const char *at = memmem(f->kept.p, f->kept.n, f->delimiter, f->delimiter_n);

    if (at) {
        take(f, (size_t)(at - f->kept.p) + f->delimiter_n);
        f->state = FORM_BOUNDARY;
        return true;
    }
    if (f->kept.n > f->delimiter_n)
        take(f, f->kept.n - f->delimiter_n);
    return false;
}

static bool step_boundary(struct form *f)
{
    if (f->kept.n < 2)
        return false;
    bool last = memcmp(f->kept.p, "--", 2) == 0;
    if (!last && memcmp(f->kept.p, "\r\n", 2) != 0)
        return broken(f, "behind a boundary there is something else than a line end");
    take(f, last ? 2 : 0); /* the line end is also that before an empty head */
    f->state = last ? FORM_OVER : FORM_HEAD;
    return true;
}

static bool read_head(struct form *f, char *head)
{
    char name[256] = "";
    char filename[HTTP_PART_HEAD];
    bool has_filename = false;
    char *rest = NULL;

    for (char *line = strtok_r(head, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        static const char wanted[] = "content-disposition:";
        if (strncasecmp(line, wanted, sizeof(wanted) - 1) != 0)
            continue;
        if (!parameter(line, "name", name, sizeof(name)))
            name[0] = '\0';
        has_filename = parameter(line, "filename", filename, sizeof(filename));
    }
    undo_escapes(name);
    if (has_filename)
        undo_escapes(filename);
    f->state = FORM_BYTES;
    f->ended = false;
    return f->calls->part(f->context, name, has_filename ? filename : NULL) || broken(f, "");
}

static bool step_head(struct form *f)
{
    char head[HTTP_PART_HEAD + 1];
    const char *end = memmem(f->kept.p, f->kept.n, "\r\n\r\n", 4);
    size_t n = end ? (size_t)(end - f->kept.p) : f->kept.n;

    if (n > HTTP_PART_HEAD || (!end && f->kept.n > HTTP_PART_HEAD))
        return broken(f, "the headers of a part are longer than 16 KiB");
    if (!end)
        return false;
    memcpy(head, f->kept.p, n);
    head[n] = '\0';
    if (strlen(head) != n)
        return broken(f, "the headers of a part have a NUL");
    take(f, n + 4);
    return read_head(f, head);
}

static bool step_bytes(struct form *f)
{
    const char *at = memmem(f->kept.p, f->kept.n, f->delimiter, f->delimiter_n);
    size_t safe = at                            ? (size_t)(at - f->kept.p)
                  : f->kept.n >= f->delimiter_n ? f->kept.n - f->delimiter_n + 1
                                                : 0;
    size_t taken = safe ? f->calls->bytes(f->context, f->kept.p, safe) : 0;

    take(f, taken);
    if (taken < safe)
        return false;
    if (!at)
        return false;
    if (!f->calls->end(f->context))
        return false; /* again, when that is over */
    take(f, f->delimiter_n);
    f->state = FORM_BOUNDARY;
    return true;
}

static bool step(struct form *f)
{
    switch (f->state) {
    case FORM_BEFORE:
        return step_before(f);
    case FORM_BOUNDARY:
        return step_boundary(f);
    case FORM_HEAD:
        return step_head(f);
    case FORM_BYTES:
        return step_bytes(f);
    case FORM_OVER:
    case FORM_BROKEN:
        f->kept.n = 0; /* what comes behind the last boundary means nothing */
        return false;
    }
    return false;
}

size_t form_feed(struct form *f, const char *bytes, size_t n)
{
    size_t at = 0;

    do {
        size_t room = KEPT - f->kept.n;
        size_t some = n - at < room ? n - at : room;
        size_t had = f->kept.n + some;
        buf_add(&f->kept, bytes + at, some);
        if (f->kept.failed) {
            (void)broken(f, "out of memory");
            return n;
        }
        at += some;
        while (step(f)) {
        }
        if (f->kept.n == had && f->kept.n >= KEPT)
            break; /* somebody has to wait */
    } while (at < n);
    return at;
}
