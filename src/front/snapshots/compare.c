/* SPDX-License-Identifier: Apache-2.0 */
/* What two versions have different: snapshots, what a fork stands on, a workspace as it is now. Of
 * a fork as it is now there is a snapshot first, as nothing else knows all that it shows. */
#include <string.h>

#include "base/text.h"
#include "front/snapshots/job.h"
#include "front/snapshots/routes.h"
#include "front/snapshots/versions.h"

enum {
    FROM,
    TO,
    VERSIONS,
};

struct comparing {
    struct store_workspace of[VERSIONS];
    const char *words[VERSIONS];
    char at[VERSIONS][VERSION_ROOM]; /* as struct plan_message has it; "": the tree, as it is now */
    struct change changes[VERSIONS]; /* of forks that there is a snapshot of for this */
    int next;                        /* that is to be found */
};

static void let_go(struct call *call)
{
    struct comparing *c = call->context;

    change_end(&c->changes[FROM]);
    change_end(&c->changes[TO]);
}

static void compared(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    (void)frozen_ms;
    let_go(call);
    call_json(call, 200, json_incref(answer));
}

static void compare(struct call *call)
{
    static const struct job_calls calls = {.done = compared, .failed = let_go};
    const struct comparing *c = call->context;
    bool is_from_now = !c->at[FROM][0];

    if (is_from_now && !c->at[TO][0] && strcmp(c->of[FROM].id, c->of[TO].id) != 0) {
        let_go(call);
        call_error(call, 400, "invalid_request",
                   "both are ordinary workspaces as they are now; make a snapshot of one of them");
        return;
    }
    job_start(call,
              &(struct job_wish){.of = &c->of[is_from_now ? FROM : TO],
                                 .verb = PLAN_COMPARE,
                                 .base = c->at[FROM],
                                 .theirs = c->at[TO],
                                 .job = json_object()},
              &calls);
}

static void find_next(struct call *call);

static void found(struct call *call, json_t *answer, uint64_t frozen_ms)
{
    struct comparing *c = call->context;
    const json_t *one = json_object_get(answer, "snapshot");
    const char *id = json_string_value(json_object_get(one ? one : answer, "id"));

    (void)frozen_ms;
    snprintf(c->at[c->next], VERSION_ROOM, "%s/%s", c->of[c->next].id, id ? id : "");
    c->next++;
    find_next(call);
}

static void find_next(struct call *call)
{
    static const struct job_calls calls = {.done = found, .failed = let_go};
    struct comparing *c = call->context;

    for (; c->next < VERSIONS; c->next++) {
        const struct store_workspace *of = &c->of[c->next];
        const char *word = c->words[c->next];
        bool is_now = strcmp(word, "now") == 0;
        if (*of->base && strcmp(word, "base") == 0) {
            text_copy(c->at[c->next], VERSION_ROOM, of->base);
            continue;
        }
        if (is_now && !*of->base)
            continue;
        if (is_now)
            version_take(call, &(struct version_wish){.of = of,
                                                      .why = "compare",
                                                      .change = &c->changes[c->next],
                                                      .then = found,
                                                      .failed = let_go});
        else
            job_start(call,
                      &(struct job_wish){.of = of,
                                         .verb = PLAN_SNAPSHOTS,
                                         .job = json_pack("{s:s}", "find", word)},
                      &calls);
        return;
    }
    compare(call);
}

void snapshots_compare(struct call *call)
{
    static const char *const known[] = {"from", "to", "workspace", NULL};
    struct comparing *c = arena_alloc(&call->arena, sizeof(*c));
    const char *other = NULL;

    if (!c) {
        call_error(call, 413, "too_large", "the request is too large");
        return;
    }
    c->words[TO] = "now";
    if (!fields_known(call, call->body, known) ||
        !field_text(call, call->body, "from", 64, &c->words[FROM]) ||
        !field_text(call, call->body, "to", 64, &c->words[TO]) ||
        !field_text(call, call->body, "workspace", PROTOCOL_ID, &other))
        return;
    if (!c->words[FROM]) {
        call_bad_field(call, "from",
                       "a snapshot, by its id or name, \"now\", or \"base\" of a fork");
        return;
    }
    c->of[FROM] = c->of[TO] = call->workspace;
    if ((other && !version_workspace(call, "workspace", other, &c->of[TO])) || job_refused(call))
        return;
    call->context = c;
    find_next(call);
}
