/* SPDX-License-Identifier: Apache-2.0 */
/* plan/core/state: each state with each action and each event; and that ARCHITECTURE.md says so. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "plan/core/state.h"

static const char *const actions[PLAN_ACTION_COUNT_] = {
    [PLAN_ACT_CONTINUE] = "continue", [PLAN_ACT_LOOK] = "look",       [PLAN_ACT_DECIDE] = "decide",
    [PLAN_ACT_APPLY] = "apply",       [PLAN_ACT_ENQUEUE] = "enqueue", [PLAN_ACT_CANCEL] = "cancel",
    [PLAN_ACT_UNDO] = "undo",         [PLAN_ACT_DISCARD] = "discard", [PLAN_ACT_SETTLE] = "settle",
};

static const char *const events[PLAN_EVENT_COUNT_] = {
    [PLAN_EVENT_MADE] = "made",
    [PLAN_EVENT_HELD] = "held",
    [PLAN_EVENT_APPROVED] = "approved",
    [PLAN_EVENT_REJECTED] = "rejected",
    [PLAN_EVENT_EXPIRED] = "expired",
    [PLAN_EVENT_QUEUED] = "queued",
    [PLAN_EVENT_APPLY] = "apply",
    [PLAN_EVENT_APPLIED] = "applied",
    [PLAN_EVENT_UNDO] = "undo",
    [PLAN_EVENT_UNDONE] = "undone",
    [PLAN_EVENT_NOT_UNDONE] = "not_undone",
    [PLAN_EVENT_SETTLED_CLOSED] = "settled_closed",
    [PLAN_EVENT_SETTLED_APPROVED] = "settled_approved",
    [PLAN_EVENT_SETTLED_QUEUED] = "settled_queued",
    [PLAN_EVENT_OUTDATED] = "outdated",
    [PLAN_EVENT_GIVEN_UP] = "given_up",
    [PLAN_EVENT_DISCARDED] = "discarded",
};

/* All that is allowed and can happen, and nothing else. */
static const char *const expected[PLAN_STATE_COUNT_] = {
    [PLAN_NONE] = "none: made=closed held=pending",
    [PLAN_OPEN] = "open: continue discard made=closed held=pending discarded=discarded",
    [PLAN_CLOSED] = "closed: look apply enqueue discard held=pending queued=queued apply=applying"
                    " settled_closed=closed outdated=stale discarded=discarded",
    [PLAN_PENDING] = "pending: look decide discard approved=approved rejected=rejected"
                     " expired=expired discarded=discarded",
    [PLAN_APPROVED] = "approved: look apply enqueue discard queued=queued apply=applying"
                      " settled_approved=approved outdated=stale discarded=discarded",
    [PLAN_REJECTED] = "rejected: look discard discarded=discarded",
    [PLAN_EXPIRED] = "expired: look discard discarded=discarded",
    [PLAN_QUEUED] = "queued: look apply cancel discard held=pending apply=applying"
                    " settled_closed=closed settled_approved=approved settled_queued=queued"
                    " outdated=stale given_up=failed discarded=discarded",
    [PLAN_APPLYING] = "applying: look settle applied=applied settled_closed=closed"
                      " settled_approved=approved settled_queued=queued outdated=stale"
                      " given_up=failed",
    [PLAN_APPLIED] = "applied: look undo discard undo=undoing discarded=discarded",
    [PLAN_UNDOING] = "undoing: look settle undone=undone not_undone=applied settled_closed=undone"
                     " settled_approved=undone settled_queued=undone given_up=failed",
    [PLAN_UNDONE] = "undone: look discard discarded=discarded",
    [PLAN_STALE] = "stale: look discard discarded=discarded",
    [PLAN_FAILED] = "failed: look discard discarded=discarded",
    [PLAN_DISCARDED] = "discarded:",
};

static const char *row_of(enum plan_state state)
{
    static char row[512];
    size_t n = (size_t)snprintf(row, sizeof(row), "%s:", plan_state_name(state));

    for (unsigned i = 0; i < PLAN_ACTION_COUNT_; i++) {
        if (plan_state_allows(state, (enum plan_action)i))
            n += (size_t)snprintf(row + n, sizeof(row) - n, " %s", actions[i]);
    }
    for (unsigned i = 0; i < PLAN_EVENT_COUNT_; i++) {
        enum plan_state next = plan_state_after(state, (enum plan_event)i, 0);
        if (next != PLAN_NONE)
            n += (size_t)snprintf(row + n, sizeof(row) - n, " %s=%s", events[i],
                                  plan_state_name(next));
    }
    return row;
}

TEST(each_state_allows_and_becomes_what_is_written_here)
{
    for (unsigned i = 0; i < PLAN_STATE_COUNT_; i++)
        CHECK_FOR(row_of((enum plan_state)i), strcmp(row_of((enum plan_state)i), expected[i]) == 0);
    return 0;
}

TEST(a_plan_with_operations_in_the_tree_is_applied_whatever_was_under_way)
{
    for (unsigned i = 0; i < PLAN_STATE_COUNT_; i++) {
        for (unsigned k = 0; k < PLAN_EVENT_COUNT_; k++) {
            enum plan_state none = plan_state_after((enum plan_state)i, (enum plan_event)k, 0);
            enum plan_state some = plan_state_after((enum plan_state)i, (enum plan_event)k, 7);
            CHECK_FOR(events[k], some == (none == PLAN_NONE ? PLAN_NONE : PLAN_APPLIED));
        }
    }
    return 0;
}

/* What is found "applying" or "undoing" can be settled, by whatever it was before. */
TEST(a_crash_leaves_no_state_that_cannot_be_settled)
{
    static const enum plan_event settled[] = {
        PLAN_EVENT_SETTLED_CLOSED, PLAN_EVENT_SETTLED_APPROVED, PLAN_EVENT_SETTLED_QUEUED};

    for (unsigned i = 0; i < PLAN_STATE_COUNT_; i++) {
        enum plan_state state = (enum plan_state)i;
        bool torn = state == PLAN_APPLYING || state == PLAN_UNDOING;
        CHECK_FOR(plan_state_name(state), plan_state_allows(state, PLAN_ACT_SETTLE) == torn);
        CHECK_FOR(plan_state_name(state), !torn || !plan_state_allows(state, PLAN_ACT_DISCARD));
        for (size_t k = 0; torn && k < LENGTH(settled); k++) {
            enum plan_state next = plan_state_after(state, settled[k], 0);
            CHECK(next != PLAN_NONE && !plan_state_allows(next, PLAN_ACT_SETTLE));
            CHECK(plan_state_after(state, settled[k], 1) == PLAN_APPLIED);
        }
    }
    return 0;
}

TEST(names_of_states_are_read_back_and_others_are_none)
{
    for (unsigned i = 0; i < PLAN_STATE_COUNT_; i++) {
        CHECK(plan_state_from_name(plan_state_name((enum plan_state)i)) == (enum plan_state)i);
        for (unsigned k = 0; k < i; k++)
            CHECK(strcmp(plan_state_name((enum plan_state)i),
                         plan_state_name((enum plan_state)k)) != 0);
    }
    CHECK(plan_state_from_name(NULL) == PLAN_NONE && plan_state_from_name("") == PLAN_NONE);
    CHECK(plan_state_from_name("Open") == PLAN_NONE && plan_state_from_name("opened") == PLAN_NONE);
    return 0;
}

/* The rest of the file from this heading on, with one space for each run of them and of line ends.
 */
static const char *chapter_of(const char *path)
{
    static char text[1 << 20];
    size_t n = 0;
    FILE *f = fopen(path, "re");

    for (int c; f && n < sizeof(text) - 1 && (c = fgetc(f)) != EOF;) {
        bool is_space = c == ' ' || c == '\n';
        if (!is_space || n == 0 || text[n - 1] != ' ')
            text[n++] = is_space ? ' ' : (char)c;
    }
    text[n] = '\0';
    if (f)
        fclose(f);
    return strstr(text, " ## Plan states ");
}

TEST(the_table_in_architecture_is_this_one)
{
    const char *src = getenv("SRC");
    char path[4096];
    char table[4096] = "";
    size_t n = 0;

    snprintf(path, sizeof(path), "%s/ARCHITECTURE.md", src ? src : ".");
    for (unsigned i = PLAN_OPEN; i < PLAN_STATE_COUNT_; i++)
        n += (size_t)snprintf(table + n, sizeof(table) - n, " %s", row_of((enum plan_state)i));
    const char *chapter = chapter_of(path);
    CHECK_FOR(path, chapter);
    CHECK_FOR(table, strstr(chapter, table));
    return 0;
}
