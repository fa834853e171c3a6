/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes (user.*) that a file or directory of a plan comes with, as one text: a JSON object
 * of names and values in base64, in the order of the names, {"user.a":"Yg=="}. A name that is no
 * text is written "base64:…". The same attributes are the same text, which the plan's hash covers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum {
    ATTRIBUTE_LARGEST = 4096,    /* of a value; larger ones are taken off when a plan is closed */
    ATTRIBUTES_LARGEST = 131072, /* of the text */
};

/* Adds the text of what the file has; nothing where it has none. By `path`, or where that is NULL
 * by descriptor. 0 or -errno; -E2BIG: there are too many. */
int attributes_read(int fd, const char *path, struct buf *b);
/* Gives them to a file. 0 or -errno. */
int attributes_set(int fd, const char *text);
/* Whether it is a text that attributes_read could have made. */
bool attributes_are_sane(const char *text, size_t n);
/* The names, with a comma between them, for those who show them. */
void attributes_add_names(struct buf *b, const char *text);
