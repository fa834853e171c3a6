/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of forms that carry files, pure: a whole body in, its parts one after the other out. */
#pragma once

#include <stddef.h>

enum {
    HTTP_BOUNDARY = 70,        /* characters, by the RFC */
    HTTP_PART_HEAD = 16 << 10, /* bytes of a part's headers: the longest path in them, and more */
};

struct http_part {
    const char *name;
    const char *filename; /* NULL: it has none */
    const char *bytes;    /* in the body */
    size_t n;
};

struct http_multipart {
    const char *at;
    const char *end;
    char delimiter[HTTP_BOUNDARY + 4]; /* with the line end before it */
    size_t delimiter_n;
    char head[HTTP_PART_HEAD];
};

/* `type` is the value of Content-Type, or NULL. The bytes are borrowed until the last part. 0, or
 * -1 and a short sentence. */
int http_multipart_begin(struct http_multipart *m, const char *type, const char *bytes, size_t n,
                         const char **ret_why);
/* 1: the next part, whose texts are valid until the next call; 0: there is none; -1: malformed. */
int http_multipart_next(struct http_multipart *m, struct http_part *ret, const char **ret_why);
