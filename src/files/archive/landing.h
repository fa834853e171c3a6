/* SPDX-License-Identifier: Apache-2.0 */
/* Where what comes out of an archive is put: below one directory, whatever the archive says. Every
 * directory on the way is opened by its name alone and never through a symbolic link. A file is
 * written out of sight, and gets its name when its bytes are on the disk, many of them at a time;
 * links come last of all, so that nothing can go through one.
 *
 *   landing_begin --> landing_directory, landing_file .. landing_write .. landing_file_end,
 * landing_symlink, landing_hardlink, landing_skip --> landing_finish --> landing_clear
 *
 * All that return int: 0 or -errno, the file it was about is in failed_path then. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/buf.h"
#include "files/core/call.h"

enum {
    LANDING_SYSTEMS = 16, /* different file systems below one destination */
};

struct landing {
    struct files_call *call;
    int dest;
    /* the directory that was last used, and its path below dest */
    int parent;
    bool parent_hides; /* it is on the mount of the hidden directory */
    char parent_path[FILES_PATH];

    struct landing_system {
        dev_t dev;
        int fd;
    } systems[LANDING_SYSTEMS];

    size_t n_systems;
    /* the file that is being written */
    int fd;
    int fd_dir; /* borrowed: where it is until it has its name */
    char fd_name[48];
    char fd_path[FILES_PATH];
    /* files that are whole and wait for their names, and what is done last */
    struct arena waiting;
    struct landing_file *files;
    struct landing_file *last_file;
    unsigned n_waiting;
    uint64_t bytes_waiting;
    struct arena later;
    struct landing_link *links;
    struct landing_link **links_end;
    struct landing_directory *directories; /* the last one first */
    /* hashes of the names of all files that were unpacked */
    uint64_t *known;
    size_t known_size;
    size_t known_count;
    uint64_t entries;
    uint64_t bytes;
    uint64_t room;
    uint64_t n_files, n_directories, n_links, n_skipped;
    struct emit skipped; /* the first of them, never sent by itself */
    char failed_path[FILES_PATH];
    char words[160];
};

#define LANDING_ANY_MODE ((mode_t)-1) /* as it is */

struct landing_stamp {
    mode_t mode; /* of it only the lowest nine bits */
    bool timed;
    struct timespec mtime;
};

int landing_begin(struct landing *p, struct files_call *call);
/* Counts an entry, and says whether its name may be taken: NULL, and it is in `clean` without "."
 * and needless slashes ("": the destination itself); or why not. */
int landing_entry(struct landing *p);
const char *landing_name(struct landing *p, const char *name, size_t n, char clean[FILES_PATH]);
void landing_skip(struct landing *p, const char *name, size_t n, const char *why);
int landing_directory(struct landing *p, const char *path, const struct landing_stamp *stamp);
/* 1: it was skipped, there is nothing to write to. */
int landing_file(struct landing *p, const char *path, uint64_t size);
int landing_write(struct landing *p, const void *bytes, size_t n, uint64_t at);
int landing_file_end(struct landing *p, uint64_t size, const struct landing_stamp *stamp);
void landing_file_drop(struct landing *p);
int landing_symlink(struct landing *p, const char *path, const char *target,
                    const struct landing_stamp *stamp);
int landing_hardlink(struct landing *p, const char *path, const char *target);
/* zip says only at its end what a file was: the mode of one that is there, and a link whose target
 * is in the file. */
int landing_flush(struct landing *p);
int landing_mode(struct landing *p, const char *path, mode_t mode);
int landing_directory_mode(struct landing *p, const char *path, mode_t mode);
int landing_turn_to_link(struct landing *p, const char *path);
/* Output against input so far: -E2BIG when no honest archive is like that. */
int landing_ratio(struct landing *p, uint64_t in, uint64_t out);
/* Says why, and gives `error` back. */
int landing_fail(struct landing *p, int error, const char *words);
int landing_finish(struct landing *p);
void landing_clear(struct landing *p);
