/* SPDX-License-Identifier: Apache-2.0 */
/* What fetches tools and builds templates is a program in Python (provision/): it asks registries
 * and the daemon, and needs nothing that is here but the command line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    PROVISION_WORDS = 40
};

/* The arguments of one of its programs. */
struct provision {
    const char *argv[PROVISION_WORDS];
    size_t count;
};

/* `what` is "env-setup", "base-build" or "template-build". */
void provision_begin(struct provision *p, const char *what);
/* NULL: nothing is said of it. */
void provision_add(struct provision *p, const char *name, const char *value);
void provision_flag(struct provision *p, const char *name, bool value);
/* This process goes on as that program; otherwise why not is said, and 125 returned. */
int provision_run(struct provision *p);

/* carrel env setup: argv[0] is "setup". */
int env_setup(char **argv);
