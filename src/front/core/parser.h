/* SPDX-License-Identifier: Apache-2.0 */
/* From the bytes of a body to JSON. A large one takes as long as thousands of other requests, which
 * wait for the front's one thread: so it is parsed by a second one, which does nothing else.
 *
 *   parser_give --(the thread)--> heard, in the front's own thread
 *
 * In turns: in each every owner has one, in the order they came. The thread only parses: what
 * writes JSON is not safe in two threads in every version of the library.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/events.h"

struct call;
struct parser;

enum {
    PARSER_AT_ONCE = 131072,    /* bytes that are parsed in two or three milliseconds */
    PARSER_MOST_VALUES = 500000 /* 100,000 files with a name, a content and a mode each */
};

struct parsed {
    json_t *json;       /* the receiver's; NULL: */
    bool has_too_many;  /* values; or */
    json_error_t error; /* ... what is wrong with it */
};

/* At once. */
void parse_json(const char *bytes, size_t n, struct parsed *ret);

/* Makes the thread, which has by then done all that its start asks of the kernel: system calls may
 * be forbidden for the whole process from here on. 0 or -errno. */
int parser_open(struct parser **ret, struct events *events);
/* Takes the call's body, and its context and `abandoned`, until `heard`; that is also called when
 * the client has left while it was parsed (then call->x is NULL). False: no memory, nothing was
 * taken. */
bool parser_give(struct parser *parser, struct call *call,
                 void (*heard)(struct call *, const struct parsed *));
