/* SPDX-License-Identifier: Apache-2.0 */
/* What a written plan wants to be so, in the base or in the tree it makes of it:
 *
 *   {"check":"exists", "path":"a", "type":"file"}       {"check":"absent", "path":"a"}
 *   {"check":"hash", "path":"a", "sha256":"..."}        {"check":"free_space", "bytes":1000}
 *   {"check":"count", "path":"a/b*.pdf", "count":3}      ... "min":1, "max":9; of a directory: all
 *                                                       files below it
 * Each may have "when": "before" (it is so in the base; the default) or "after". */
#pragma once

#include <jansson.h>

#include "plan/core/verify.h"

enum {
    VALIDATIONS_MOST = 1000
};

enum validation_check {
    VALIDATE_EXISTS,
    VALIDATE_ABSENT,
    VALIDATE_HASH,
    VALIDATE_COUNT,
    VALIDATE_FREE_SPACE,
    VALIDATE_COUNT_,
};

struct validation {
    enum validation_check check;
    bool after;
    const char *path;
    mode_t type; /* of S_IFMT; 0: any */
    uint64_t least;
    uint64_t most;
    unsigned char hash[PLAN_HASH];
};

/* Whether a list can be understood in full. */
int validations_check(const json_t *array, struct err *err);
/* A finding for each that does not hold, or cannot be looked at. `text`: the list as JSON; NULL:
 * there is none. */
int validations_run(struct plan_findings *findings, const struct plan_index *index,
                    const struct plan_facts *facts, int tree, const char *text, struct err *err);
