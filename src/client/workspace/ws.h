/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `carrel ws` share. */
#pragma once

#include "client/core/args.h"
#include "client/core/http.h"

struct ws_options {
    struct args_common common;
    const char *policy;
    const char *owner;
    const char *template;
    bool python;
    bool node;
    struct args_list labels;
    struct args_list links;
    bool deleted;
    bool purge;
    bool dry_run;
    const char *mirror;
    const char *from_store;
};

/* Each returns the exit status; words[0] is what to do, words[1] the workspace. */
typedef int ws_fn(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                  struct err *err);

ws_fn ws_backup;
ws_fn ws_restore;
ws_fn ws_adopt;
ws_fn ws_services;
