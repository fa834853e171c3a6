/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a verb: a table that says where each goes. Names are written whole; a value is the
 * next word or follows an equals sign. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum {
    ARGS_LIST = 256
};

/* Values of an option that may be repeated. */
struct args_list {
    const char *items[ARGS_LIST];
    size_t count;
};

enum args_kind {
    ARGS_FLAG,  /* bool */
    ARGS_TEXT,  /* const char * */
    ARGS_EVERY, /* struct args_list */
};

/* Begins as struct option_text does. */
struct args_rule {
    const char *name; /* NULL ends the table */
    const char *value;
    const char *about;
    enum args_kind kind;
    void *to;
};

/* What all verbs have. */
struct args_common {
    const char *verb; /* for the errors; set by the caller */
    bool json;
    bool help;
    const char *state;
};

/* Takes the options at the front of argv[*at...], until a word that is none, or `--`, which *at is
 * then the place of. */
int args_options(char **argv, int *at, const struct args_rule *rules, struct args_common *common,
                 struct err *err);

/* Options and words in any order; `--` ends the options. The words are left in words[], which ends
 * with NULL; more than `most` are refused. */
int args_all(char **argv, const struct args_rule *rules, struct args_common *common,
             const char **words, size_t most, struct err *err);

/* Prints a help text with the options of a verb and those that all verbs have. Returns the exit
 * status. */
int args_help(const char *text, const struct args_rule *rules);
