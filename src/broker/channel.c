/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the front and to it. Neither side of the socket ever makes the loop wait: what does
 * not fit is queued, with duplicates of its descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/front_process.h"
#include "broker/requests.h"
#include "broker/watchdog.h"
#include "sys/fds.h"
#include "sys/message.h"

enum {
    PIECE = 65536,       /* read at a time, so that one front cannot keep the loop */
    MOST_QUEUED = 65536, /* a front that does not read is ended */
    MOST_QUEUED_BYTES = 32 << 20,
    BEHIND = 4096,
    MOST_FDS = 4,
};

struct outgoing {
    struct outgoing *next;
    int fds[MOST_FDS];
    size_t fd_count;
    size_t sent;
    size_t n;
    char bytes[]; /* with the head */
};

static void free_outgoing(struct outgoing *out)
{
    for (size_t i = 0; i < out->fd_count; i++)
        scope_close(&out->fds[i]);
    free(out);
}

static void want(struct broker *b)
{
    uint32_t what = b->first_out ? EPOLLIN | EPOLLOUT : EPOLLIN;

    if (b->socket >= 0)
        ignore(events_change(b->events, &b->socket_watch, what) == 0); /* it is watched */
}

static void drop_queue(struct broker *b)
{
    while (b->first_out) {
        struct outgoing *out = b->first_out;
        b->first_out = out->next;
        free_outgoing(out);
    }
    b->last_out = NULL;
    b->out_count = 0;
    b->out_bytes = 0;
}

/* Its death is seen and dealt with in front_process.c; until then nothing more is sent. What it has
 * said before is heard, see channel_hear_out. */
static void give_up(struct broker *b)
{
    b->deaf = true;
    drop_queue(b);
    want(b);
    front_kill(b);
}

uint64_t channel_unread(const struct broker *b)
{
    int n = 0;

    return b->socket >= 0 && ioctl(b->socket, SIOCOUTQ, &n) == 0 && n > 0
               ? b->out_bytes + (uint64_t)n
               : b->out_bytes;
}

static void flush(struct broker *b)
{
    while (b->first_out) {
        struct outgoing *out = b->first_out;
        struct iovec part = {out->bytes + out->sent, out->n - out->sent};
        ssize_t sent =
            fds_send(b->socket, &part, 1, out->fds, out->sent ? 0 : out->fd_count, MSG_DONTWAIT);
        if (sent == -EAGAIN || sent == -ETOOMANYREFS)
            break;
        if (sent < 0) {
            give_up(b);
            return;
        }
        out->sent += (size_t)sent;
        if (out->sent < out->n)
            break;
        b->first_out = out->next;
        if (!b->first_out)
            b->last_out = NULL;
        b->out_count--;
        b->out_bytes -= out->n;
        free_outgoing(out);
    }
    want(b);
}

/* False without memory or descriptors. */
static bool queue(struct broker *b, const struct message_head *head, const struct buf *message,
                  size_t sent, const int *fds)
{
    struct outgoing *out = calloc(1, sizeof(*out) + sizeof(*head) + message->n);

    if (!out)
        return false;
    for (size_t i = 0; fds && sent == 0 && i < head->fd_count; i++) {
        out->fds[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (out->fds[i] < 0) {
            free_outgoing(out);
            return false;
        }
        out->fd_count++;
    }
    memcpy(out->bytes, head, sizeof(*head));
    memcpy(out->bytes + sizeof(*head), message->p, message->n);
    out->n = sizeof(*head) + message->n;
    out->sent = sent;
    if (b->last_out)
        b->last_out->next = out;
    else
        b->first_out = out;
    b->last_out = out;
    b->out_count++;
    b->out_bytes += out->n;
    return b->out_count <= MOST_QUEUED && b->out_bytes <= MOST_QUEUED_BYTES;
}

bool channel_is_behind(const struct broker *b)
{
    return b->out_count > BEHIND;
}

void channel_send(struct broker *b, uint32_t kind, struct buf *message, const int *fds,
                  size_t fd_count)
{
    struct message_head head = {kind, (uint32_t)message->n, (uint32_t)fd_count};
    size_t sent = 0;

    if (b->socket < 0 || b->deaf)
        return;
    if (buf_done(message) < 0) { /* without it the front would wait for ever */
        give_up(b);
        return;
    }
    if (!b->first_out) {
        struct iovec parts[2] = {{&head, sizeof(head)}, {message->p, message->n}};
        ssize_t n = fds_send(b->socket, parts, 2, fds, fd_count, MSG_DONTWAIT);
        if (n < 0 && n != -EAGAIN && n != -ETOOMANYREFS) {
            give_up(b);
            return;
        }
        sent = n > 0 ? (size_t)n : 0;
        if (sent == sizeof(head) + message->n)
            return;
    }
    if (!queue(b, &head, message, sent, fds))
        give_up(b);
    else
        want(b);
}

void channel_send_plain(struct broker *b, uint32_t kind, uint64_t tag,
                        const struct plain_message *m)
{
    scoped_buf struct buf message;

    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_plain(&message, tag, m);
    channel_send(b, kind, &message, NULL, 0);
}

void channel_send_ok(struct broker *b, uint64_t tag)
{
    channel_send_plain(b, ANSWER_OK, tag, &(struct plain_message){.number = 0});
}

void channel_send_error(struct broker *b, uint64_t tag, const struct err *err)
{
    scoped_buf struct buf message;

    buf_init(&message, MESSAGE_MAX_BYTES);
    protocol_pack_error(&message, tag, err);
    channel_send(b, ANSWER_ERROR, &message, NULL, 0);
}

/* Hands out every whole message. The channel may be closed by one of them. */
static void hand_out(struct broker *b)
{
    struct buf *in = &b->incoming;
    size_t at = 0;

    while (b->socket >= 0 && in->n - at >= sizeof(struct message_head)) {
        struct message_head head;
        memcpy(&head, in->p + at, sizeof(head));
        if (head.fd_count != 0 || head.length > MESSAGE_MAX_BYTES) {
            request_refuse(b, head.kind, "the head of a message is not sane");
            return;
        }
        if (in->n - at - sizeof(head) < head.length)
            break;
        uint64_t generation = b->generation;
        request_handle(b, head.kind, in->p + at + sizeof(head), head.length);
        if (b->socket < 0 || b->generation != generation)
            return; /* and the bytes are gone */
        at += sizeof(head) + head.length;
    }
    if (at > 0) {
        memmove(in->p, in->p + at, in->n - at);
        in->n -= at;
    }
}

/* False: there is nothing more, or no channel any more. */
static bool hear(struct broker *b)
{
    char piece[PIECE / 2];

    /* Descriptors that come along are dropped by the kernel: there is no room for them here. */
    ssize_t n = recv(b->socket, piece, sizeof(piece), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        b->heard = true;
        buf_add(&b->incoming, piece, (size_t)n);
    }
    if (n <= 0 || b->incoming.failed) {
        channel_close(b);
        front_kill(b);
        return false;
    }
    hand_out(b);
    return b->socket >= 0;
}

static void ready(struct watch *watch, uint32_t what)
{
    struct broker *b = container_of(watch, struct broker, socket_watch);

    if (what & EPOLLOUT)
        flush(b);
    if (b->socket >= 0 && (what & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        (void)hear(b);
}

/* It may have told a client by now that what it asked for is so. */
void channel_hear_out(struct broker *b)
{
    b->deaf = true;
    while (b->socket >= 0 && hear(b))
        continue;
}

int channel_open(struct broker *b, int *socket, struct err *err)
{
    b->socket_watch.ready = ready;
    int r = events_watch(b->events, &b->socket_watch, *socket, EPOLLIN);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "watch the front");
    b->socket = take_fd(socket);
    b->deaf = false;
    buf_init(&b->incoming, MESSAGE_MAX_BYTES + sizeof(struct message_head) + PIECE);
    b->resumed = false;
    b->resume_tag = 0;
    watchdog_begin(b);
    return 0;
}

void channel_close(struct broker *b)
{
    if (b->socket < 0)
        return;
    events_forget(b->events, &b->socket_watch);
    watchdog_end(b);
    scope_close(&b->socket);
    buf_clear(&b->incoming);
    drop_queue(b);
    b->resumed = false;
    b->resume_tag = 0;
}
