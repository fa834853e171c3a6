/* SPDX-License-Identifier: Apache-2.0 */
/* The output of one command, on disk. Bytes go from the command's pipe into the file inside the
 * kernel (splice): at every instant each of them is in the one or in the other, so that a front
 * that is killed loses none and repeats none.
 *
 *   DIR/<exec>.out     the bytes of both streams, in the order in which they were taken
 *   DIR/<exec>.turns   {offset, stream}: from here on it was this stream's turn. Written before the
 *                      bytes, so that those of a front that died in between are told apart, too.
 *                      The first turn, of standard output, goes without saying: most commands have
 *                      no other, and no such file
 *
 * Offsets count from the first byte ever written. At most `bound` bytes are kept: older ones are
 * given back to the file system (a hole), but never those a reader has yet to see. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum spool_stream {
    SPOOL_OUT,
    SPOOL_ERR,
    SPOOL_TERMINAL,
    SPOOL_STREAM_COUNT_,
};

struct spool_reader {
    struct spool_reader *next;
    uint64_t at;   /* the next byte */
    uint64_t turn; /* whose turn it is there */
    bool holds;    /* the command waits for it, rather than losing what it has not seen */
};

struct spool {
    int spools; /* borrowed: the directory of all spools */
    char id[28];
    int out;
    int turns; /* -1: none yet */
    uint64_t bound;
    uint64_t first; /* the oldest byte that is kept */
    uint64_t end;
    uint64_t first_turn; /* the one that `first` is in */
    uint64_t turn_count;
    enum spool_stream stream; /* whose turn it is at the end */
    struct spool_reader *readers;
};

/* All return 0 or -errno. `spools` is the directory of all spools. */
int spool_create(struct spool *s, int spools, const char *id, uint64_t bound);
int spool_open(struct spool *s, int spools, const char *id, uint64_t bound);
void spool_close(struct spool *s);
int spool_remove(int spools, const char *id);
/* Removes all of its bytes; a reader of them gets -ESPIPE, not an empty output. */
int spool_empty(int spools, const char *id);
/* Whether the bytes at `at` have not been removed. For readers other than the writer, after a read.
 */
bool spool_keeps(const struct spool *s, uint64_t at);
/* What one that is not open takes on disk; 0: nothing, or there is none. */
uint64_t spool_size(int spools, const char *id);
/* The same, about, of one that is open; without a system call. */
uint64_t spool_kept(const struct spool *s);
/* Keeps no more than `bound` from now on, and what a reader that holds has not read. */
void spool_tighten(struct spool *s, uint64_t bound);

/* Takes what is in the pipe (or the terminal), as far as there is room. >0 bytes; 0 at its end;
 * -EAGAIN: nothing there; -ENOBUFS: a reader that holds is too far behind; other -errno. */
ssize_t spool_take(struct spool *s, int from, enum spool_stream stream);

/* From `at` on; 0, -ESPIPE when that is no longer kept, -EINVAL beyond the end. */
int spool_reader_add(struct spool *s, struct spool_reader *r, uint64_t at, bool holds);
void spool_reader_drop(struct spool *s, struct spool_reader *r);
/* Bytes of one stream. >0; 0: nothing more for now; -ESPIPE: it was too slow; other -errno. */
ssize_t spool_read(struct spool *s, struct spool_reader *r, char *bytes, size_t size,
                   enum spool_stream *ret_stream);
