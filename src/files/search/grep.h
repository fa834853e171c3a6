/* SPDX-License-Identifier: Apache-2.0 */
/* Searching in files. One of two engines finds lines, ripgrep or our own; here they become matches
 * with what stands around them.
 *
 *   files_grep --> grep_by_ripgrep | grep_by_ourselves --> grep_begin_file, grep_line,
 * grep_end_file */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "files/core/call.h"

enum {
    GREP_MOST_TEXT = 65536, /* bytes of a line that are told */
    GREP_MOST_CONTEXT = 100,
    GREP_BINARY = 8192, /* a NUL in the first so many bytes: not a text */
};

struct grep_line {
    uint64_t number; /* from 1 */
    const char *text;
    size_t n;
    bool cut; /* the line is longer */
    bool is_match;
};

struct grep {
    struct files_call *call;
    bool single;     /* the path is a file */
    int file;        /* ... this one */
    const char *why; /* a glob that is none: which, and why not */
    const char *why_not;
    struct glob *takes[FILES_GLOBS]; /* end with NULL, or with the array */
    struct glob *leaves[FILES_GLOBS];
    struct emit e; /* the matches, in the order in which they were found */
    struct buf path;
    bool truncated;
    /* private to grep.c */
    uint64_t found;
    uint64_t context;
    struct grep_found *files;
    size_t file_count;
    size_t file_cap;
    struct grep_line window[2 * GREP_MOST_CONTEXT + 2]; /* with texts of its own */
    size_t lines;
};

/* Whether the globs let a file be searched, or a directory gone into. */
bool grep_wants(const struct grep *g, const char *path, bool is_dir);
/* Relative to where the search began. False, also from grep_line: that is enough, end the file. */
bool grep_begin_file(struct grep *g, const char *path);
/* Matches and, with context, all lines near them, in order. */
bool grep_line(struct grep *g, const struct grep_line *line);
void grep_end_file(struct grep *g);

/* The engines. 0: done; otherwise nothing has been found and 1: answered, -ENOSYS: it cannot be
 * used for this, other -errno. */
int grep_by_ripgrep(struct grep *g, const char *program);
int grep_by_ourselves(struct grep *g);
/* files_grep with the engine chosen: a program, or NULL. */
void grep_with(struct files_call *call, const char *program);
