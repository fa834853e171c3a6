/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filter: an allow-list; what is not in it does not exist (ENOSYS), what is known
 * and dangerous is refused (EPERM), and other architectures' calls kill. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sandbox/setup.h"

struct filter_options {
    bool no_unix_sockets; /* with the host's network and no Landlock scopes: no AF_UNIX at all */
    bool no_fallocate;    /* EOPNOTSUPP: the disk limit is kept by looking */
    bool guard;           /* connections are left to the listener, all of them: EACCES is in the
                             data; and what would make one in another way is refused */
    bool walled;          /* ... but for those that are not of TCP by the length of their address:
                             Landlock refuses TCP inside */
    bool redirect;        /* connections of TCP, by the length of their address, are the listener's;
                             what it does not see finds nothing */
    bool notify;          /* refusals worth telling of are left to a listener (denial.h), as
                             SECCOMP_RET_USER_NOTIF with the error in its data; with 0 the kernel
                             refuses, and the listener lets it */
};

/* Writes the program into setup->filter; setup->namespaces is written before. Cannot fail: the
 * table is fixed and fits. */
void filter_build(struct setup *setup, const struct filter_options *options);

enum filter_answer {
    FILTER_ALLOWED,
    FILTER_CHECKED, /* allowed, or not, by its arguments */
    FILTER_REFUSED, /* EPERM */
};

/* Calls `visit` for each system call of the table, for --explain. */
void filter_visit(void (*visit)(void *context, const char *name, enum filter_answer answer),
                  void *context);
