/* SPDX-License-Identifier: Apache-2.0 */
#include "api/links.h"

#include <string.h>

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
    if (r == 1 && !found.deleted_ms && actor_may_see(&call->actor, found.owner)) {
        json_object_set_new(links, "ticket_made", json_integer(found.created_ms));
        return true;
    }
    call_error(call, 404, "not_found", "there is no workspace '%.64s' to link to", ticket);
    return false;
}

bool links_check(struct call *call, json_t *links, const char *owner)
{
    static const char *const known[] = {"skills_user", "skills_at",   "ticket", "ticket_at",
                                        "ticket_mode", "ticket_made", NULL};
    const char *skills_user = "";
    const char *skills_at = ".solven/skills";
    const char *ticket = NULL;
    const char *ticket_at = ".ticket";
    const char *mode = "ro";

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

static const char *text_of(struct call *call, const json_t *links, const char *name,
                           const char *fallback)
{
    const char *text = json_string_value(json_object_get(links, name));

    return arena_copy(&call->arena, text ? text : fallback, strlen(text ? text : fallback));
}

static bool ticket_is_there(struct call *call, const char *ticket, int64_t made)
{
    struct store_workspace found;
    struct err err;

    if (!*ticket)
        return true;
    int r = store_workspace_get(call->front->store, &call->arena, ticket, &found, &err);
    if (r < 0) {
        call_fail(call, &err);
        return false;
    }
    if (r == 1 && !found.deleted_ms && found.created_ms == made)
        return true;
    call_error(call, 409, "conflict",
               "the workspace '%s' that this one links to is gone; change its links", ticket);
    return false;
}

bool links_apply(struct call *call, struct boundary_message *boundary)
{
    json_t *links = json_loads(call->workspace.links, 0, NULL);
    int64_t made = json_integer_value(json_object_get(links, "ticket_made"));

    boundary->skills_user = text_of(call, links, "skills_user", "");
    boundary->skills_at = text_of(call, links, "skills_at", ".solven/skills");
    boundary->ticket = text_of(call, links, "ticket", "");
    boundary->ticket_at = text_of(call, links, "ticket_at", ".ticket");
    boundary->ticket_writable = strcmp(text_of(call, links, "ticket_mode", "ro"), "rw") == 0;
    json_decref(links);
    return ticket_is_there(call, boundary->ticket, made);
}
