/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal is told at the end of a transaction, so that objects are known again whose times
 * our own steps have changed, and directories get back the times and modes they had. */
#pragma once

#include "plan/apply/act.h"

/* `set`: what is in force from now on. Files that will lose a name when the transaction has ended
 * are noted with any time, which note_unlinked tightens. */
void note_identities(struct act *act, struct transaction *t, const char *set);

/* Whether the operation's object is noted with any time. */
bool note_is_open(const struct act *act, size_t operation);
/* After further names of these files were removed; also of those noted with any time. */
void note_unlinked(struct act *act, struct transaction *t, uint64_t *inodes, size_t count);

struct note_times {
    struct journal_times *items;
    size_t count;
};

/* After the last step, before the tree is synced: gives new directories the plan's times, and when
 * nothing is in force any more, those of the base what they had. `found`: the directories as they
 * were before the first step. */
void note_prepare_times(struct act *act, struct transaction *t,
                        const struct journal_directory *found, struct note_times *times);
void note_times(struct act *act, struct transaction *t, const struct note_times *times);
void note_clear_times(struct note_times *times);
