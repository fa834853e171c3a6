/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/find_links.h"

#include <stdio.h>
#include <string.h>

#include "base/names.h"

/* Whether one of two places is, or lies in, the other: one mount would hide the other. */
static bool overlap(const char *a, const char *b)
{
    size_t n = strlen(a) < strlen(b) ? strlen(a) : strlen(b);

    return strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0') && (b[n] == '/' || b[n] == '\0');
}

/* Where something fresh is mounted that holds nothing of the workspace's. */
static bool is_fresh(const char *place)
{
    return strncmp(place, "tmp/", 4) == 0 || strncmp(place, ".cache/", 7) == 0;
}

static const char *reserved_name(const char *place)
{
    static const char *const names[] = {CARREL_SYSTEM_NAMES, CARREL_OWN_NAMES};

    for (size_t i = 0; !is_fresh(place) && i < sizeof(names) / sizeof(names[0]); i++) {
        if (overlap(place, names[i]))
            return names[i];
    }
    return NULL;
}

/* By its text, as if no file were there. */
static void judge(const struct call *call, const struct links_look *look, const char *target,
                  struct link_found *ret)
{
    const char *const states[] = {call->front->settings->state, call->front->state_named};
    const char *at = look->links[look->at].at;
    char bucket[sizeof(call->front->state_named) + PROTOCOL_ID + 2];
    bool known = false;

    for (size_t i = 0; !known && i < sizeof(states) / sizeof(states[0]); i++) {
        snprintf(bucket, sizeof(bucket), "%s/%s", states[i], look->bucket);
        known = oldlink_read(bucket, look->workspace, at, target, &ret->old);
    }
    const char *reserved = known ? reserved_name(ret->old.place) : NULL;
    if (!known)
        snprintf(ret->why, sizeof(ret->why), "it leads to no skills or thread of this bucket");
    else if (reserved)
        snprintf(ret->why, sizeof(ret->why), "it leads into /%s, which Carrel provides itself",
                 reserved);
    else if (strlen(ret->old.place) > PROTOCOL_TEXT)
        snprintf(ret->why, sizeof(ret->why), "the path it leads to is too long");
}

static void look_next(struct call *call);

static void end_one(struct call *call)
{
    struct link_found *found = &call->looking->found[call->looking->at++];

    if (*found->why)
        *found->old.place = '\0';
    look_next(call);
}

/* False: it is over, and was said. */
static bool hear(struct call *call, struct answer *answer, struct plain_message *ret)
{
    struct err err;
    uint64_t tag;

    if (answer_check(answer, &err) == 0) {
        if (protocol_unpack_plain(answer->bytes, answer->n, &tag, ret))
            return true;
        err_set(&err, ERR_IO, 0, "the broker's answer cannot be read");
    }
    call->looking->done(call, &err);
    return false;
}

/* A mount there must hide nothing of the workspace's. */
static void heard_place(struct call *call, struct answer *answer)
{
    struct link_found *found = &call->looking->found[call->looking->at];
    struct plain_message m;

    if (!hear(call, answer, &m))
        return;
    if (m.number != TREE_ENTRY_NONE && m.number != TREE_ENTRY_EMPTY)
        snprintf(found->why, sizeof(found->why),
                 "it leads to what the workspace itself has inside");
    end_one(call);
}

static void heard_link(struct call *call, struct answer *answer)
{
    struct links_look *look = call->looking;
    struct link_found *found = &look->found[look->at];
    struct plain_message m;

    if (!hear(call, answer, &m))
        return;
    if (m.number == TREE_ENTRY_CLOSED)
        snprintf(found->why, sizeof(found->why),
                 "what lies on the way to it is not a directory that can be entered");
    else if (m.number == TREE_ENTRY_OTHER)
        snprintf(found->why, sizeof(found->why), "it is neither a directory nor a link to one");
    else if (m.number == TREE_ENTRY_LINK)
        judge(call, look, m.texts[0], found);
    if (*found->old.place && !*found->why && !is_fresh(found->old.place))
        call_ask(call, REQUEST_TREE_LOOK, look->bucket, look->workspace, found->old.place,
                 heard_place);
    else
        end_one(call);
}

static void look_next(struct call *call)
{
    struct links_look *look = call->looking;

    while (look->at < LINK_COUNT_ && !*look->links[look->at].at)
        look->at++;
    if (look->at == LINK_COUNT_)
        look->done(call, NULL);
    else
        call_ask(call, REQUEST_TREE_LOOK, look->bucket, look->workspace, look->links[look->at].at,
                 heard_link);
}

void links_look(struct call *call, struct links_look *look)
{
    call->looking = look;
    look->at = 0;
    memset(look->found, 0, sizeof(look->found));
    look_next(call);
}

static bool is_taken(json_t *places, const char *place)
{
    const char *name;
    json_t *taken;

    json_object_foreach(places, name, taken)
    {
        if (overlap(json_string_value(taken), place))
            return true;
    }
    return false;
}

/* "skills/NAME" and "threads/NAME" for what is mounted as "skills/NAME" and NAME. */
static bool is_given(const char *names, const char *source)
{
    return *source && strcmp(strncmp(names, "threads/", 8) == 0 ? names + 8 : names, source) == 0;
}

void links_place(json_t *links, const struct link_found found[LINK_COUNT_])
{
    struct shared_link given[LINK_COUNT_];
    json_t *places = json_object();
    struct arena arena;

    arena_init(&arena, 64UL << 10);
    bool read = links_read(&arena, links, given);
    for (size_t i = 0; read && i < LINK_COUNT_; i++) {
        const char *place = found[i].old.place;
        if (*place && is_given(found[i].old.names, given[i].source) && !is_taken(places, place))
            json_object_set_new(places, given[i].name, json_string(place));
    }
    arena_clear(&arena);
    if (json_object_size(places) > 0)
        json_object_set(links, "places", places);
    else
        (void)json_object_del(links, "places");
    json_decref(places);
}
