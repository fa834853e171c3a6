/* SPDX-License-Identifier: Apache-2.0 */
/* RFC 5424: to the host's own log, by datagrams, or over TCP with octet counts (RFC 6587). None of
 * these acknowledges: what was handed to the kernel counts as sent. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "audit/export/export.h"
#include "base/fd.h"

enum {
    AUDIT_FACILITY = 13,
    INFO = 6,
    WARNING = 4,
    SEND_S = 10,
    LONGEST_DATAGRAM = 60000,
};

static int connect_unix(struct sender *s, int type, struct err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(s->target.path) >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "'%s'", s->target.path);
    memcpy(address.sun_path, s->target.path, strlen(s->target.path) + 1);
    scoped_fd int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return err_set(err, ERR_IO, errno, "reach the log '%s'", s->target.path);
    s->fd = take_fd(&fd);
    return 0;
}

static int connect_host(struct sender *s, int type, struct err *err)
{
    struct addrinfo hints = {.ai_socktype = type, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    const struct timeval limit = {.tv_sec = SEND_S};
    char port[8];

    snprintf(port, sizeof(port), "%u", s->target.port);
    int r = getaddrinfo(s->target.host, port, &hints, &found);
    if (r)
        return err_set(err, ERR_IO, 0, "find '%s': %s", s->target.host, gai_strerror(r));
    errno = ENOENT;
    for (const struct addrinfo *one = found; one && s->fd < 0; one = one->ai_next) {
        scoped_fd int fd = socket(one->ai_family, type | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, one->ai_addr, one->ai_addrlen) == 0)
            s->fd = take_fd(&fd);
    }
    int saved = errno;
    freeaddrinfo(found);
    return s->fd < 0 ? err_set(err, ERR_IO, saved, "reach the log at '%s'", s->target.text) : 0;
}

static int connect_log(struct sender *s, struct err *err)
{
    if (s->target.kind == TARGET_SYSLOG_UDP)
        return connect_host(s, SOCK_DGRAM, err);
    if (s->target.kind == TARGET_SYSLOG_TCP)
        return connect_host(s, SOCK_STREAM, err);
    return connect_unix(s, SOCK_DGRAM, err);
}

static int open_syslog(struct sender *s, struct err *err)
{
    (void)s, (void)err; /* when there is something to say */
    return 0;
}

/* A document that is too long for a datagram goes without the line it was made from. */
static void make_message(const struct sender *s, const struct batch *b, size_t i, struct buf *out)
{
    const struct ecs_facts *f = &b->facts[i];
    const struct bulk_item *item = &b->items[i];
    bool is_datagram = s->target.kind != TARGET_SYSLOG_TCP;

    buf_printf(out, "<%d>1 %s %s carrel - %.32s [carrel@32473 id=\"%s\" sequence=\"%ju\"] ",
               AUDIT_FACILITY * 8 + (f->failed ? WARNING : INFO), f->time, s->host,
               *f->operation ? f->operation : "-", item->id, (uintmax_t)f->seq);
    if (is_datagram && item->n > LONGEST_DATAGRAM)
        buf_printf(out,
                   "{\"event\":{\"id\":\"%s\",\"sequence\":%ju,\"action\":\"%s\"},"
                   "\"message\":\"too long for a datagram\"}",
                   item->id, (uintmax_t)f->seq, f->operation);
    else
        buf_add(out, b->docs.p + item->at, item->n);
}

static int send_bytes(const struct sender *s, const char *p, size_t n)
{
    while (n) {
        ssize_t done = send(s->fd, p, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

static int send_one(const struct sender *s, const struct batch *b, size_t i, struct err *err)
{
    scoped_buf struct buf message;
    scoped_buf struct buf frame;

    buf_init(&message, 8UL << 20);
    buf_init(&frame, 9UL << 20);
    make_message(s, b, i, &message);
    if (s->target.kind == TARGET_SYSLOG_TCP)
        buf_printf(&frame, "%zu ", message.n);
    buf_add(&frame, message.p, message.n);
    if (buf_done(&message) < 0 || buf_done(&frame) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "make a message");
    return send_bytes(s, frame.p, frame.n) < 0
               ? err_set(err, ERR_IO, errno, "send to the log at '%s'", s->target.text)
               : 0;
}

static int send_syslog(struct sender *s, struct batch *b, struct err *err)
{
    if (s->fd < 0 && connect_log(s, err) < 0)
        return -1;
    for (size_t i = 0; i < b->count; i++) {
        if (b->items[i].verdict != BULK_RETRY)
            continue;
        if (send_one(s, b, i, err) < 0) {
            scope_close(&s->fd);
            return -1;
        }
        b->items[i].verdict = BULK_DONE;
    }
    return 0;
}

const struct sender_calls syslog_calls = {open_syslog, send_syslog};
