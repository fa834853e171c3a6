/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the derivation: derive.c, hardlinks.c, match.c, changed.c, origin.c. */
#pragma once

#include "plan/core/plan.h"
#include "plan/derive/layer.h"

enum {
    NO_OPERATION = -1,
    DROPPED = PLAN_KIND_COUNT_, /* the kind of an operation that another one has made needless */
};

/* What became of an entry of the layer. */
enum fate {
    FATE_GONE,  /* a whiteout, or something that cannot be carried */
    FATE_OTHER, /* a directory, a symlink */
    FATE_BASE,  /* a file of the base, with the base's data: where it was, or moved */
    FATE_LINK,  /* another name of such a file */
    FATE_NEW,   /* a file with data of its own */
};

struct path_fate {
    int32_t operation; /* or NO_OPERATION */
    enum fate fate;
};

struct lookup {
    const char *path;
    uint32_t entry;
};

struct deriving {
    struct plan *plan;
    const struct plan_derivation *how;
    struct layer_scan layer;
    struct path_fate *outcomes; /* of each entry of the layer */
    struct lookup *places;      /* entries by the base path that they hide */
    size_t place_count;
    struct lookup *claims; /* entries by the base path of the object that they move */
    size_t claim_count;
    uint64_t *holes; /* bytes of them that may still be hashed */
};

/* Takes operations of the kind DROPPED out of the list. */
void derive_drop(struct plan *plan);
/* The entry in the place of this base path; the entry that is this base object, moved; or NULL. */
const struct layer_entry *derive_place(const struct deriving *d, const char *path);
const struct layer_entry *derive_claim(const struct deriving *d, const char *path);
/* Adds an operation; `base` is the path of what it touches in the base, with its identity, or NULL.
 * Returns its index or -1. */
int derive_add(struct deriving *d, enum plan_kind kind, const char *path, const char *base,
               const struct plan_identity *identity, struct err *err);
const char *derive_keep(struct deriving *d, const char *text, struct err *err);

/* Where a base object is in the final tree, by the layer alone; false: it is gone. `ret` has room
 * for PLAN_MAX_PATH + 1 bytes. */
bool derive_follow(const struct deriving *d, const char *base, char *ret);

enum {
    ORIGIN_MOST = 128,
};

/* A base file as the kernel names it, where no path of it is known any more. */
struct origin {
    unsigned char bytes[ORIGIN_MOST];
    size_t n; /* 0: none is known */
    int type;
    bool is_absent; /* there is no mark: it had no name any more, several, or is no copy */
};

/* origin.c: what a file of the layer was copied from, by its mark; whether that is what the base
 * has at this path. */
void derive_origin(int root, const char *path, struct origin *ret);
bool derive_is_origin(const struct deriving *d, const char *path, const struct origin *origin);
/* hardlinks.c: names of one file become links of one of them; names that the layer has no entry
 * for. */
int derive_links(struct deriving *d, struct err *err);
/* match.c: what was deleted and made anew with the same content has moved. */
int derive_match(struct deriving *d, struct err *err);
/* changed.c: what was changed in the base after the layer had it is noted as no longer known: files
 * and symlinks; one operation, whose object or what lies in it has last changed then. */
void derive_forget_changed(const struct deriving *d);
void derive_forget_if_changed(const struct deriving *d, struct plan_operation *operation,
                              int64_t changed_ns);
