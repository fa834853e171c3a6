/* SPDX-License-Identifier: Apache-2.0 */
/* A form that carries files, as it comes: of any size, in pieces of any size. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "http/multipart.h"

struct form_calls {
    /* A part begins. False: no more is wanted. */
    bool (*part)(void *context, const char *name, const char *filename);
    /* How many bytes of it were taken; fewer than there are: later. */
    size_t (*bytes)(void *context, const char *bytes, size_t n);
    /* False: what comes next has to wait. */
    bool (*end)(void *context);
};

enum form_state {
    FORM_BEFORE, /* the first boundary */
    FORM_HEAD,
    FORM_BYTES,
    FORM_BOUNDARY, /* what comes behind one */
    FORM_OVER,
    FORM_BROKEN,
};

struct form {
    const struct form_calls *calls;
    void *context;
    enum form_state state;
    bool ended;      /* the part's end was told, and had to wait */
    const char *why; /* FORM_BROKEN */
    char delimiter[HTTP_BOUNDARY + 5];
    size_t delimiter_n;
    struct buf kept;
};

/* `type` is the value of Content-Type. False: it is no form, or a boundary of nobody's. */
bool form_begin(struct form *f, const char *type, const struct form_calls *calls, void *context);
/* How many were taken: fewer when somebody has to wait; then again, also with none. */
size_t form_feed(struct form *f, const char *bytes, size_t n);
void form_free(struct form *f);
