/* SPDX-License-Identifier: Apache-2.0 */
/* carrel doctor WS: what its parts share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "client/files/files.h"

struct doctor {
    struct files f;
    struct client_path place;
    bool asks_path;
    const char *package; /* NULL: none is asked for */
    json_t *checks;
    bool sick;
    char read_only[2048]; /* what is mounted so, with blanks between */
};

/* One line of the report: it works; it does not, and how to mend it; or it is only told. */
void doctor_good(struct doctor *d, const char *name, const char *detail);
void doctor_bad(struct doctor *d, const char *name, const char *detail, const char *fix);
void doctor_tell(struct doctor *d, const char *name, const char *detail, const char *fix);

/* Python, Node, PATH, packages, and output that comes late. */
void doctor_environment(struct doctor *d);
