/* SPDX-License-Identifier: Apache-2.0 */
/* What answers of the daemon, of carrel-files and of carrel-plan say of an error: errors.def. */
#pragma once

#include "base/err.h"

struct err_answer {
    const char *code;   /* NULL for SAID_NOTHING */
    int status;         /* as of HTTP */
    enum err_code plan; /* what carrel-plan means by it; ERR_NONE: it does not say it */
};

/* SAID_NOTHING for NULL and for a code that is not in the list. */
enum err_said err_said_of(const char *code);
/* Of SAID_NOTHING the status is 500. */
const struct err_answer *err_answer(enum err_said said);
/* What carrel-plan says of an error of this kind. */
enum err_said err_said_by_plan(enum err_code code);
