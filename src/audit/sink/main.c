/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-sink: holds the key that signs heads of the record, and nothing else does. It signs what
 * it has read itself: that the record goes on with what it signed before. So whoever takes over
 * the front, or can only write the record's files, can have no other history signed.
 *
 * Started by carrel-serve in the state directory, as root under a uid of its own. It reads audit/,
 * and writes sink/key (its own), heads/keys, heads/heads.jsonl and the sink's file. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/head.h"
#include "audit/sink/keep.h"
#include "base/fd.h"
#include "protocol/sink.h"
#include "sys/landlock.h"
#include "sys/privileges.h"

struct sink {
    struct keep keep;
    struct audit_reader *reader; /* NULL: not begun */
    struct audit_chain chain;    /* up to where the record was read */
    uint32_t segment;            /* that the last line is in */
};

static int confine(bool shares_user, struct err *err)
{
    static const struct landlock_place places[] = {
        {.path = "audit"}, {.path = "heads", .writes = true}, {.path = "sink", .writes = true}};

    int r = privileges_give_up();
    if (r < 0)
        return err_set(err, ERR_KERNEL, -r, "give up privileges");
    r = landlock_confine(places, sizeof(places) / sizeof(places[0]), NULL, 0);
    if (r == -ENOSYS && !shares_user)
        return 0; /* its uid keeps it apart; the front has said so to the log */
    return r < 0 ? err_set(err, ERR_KERNEL, -r, "enter a Landlock domain") : 0;
}

/* --- reading on --- */

static int mismatch(struct err *err, const char *what, uint64_t seq)
{
    return err_set(err, ERR_CONFLICT, 0,
                   "the record is not the one that was signed: %s %ju; 'carrel audit verify' says "
                   "more. Nothing more is signed (to begin anew, keep heads/heads.jsonl and "
                   "sink/last elsewhere and take them away)",
                   what, (uintmax_t)seq);
}

/* Begins with the record of the newest head, which must be as it was. */
static int begin(struct sink *s, struct err *err)
{
    const struct audit_head *last = &s->keep.last;
    char hash[AUDIT_HEX];
    const char *line;
    size_t n;

    audit_chain_init(&s->chain);
    if (keep_check(&s->keep, err) < 0)
        return -1;
    if (audit_reader_open(&s->reader, "audit", last->seq ? last->seq - 1 : 0, err) < 0)
        return -1;
    if (!last->seq)
        return 0;
    int r = audit_reader_next(s->reader, &line, &n, err);
    struct audit_line parsed;
    if (r < 0)
        return -1;
    if (r == 0 || !audit_parse(line, n, &parsed) || parsed.seq != last->seq)
        return mismatch(err, "it has no record", last->seq);
    if (audit_hash(line, n, hash) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "hash a line");
    if (strcmp(hash, last->hash) != 0)
        return mismatch(err, "it was written anew, at or before record", last->seq);
    s->chain.seq = parsed.seq;
    memcpy(s->chain.head, hash, sizeof(hash));
    s->segment = audit_reader_segment(s->reader);
    return 0;
}

/* One more line: the chain goes on with it. What was read before the first head is taken on trust:
 * a record of an earlier version. */
static int take(struct sink *s, const char *line, size_t n, struct err *err)
{
    struct audit_line parsed;
    char hash[AUDIT_HEX];

    if (!audit_parse(line, n, &parsed) || audit_hash(line, n, hash) < 0)
        return err_set(err, ERR_IO, 0, "read the record");
    bool is_first = s->chain.seq == 0 && s->keep.last.seq == 0;
    if (!is_first &&
        (parsed.seq != s->chain.seq + 1 || memcmp(parsed.prev, s->chain.head, AUDIT_HEX - 1) != 0))
        return mismatch(err, "it does not go on after record", s->chain.seq);
    /* The last of each file has a head of its own: it stays when the file goes. */
    uint32_t segment = audit_reader_segment(s->reader);
    if (s->segment && segment != s->segment && s->chain.seq > s->keep.last.seq &&
        keep_head(&s->keep, s->chain.seq, s->chain.head, err) < 0)
        return -1;
    s->segment = segment;
    s->chain.seq = parsed.seq;
    memcpy(s->chain.head, hash, sizeof(hash));
    return 0;
}

static int sign_up_to(struct sink *s, uint64_t seq, struct err *err)
{
    const char *line;
    size_t n;

    if (!s->reader && begin(s, err) < 0)
        return -1;
    while (s->chain.seq < seq) {
        int r = audit_reader_next(s->reader, &line, &n, err);
        if (r < 0)
            return -1;
        if (r == 0) {
            mismatch(err, "it has no record", s->chain.seq + 1);
            return -1;
        }
        if (take(s, line, n, err) < 0)
            return -1;
    }
    return s->chain.seq > s->keep.last.seq ? keep_head(&s->keep, s->chain.seq, s->chain.head, err)
                                           : 0;
}

/* --- orders --- */

static void answer(const struct sink *s, enum sink_status status, const struct err *err)
{
    struct sink_answer a = {.seq = s->keep.last.seq, .status = status};

    if (err)
        (void)err_text(err, a.text, sizeof(a.text));
    ignore(send(SINK_SOCKET, &a, sizeof(a), MSG_NOSIGNAL)); /* a broker that has gone needs none */
}

static void obey(struct sink *s, const struct sink_order *order)
{
    struct err err = {.code = ERR_NONE};
    int r = sign_up_to(s, order->seq, &err);

    if (r == 0 && order->forget)
        r = keep_forget(&s->keep, order->forget, &err);
    if (r < 0) { /* from the last head again, next time */
        audit_reader_close(s->reader);
        s->reader = NULL;
        s->segment = 0;
    }
    answer(s,
           r == 0                     ? SINK_SIGNED
           : err.code == ERR_CONFLICT ? SINK_MISMATCH
                                      : SINK_FAILED,
           r == 0 ? NULL : &err);
}

static bool shares_user(void)
{
    struct ucred peer = {.uid = 0};
    socklen_t size = sizeof(peer);

    return getsockopt(SINK_SOCKET, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           peer.uid == geteuid();
}

int main(int argc, char **argv)
{
    static struct sink s;
    struct err err = {.code = ERR_NONE};
    struct sink_order order;

    (void)signal(SIGINT, SIG_IGN); /* it ends with its broker */
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)umask(027);
    if (argc != 2) {
        fputs("carrel-sink is started by carrel serve\n", stderr);
        return 2;
    }
    if (confine(shares_user(), &err) < 0 || keep_open(&s.keep, argv[1], SINK_FILE, &err) < 0) {
        /* The order first: an end with something unread takes the answer along. */
        ignore(recv(SINK_SOCKET, &order, sizeof(order), 0));
        answer(&s, err.code == ERR_CONFLICT ? SINK_MISMATCH : SINK_FAILED, &err);
        return 1;
    }
    while (recv(SINK_SOCKET, &order, sizeof(order), 0) == (ssize_t)sizeof(order))
        obey(&s, &order);
    audit_reader_close(s.reader);
    keep_close(&s.keep);
    return 0;
}
