/* SPDX-License-Identifier: Apache-2.0 */
/* The snapshots of one workspace: a directory of Carrel's own, and in it
 *
 *   sID/tree    the files, as they were; nobody writes there any more
 *   sID/meta    what is told of it: JSON, with its name
 *   sID/seen    seen.h
 *   .new-sID    one that is being made: it is renamed when it is whole and on disk
 *   .gone-sID   one that is being removed
 *
 * The rename is all that makes a snapshot one: what was interrupted is found by its dot. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum {
    KEPT_ID = 28,
    KEPT_NAME = 64,
    KEPT_MOST = 200, /* of one workspace */
};

struct kept {
    char id[KEPT_ID];
    json_t *meta;
    int64_t created_ms;
};

struct kept_list {
    struct kept at[KEPT_MOST];
    size_t count; /* the oldest first */
};

bool kept_id_is_valid(const char *id);
int kept_read(struct kept_list *ret, int dir, struct err *err);
void kept_clear(struct kept_list *list);
/* By id or name; NULL: none. */
const struct kept *kept_find(const struct kept_list *list, const char *word);
/* Removes what was interrupted; for whoever has the directory alone. */
int kept_sweep(int dir, struct err *err);
/* Gone at one instant; then its files. */
int kept_remove(int dir, const char *id, struct err *err);
/* Removes those that were made for this reason, but for the `most` last ones, and for those whose
 * ids are in the list `kept`. */
int kept_drop(int dir, const char *why, size_t most, const json_t *kept, struct err *err);
/* Writes `meta`, as the file of the new one. */
int kept_write_meta(int dir, const json_t *meta, struct err *err);
/* What `.new-` and `.gone-` go before. */
void kept_own_name(char *ret, size_t size, const char *before, const char *id);
