/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `carrel template` share. */
#pragma once

#include "client/core/args.h"
#include "client/core/http.h"

struct template_options {
    struct args_common common;
    bool update_lock;
    bool offline;
    bool quiet;
};

/* Builds the template that the file describes; returns the exit status. */
int template_build(const struct template_options *o, const char *path);
