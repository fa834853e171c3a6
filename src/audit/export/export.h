/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-export: follows the record and sends it on, at least once, in order.
 *
 *   batch.c     lines of the record -> documents          cursor.c  how far it has got, on disk
 *   elastic.c   ... to Elasticsearch or OpenSearch        post.c    HTTP
 *   lines.c     ... to a file       syslog.c  ... or to a system log
 *   heads.c     signed heads, to whoever keeps them
 *   main.c      options, confinement, the loop
 *
 * The record itself is what is kept through an outage: nothing is copied. The cursor moves only
 * after the other side has acknowledged; what is sent twice by that has the same id. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "audit/audit.h"
#include "audit/export/bulk.h"
#include "audit/export/ecs.h"
#include "audit/export/target.h"
#include "base/buf.h"
#include "base/err.h"

struct options {
    const char *record; /* directory of the record */
    const char *heads;  /* file of signed heads */
    const char *spool;  /* directory for cursors and dead letters */
    const char *to;     /* NULL: records go nowhere */
    const char *index;
    const char *ca;
    const char *heads_to; /* NULL: heads go nowhere */
    int auth_fd;          /* -1: none */
    int heads_auth_fd;
    int report_fd; /* progress for the broker; -1: none is reported */
    bool gzip;
    bool once; /* end when everything is sent */
};

extern volatile sig_atomic_t export_told_to_stop;

/* --- batch.c */
enum {
    BATCH_ITEMS = 2000
};

struct batch {
    struct bulk_item items[BATCH_ITEMS];
    struct ecs_facts facts[BATCH_ITEMS];
    size_t count;
    struct buf docs; /* their documents, one after another, a newline after each */
};

struct cursor;

/* Where records come from. */
struct batch_source {
    const char *record;          /* directory */
    const char *host;            /* this host's name */
    struct audit_reader *reader; /* NULL: opened when it is needed */
};

/* As many as there are behind `after`, up to some MiB; they are on disk. -1: the record cannot be
 * read; what was read before that is in the batch. Without memory, or if they do not get to the
 * disk, nothing is, and the next call begins anew. */
int batch_fill(struct batch *batch, struct batch_source *source, uint64_t after, struct err *err);
void batch_clear(struct batch *batch);

/* --- cursor.c */
struct cursor {
    const char *spool;
    char name[48]; /* of its file: a target of its own has one of its own */
    const char *target;
    uint64_t seq; /* everything up to here was acknowledged */
    char id[BULK_ID];
    uint64_t sent;
    uint64_t dead;
    uint64_t retries;
    uint64_t behind_since; /* seconds since 1970 that the oldest record waits since; 0: none */
    char error[256];       /* why the last try failed; "" : it did not */
    bool is_main;          /* it is the daemon's: /metrics shows it */
};

int cursor_open(struct cursor *cursor, const char *spool, const char *target, const char *more,
                struct err *err);
/* On disk. */
int cursor_save(const struct cursor *cursor, struct err *err);
/* For /metrics and people; need not last. */
void cursor_tell(const struct cursor *cursor);
/* A document that is not taken: kept, on disk, for a person to look at. */
int cursor_bury(const struct cursor *cursor, const struct bulk_item *item, const char *doc,
                struct err *err);

/* --- post.c */
struct post {
    void *curl;
    struct curl_slist *headers;
    struct buf answer;
    long retry_after_s;
};

struct post_options {
    const struct target *target;
    const char *type;
    int auth_fd;    /* holds "ApiKey ...", "Bearer ..." or "user:password"; -1: none */
    const char *ca; /* NULL: the system's */
    bool gzip;
};

int post_open(struct post *post, const struct post_options *options, struct err *err);
/* The status, with its body in post->answer; or -1: nothing that can be called an answer came. */
long post_send(struct post *post, const char *url, const char *bytes, size_t n, bool gzip,
               struct err *err);
void post_close(struct post *post);

/* --- the targets: 0 when all items have a verdict other than BULK_RETRY; or -1 and why. */
struct sender;

struct sender_calls {
    int (*open)(struct sender *sender, struct err *err);
    int (*send)(struct sender *sender, struct batch *batch, struct err *err);
};

struct sender {
    const struct options *options;
    struct target target;
    struct post post;
    struct cursor *cursor;
    const char *host;
    int fd;
    uint64_t least_wait_ms; /* what the other side asks for */
};

extern const struct sender_calls elastic_calls;
extern const struct sender_calls lines_calls;
extern const struct sender_calls syslog_calls;

/* --- heads.c */
struct head_sender {
    struct post post;
    struct target target;
    const char *file;
    const char *spool;
    uint64_t seq; /* the last that was taken */
    uint64_t due_ms;
    uint64_t pause_ms;
    char error[256];
};

int heads_open(struct head_sender *h, const struct options *options, struct err *err);
/* Sends what is new; 1: all there is has been taken, 0: later, -1: never. */
int heads_step(struct head_sender *h, struct err *err);
