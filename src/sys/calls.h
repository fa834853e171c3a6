/* SPDX-License-Identifier: Apache-2.0 */
/* A process that needs few system calls gives up the rest: a list of them, some only with certain
 * arguments, and EPERM for all others. What commands may call is another matter: sandbox/filter.h.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CALLS_ROOM = 384,  /* instructions */
    CALLS_VALUES = 126 /* of one argument, at most: a jump passes over 255 instructions */
};

struct calls {
    struct sock_filter code[CALLS_ROOM];
    size_t n; /* more than there is room for: calls_enter fails with -E2BIG */
};

/* In this order: begin, any of the next in the order in which calls are looked for, enter. An
 * argument is its number, from 0, and its lower 32 bits are looked at. */
void calls_begin(struct calls *calls);
void calls_allow(struct calls *calls, const int *numbers, size_t count);
void calls_allow_without(struct calls *calls, int number, unsigned argument, uint32_t bits);
void calls_allow_with(struct calls *calls, int number, unsigned argument, uint32_t bits);
void calls_allow_values(struct calls *calls, int number, unsigned argument, const uint32_t *values,
                        size_t count);
/* What programs have in common: sendto and sendmsg, but not as a way to connect; mmap and mprotect,
 * but not to make code. */
void calls_allow_sending(struct calls *calls);
void calls_allow_data(struct calls *calls);
void calls_refuse(struct calls *calls, int number, int error);
/* After no_new_privs; for all threads of the process. 0 or -errno. */
int calls_enter(struct calls *calls);
