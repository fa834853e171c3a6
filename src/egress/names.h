/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses that names have inside one sandbox. A name has the same as long as the sandbox
 * lives, and most likely also with the next process that serves it. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    NAMES_MOST = 65536,
    NAMES_BYTES = 4 << 20, /* all of them together */
};

struct names {
    struct named **slots; /* by address; NULL: free */
    size_t room;          /* 0, or a power of two */
    size_t count;
    size_t bytes;
};

/* The address of the name, as a number; 0: there is no room for another. */
uint32_t names_give(struct names *names, const char *name);
/* What has that address; NULL: nothing. It stays where it is until names_clear. */
const char *names_find(const struct names *names, uint32_t address);
void names_clear(struct names *names);
