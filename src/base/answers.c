/* SPDX-License-Identifier: Apache-2.0 */
#include "base/answers.h"

#include <string.h>

static const struct err_answer answers[SAID_COUNT_] = {
    [SAID_NOTHING] = {NULL, 500, ERR_NONE},
#define X(name, code, status, plan) [SAID_##name] = {code, status, plan},
#include "base/errors.def"
#undef X
};

enum err_said err_said_of(const char *code)
{
    for (unsigned i = 0; code && i < SAID_COUNT_; i++) {
        if (answers[i].code && strcmp(answers[i].code, code) == 0)
            return (enum err_said)i;
    }
    return SAID_NOTHING;
}

const struct err_answer *err_answer(enum err_said said)
{
    return &answers[said];
}

enum err_said err_said_by_plan(enum err_code code)
{
    for (unsigned i = 0; code != ERR_NONE && i < SAID_COUNT_; i++) {
        if (answers[i].plan == code)
            return (enum err_said)i;
    }
    return SAID_IO_ERROR;
}
