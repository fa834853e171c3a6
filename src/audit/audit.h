/* SPDX-License-Identifier: Apache-2.0 */
/* The record of everything that was done: one JSON line each, every line holding the hash of the
 * line before, in segments that are only ever added to. One writer (the broker); anybody who may
 * read the files can check them.
 *
 *   DIR/000000001.jsonl, DIR/000000002.jsonl, ...
 *   {"seq":1,"time":"2026-01-02T03:04:05.678901Z","actor":"key:ab12","workspace":"w1",
 *    "request":"r-…","operation":"exec.start","result":"ok","details":{…},"prev":"<64 hex>"}
 *
 * `prev` is the SHA-256 of the whole line before it, without its newline; 64 zeros in the first.
 * The first line of a segment goes on with the chain of the one before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct audit;

struct audit_record {
    const char *actor;
    const char *workspace; /* "" : none */
    const char *request;   /* "" : none */
    const char *operation; /* "workspace.create" */
    const char *result;    /* "ok", or an error code, or the reason of an end */
    const char *details;   /* one JSON object, already encoded and without newlines; "" : none */
};

/* Goes on with the chain in `dir`, which must exist; `group` may read the segments (-1: nobody
 * else). A last line that a power cut has torn is cut off, and that is recorded; any other damage
 * in the newest two segments, or a missing one, is an error that names the line. Starts a thread
 * that writes and syncs. */
int audit_open(struct audit **ret, const char *dir, int64_t group, uint64_t segment_bytes,
               struct err *err);
/* Writes what is left, syncs, ends the thread. */
void audit_close(struct audit *audit);
/* Returns its sequence number, or 0: it cannot be written. It gets to the disk with the next push
 * or sync. */
uint64_t audit_add(struct audit *audit, const struct audit_record *record);
/* Has the thread write and sync all there is. */
void audit_push(struct audit *audit);
/* Writes and syncs in the caller's thread, however long the disk takes. Returns false, and does
 * nothing, while the other thread is at it. audit_fd and audit_has_failed report a failure. */
bool audit_sync_here(struct audit *audit);
/* Writes what was added into the file without waiting for the disk: a full disk shows now. */
void audit_write_here(struct audit *audit);
/* The disk is full but for a reserve, which is for what makes room and for what has happened. */
bool audit_is_low(struct audit *audit);
/* What is added from now on goes into a new segment, unless the newest is empty. */
void audit_rotate(struct audit *audit);
/* The number of the newest segment. */
uint32_t audit_segment(struct audit *audit);
/* Readable whenever more has become durable, or writing failed, until audit_hear. */
int audit_fd(const struct audit *audit);
/* Everything up to this sequence number is on disk. Many records share one sync. */
uint64_t audit_synced(struct audit *audit);
/* As audit_synced, and empties the descriptor. The caller then tells all that wait for it. */
uint64_t audit_hear(struct audit *audit);
/* Whether a write has failed. From then on nothing can be added, until audit_open. */
bool audit_has_failed(struct audit *audit, struct err *err);

struct audit_report {
    uint64_t records;
    uint64_t first_seq; /* above 1: what was before it has been put away; 0: no record */
    uint64_t last_seq;
    char head[65];     /* hash of the last line */
    char problem[256]; /* "" : the chain is whole */
    char file[256];    /* where the problem is */
    uint64_t line;
    uint64_t torn; /* bytes of a last line without an end, when that is all: a daemon was killed */
    uint64_t anchored_seq; /* of the newest signed head that the chain agrees with; 0: none */
    char anchored_time[28];
    uint64_t due_seq;  /* up to here the daemon must have signed, as the record itself shows */
    uint64_t anew_seq; /* at this record it found no signed head of what was before; 0: none */
    uint64_t kept_seq; /* of the record with the hash kept elsewhere */
};

/* 0 also when a problem was found; -1 when the files cannot be read. With `expected_head` (a hash
 * kept elsewhere; or NULL) a chain that was cut off after it, or rewritten, is a problem too. */
int audit_verify(const char *dir, const char *expected_head, struct audit_report *ret,
                 struct err *err);

/* What else a chain is held against. */
struct audit_anchors;

struct audit_wanted {
    const char *hash;                    /* as expected_head; or NULL */
    const struct audit_anchors *anchors; /* signed heads (audit/head.h), sorted; or NULL */
};

int audit_verify_with(const char *dir, const struct audit_wanted *wanted, struct audit_report *ret,
                      struct err *err);

/* The same for lines that come one by one, from another host, say. Its `file` is "record", its
 * `line` the number that the record has or should have. */
struct audit_stream;
int audit_stream_open(struct audit_stream **ret, const struct audit_wanted *wanted,
                      struct err *err);
/* 1: there is a problem, more lines change nothing. */
int audit_stream_line(struct audit_stream *stream, const char *line, size_t n, struct err *err);
/* Ends it. */
void audit_stream_close(struct audit_stream *stream, struct audit_report *ret);

/* Reading: lines in order, from the first with seq > after. */
struct audit_reader;
int audit_reader_open(struct audit_reader **ret, const char *dir, uint64_t after, struct err *err);
/* 1: *ret_line is a whole line without its newline, valid until the next call; 0: none for now,
 * more may come; -1: there is something that is no record, the next call goes on behind it. */
int audit_reader_next(struct audit_reader *reader, const char **ret_line, size_t *ret_n,
                      struct err *err);
/* What was handed out is on disk then: the writer may be some ms behind. */
int audit_reader_sync(const struct audit_reader *reader, struct err *err);
void audit_reader_close(struct audit_reader *reader);
/* The number of the file that the last line is in. */
uint32_t audit_reader_segment(const struct audit_reader *reader);
