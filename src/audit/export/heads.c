/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads to another host: each one a POST, in order; a 2xx is a promise to keep it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/export/export.h"
#include "audit/head.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define CURSOR "heads-cursor"

enum {
    FIRST_PAUSE_MS = 500,
    LONGEST_PAUSE_MS = 60000,
};

static void read_cursor(struct head_sender *h)
{
    char text[32] = "";
    scoped_fd int dir = open(h->spool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int fd = dir < 0 ? -1 : openat(dir, CURSOR, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && read(fd, text, sizeof(text) - 1) > 0)
        h->seq = strtoull(text, NULL, 10); /* 0 when it is none: then all are sent again */
}

static int save_cursor(const struct head_sender *h, struct err *err)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%ju\n", (uintmax_t)h->seq);
    scoped_fd int dir = open(h->spool, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    scoped_fd int fd = dir < 0
                           ? -1
                           : openat(dir, CURSOR ".new",
                                    O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0640);

    if (fd < 0 || write(fd, text, (size_t)n) != n || fsync(fd) < 0 ||
        renameat(dir, CURSOR ".new", dir, CURSOR) < 0)
        return err_set(err, ERR_IO, errno, "write '%s/" CURSOR "'", h->spool);
    return 0;
}

int heads_open(struct head_sender *h, const struct options *options, struct err *err)
{
    *h = (struct head_sender){.file = options->heads, .spool = options->spool};
    if (target_parse(options->heads_to, &h->target, err) < 0)
        return -1;
    if (h->target.kind != TARGET_BULK)
        return err_set(err, ERR_INVALID, 0, "heads are sent to https:// or http:// addresses");
    read_cursor(h);
    return post_open(&h->post,
                     &(struct post_options){.target = &h->target,
                                            .type = "application/json",
                                            .auth_fd = options->heads_auth_fd,
                                            .ca = options->ca},
                     err);
}

static int send_line(struct head_sender *h, const char *line, size_t n, struct err *err)
{
    struct audit_head head;

    if (!audit_head_parse(line, n, &head) || head.seq <= h->seq)
        return 0;
    long status = post_send(&h->post, h->target.text, line, n, false, err);
    if (status < 0)
        return -1;
    if (status < 200 || status > 299)
        return err_set(err, ERR_IO, 0, "'%.200s' answers a head with %ld", h->target.text, status);
    h->seq = head.seq;
    return save_cursor(h, err);
}

static int send_new(struct head_sender *h, struct err *err)
{
    struct audit_lines lines;
    const char *line;
    size_t n;
    int r = 0;
    int sent = 0;

    scoped_fd int fd = open(h->file, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : err_set(err, ERR_IO, errno, "open '%s'", h->file);
    /* Searched for each time: it is another file once old heads were taken out. */
    off_t from = audit_heads_seek(fd, h->seq + 1);
    audit_lines_init(&lines, &fd);
    audit_lines_seek(&lines, from);
    while (sent == 0 && (r = audit_lines_next(&lines, &line, &n)) == 1)
        sent = send_line(h, line, n, err);
    audit_lines_clear(&lines);
    return r < 0 ? err_set(err, ERR_IO, -r, "read '%s'", h->file) : sent;
}

int heads_step(struct head_sender *h, struct err *err)
{
    if (now_ms() < h->due_ms)
        return 0;
    if (send_new(h, err) == 0) {
        h->pause_ms = 0;
        h->due_ms = now_ms() + FIRST_PAUSE_MS;
        h->error[0] = '\0';
        return 1;
    }
    h->pause_ms = h->pause_ms ? h->pause_ms * 2 : FIRST_PAUSE_MS;
    if (h->pause_ms > LONGEST_PAUSE_MS)
        h->pause_ms = LONGEST_PAUSE_MS;
    h->due_ms = now_ms() + h->pause_ms;
    if (!h->error[0])
        log_warning("heads_not_sent", "message", err->msg, "then", "trying again", NULL);
    snprintf(h->error, sizeof(h->error), "%.255s", err->msg);
    return 0;
}
