/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/links.h"

#include <string.h>

#include "front/core/planned.h"

/* A place inside, relative to /, that stays inside. */
static bool is_place(const char *path)
{
    size_t n = strlen(path);

    if (n == 0 || n > 200 || path[0] == '/' || path[n - 1] == '/' || strstr(path, "//"))
        return false;
    for (const char *at = path; at; at = strchr(at, '/')) {
        at += *at == '/';
        size_t length = strcspn(at, "/");
        if (strncmp(at, ".", length) == 0 || strncmp(at, "..", length) == 0)
            return false;
    }
    return true;
}

/* Its id may be somebody else's one day: what was linked is told by when it was made. */
static bool check_ticket(struct call *call, json_t *links, const char *ticket)
{
    struct store_workspace found;
    struct err err;

    int r = protocol_id_is_valid(ticket)
                ? store_workspace_get(call->front->store, &call->arena, ticket, &found, &err)
                : 0;
    if (r < 0) {
        call_fail(call, &err);
        return false;
    }
    if (r == 1 && !found.deleted_ms && actor_may_see(&call->actor, found.owner, ticket)) {
        json_object_set_new(links, "ticket_made", json_integer(found.created_ms));
        return true;
    }
    call_error(call, 404, "not_found", "there is no workspace '%.64s' to link to", ticket);
    return false;
}

bool links_check(struct call *call, json_t *links, const char *owner)
{
    static const char *const known[] = {"skills_user", "skills_at",   "ticket", "ticket_at",
                                        "ticket_mode", "ticket_made", "places", NULL};
    const char *skills_user = "";
    const char *skills_at = ".solven/skills";
    const char *ticket = NULL;
    const char *ticket_at = ".ticket";
    const char *mode = "ro";

    (void)json_object_del(links, "places"); /* found, never given */
    if (!fields_known(call, links, known) ||
        !field_text(call, links, "skills_user", PROTOCOL_ID, &skills_user) ||
        !field_text(call, links, "skills_at", 200, &skills_at) ||
        !field_text(call, links, "ticket", PROTOCOL_ID, &ticket) ||
        !field_text(call, links, "ticket_at", 200, &ticket_at) ||
        !field_text(call, links, "ticket_mode", 2, &mode))
        return false;
    /* Somebody's skills are theirs; only an administrator hands them to others. */
    if (*skills_user &&
        (!protocol_id_is_valid(skills_user) ||
         (strcmp(skills_user, owner) != 0 && !(call->actor.scopes & SCOPE_ADMIN)))) {
        call_bad_field(call, "links.skills_user", "the workspace's owner");
        return false;
    }
    if ((*skills_at && !is_place(skills_at)) || !is_place(ticket_at)) {
        call_bad_field(call, "links", "places inside: relative, without '.' and '..'");
        return false;
    }
    if (strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0) {
        call_bad_field(call, "links.ticket_mode", "\"ro\" or \"rw\"");
        return false;
    }
    return !ticket || check_ticket(call, links, ticket);
}

static const char *text_or(const json_t *links, const char *name, const char *fallback)
{
    const char *text = json_string_value(json_object_get(links, name));

    return text ? text : fallback;
}

bool links_read(struct arena *arena, const json_t *links, struct shared_link ret[LINK_COUNT_])
{
    const char *skills = text_or(links, "skills_at", ".solven/skills");
    const char *user = *skills ? text_or(links, "skills_user", "") : "";
    bool read = true;

    ret[LINK_SYSTEM] = (struct shared_link){
        .name = "system",
        .source = *skills ? "skills/system" : "",
        .at = *skills ? arena_printf(arena, "%s/system", skills) : "",
    };
    ret[LINK_USER] = (struct shared_link){
        .name = "user",
        .source = *user ? arena_printf(arena, "skills/%s", user) : "",
        .at = *skills ? arena_printf(arena, "%s/user", skills) : "",
    };
    ret[LINK_TICKET] = (struct shared_link){
        .name = "ticket",
        .source = arena_printf(arena, "%s", text_or(links, "ticket", "")),
        .at = arena_printf(arena, "%s", text_or(links, "ticket_at", ".ticket")),
        .writable = strcmp(text_or(links, "ticket_mode", "ro"), "rw") == 0,
    };
    for (size_t i = 0; i < LINK_COUNT_; i++) {
        const char *place = text_or(json_object_get(links, "places"), ret[i].name, "");
        ret[i].place = arena_copy(arena, place, strlen(place));
        read = read && ret[i].source && ret[i].at && ret[i].place;
    }
    return read;
}

const char *const *links_mounts(struct arena *arena, const struct shared_link links[LINK_COUNT_])
{
    const char **list = arena_alloc(arena, (3 * LINK_COUNT_ + 1) * sizeof(*list));
    size_t n = 0;

    for (size_t i = 0; list && i < LINK_COUNT_; i++) {
        const struct shared_link *link = &links[i];
        if (!*link->source)
            continue;
        list[n] = link->source;
        list[n + 1] = arena_printf(arena, "/%s", *link->place ? link->place : link->at);
        list[n + 2] = link->writable ? "rw" : "ro";
        if (!list[n + 1])
            return NULL;
        n += 3;
    }
    return list;
}

/* Through another workspace's link nobody writes to a tree that agents change by plans only. */
static bool ticket_is_there(struct call *call, struct shared_link *ticket, int64_t made)
{
    struct store_workspace found;
    struct err err;

    if (!*ticket->source)
        return true;
    int r = store_workspace_get(call->front->store, &call->arena, ticket->source, &found, &err);
    if (r < 0) {
        call_fail(call, &err);
        return false;
    }
    if (r == 1 && !found.deleted_ms && found.created_ms == made) {
        ticket->writable = ticket->writable && !planned_workspace(&found);
        return true;
    }
    call_error(call, 409, "conflict",
               "the workspace '%s' that this one links to is gone; change its links",
               ticket->source);
    return false;
}

bool links_apply(struct call *call, struct spec_message *spec)
{
    struct shared_link all[LINK_COUNT_];
    json_t *links = json_parsed(call->workspace.links);
    int64_t made = json_integer_value(json_object_get(links, "ticket_made"));
    bool read = links_read(&call->arena, links, all);

    json_decref(links);
    if (read && !ticket_is_there(call, &all[LINK_TICKET], made))
        return false;
    spec->shared = read ? links_mounts(&call->arena, all) : NULL;
    if (!spec->shared)
        call_error(call, 413, "too_large", "the request is too large");
    return spec->shared != NULL;
}
