/* SPDX-License-Identifier: Apache-2.0 */
/* Elasticsearch and OpenSearch: POST /_bulk with one `create` for each record, under an id of its
 * own. One that is there already is answered with 409, which is as good as made. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "audit/export/export.h"
#include "base/fd.h"

static int open_elastic(struct sender *s, struct err *err)
{
    return post_open(&s->post,
                     &(struct post_options){.target = &s->target,
                                            .type = "application/x-ndjson",
                                            .auth_fd = s->options->auth_fd,
                                            .ca = s->options->ca,
                                            .gzip = s->options->gzip},
                     err);
}

static void make_body(const struct sender *s, const struct batch *b, struct bulk_item **items,
                      size_t count, struct buf *body)
{
    for (size_t i = 0; i < count; i++) {
        buf_printf(body, "{\"create\":{\"_index\":\"%s\",\"_id\":\"%s\"}}\n", s->options->index,
                   items[i]->id);
        buf_add(body, b->docs.p + items[i]->at, items[i]->n);
        buf_str(body, "\n");
    }
}

static void url_of(const struct sender *s, char *url, size_t size)
{
    size_t n = strlen(s->target.text);

    while (n > 0 && s->target.text[n - 1] == '/')
        n--;
    snprintf(url, size, "%.*s/_bulk", (int)n, s->target.text);
}

/* Not an answer to each: what to do with all. */
static int judge_refusal(struct sender *s, long status, struct bulk_item **items, size_t count,
                         struct err *err)
{
    const struct buf *answer = &s->post.answer;

    s->least_wait_ms = (uint64_t)s->post.retry_after_s * 1000;
    /* Too much at once, or one of them spoils the rest: halved until it is known which. */
    bool is_ours = status == 413 || (status == 400 && bulk_is_own_error(answer->p, answer->n, 400));
    if (is_ours && count == 1) {
        items[0]->verdict = BULK_DEAD;
        snprintf(items[0]->reason, sizeof(items[0]->reason), "the request was answered with %ld",
                 status);
        return 0;
    }
    if (is_ours)
        return 1;
    return err_set(err, ERR_IO, 0, "'%.200s' answers with %ld%s", s->target.text, status,
                   status == 401 || status == 403 ? ": look at the credentials"
                   : status == 404                ? ": is it the address of the service?"
                                                  : "");
}

/* One request. 1: to be halved. */
static int send_some(struct sender *s, const struct batch *b, struct bulk_item **items,
                     size_t count, struct err *err)
{
    scoped_buf struct buf body;
    char url[1100];

    buf_init(&body, 128UL << 20);
    make_body(s, b, items, count, &body);
    if (buf_done(&body) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "make a request");
    url_of(s, url, sizeof(url));
    long status = post_send(&s->post, url, body.p, body.n, s->options->gzip, err);
    if (status < 0)
        return -1;
    if (status != 200)
        return judge_refusal(s, status, items, count, err);
    if (!bulk_judge(s->post.answer.p, s->post.answer.n, items, count))
        return err_set(err, ERR_IO, 0, "'%.200s' does not answer as _bulk does", s->target.text);
    return 0;
}

/* Those without a verdict, in pieces that are halved as need be. */
static int send_pending(struct sender *s, struct batch *b, struct err *err)
{
    struct bulk_item *pending[BATCH_ITEMS];
    size_t count = 0;
    size_t done = 0;

    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].verdict == BULK_RETRY)
            pending[count++] = &b->items[i];
    size_t piece = count;
    while (done < count) {
        if (piece > count - done)
            piece = count - done;
        int r = send_some(s, b, pending + done, piece, err);
        if (r < 0)
            return -1;
        if (r == 1)
            piece = (piece + 1) / 2;
        else
            done += piece;
    }
    for (size_t i = 0; i < b->count; i++)
        if (b->items[i].verdict == BULK_RETRY)
            return err_set(err, ERR_IO, 0, "'%.120s' does not take a record now: %.180s",
                           s->target.text, b->items[i].reason);
    return 0;
}

static int send_elastic(struct sender *s, struct batch *b, struct err *err)
{
    s->least_wait_ms = 0;
    return send_pending(s, b, err);
}

const struct sender_calls elastic_calls = {open_elastic, send_elastic};
