/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/quota.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "policy/units.h"

/* A workspace whose sandbox lives, or was asked for. The broker ends one that lives with another
 * policy and makes it anew, so that both sizes count until it has said which it is. */
struct sandbox_use {
    struct sandbox_use *next;
    char workspace[FRONT_ID];
    char owner[FRONT_ID];
    bool lives;
    bool is_frozen;
    bool starts_nothing; /* all that it was asked for by so far wanted it so */
    size_t asked;        /* requests that the broker has not answered */
    uint64_t memory_bytes;
    uint64_t pids;
    uint64_t asked_memory; /* the most that those want */
    uint64_t asked_pids;
};

struct sums {
    uint64_t sandboxes;
    uint64_t memory;
    uint64_t pids;
};

static size_t slot_of(const char *name)
{
    return hash_text(name) % FRONT_SLOTS;
}

/* --- owners --- */

struct owner_use *owner_use_use(struct front *front, const char *owner)
{
    struct owner_use **slot = &front->tenants[slot_of(owner)];
    struct owner_use *t = *slot;

    while (t && strcmp(t->owner, owner) != 0)
        t = t->next;
    if (!t) {
        t = calloc(1, sizeof(*t));
        if (!t)
            return NULL;
        text_copy(t->owner, sizeof(t->owner), owner);
        t->next = *slot;
        *slot = t;
    }
    t->uses++;
    return t;
}

void owner_use_drop(struct front *front, struct owner_use *t)
{
    struct owner_use **at = &front->tenants[slot_of(t->owner)];

    if (--t->uses > 0)
        return;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

struct owner_use *owner_use_begin_chore(struct front *front, const char *owner)
{
    uint64_t most = front->settings->owner_chores;
    struct owner_use *t = owner_use_use(front, owner);

    if (t && most && t->chores >= most) {
        owner_use_drop(front, t);
        return NULL;
    }
    if (t)
        t->chores++;
    return t;
}

void owner_use_end_chore(struct front *front, struct owner_use *t)
{
    if (!t)
        return;
    t->chores--;
    owner_use_drop(front, t);
}

static const struct owner_use *find_owner_use(const struct front *front, const char *owner)
{
    const struct owner_use *t = front->tenants[slot_of(owner)];

    while (t && strcmp(t->owner, owner) != 0)
        t = t->next;
    return t;
}

/* --- sandboxes --- */

static struct sandbox_use *find(const struct front *front, const char *workspace)
{
    struct sandbox_use *a = front->awake[slot_of(workspace)];

    while (a && strcmp(a->workspace, workspace) != 0)
        a = a->next;
    return a;
}

static struct sandbox_use *find_or_make(struct front *front, const char *workspace,
                                        const char *owner)
{
    struct sandbox_use *a = find(front, workspace);
    struct sandbox_use **slot = &front->awake[slot_of(workspace)];

    if (a)
        return a;
    a = calloc(1, sizeof(*a));
    if (!a)
        return NULL;
    text_copy(a->workspace, sizeof(a->workspace), workspace);
    text_copy(a->owner, sizeof(a->owner), owner);
    a->next = *slot;
    *slot = a;
    return a;
}

static void drop_if_unused(struct front *front, struct sandbox_use *a)
{
    struct sandbox_use **at = &front->awake[slot_of(a->workspace)];

    if (a->asked == 0)
        a->asked_memory = a->asked_pids = 0;
    if (a->lives || a->asked > 0)
        return;
    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Those of one owner, or of all; not of this workspace. */
static struct sums add_up(const struct front *front, const char *owner, const char *workspace)
{
    struct sums sums = {0};

    for (size_t i = 0; i < FRONT_SLOTS; i++) {
        for (const struct sandbox_use *a = front->awake[i]; a; a = a->next) {
            if ((owner && strcmp(a->owner, owner) != 0) || strcmp(a->workspace, workspace) == 0)
                continue;
            sums.sandboxes++;
            sums.memory += larger(a->memory_bytes, a->asked_memory);
            sums.pids += larger(a->pids, a->asked_pids);
        }
    }
    return sums;
}

void quota_woke(struct front *front, const struct quota_request *made)
{
    struct sandbox_use *a = find_or_make(front, made->workspace, made->owner);

    if (!a)
        return;
    front->awake_count += !a->lives;
    a->lives = true;
    a->memory_bytes = made->memory_bytes;
    a->pids = made->pids;
}

void quota_slept(struct front *front, const char *workspace)
{
    struct sandbox_use *a = find(front, workspace);

    if (!a || !a->lives)
        return;
    front->awake_count--;
    a->lives = a->is_frozen = false;
    a->memory_bytes = a->pids = 0;
    drop_if_unused(front, a);
}

struct sandbox_use *quota_wake(struct front *front, const struct quota_request *wanted)
{
    struct sandbox_use *a = find_or_make(front, wanted->workspace, wanted->owner);

    if (!a)
        return NULL;
    a->starts_nothing = (a->starts_nothing || (!a->lives && !a->asked)) && wanted->starts_nothing;
    a->asked++;
    a->asked_memory = larger(a->asked_memory, wanted->memory_bytes);
    a->asked_pids = larger(a->asked_pids, wanted->pids);
    return a;
}

void quota_woken(struct front *front, struct sandbox_use *a)
{
    a->asked--;
    drop_if_unused(front, a);
}

bool front_is_awake(const struct front *front, const char *workspace)
{
    const struct sandbox_use *a = find(front, workspace);

    return a && a->lives;
}

void quota_froze(struct front *front, const char *workspace, bool is_frozen)
{
    struct sandbox_use *a = find(front, workspace);

    if (a && a->lives)
        a->is_frozen = is_frozen;
}

bool front_is_frozen(const struct front *front, const char *workspace)
{
    const struct sandbox_use *a = find(front, workspace);

    return a && a->lives && a->is_frozen;
}

const char *front_state(const struct front *front, const char *workspace)
{
    return front_is_frozen(front, workspace)  ? "frozen"
           : front_is_awake(front, workspace) ? "awake"
                                              : "asleep";
}

bool quota_starts_nothing(const struct front *front, const char *workspace)
{
    const struct sandbox_use *a = find(front, workspace);

    return a && a->starts_nothing;
}

/* --- commands --- */

int quota_use_begin(struct quota_use *use, struct front *front, const char *owner)
{
    *use = (struct quota_use){.front = front, .tenant = owner_use_use(front, owner)};
    if (!use->tenant)
        return -1;
    use->tenant->spools++;
    front->held++;
    return 0;
}

int quota_use_ask(struct quota_use *use, const struct quota_request *wanted)
{
    use->waking = quota_wake(use->front, wanted);
    return use->waking ? 0 : -1;
}

void quota_use_answered(struct quota_use *use)
{
    struct sandbox_use *a = use->waking;

    use->waking = NULL;
    if (a)
        quota_woken(use->front, a);
}

void quota_use_gone(struct quota_use *use)
{
    if (use->is_gone || !use->tenant)
        return;
    use->is_gone = true;
    use->tenant->spools--;
    use->front->held--;
}

void quota_use_end(struct quota_use *use)
{
    quota_use_answered(use);
    quota_use_gone(use);
    if (use->tenant)
        owner_use_drop(use->front, use->tenant);
    use->tenant = NULL;
}

/* --- the check --- */

bool quota_wants_sandbox(const struct front *front, const struct quota_request *wanted)
{
    const struct sandbox_use *a = find(front, wanted->workspace);

    return !a || larger(a->memory_bytes, a->asked_memory) != wanted->memory_bytes ||
           larger(a->pids, a->asked_pids) != wanted->pids;
}

static bool refuse(struct quota_answer *ret, enum quota_wait wait, const char *setting)
{
    ret->wait = wait;
    ret->setting = setting;
    return false;
}

struct bound {
    const char *setting;
    const char *what;
    enum units_kind kind;
    uint64_t most;
    uint64_t used;
    uint64_t wanted;
    bool must_say; /* a policy without such a limit allows any amount */
};

/* `whose`: of one owner; NULL: the host's. */
static bool fits(const struct bound *b, const char *whose, struct quota_answer *ret)
{
    char most[UNITS_TEXT];

    if (b->most == 0)
        return true;
    units_text(b->kind, b->most, most);
    if (b->must_say && b->wanted == 0) {
        snprintf(ret->why, sizeof(ret->why),
                 "%s is counted here (%s = %s), so the policy must have a limit for it", b->what,
                 b->setting, most);
        return refuse(ret, QUOTA_NEVER, b->setting);
    }
    if (b->wanted > b->most) {
        snprintf(ret->why, sizeof(ret->why), "the policy allows more %s than %s, which is %s",
                 b->what, b->setting, most);
        return refuse(ret, QUOTA_NEVER, b->setting);
    }
    if (b->used <= b->most - b->wanted)
        return true;
    snprintf(ret->why, sizeof(ret->why),
             "%s%s%s: all of the %s is taken (%s = %s); wait until a sandbox sleeps",
             whose ? "'" : "", whose ? whose : "this host", whose ? "'" : "", b->what, b->setting,
             most);
    return refuse(ret, whose ? QUOTA_OWNER : QUOTA_SANDBOX, b->setting);
}

static bool sandboxes_fit(const struct front *front, const struct quota_request *wanted,
                          const char *whose, struct quota_answer *ret)
{
    const struct settings *s = front->settings;
    bool own = whose != NULL;
    struct sums used = add_up(front, whose, wanted->workspace);
    const struct bound bounds[] = {
        {own ? "owner_sandboxes" : "max_sandboxes", "room for sandboxes", UNITS_COUNT,
         own ? s->owner_sandboxes : s->max_sandboxes, used.sandboxes, 1, false},
        {own ? "owner_memory" : "max_memory", "memory", UNITS_SIZE,
         own ? s->owner_memory : s->max_memory, used.memory, wanted->memory_bytes, true},
        {own ? "owner_pids" : "max_pids", "number of processes", UNITS_COUNT,
         own ? s->owner_pids : s->max_pids, used.pids, wanted->pids, true},
    };

    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        if (!fits(&bounds[i], whose, ret))
            return false;
    }
    return true;
}

static bool execs_fit(uint64_t used, uint64_t most, const char *whose, struct quota_answer *ret)
{
    if (most == 0 || used < most)
        return true;
    if (!whose) {
        snprintf(ret->why, sizeof(ret->why), "%ju commands run, which is the most; try again later",
                 (uintmax_t)used);
        return refuse(ret, QUOTA_EXEC, "max_execs");
    }
    snprintf(ret->why, sizeof(ret->why), "'%s' has %ju commands running, which is the quota", whose,
             (uintmax_t)used);
    return refuse(ret, QUOTA_OWNER, "owner_execs");
}

static bool output_fits(uint64_t used, uint64_t most, const char *whose, struct quota_answer *ret)
{
    char text[UNITS_TEXT];

    if (most == 0 || used < most)
        return true;
    snprintf(ret->why, sizeof(ret->why),
             "the output of running commands alone takes all that is kept%s%s%s (%s)",
             whose ? " for '" : "", whose ? whose : "", whose ? "'" : "",
             units_text(UNITS_SIZE, most, text));
    return refuse(ret, whose ? QUOTA_OWNER : QUOTA_EXEC, whose ? "owner_output" : "max_output");
}

void quota_check(const struct front *front, const struct quota_request *wanted,
                 struct quota_answer *ret)
{
    const struct settings *s = front->settings;
    const struct owner_use *t = find_owner_use(front, wanted->owner);
    bool sandbox = quota_wants_sandbox(front, wanted);

    *ret = (struct quota_answer){.wait = QUOTA_NOTHING};
    (void)(execs_fit(t ? t->spools : 0, s->owner_execs, wanted->owner, ret) &&
           output_fits(t ? t->output_running : 0, s->owner_output, wanted->owner, ret) &&
           (!sandbox || sandboxes_fit(front, wanted, wanted->owner, ret)) &&
           execs_fit(front->held, s->max_execs, NULL, ret) &&
           output_fits(front->output_running, s->max_output, NULL, ret) &&
           (!sandbox || sandboxes_fit(front, wanted, NULL, ret)));
}

void quota_check_sandbox(const struct front *front, const struct quota_request *wanted,
                         struct quota_answer *ret)
{
    *ret = (struct quota_answer){.wait = QUOTA_NOTHING};
    if (quota_wants_sandbox(front, wanted))
        (void)(sandboxes_fit(front, wanted, wanted->owner, ret) &&
               sandboxes_fit(front, wanted, NULL, ret));
}
