/* SPDX-License-Identifier: Apache-2.0 */
/* DIR/.carrel/tools: the programs that every sandbox sees as /opt/carrel, read-only.
 *
 *   bin/uv, uvx, bun, bunx    libexec/uv, uvx    wheels/pip-*.whl
 *   tools.json                {"uv": {"version", "sha256", "archive", "hash"}, "pip": …, "bun": …}
 *
 * It is replaced whole: made beside it as tools.new, exchanged, and what was there stays as
 * tools.old until the next time, for the sandboxes that have it mounted. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "client/core/where.h"

enum tool {
    TOOL_UV,
    TOOL_PIP,
    TOOL_BUN,
    TOOL_COUNT_,
};

extern const char *const tool_names[TOOL_COUNT_];

struct toolbox {
    char path[WHERE_PATH + 16]; /* DIR/.carrel */
    int top;                    /* the same, open */
    int lock;
    int old; /* what is there; -1: nothing */
    json_t *list;
    int fresh; /* what is being made; -1: nothing */
    json_t *fresh_list;
};

/* `make`: the state directory, too, if there is none. Keeps others from doing the same until it is
 * closed. */
int toolbox_open(struct toolbox *box, const char *state, bool make, struct err *err);
/* Takes away what was begun and not published. */
void toolbox_close(struct toolbox *box);
/* What is recorded of a tool that is there, whole; NULL: it is not. */
const json_t *toolbox_find(const struct toolbox *box, enum tool tool);
/* Whether the names that it is called by are those that toolbox_publish makes, also when another
 * Carrel has made them. */
bool toolbox_names_are_right(const struct toolbox *box, enum tool tool);
/* bin/uv: a script around uv. */
extern const char toolbox_uv[];

/* Begins the next one, if that was not done yet. */
int toolbox_begin(struct toolbox *box, struct err *err);
/* A file for an archive on its way; gone when it is closed. */
int toolbox_spare(const struct toolbox *box, struct err *err);

/* A tool from its archive, which was checked. `archive` is its name, `hash` what it was checked
 * with. */
struct toolbox_archive {
    int fd;
    const char *name;
    const char *version;
    const char *hash; /* "sha256:…" */
};

int toolbox_add(struct toolbox *box, enum tool tool, const struct toolbox_archive *archive,
                struct err *err);
/* What was not added is taken over; then it is there for all. */
int toolbox_publish(struct toolbox *box, struct err *err);
