/* SPDX-License-Identifier: Apache-2.0 */
/* From one set of a plan's operations in force to another, as a list of primitive steps. Pure.
 *
 * Everything is a rename between the tree and a HOME in the plan's directory: "upper/PATH" where
 * content is staged, "slots/N" for what operation N makes, "slots/N.base" for what it takes out of
 * the base. The order is
 *   UNLOCK    directories that must be written get u+rwx
 *   LINK      a second name for a file of the tree, in its home
 *   EXCHANGE  what is at the same place before and after, where it lies now
 *   OUT       deepest first, where it lies now
 *   MARK      "slots/mark": from here on an empty home means that its object is in the tree
 *   IN        shallowest first, where it shall lie
 *   MODE      deepest first, where it shall lie
 * and the way back is the same list from its end. Steps happen one after the other, so a crash
 * leaves a beginning of the list done; which, the homes and the mark tell (transaction.c). */
#pragma once

#include "plan/core/layout.h"

enum step_kind {
    STEP_UNLOCK,
    STEP_LINK,
    STEP_EXCHANGE,
    STEP_OUT,
    STEP_MARK,
    STEP_IN,
    STEP_MODE,
    STEP_COUNT_,
};

#define STEP_NO_OPERATION UINT32_MAX
#define STEPS_KEPT        "slots/kept." /* and a number: what was in the way */

struct step {
    enum step_kind kind;
    uint32_t operation; /* or STEP_NO_OPERATION */
    uint32_t mode;      /* UNLOCK, MODE: afterwards (07777) */
    uint32_t old_mode;  /* ... and before */
    bool is_directory;  /* what OUT and IN carry */
    bool completes;     /* the last but MODE of its operation: worth telling */
    const char *path;   /* in the tree */
    const char *home;   /* in the plan's directory */
    const char *now;    /* MODE: where it lies before the first step; NULL: not in the tree */
    uint64_t ino;       /* of what goes in or out, of what is linked; EXCHANGE: of what goes in */
};

/* A directory that the steps write in, by where it lies before the first of them. */
struct step_directory {
    const char *path;
    uint32_t need; /* 0100: is passed through; 0300: something in it is renamed; 0400: is read */
    uint32_t mode; /* what it has (07777), found by who looked */
    uint64_t ino;
};

struct steps {
    struct step *items;
    size_t count;
    size_t room;
    struct step_directory *directories; /* by path, each once, those above before those below */
    size_t directory_count;
    size_t directory_room;
    struct arena arena;
};

void steps_init(struct steps *steps);
void steps_clear(struct steps *steps);
struct step *steps_add(struct steps *steps, struct err *err);
/* Whether slots/N is a thing that apply made itself (a directory, symlink or further name), which
 * can be made again. */
bool steps_is_made(const struct plan_operation *operation);

/* Makes all steps but UNLOCK and relocking MODEs, for which the caller has to look at the tree
 * first: at `directories`. */
int steps_compile(struct steps *steps, const struct layout *layout, const char *from,
                  const char *to, struct err *err);
/* With mode and ino of the directories found: those that lack what they need are unlocked at the
 * start and get what they had at the end. */
int steps_unlock(struct steps *steps, const struct layout *layout, const char *from, const char *to,
                 struct err *err);
/* Gives a directory of the base that comes back its mode. */
int steps_add_lock(struct steps *steps, const char *path, uint32_t mode, uint64_t ino,
                   struct err *err);
/* Into the order of the phases, after steps were added or changed. */
void steps_sort(struct steps *steps);
