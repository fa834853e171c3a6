/* SPDX-License-Identifier: Apache-2.0 */
/* Looks in a tree for symlinks of old (oldlinks.h) where its links should appear. Only when these
 * are set: a command gets what they say, whatever such a symlink leads to by then. */
#pragma once

#include "front/core/links.h"
#include "front/workspaces/oldlinks.h"

struct link_found {
    struct oldlink old; /* names "": none that is of use; place "": it is not used */
    char why[96];       /* ... as */
};

/* links_look --(each: what is there? is where it leads free?)--> done */
struct links_look {
    const char *bucket;
    const char *workspace;
    struct shared_link links[LINK_COUNT_];
    struct link_found found[LINK_COUNT_];
    size_t at; /* the one that is looked for */
    void (*done)(struct call *call, const struct err *failed);
};

/* `look` says of which tree and what to do then; it outlives that. */
void links_look(struct call *call, struct links_look *look);
/* Sets "places" in the links: where those lead that name just what the links give already. */
void links_place(json_t *links, const struct link_found found[LINK_COUNT_]);
