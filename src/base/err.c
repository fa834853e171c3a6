/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *err, enum err_code code, int os_errno, const char *format, ...)
{
    va_list args;

    err->code = code;
    err->os_errno = os_errno;
    err->said = SAID_NOTHING;
    va_start(args, format);
    vsnprintf(err->msg, sizeof(err->msg), format, args);
    va_end(args);
    return -1;
}

int err_wrap(struct err *err, const char *format, ...)
{
    char inner[sizeof(err->msg)];
    va_list args;

    memcpy(inner, err->msg, sizeof(inner));
    va_start(args, format);
    int n = vsnprintf(err->msg, sizeof(err->msg), format, args);
    va_end(args);
    size_t used = n < 0 ? 0 : strnlen(err->msg, sizeof(err->msg) - 1);
    snprintf(err->msg + used, sizeof(err->msg) - used, ": %.*s", (int)(sizeof(err->msg) - used),
             inner);
    return -1;
}

static const char *system_words(int os_errno)
{
#ifdef __GLIBC__
    return strerrordesc_np(os_errno);
#else
    return strerror(os_errno); /* a constant of the library's, as the above */
#endif
}

const char *err_text(const struct err *err, char *text, unsigned long size)
{
    const char *words = err->os_errno ? system_words(err->os_errno) : NULL;

    if (err->os_errno == ENOSYS)
        words = "this kernel does not offer it (see 'carrel doctor')";

    snprintf(text, size, "%s%s%s", err->msg, words ? ": " : "", words ? words : "");
    return text;
}
