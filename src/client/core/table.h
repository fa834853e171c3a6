/* SPDX-License-Identifier: Apache-2.0 */
/* Aligned columns. Cells are escaped; the last column is cut to the width of the terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum {
    TABLE_COLUMNS = 10
};

struct table {
    struct arena arena;
    struct table_row *first;
    struct table_row **last;
    size_t columns;
    size_t widths[TABLE_COLUMNS];
    bool failed; /* out of memory */
};

/* `heads` ends with NULL. */
void table_open(struct table *table, const char *const *heads);
/* As many cells as there are heads; NULL and "" are shown as "-". */
void table_add(struct table *table, const char *const *cells);
/* `columns_wide` 0: no bound. */
int table_print(const struct table *table, struct buf *b, size_t columns_wide, bool colours);
void table_close(struct table *table);
/* Prints on standard output as suits it, closes, and returns the exit status. */
int table_show(struct table *table);

/* Whether standard output is a terminal that wants colours. */
bool table_colours(void);
