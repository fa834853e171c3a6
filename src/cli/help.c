/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts: the options in them come from the tables that the options are read by. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/cli.h"

enum {
    MOST_ROWS = 64,
    WIDEST = 22, /* a longer option has its text on the next line */
    GAP = 2,
};

struct help_rows {
    struct option_text rows[MOST_ROWS];
    size_t count;
};

static bool has_name(const struct help_rows *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++) {
        if (strcmp(all->rows[i].name, name) == 0)
            return true;
    }
    return false;
}

static void add_row(struct help_rows *all, const struct option_text *row)
{
    if (all->count < MOST_ROWS && !has_name(all, row->name))
        all->rows[all->count++] = *row;
}

/* Writes "-f, --follow" or "--from N" for the row at *at, which moves on to the row that has the
 * text. Returns the number of columns. */
static size_t write_names(struct buf *out, const struct help_rows *all, size_t *at)
{
    const size_t before = out->n;

    while (!all->rows[*at].about && *at + 1 < all->count)
        buf_printf(out, "%s, ", all->rows[(*at)++].name);
    buf_str(out, all->rows[*at].name);
    if (all->rows[*at].value)
        buf_printf(out, " %s", all->rows[*at].value);
    return out->n - before;
}

static size_t widest_names(const struct help_rows *all)
{
    size_t widest = 0;

    for (size_t i = 0; i < all->count; i++) {
        struct buf names;
        buf_init(&names, 4096);
        size_t columns = write_names(&names, all, &i);
        buf_clear(&names);
        if (columns > widest && columns <= WIDEST)
            widest = columns;
    }
    return widest;
}

static void new_line(struct buf *out, size_t columns)
{
    buf_printf(out, "\n%*s", (int)columns, "");
}

static void write_rows(struct buf *out, const struct help_rows *all)
{
    const size_t column = GAP + widest_names(all) + GAP;

    for (size_t i = 0; i < all->count; i++) {
        const size_t start = out->n;
        buf_printf(out, "%*s", GAP, "");
        size_t used = GAP + write_names(out, all, &i);
        const char *about = all->rows[i].about;
        if (!about || !*about) { /* accepted, but of no use here */
            out->n = start;
            continue;
        }
        if (used + GAP > column)
            new_line(out, column);
        else
            buf_printf(out, "%*s", (int)(column - used), "");
        for (const char *end; (end = strchr(about, '\n')); about = end + 1) {
            buf_add(out, about, (size_t)(end - about));
            new_line(out, column);
        }
        buf_printf(out, "%s\n", about);
    }
}

int cli_put_help(const char *text, const void *rows, size_t count, size_t size,
                 const struct option_text *common)
{
    const char *place = strstr(text, HELP_OPTIONS);
    struct help_rows all = {.count = 0};
    struct option_text row;
    scoped_buf struct buf out;

    for (size_t i = 0; i < count; i++) {
        memcpy(&row, (const char *)rows + i * size, sizeof(row));
        add_row(&all, &row);
    }
    for (; common && common->name; common++)
        add_row(&all, common);
    buf_init(&out, 1UL << 20);
    buf_add(&out, text, place ? (size_t)(place - text) : strlen(text));
    if (place) {
        write_rows(&out, &all);
        buf_str(&out, place + strlen(HELP_OPTIONS));
    }
    return buf_done(&out) < 0 ? cli_fail("out of memory") : cli_put(out.p);
}
