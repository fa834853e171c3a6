/* SPDX-License-Identifier: Apache-2.0 */
/* An overlay's upper directory, read: each entry with the base object whose place it takes and the
 * base object that it comes from. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/core/plan.h"

enum layer_type {
    LAYER_WHITEOUT,
    LAYER_DIRECTORY,
    LAYER_FILE,
    LAYER_SYMLINK,
};

struct layer_entry {
    const char *path;  /* in the final tree */
    const char *place; /* the base path under which the base's own object would be seen here; NULL:
                          the directory has nothing of the base in it */
    const char *from;  /* the base path of the object that it is, by the layer's marks or by its
                          place; NULL: it is new */
    enum layer_type type;
    struct plan_identity st;
    struct plan_identity base; /* of what is at `place` */
    struct plan_identity was;  /* of what is at `from` */
    bool has_base;
    bool redirected; /* `from` is by a mark, and has this type in the base */
    bool empty;      /* a file without data of its own: that of `from` is meant */
    bool shared;     /* a file with several names in the layer or beside it */
    bool parted;     /* takes the place of one of several names of a file, and is another file */
    int64_t names; /* how many names the file has in the merged view; 0: as many as in the layer */
};

struct layer_scan {
    struct layer_entry *entries; /* in canonical order */
    size_t count;
    int upper;
    struct arena arena;
    struct unlocked *unlocked; /* directories whose mode was lifted, the last first */
};

/* What no plan carries goes to `flaws`. */
int layer_read(struct layer_scan *ret, const struct plan_derivation *how, struct plan *flaws,
               struct err *err);
/* Puts modes back, and frees. */
void layer_clear(struct layer_scan *layer);
