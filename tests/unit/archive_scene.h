/* SPDX-License-Identifier: Apache-2.0 */
/* One call of the file server without the server: the body is fed, the answer
 * is gathered. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "files/core/call.h"

struct answer {
    struct files_head head;
    struct buf b; /* the body, without its pieces */
    bool whole;   /* it ended as it should */
};

struct scene_feed {
    int fd;
    const char *body;
    size_t n;
    bool cut; /* no good end */
};

static inline bool scene_send(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

static inline void *scene_feed(void *context)
{
    struct scene_feed *f = context;
    uint32_t end = 0;

    for (size_t at = 0; at < f->n;) {
        uint32_t piece = f->n - at < FILES_PIECE ? (uint32_t)(f->n - at) : FILES_PIECE;
        if (!scene_send(f->fd, &piece, sizeof(piece)) || !scene_send(f->fd, f->body + at, piece))
            return NULL;
        at += piece;
    }
    if (f->cut)
        (void)shutdown(f->fd, SHUT_WR);
    else
        (void)scene_send(f->fd, &end, sizeof(end));
    return NULL;
}

struct scene_gather {
    int fd;
    struct buf b;
};

static inline void *scene_gather(void *context)
{
    struct scene_gather *g = context;
    char bytes[65536];
    ssize_t n;

    while ((n = recv(g->fd, bytes, sizeof(bytes), 0)) > 0)
        buf_add(&g->b, bytes, (size_t)n);
    return NULL;
}

/* Takes the pieces apart. */
static inline void scene_read(struct answer *ret, const struct buf *raw)
{
    size_t at = sizeof(ret->head);

    if (raw->n < at)
        return;
    memcpy(&ret->head, raw->p, at);
    if (ret->head.size != FILES_MOST) {
        buf_add(&ret->b, raw->p + at, raw->n - at);
        ret->whole = raw->n - at == ret->head.size;
        return;
    }
    while (raw->n - at >= 4) {
        uint32_t piece;
        memcpy(&piece, raw->p + at, 4);
        at += 4;
        if (piece == 0) {
            ret->whole = at == raw->n;
            return;
        }
        if (raw->n - at < piece)
            return;
        buf_add(&ret->b, raw->p + at, piece);
        at += piece;
    }
}

static inline void scene_call(files_operation *operation, struct files_message *m, int hidden,
                              struct scene_feed *feed, struct answer *ret)
{
    struct scene_gather gather = {.fd = -1};
    pthread_t threads[2];
    int ends[2];

    *ret = (struct answer){.whole = false};
    buf_init(&ret->b, 1U << 30);
    buf_init(&gather.b, 1U << 30);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        abort();
    feed->fd = gather.fd = ends[0];
    m->other = m->pattern = m->cursor = m->if_match = m->if_none_match = "";
    struct files_call call = {.m = m, .stream = ends[1], .hidden = hidden};
    if (pthread_create(&threads[0], NULL, scene_feed, feed) != 0 ||
        pthread_create(&threads[1], NULL, scene_gather, &gather) != 0)
        abort();
    operation(&call);
    (void)close(ends[1]);
    (void)pthread_join(threads[0], NULL);
    (void)pthread_join(threads[1], NULL);
    (void)close(ends[0]);
    scene_read(ret, &gather.b);
    buf_clear(&gather.b);
    if (buf_done(&ret->b) < 0)
        abort();
}

static inline int scene_remove_one(const char *path, const struct stat *st, int kind,
                                   struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static inline void scene_remove(const char *path)
{
    (void)nftw(path, scene_remove_one, 32, FTW_DEPTH | FTW_PHYS);
}
