/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

enum {
    LONGEST = 2048
};

struct line {
    char text[LONGEST];
    size_t n;
};

static void add(struct line *line, const char *bytes, size_t n)
{
    /* What does not fit is left out; the newline always does. */
    if (n > sizeof(line->text) - 2 - line->n)
        return;
    memcpy(line->text + line->n, bytes, n);
    line->n += n;
}

static void add_text(struct line *line, const char *text)
{
    add(line, text, strlen(text));
}

static void add_quoted(struct line *line, const char *value)
{
    char escape[8];

    add_text(line, "'");
    for (const char *c = value; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte >= ' ' && byte < 0x7f && byte != '\'' && byte != '\\') {
            add(line, c, 1);
        } else {
            snprintf(escape, sizeof(escape), "\\x%02x", byte);
            add(line, escape, 4);
        }
    }
    add_text(line, "'");
}

static void put(const char *level, const char *event, va_list pairs)
{
    struct line line = {.n = 0};
    const char *key;

    add_text(&line, "level=");
    add_text(&line, level);
    add_text(&line, " event=");
    add_text(&line, event);
    while ((key = va_arg(pairs, const char *))) {
        const char *value = va_arg(pairs, const char *);
        if (!value)
            continue;
        add_text(&line, " ");
        add_text(&line, key);
        add_text(&line, "=");
        add_quoted(&line, value);
    }
    line.text[line.n++] = '\n';
    ignore(write(STDERR_FILENO, line.text, line.n) > 0); /* nobody to tell */
}

void log_info(const char *event, ...)
{
    va_list pairs;

    va_start(pairs, event);
    put("info", event, pairs);
    va_end(pairs);
}

void log_warning(const char *event, ...)
{
    va_list pairs;

    va_start(pairs, event);
    put("warning", event, pairs);
    va_end(pairs);
}

void log_error(const char *event, ...)
{
    va_list pairs;

    va_start(pairs, event);
    put("error", event, pairs);
    va_end(pairs);
}

void log_err(const char *event, const char *about, const struct err *err)
{
    char text[512];

    log_error(event, "error", err_text(err, text, sizeof(text)), "about", about, NULL);
}
