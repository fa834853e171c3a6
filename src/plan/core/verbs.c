/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/verbs.h"

#include <stdarg.h>
#include <stdint.h>

#include "base/err.h"

int verb_read(const struct verb_call *call, struct err *err, const char *format, ...)
{
    json_error_t why;
    va_list args;

    va_start(args, format);
    int r = json_vunpack_ex((json_t *)(uintptr_t)call->job, &why, JSON_STRICT, format, args);
    va_end(args);
    return r < 0 ? err_set(err, ERR_INVALID, 0, "the job: %s", why.text) : 0;
}
