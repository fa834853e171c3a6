/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/template_start.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "front/core/router.h"
#include "front/exec/start.h"
#include "protocol/broker.h"

enum {
    LONGEST_LINE = 4096,
    LONGEST_NAME = 32,
    MOST_SERVICES = 16,
};

/* service.sh as it is in the repository; NUL ends it. */
__asm__(".section .rodata\n"
        ".global service_script\n"
        "service_script:\n"
        ".incbin \"src/front/workspaces/service.sh\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char service_script[];

/* --- what may be said --- */

static bool check_service(struct call *call, const char *name, json_t *service)
{
    static const char *const known[] = {"run", "port", NULL};
    const char *line = NULL;
    uint64_t port = 0;

    if (strlen(name) > LONGEST_NAME || !protocol_id_is_valid(name)) {
        call_bad_field(call, "spec.services",
                       "an object; names are 1 to 32 of letters, digits, '.', '_' and '-', a "
                       "letter or digit first");
        return false;
    }
    if (!json_is_object(service)) {
        call_bad_field(call, "spec.services", "an object of objects with run, and perhaps port");
        return false;
    }
    if (!fields_known(call, service, known) ||
        !field_text(call, service, "run", LONGEST_LINE, &line) ||
        !field_number(call, service, "port", 1, 65535, &port))
        return false;
    if (!line || !*line)
        call_bad_field(call, "spec.services.run", "a line for the shell");
    return line && *line;
}

bool template_start_check(struct call *call, json_t *spec)
{
    const char *line = NULL;
    json_t *services = NULL;
    const char *name;
    json_t *service;

    if (!field_text(call, spec, "start", LONGEST_LINE, &line) ||
        !field_object(call, spec, "services", &services))
        return false;
    if (json_object_size(services) > MOST_SERVICES) {
        call_bad_field(call, "spec.services", "at most 16");
        return false;
    }
    json_object_foreach(services, name, service)
    {
        if (!check_service(call, name, service))
            return false;
    }
    return true;
}

/* --- what is started --- */

/* What it says; NULL: the workspace is on none. The caller drops it. */
static json_t *spec_of(struct front *front, struct arena *arena, const char *id)
{
    struct store_template t;
    struct err err;

    return *id && store_template_get(front->store, arena, id, &t, &err) == 1 ? json_parsed(t.spec)
                                                                             : NULL;
}

static const char *line_in(const json_t *object, const char *key)
{
    const char *line = json_string_value(json_object_get(object, key));

    return line && *line ? line : NULL;
}

bool template_starts(struct call *call, const char *id)
{
    json_t *spec = spec_of(call->front, &call->arena, id);
    bool starts = line_in(spec, "start") || json_object_size(json_object_get(spec, "services")) > 0;

    json_decref(spec);
    return starts;
}

/* A call that has no client, in that workspace; or NULL. */
static struct call *call_in(struct front *front, const char *workspace, const char *actor)
{
    struct call *call = calloc(1, sizeof(*call));
    struct err err;

    if (!call)
        return NULL;
    call->front = front;
    arena_init(&call->arena, 16UL << 20);
    make_id('r', call->id);
    text_copy(call->actor.name, sizeof(call->actor.name), actor);
    if (store_workspace_get(front->store, &call->arena, workspace, &call->workspace, &err) == 1)
        return call;
    router_free(call);
    return NULL;
}

/* Program and line are in its environment: who ends processes by their words ends what the line
 * has started, and not who starts it again. */
static void start_service(struct front *front, const char *workspace, const char *name,
                          const json_t *service)
{
    json_int_t port = json_integer_value(json_object_get(service, "port"));
    const char *line = line_in(service, "run");
    char actor[LONGEST_NAME + 16];

    snprintf(actor, sizeof(actor), "service.%.32s", name);
    struct call *call = line ? call_in(front, workspace, actor) : NULL;
    if (!call)
        return;
    struct arena *a = &call->arena;
    struct exec_background *what = arena_alloc(a, sizeof(*what));
    const char **argv = arena_alloc(a, 7 * sizeof(*argv));
    const char **env = arena_alloc(a, 3 * sizeof(*env));
    if (!what || !argv || !env) {
        router_free(call);
        return;
    }
    argv[0] = "bash";
    argv[1] = "-c";
    argv[2] = "eval \"$CARREL_SERVICE\"";
    argv[3] = "service";
    argv[4] = arena_copy(a, name, strlen(name));
    argv[5] = port ? arena_printf(a, "%" JSON_INTEGER_FORMAT, port) : "";
    env[0] = arena_printf(a, "CARREL_SERVICE=%s", service_script);
    env[1] = arena_printf(a, "CARREL_SERVICE_LINE=%s", line);
    *what = (struct exec_background){
        .argv = argv, .env = env, .shown = arena_copy(a, line, strlen(line))};
    if (argv[4] && argv[5] && env[0] && env[1] && what->shown)
        execs_background(call, what);
    else
        router_free(call);
}

static void start_line(struct front *front, const char *workspace, const char *line)
{
    struct call *call = line ? call_in(front, workspace, "template") : NULL;

    if (!call)
        return;
    struct exec_background *what = arena_alloc(&call->arena, sizeof(*what));
    const char **argv = arena_alloc(&call->arena, 4 * sizeof(*argv));
    const char *copy = arena_copy(&call->arena, line, strlen(line));
    if (!what || !argv || !copy) {
        router_free(call);
        return;
    }
    argv[0] = "bash";
    argv[1] = "-c";
    argv[2] = copy;
    *what = (struct exec_background){.argv = argv, .shown = copy};
    execs_background(call, what);
}

void template_start(struct front *front, const char *workspace)
{
    struct store_workspace w;
    struct arena arena;
    struct err err;
    const char *name;
    json_t *service;
    json_t *spec = NULL;

    arena_init(&arena, 16UL << 20);
    if (store_workspace_get(front->store, &arena, workspace, &w, &err) == 1)
        spec = spec_of(front, &arena, w.template);
    start_line(front, workspace, line_in(spec, "start"));
    json_object_foreach(json_object_get(spec, "services"), name, service)
    {
        start_service(front, workspace, name, service);
    }
    json_decref(spec);
    arena_clear(&arena);
}
