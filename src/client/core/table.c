/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/table.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"
#include "client/core/text.h"
#include "client/core/where.h"

enum {
    MOST_BYTES = 256 * 1024 * 1024
};

struct table_row {
    struct table_row *next;
    const char *cells[TABLE_COLUMNS];
};

/* What is worth a colour, in whichever column. */
static const struct {
    const char *word;
    const char *colour;
} coloured[] = {
    {"awake", "\033[32m"},   {"running", "\033[32m"}, {"asleep", "\033[2m"},
    {"deleted", "\033[31m"}, {"revoked", "\033[31m"},
};

static const char *safe_copy(struct table *table, const char *text)
{
    const char *shown = text && *text ? text : "-";
    struct buf b;

    buf_init(&b, 65536);
    text_escape(&b, shown, strlen(shown));
    const char *copy = buf_done(&b) == 0 ? arena_copy(&table->arena, b.p, b.n) : NULL;
    buf_clear(&b);
    table->failed = table->failed || !copy;
    return copy ? copy : "";
}

void table_open(struct table *table, const char *const *heads)
{
    *table = (struct table){.first = NULL};
    table->last = &table->first;
    arena_init(&table->arena, MOST_BYTES);
    while (table->columns < TABLE_COLUMNS && heads[table->columns])
        table->columns++;
    table_add(table, heads);
}

void table_add(struct table *table, const char *const *cells)
{
    struct table_row *row = arena_alloc(&table->arena, sizeof(*row));

    if (!row) {
        table->failed = true;
        return;
    }
    for (size_t i = 0; i < table->columns; i++) {
        row->cells[i] = safe_copy(table, cells[i]);
        size_t width = text_width(row->cells[i]);
        table->widths[i] = width > table->widths[i] ? width : table->widths[i];
    }
    *table->last = row;
    table->last = &row->next;
}

/* The bytes of the first `columns` characters. */
static size_t cut(const char *text, size_t columns)
{
    size_t at = 0;

    while (text[at]) {
        if (((unsigned char)text[at] & 0xc0) != 0x80 && columns-- == 0)
            break;
        at++;
    }
    return at;
}

static const char *colour_of(const char *cell)
{
    for (size_t i = 0; i < sizeof(coloured) / sizeof(coloured[0]); i++) {
        if (strcmp(cell, coloured[i].word) == 0)
            return coloured[i].colour;
    }
    return NULL;
}

static void print_row(const struct table *table, const struct table_row *row, struct buf *b,
                      size_t columns_wide, bool colours)
{
    size_t used = 0;

    for (size_t i = 0; i < table->columns; i++) {
        const char *cell = row->cells[i];
        const char *colour = !colours ? NULL : row == table->first ? "\033[1m" : colour_of(cell);
        bool last = i + 1 == table->columns;
        size_t n = strlen(cell);
        if (last && columns_wide > used + 8)
            n = cut(cell, columns_wide - used);
        if (colour)
            buf_str(b, colour);
        buf_add(b, cell, n);
        if (colour)
            buf_str(b, "\033[0m");
        if (!last)
            buf_printf(b, "%*s", (int)(table->widths[i] - text_width(cell) + 2), "");
        used += table->widths[i] + 2;
    }
    buf_str(b, "\n");
}

int table_print(const struct table *table, struct buf *b, size_t columns_wide, bool colours)
{
    for (const struct table_row *row = table->first; row; row = row->next)
        print_row(table, row, b, columns_wide, colours);
    return table->failed ? -1 : buf_done(b);
}

void table_close(struct table *table)
{
    arena_clear(&table->arena);
}

bool table_colours(void)
{
    const char *term = where_env("TERM");

    return isatty(STDOUT_FILENO) && !where_env("NO_COLOR") && term && strcmp(term, "dumb") != 0;
}

int table_show(struct table *table)
{
    struct winsize size = {0};
    struct buf b;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0)
        size.ws_col = 0;
    buf_init(&b, MOST_BYTES);
    int status = table_print(table, &b, size.ws_col, table_colours()) == 0
                     ? cli_put(b.p)
                     : cli_fail("out of memory for the list; use --json");
    buf_clear(&b);
    table_close(table);
    return status;
}
