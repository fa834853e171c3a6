/* SPDX-License-Identifier: Apache-2.0 */
/* What the writer, the verifier and the readers of the record share; nobody else includes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "audit/audit.h"
#include "base/buf.h"
#include "base/err.h"

enum {
    AUDIT_TEXT = 1024,     /* longest text of a record; what is longer is cut */
    AUDIT_DETAILS = 65536, /* longest details */
    /* Every byte may have become an escape of six. */
    AUDIT_LINE = 6 * (5 * AUDIT_TEXT + AUDIT_DETAILS) + 1024,
    AUDIT_HEX = 65,  /* a hash in hex, and NUL */
    AUDIT_TIME = 28, /* "2026-01-02T03:04:05.678901Z", and NUL */
    AUDIT_NAME = 16, /* "000000001.jsonl", and NUL */
};

/* --- one line --- */

struct audit_line {
    uint64_t seq;
    const char *time; /* these two point into the line and do not end with NUL */
    const char *prev;
};

/* Whether the bytes are one JSON object and nothing else, without control characters. */
bool audit_is_object(const char *p, size_t n);
/* True for exactly what audit_encode writes: these members in this order, and no other byte. */
bool audit_parse(const char *line, size_t n, struct audit_line *ret);
/* Whether it is a record of the broker's own with this operation. */
bool audit_is_brokers(const char *line, size_t n, const struct audit_line *parsed,
                      const char *operation);
/* -1 when there is no memory. */
int audit_hash(const char *line, size_t n, char ret_hex[AUDIT_HEX]);

/* Where a chain has got to. */
struct audit_chain {
    uint64_t seq;
    char head[AUDIT_HEX]; /* 64 zeros before the first line */
    char time[AUDIT_TIME];
};

void audit_chain_init(struct audit_chain *chain);
/* The line that follows: with the time of now, or the last one's where the clock went back. */
void audit_encode(struct buf *b, const struct audit_chain *chain, const char *time,
                  const struct audit_record *record);
void audit_now(char ret_time[AUDIT_TIME]);

/* --- segments --- */

struct audit_segments {
    uint32_t *numbers; /* in order */
    size_t count;
    size_t room;
};

void audit_segment_name(uint32_t number, char ret_name[AUDIT_NAME]);
int audit_list(int dir, struct audit_segments *ret, struct err *err);
/* Opens the record in that directory, with the list of its segments; -1: *err says why not. */
int audit_open_dir(const char *dir, struct audit_segments *ret, struct err *err);
void audit_segments_clear(struct audit_segments *segments);
/* Read only; -1 and errno. */
int audit_segment_open(int dir, uint32_t number);

/* Whole lines of one file. What is behind the last newline is read again next time: the writer may
 * be in the middle of it, or cut it off. */
struct audit_lines {
    int fd; /* owned */
    char *bytes;
    size_t room;
    size_t start; /* of the next line in bytes */
    size_t end;
    off_t offset; /* of bytes[start] in the file */
    size_t torn;  /* after 0 was returned: how many bytes are behind the last newline */
};

void audit_lines_init(struct audit_lines *lines, int *fd);
void audit_lines_clear(struct audit_lines *lines);
void audit_lines_seek(struct audit_lines *lines, off_t offset);
/* 1 a line, 0 none for now, or -errno; -EMSGSIZE when it is longer than any of ours. */
int audit_lines_next(struct audit_lines *lines, const char **ret_line, size_t *ret_n);

/* --- retain.c --- */

#define AUDIT_START  "daemon.start"
#define AUDIT_SIGNED ",\"signed\":" /* its last detail: the record of the newest head by then */
#define AUDIT_STOP   "daemon.stop"  /* signed for, being the last */
#define AUDIT_ANEW   "audit.anew"   /* there was no signed head of what was there before */

/* The record of what was put away: `through` is the number of the last record that is gone, `hash`
 * its hash. Its details are exactly these, so that nobody else's record passes for one. */
struct audit_checkpoint {
    uint64_t through;
    char hash[AUDIT_HEX];
};

#define AUDIT_RETENTION "audit.retention"
/* Whether the line is such a record of the broker's. */
bool audit_checkpoint_parse(const char *line, size_t n, struct audit_checkpoint *ret);

/* --- verify.c --- */

struct audit_check {
    int dir;
    const struct audit_segments *segments;
    size_t from; /* the first segment to look at; what was before it is taken on trust */
    const char *expected_head;           /* or NULL */
    const struct audit_anchors *anchors; /* or NULL */
    bool may_begin_late;      /* the oldest segments may be missing, whatever the rest says */
    struct audit_chain chain; /* where the last line leaves it */
    uint32_t last_line;       /* the number of lines in the newest segment */
    off_t whole;              /* the bytes of the newest segment that are whole lines */
    size_t torn;              /* the bytes behind them */
};

/* 0 also when ret->problem says something. A torn last line is not a problem here. */
int audit_check_run(struct audit_check *check, struct audit_report *ret, struct err *err);
