/* SPDX-License-Identifier: Apache-2.0 */
/* A workspace's tree is let go of by all that have it, as who may write to it is another from now
 * on: its sandbox and those of its plans, those that show it, file servers that finish something,
 * readers. What waits to be begun was asked for under the policy of before, and is refused; the
 * front sends nothing of that kind after this request. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/channel.h"
#include "broker/files.h"
#include "broker/files_asleep.h"
#include "broker/quiet.h"
#include "broker/sandboxes.h"
#include "broker/tree_locks.h"

/* Who waits for that.   quiet_request --> quiet_look, after each end --(nobody has it)--> told */
struct quiet {
    struct quiet *next;
    char workspace[PROTOCOL_ID + 1];
    uint64_t tag;
    uint64_t generation;
    uint64_t last; /* sandboxes begun after this one are under the policy of now */
};

static bool is_quiet(const struct broker *b, const struct quiet *q)
{
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            if (s->number <= q->last && sandbox_shows(s, q->workspace))
                return false;
        }
    }
    return !files_are_leaving(b, q->workspace, q->last);
}

void quiet_look(struct broker *b)
{
    for (struct quiet **at = &b->quiets; *at;) {
        struct quiet *q = *at;
        bool heard = q->generation == b->generation;
        if (heard && !is_quiet(b, q)) {
            at = &q->next;
            continue;
        }
        *at = q->next;
        if (heard)
            channel_send_ok(b, q->tag);
        free(q);
    }
}

void quiet_request(struct broker *b, uint64_t tag, const struct plain_message *m)
{
    const char *workspace = m->texts[0];
    struct quiet *q = calloc(1, sizeof(*q));
    struct err err;

    lock_refuse(b, workspace, m->texts[1]);
    asleep_end(b, workspace);
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            sandbox_refuse_deferred(s, workspace, m->texts[1]);
            if (sandbox_shows(s, workspace))
                sandbox_end(s, m->texts[1]);
        }
    }
    files_end_leaving(b, workspace);
    if (!q) {
        err_set(&err, ERR_LIMIT, ENOMEM, "wait for the end of a sandbox");
        channel_send_error(b, tag, &err);
        return;
    }
    *q = (struct quiet){
        .next = b->quiets, .tag = tag, .generation = b->generation, .last = b->sandboxes_begun};
    snprintf(q->workspace, sizeof(q->workspace), "%s", workspace);
    b->quiets = q;
    quiet_look(b);
}
