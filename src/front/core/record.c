/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/record.h"

#include <errno.h>
#include <stdlib.h>

#include "front/core/channel.h"
#include "front/core/record_text.h"
#include "protocol/broker.h"

struct recording {
    front_recorded *heard;
    void *context;
};

static void recorded(void *context, struct answer *answer)
{
    struct recording *r = context;
    struct err err;
    uint64_t tag;
    bool bad = answer->kind == ANSWER_ERROR;

    if (bad && !protocol_unpack_error(answer->bytes, answer->n, &tag, &err))
        err_set(&err, ERR_IO, 0, "the broker's answer cannot be read");
    if (r->heard)
        r->heard(r->context, bad ? &err : NULL);
    free(r);
}

void front_record(struct front *front, const struct front_record *r, json_t *details,
                  front_recorded *heard_it, void *context)
{
    char *text = record_text(details, DETAILS_MAX);
    struct recording *recording = calloc(1, sizeof(*recording));
    uint64_t tag = recording ? broker_expect(front->channel, recorded, recording) : 0;
    struct record_message m = {.actor = r->actor,
                               .workspace = r->workspace,
                               .request = r->request,
                               .operation = r->operation,
                               .result = r->result,
                               .details = text ? text : ""};
    struct err err;
    struct buf b;

    if (!tag) {
        free(recording);
        free(text);
        err_set(&err, ERR_LIMIT, ENOMEM, "keep a record");
        if (heard_it)
            heard_it(context, &err);
        return;
    }
    *recording = (struct recording){.heard = heard_it, .context = context};
    buf_init(&b, 1UL << 20);
    protocol_pack_record(&b, tag, &m);
    broker_send(front->channel, REQUEST_RECORD, &b);
    free(text);
}
