/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a plan: which of its operations are in force, and what is under way.
 *
 * A file of records, each with its length and a checksum that continues the one before it; what
 * follows the last whole record is as if it had never been written. One transaction is
 *   HEAD?  SET (in force once it is done)  STEP…  DIRECTORY…  BEGIN
 *   AFTER…  CTIME…  TIMES…  LOCK…  DONE | BACK
 * and is on disk up to BEGIN before its first step. Without operations in force a new transaction
 * starts a new file, which takes the old one's place in one rename. */
#pragma once

#include "plan/core/steps.h"

struct journal_directory {
    const char *path; /* where it lies before the first step */
    uint64_t ino;
    int64_t mtime_ns;
};

/* A directory of the base that steps have written in: what its time was, and became. */
struct journal_times {
    const char *base;
    uint64_t ino;
    int64_t before_ns;
    int64_t after_ns;
};

/* A directory that was taken out unlocked: the mode to give it back. */
struct journal_lock {
    const char *base;
    uint32_t mode;
    uint64_t ino;
};

struct journal {
    int dir; /* borrowed */
    int fd;
    size_t operations;
    bool exists;
    bool open;      /* BEGIN without an end */
    char *in_force; /* a set */
    char *target;   /* ... once the open transaction is done */
    struct steps steps;
    struct journal_directory *directories; /* of the open transaction */
    size_t directory_count;
    size_t directory_room;
    struct journal_times *times;
    size_t time_count;
    size_t time_room;
    size_t old_times; /* of transactions before the last one */
    struct journal_lock *locks;
    size_t lock_count;
    size_t lock_room;
    size_t old_locks;
    struct plan_identity *after; /* of what each operation put into the tree; ino 0: not known */
    int64_t *ctimes;             /* what our steps made of a base object's, put back since; or 0 */
    uint64_t sum;                /* of the last record */
    uint64_t safe_sum;           /* ... that is on disk */
    uint64_t bytes;              /* of the file that count */
    struct buf text;             /* of the file: all paths point into it */
    struct buf out;
    unsigned char hash[PLAN_HASH];
};

/* Reads what there is; no file is an empty journal. A journal of another plan is ERR_CONFLICT. */
int journal_open(struct journal *j, int dir, const unsigned char hash[PLAN_HASH], size_t operations,
                 struct err *err);
void journal_clear(struct journal *j);
bool journal_has_in_force(const struct journal *j);
/* How large the beginning of a transaction with these steps would be. */
uint64_t journal_estimate(const struct steps *steps);

/* Everything up to BEGIN, on disk when it returns. */
int journal_begin(struct journal *j, const char *target, const struct steps *steps,
                  const struct journal_directory *directories, struct err *err);
void journal_note_after(struct journal *j, size_t operation, const struct plan_identity *identity);
void journal_note_ctime(struct journal *j, size_t operation, int64_t ctime_ns);
void journal_note_times(struct journal *j, const struct journal_times *times);
void journal_note_lock(struct journal *j, const struct journal_lock *lock);
/* What was noted outside of a transaction, to disk. */
int journal_note(struct journal *j, struct err *err);
/* Whether it is done or taken back, on disk when it returns. */
int journal_end(struct journal *j, bool done, struct err *err);
/* After journal_end has failed: makes sure that the disk does not say that it is done. When this
 * fails, too, the disk's content is unknown, and nothing may be taken back before it is read. */
int journal_retract(struct journal *j, struct err *err);
