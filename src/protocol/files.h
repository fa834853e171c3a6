/* SPDX-License-Identifier: Apache-2.0 */
/* One call on a workspace's files: what the front sends to its file server, and how the answer
 * begins. The message comes with one descriptor, a stream: the body flows in, for those that have
 * one as a row of pieces (below), so that one that was broken off is never taken for a whole one;
 * then the answer flows out, a struct files_head and the bytes of the body after it. An answer may
 * come before the body was read to its end: who sends it must not fail for that. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum files_op {
    FILES_READ = 1,    /* bytes from..to */
    FILES_TEXT,        /* lines: offset, limit */
    FILES_STAT,        /* flags: FOLLOW */
    FILES_LIST,        /* depth, limit, cursor; flags: BRIEF */
    FILES_WRITE,       /* body: the bytes; mode, if_match, if_none_match; flags: PARENTS */
    FILES_APPEND,      /* body: the bytes; flags: PARENTS */
    FILES_EDIT,        /* body: u64 length of what is replaced, that, what replaces it; ALL */
    FILES_REMOVE,      /* flags: RECURSIVE */
    FILES_MOVE,        /* to other; flags: PARENTS, REPLACE */
    FILES_COPY,        /* likewise; RECURSIVE */
    FILES_MKDIR,       /* mode; flags: PARENTS */
    FILES_CHMOD,       /* mode; flags: RECURSIVE */
    FILES_SYMLINK,     /* at path, pointing to other (any bytes); flags: PARENTS, REPLACE */
    FILES_GLOB,        /* pattern below path; limit; flags: DIRECTORIES */
    FILES_GREP,        /* pattern below path; globs, context, limit; flags: REGEX, IGNORE_CASE */
    FILES_WATCH,       /* until the client leaves; flags: RECURSIVE */
    FILES_INVENTORY,   /* flags: HASH */
    FILES_BATCH_READ,  /* body: paths, each with a NUL behind it */
    FILES_BATCH_WRITE, /* body: for each u64 length of path, u64 of content, u64 mode, path, content
                        */
    FILES_PACK,    /* path as an archive, but for `globs`, which are relative paths; flags: ZIP */
    FILES_UNPACK,  /* body: an archive, of any of the two; flags: ZIP */
    FILES_REPAIR,  /* makes what is below path the owner's again, to read, write and search */
    FILES_CONNECT, /* a TCP connection to port `offset` inside; the head comes with its descriptor
                    */
    FILES_OP_COUNT_,
};

enum files_flag {
    FILES_PARENTS = 1 << 0, /* make the directories above */
    FILES_RECURSIVE = 1 << 1,
    FILES_FOLLOW = 1 << 2, /* a symbolic link at the end of the path */
    FILES_ALL = 1 << 3,
    FILES_REPLACE = 1 << 4,
    FILES_REGEX = 1 << 5,
    FILES_IGNORE_CASE = 1 << 6,
    FILES_HASH = 1 << 7,
    FILES_ZIP = 1 << 8,
    FILES_RANGE = 1 << 9,        /* from..to was asked for: answered with 206, or 416 */
    FILES_BRIEF = 1 << 10,       /* names and types, as a directory has them: without a look */
    FILES_DIRECTORIES = 1 << 11, /* also those whose path matches */
    FILES_FLAGS_ = (1 << 12) - 1,
};

enum {
    FILES_PATH = 4096,       /* with its NUL */
    FILES_PATTERN = 32768,   /* likewise */
    FILES_MESSAGE = 1 << 17, /* most bytes of one message: a packet of the socket */
    FILES_ETAG = 80,
    FILES_CURSOR = 6144,  /* a path in base64 */
    FILES_BATCH = 100000, /* files in one call */
    FILES_GLOBS = 64,
};

#define FILES_MOST (UINT64_MAX >> 1) /* of any number */

struct files_message {
    enum files_op op;
    uint64_t flags;
    const char *path;          /* absolute inside; no empty part, no "." and ".." */
    const char *other;         /* likewise, or what a link holds; "" */
    const char *pattern;       /* "" */
    const char *const *globs;  /* ends with NULL */
    const char *cursor;        /* "" */
    const char *if_match;      /* an etag, "*", or "" */
    const char *if_none_match; /* likewise */
    uint64_t from;             /* bytes; FILES_MOST: the last `to` of them */
    uint64_t to;               /* behind the last; FILES_MOST: all that there are */
    uint64_t offset;           /* lines, from 0 */
    uint64_t limit;            /* lines, entries, matches */
    uint64_t depth;
    uint64_t context;
    uint64_t mode; /* FILES_MOST: the usual */
};

/* It looks at one file or directory, and changes nothing. */
bool files_reads_one(enum files_op op);
void files_pack(struct buf *b, const struct files_message *m);
/* Points into the message, lists are in `arena`. False for anything but one whole, sane message. */
bool files_unpack(char *bytes, size_t n, struct arena *arena, struct files_message *ret);
/* Whether it is one as files_message.path must be. */
bool files_path_is_valid(const char *path);

enum files_type {
    FILES_TYPE_JSON,
    FILES_TYPE_NDJSON,
    FILES_TYPE_BYTES,
    FILES_TYPE_TAR,
    FILES_TYPE_ZIP,
    FILES_TYPE_COUNT_,
};

enum {
    FILES_ELSEWHERE = 1 /* no status of HTTP: to be asked of the workspace when it is awake */
};

/* Numbers of this host, as both ends are on it. */
struct files_head {
    uint32_t status; /* of HTTP, or FILES_ELSEWHERE */
    uint32_t type;   /* enum files_type */
    uint64_t size;   /* of the body; FILES_MOST: until the stream ends well, see below */
    uint64_t first;  /* status 206: which part of ... */
    uint64_t total;  /* ... how many bytes */
    int64_t mtime_ms;
    char etag[FILES_ETAG]; /* with its quotes; "" */
};

/* A body of unknown size, and every body of a request, is a row of pieces: u32 length, at most
 * FILES_PIECE, and bytes; length 0 is the good end. A stream that ends before it was cut off, and
 * so is the client's. */
enum {
    FILES_PIECE = 1 << 16
};
