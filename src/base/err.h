/* SPDX-License-Identifier: Apache-2.0 */
/* One error, by value, no allocation: the same bytes cross the pipe from pid 1 to the engine.
 * Layers base/ and sys/ return -errno and know nothing of this; everything above takes
 * `struct err *err` last, writes it only on failure and returns 0 or a negative number. */
#pragma once

#include <limits.h>

enum err_code {
    ERR_NONE,
    ERR_INVALID,   /* the caller's input is at fault */
    ERR_DENIED,    /* policy or the host's permissions say no */
    ERR_LIMIT,     /* a bound was reached */
    ERR_NOT_FOUND, /* what was named is not there */
    ERR_CONFLICT,  /* it changed, or is in use */
    ERR_KERNEL,    /* this host lacks something Carrel needs */
    ERR_IO,        /* a system call failed */
    ERR_CODE_COUNT_,
};

/* The code of the answer that said so, for callers that decide by it: errors.def, base/answers.h.
 */
enum err_said {
    SAID_NOTHING, /* there was no answer, or nobody decides by its code */
#define X(name, code, status, plan) SAID_##name,
#include "base/errors.def"
#undef X
    SAID_COUNT_,
};

struct err {
    enum err_code code;
    int os_errno; /* 0 when no system call is to blame */
    enum err_said said;
    char msg[372];
};

_Static_assert(sizeof(struct err) <= PIPE_BUF, "written to a pipe in one piece");

/* Both return -1, so that `return err_set(...)` reads well. */
int err_set(struct err *err, enum err_code code, int os_errno, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Puts "context: " in front of the message. */
int err_wrap(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The whole sentence, with the system's own words at the end; `text` is filled and returned. */
const char *err_text(const struct err *err, char *text, unsigned long size);
