/* SPDX-License-Identifier: Apache-2.0 */
/* The file that says what a template is: JSON in, a checked structure out. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    TEMPLATE_MOST_BYTES = 256 * 1024,
    TEMPLATE_MOST = 512, /* packages of one kind, files, variables */
    TEMPLATE_NAME = 64,
};

/* Packages of one language. */
struct template_packages {
    bool wanted;         /* false: the template has no environment of this language */
    bool build;          /* code of theirs may run while they are installed */
    const char *version; /* of Python; NULL: any */
    const char *lock;    /* a file beside this one; NULL: of the default name */
    const char **at;
    size_t count;
};

struct template_pair {
    const char *name;
    const char *value;
};

struct template_pairs {
    struct template_pair *at;
    size_t count;
};

struct template_file {
    const char *name;
    struct template_packages python;
    struct template_packages node;
    struct template_pairs files; /* a path inside, a path beside this file */
    struct template_pairs env;
    const char *start; /* NULL: nothing is started */
};

/* Texts live in the arena. */
int template_parse(struct template_file *ret, struct arena *arena, const char *bytes, size_t n,
                   struct err *err);
/* 1 to 64 of letters, digits, '.', '_' and '-', a letter or digit first. */
bool template_is_name(const char *name);
