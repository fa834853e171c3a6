/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "front/code/code.h"

static bool is_of(const struct code_context *c, const struct call *call)
{
    return !c->removed && strcmp(c->workspace, call->workspace.id) == 0 &&
           strcmp(c->owner, call->workspace.owner) == 0 &&
           c->created_ms == call->workspace.created_ms;
}

struct code_context *code_find(struct call *call, const char *id)
{
    for (struct code_context *c = call->front->contexts; c; c = c->next) {
        if (is_of(c, call) && strcmp(c->id, id) == 0)
            return c;
    }
    return NULL;
}

static bool is_idle(const struct code_context *c)
{
    return !c->inner && !c->input && !c->ending && !c->first && !c->state && !c->busy;
}

void code_settle(struct code_context *context)
{
    if (!context->removed || !is_idle(context))
        return;
    for (struct code_context **at = &context->front->contexts; *at; at = &(*at)->next) {
        if (*at != context)
            continue;
        *at = context->next;
        break;
    }
    timer_stop(context->front->events, &context->patience);
    buf_clear(&context->line);
    json_decref(context->env);
    free(context->message);
    free(context);
}

/* Of all without a kernel the oldest goes: its workspace may be long gone. */
static bool make_room(struct front *front)
{
    struct code_context *oldest = NULL;
    size_t n = 0;

    for (struct code_context *c = front->contexts; c; c = c->next) {
        n++;
        oldest = is_idle(c) ? c : oldest; /* the newest come first */
    }
    if (n < CODE_ALL)
        return true;
    if (!oldest)
        return false;
    oldest->removed = true;
    code_settle(oldest);
    return true;
}

struct code_context *code_make(struct call *call, const struct code_place *place)
{
    struct code_context *c = NULL;
    size_t n = 0;

    for (const struct code_context *other = call->front->contexts; other; other = other->next)
        n += is_of(other, call);
    if (n >= CODE_CONTEXTS || !make_room(call->front)) {
        call_error(call, 429, "too_many", "a workspace has at most %d contexts; delete one",
                   CODE_CONTEXTS);
        return NULL;
    }
    if (*place->cwd != '/' || strlen(place->cwd) >= sizeof(c->cwd)) {
        call_bad_field(call, "cwd", "an absolute path");
        return NULL;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    c->front = call->front;
    c->language = place->language;
    c->env = json_incref((json_t *)(uintptr_t)place->env);
    c->created_ms = call->workspace.created_ms;
    make_id('c', c->id);
    snprintf(c->workspace, sizeof(c->workspace), "%s", call->workspace.id);
    snprintf(c->owner, sizeof(c->owner), "%s", call->workspace.owner);
    snprintf(c->cwd, sizeof(c->cwd), "%s", place->cwd);
    buf_init(&c->line, CODE_LINE);
    c->next = call->front->contexts;
    call->front->contexts = c;
    return c;
}

struct code_context *code_default(struct call *call, const struct code_place *place)
{
    for (struct code_context *c = call->front->contexts; c; c = c->next) {
        if (is_of(c, call) && c->is_default && c->language == place->language)
            return c;
    }
    struct code_context *c = code_make(call, place);
    if (c)
        c->is_default = true;
    return c;
}

json_t *code_context_json(const struct code_context *c)
{
    return json_pack("{s:s, s:s, s:s}", "id", c->id, "language", code_program(c->language)->name,
                     "cwd", c->cwd);
}

json_t *code_list(struct call *call)
{
    json_t *list = json_array();

    for (const struct code_context *c = call->front->contexts; c; c = c->next) {
        if (is_of(c, call))
            json_array_insert_new(list, 0, code_context_json(c));
    }
    return list;
}

void code_remove(struct code_context *context)
{
    context->removed = true;
    context->busy++;
    kernel_end(context, "the context was deleted");
    context->busy--;
    code_settle(context);
}
