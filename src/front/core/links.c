/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/links.h"

#include <string.h>

#include "base/pack.h"
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

static const char *text_of(struct call *call, const json_t *links, const char *name,
                           const char *fallback)
{
    const char *text = text_or(links, name, fallback);

    return arena_copy(&call->arena, text, strlen(text));
}

void links_look(struct call *call, const char *bucket, const char *workspace, const json_t *links,
                call_heard *heard)
{
    struct plain_message m = {.texts = {bucket, workspace,
                                        text_or(links, "skills_at", ".solven/skills"),
                                        text_or(links, "ticket_at", ".ticket")}};
    struct buf message;

    buf_init(&message, 4096);
    protocol_pack_plain(&message, call_expect(call, heard), &m);
    link_send(call->front->link, REQUEST_TREE_LINKS, &message);
}

bool links_heard(struct answer *answer, struct links_found ret[LINK_COUNT_], struct err *err)
{
    struct unpack u = {.at = answer->bytes, .end = answer->bytes + answer->n};
    struct arena arena;
    size_t n = 0;

    if (answer_check(answer, err) < 0)
        return false;
    arena_init(&arena, 4096);
    (void)unpack_u64(&u); /* the tag */
    const char **texts = unpack_list(&u, &arena, (size_t)3 * LINK_COUNT_);
    for (; texts && texts[n] && texts[n + 1] && texts[n + 2] && n < (size_t)3 * LINK_COUNT_; n += 3)
        ret[n / 3] = (struct links_found){texts[n], texts[n + 1], texts[n + 2]};
    arena_clear(&arena);
    if (n == (size_t)3 * LINK_COUNT_)
        return true;
    err_set(err, ERR_IO, 0, "the broker's answer cannot be read");
    return false;
}

/* "skills/NAME" for the NAME that the links give. */
static bool is_given(const char *names, const char *kind, const char *name)
{
    size_t n = strlen(kind);

    return *name && strncmp(names, kind, n) == 0 && strcmp(names + n, name) == 0;
}

/* Whether one of two places is, or lies in, the other: one mount would hide the other. */
static bool overlap(const char *a, const char *b)
{
    size_t n = strlen(a) < strlen(b) ? strlen(a) : strlen(b);

    return strncmp(a, b, n) == 0 && (a[n] == '/' || a[n] == '\0') && (b[n] == '/' || b[n] == '\0');
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

void links_place(json_t *links, const struct links_found found[LINK_COUNT_])
{
    const struct {
        const char *name;
        const char *kind;
        const char *given;
    } rows[LINK_COUNT_] = {
        [LINK_SYSTEM] = {"system", "skills/", "system"},
        [LINK_USER] = {"user", "skills/", text_or(links, "skills_user", "")},
        [LINK_TICKET] = {"ticket", "threads/", text_or(links, "ticket", "")},
    };

    json_t *places = json_object();

    for (size_t i = 0; i < LINK_COUNT_; i++) {
        if (*found[i].place && is_given(found[i].names, rows[i].kind, rows[i].given) &&
            !is_taken(places, found[i].place))
            json_object_set_new(places, rows[i].name, json_string(found[i].place));
    }
    if (json_object_size(places) > 0)
        json_object_set(links, "places", places);
    else
        (void)json_object_del(links, "places");
    json_decref(places);
}

/* Through another workspace's link nobody writes to a tree that agents change by plans only. */
static bool ticket_is_there(struct call *call, struct boundary_message *boundary, int64_t made)
{
    const char *ticket = boundary->ticket;
    struct store_workspace found;
    struct err err;

    if (!*ticket)
        return true;
    int r = store_workspace_get(call->front->store, &call->arena, ticket, &found, &err);
    if (r < 0) {
        call_fail(call, &err);
        return false;
    }
    if (r == 1 && !found.deleted_ms && found.created_ms == made) {
        boundary->ticket_writable = boundary->ticket_writable && !planned_workspace(&found);
        return true;
    }
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
    json_t *places = json_object_get(links, "places");
    boundary->places[LINK_SYSTEM] = text_of(call, places, "system", "");
    boundary->places[LINK_USER] = text_of(call, places, "user", "");
    boundary->places[LINK_TICKET] = text_of(call, places, "ticket", "");
    json_decref(links);
    return ticket_is_there(call, boundary, made);
}
