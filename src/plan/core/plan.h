/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: an inert, hashable list of file operations on one tree. The final tree is the base tree
 * in which every object that an operation names by its base path follows that operation, and every
 * other object follows its parent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    PLAN_HASH = 32, /* SHA-256 */
    PLAN_MAX_OPERATIONS = 200000,
    PLAN_MAX_BYTES = 64 << 20, /* of the manifest */
    PLAN_MAX_PATH = 4089,      /* with "upper/" before it the kernel still takes it */
    PLAN_MAX_NAME = 255,
    PLAN_FORGOTTEN = 0, /* an inode's number that no object has: what was touched is not there */
};

enum plan_kind {
    PLAN_MKDIR,
    PLAN_CREATE,
    PLAN_WRITE,
    PLAN_SYMLINK,
    PLAN_MOVE,
    PLAN_DELETE,
    PLAN_CHMOD,
    PLAN_KIND_COUNT_,
};

/* What a layer can hold and a plan cannot carry out. Such a plan is shown whole and never applied.
 */
enum plan_flaw_kind {
    PLAN_FLAW_FIFO,
    PLAN_FLAW_SOCKET,
    PLAN_FLAW_DEVICE,
    PLAN_FLAW_SETID, /* a file with setuid, setgid or sticky bit; listed without them as well */
    PLAN_FLAW_CAPABILITY, /* a file that grants capabilities */
    PLAN_FLAW_RESERVED,   /* a name at the top that the engine mounts on, with something in it */
    PLAN_FLAW_UNREADABLE,
    PLAN_FLAW_TOO_LARGE,  /* to be hashed */
    PLAN_FLAW_LOST,       /* says that it came from a place of the base where nothing fitting is */
    PLAN_FLAW_ATTRIBUTES, /* the attributes of a directory of the base have changed */
    PLAN_FLAW_OTHER_NAME, /* changed through another name of the same file, which is gone */
    PLAN_FLAW_COUNT_,
};

struct plan_flaw {
    const char *path;
    enum plan_flaw_kind kind;
};

/* What an operation touches in the base: by these it is known again. */
struct plan_identity {
    uint64_t dev;
    uint64_t ino;
    uint64_t size;
    int64_t mtime_ns;
    int64_t ctime_ns;
    uint32_t mode; /* with the type */
};

/* Names are bytes; NUL-terminated all the same, as no name holds one. NULL: there is none. */
struct plan_operation {
    enum plan_kind kind;
    uint32_t mode;          /* with the type, as it is to be afterwards; of a delete: as it was */
    const char *path;       /* in the final tree; of a delete: in the base */
    const char *from;       /* in the base, where that differs from `path` */
    const char *target;     /* of a symlink */
    const char *attributes; /* of what carries content, and of a mkdir (attributes.h) */
    const char *link; /* of a create or write: another final path that is the same file. With a
                         hash: that of an operation with content, staged there. Without: of an
                         object of the base, untouched, moved or chmodded */
    uint64_t size;    /* of the content it carries */
    uint64_t entries; /* delete of a directory: how many lie below */
    uint64_t bytes;   /* ... and what they hold */
    int64_t mtime_ns;
    struct plan_identity base;
    bool has_base;
    bool has_hash; /* carries content, found at upper/PATH in the plan's directory */
    bool copied;   /* a move found by its content. With a hash: that content is staged, and is
                      what goes into the tree; without (directories): the base's object moves */
    unsigned char hash[PLAN_HASH];
    unsigned char below[PLAN_HASH]; /* delete of a directory: of everything below it */
};

struct plan {
    struct plan_operation *operations; /* in canonical order */
    size_t count;
    uint64_t bytes; /* of all the content it carries */
    struct plan_flaw *flaws;
    size_t flaw_count;
    const char *validations; /* a JSON array, written compactly, or NULL: for verify */
    struct arena arena;
};

extern const char *const plan_kind_names[PLAN_KIND_COUNT_];

void plan_init(struct plan *plan);
void plan_clear(struct plan *plan);
/* Room for one more, zeroed; NULL and `err` set past the limit or without memory. */
struct plan_operation *plan_add(struct plan *plan, struct err *err);
int plan_add_flaw(struct plan *plan, enum plan_flaw_kind kind, const char *path, struct err *err);
/* The name of a kind, and what is wrong about it in words. */
extern const char *const plan_flaw_names[PLAN_FLAW_COUNT_];
extern const char *const plan_flaw_words[PLAN_FLAW_COUNT_];
/* Where its object lies in the base; NULL: it has none there. */
const char *plan_base_path(const struct plan_operation *operation);
/* Bytes, with '/' before all others: a directory, what is below it, then its neighbours. */
int plan_compare_paths(const char *a, const char *b);
/* Whether `path` is `directory` or lies below it. */
bool plan_is_below(const char *path, const char *directory);
/* The operation with this final path (not a delete), or NULL; only after plan_put_in_order. */
const struct plan_operation *plan_find_final(const struct plan *plan, const char *path);
void plan_identify(struct plan_identity *ret, const struct stat *st);
/* Puts operations and flaws into canonical order, counts `bytes`, and refuses two operations for
 * one place. */
int plan_put_in_order(struct plan *plan, struct err *err);
/* "a/b": relative, no empty, "." or ".." component, lengths within bounds, no reserved name. */
int plan_check_path(const char *path, size_t n, struct err *err);
/* Whether it is what a file server has left unfinished, where no command sees it. */
bool plan_is_unfinished(const char *path);
/* Whether it is, or lies below, a name at the top that Carrel keeps for itself. */
bool plan_is_reserved(const char *path);
int64_t plan_mtime(const struct stat *st);

/* The manifest: canonical JSON lines, the same bytes for the same plan (manifest.c). */
int plan_write(const struct plan *plan, int fd, unsigned char hash[PLAN_HASH], struct err *err);
/* ... as a file of the plan's directory, on disk when it returns; the old one stays on failure. */
int plan_save(const struct plan *plan, int dir, const char *name, unsigned char hash[PLAN_HASH],
              struct err *err);
/* One line of it, for those who show it. */
void plan_write_operation(const struct plan_operation *operation, struct buf *b);
/* Strict: what plan_write would not have written is refused. */
int plan_read(struct plan *ret, int fd, unsigned char hash[PLAN_HASH], struct err *err);
int plan_load(struct plan *ret, int dir, const char *name, unsigned char hash[PLAN_HASH],
              struct err *err);

struct plan_derivation {
    int tree;
    int dir;
    bool privileged; /* the layer's marks are trusted.overlay.*, else user.overlay.* */
    bool closing;    /* takes them off, so that what is staged is plain files */
    /* Made by the engine to mount on, beside the reserved names: left out while they are empty. */
    const char *const *mount_points;
    size_t mount_point_count;
};

/* Reads off what has been done in DIR/upper over the tree (derive.c). */
int plan_derive(struct plan *ret, const struct plan_derivation *how, struct err *err);
/* A written plan (both forms), its globs expanded; the content it carries goes to DIR/upper
 * (submit.c). */
int plan_derive_written(struct plan *ret, int tree, int dir, const char *json, size_t n,
                        struct err *err);
/* What a written plan makes of the tree, as a layer over it in DIR/upper, where its content lies
 * already (view.c). */
int plan_view(const struct plan *plan, int tree, int dir, bool privileged, struct err *err);
