/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a tree holds while a tenant may be changing it: by descriptor, following nothing,
 * crossing no mount, with a fixed number of descriptors however deep it is. In steps, so that
 * nobody has to wait for the end of a tree that was made to have none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct tally;

struct tally_sum {
    uint64_t bytes;    /* of blocks on disk; an inode with several names counts once */
    uint64_t entries;  /* names, hard links too */
    uint64_t unlinked; /* of the bytes: in files that have no name any more */
    bool hidden;       /* something could not be looked at, though its owner could write there */
};

/* NULL without memory. */
struct tally *tally_new(void);
void tally_free(struct tally *t);
/* Back to nothing counted. */
void tally_reset(struct tally *t);
/* Begins with the tree (or file) open at `root`, borrowed until it is done. The one before must be
 * done. 0 or -errno. */
int tally_begin(struct tally *t, int root);
/* Looks at `entries` more. 1: there is more, 0: done. */
int tally_step(struct tally *t, unsigned entries);
/* Counts a file that has no name, once. */
void tally_add_unlinked(struct tally *t, const struct stat *st);
/* Says that there is something it was not told about. */
void tally_note_hidden(struct tally *t);
const struct tally_sum *tally_sum(const struct tally *t);
