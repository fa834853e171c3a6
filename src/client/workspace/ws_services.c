/* SPDX-License-Identifier: Apache-2.0 */
/* carrel ws services: the commands by actors "service.NAME" that run (template_start.h), and what
 * each says of itself inside. That is the workspace's own word, and nothing is decided by it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/table.h"
#include "client/core/text.h"
#include "client/workspace/ws.h"

#define ACTOR "service."

enum {
    ASK_MS = 10000,
};

static const char look[] = "cd /tmp/.carrel-services && grep -H '' *";

/* A number that ends where a word does; false: it is none. */
static bool take_number(const char **at, json_int_t *ret)
{
    char *end;
    unsigned long number = strtoul(*at, &end, 10);

    if (**at < '0' || **at > '9' || number > UINT32_MAX || (*end && *end != ' ' && *end != '\n'))
        return false;
    *ret = (json_int_t)number;
    *at = *end == ' ' ? end + 1 : end;
    return true;
}

/* "STATE ENDS PORT", or "STATE ENDS -". */
static void add_state(json_t *service, const char *said)
{
    static const char *const states[] = {"starting", "ready", "waiting", "stopped"};
    size_t n = strcspn(said, " \n");
    json_int_t number;

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (strlen(states[i]) == n && memcmp(states[i], said, n) == 0)
            json_object_set_new(service, "state", json_string(states[i]));
    }
    said += n + (said[n] == ' ');
    if (take_number(&said, &number))
        json_object_set_new(service, "ends", json_integer(number));
    if (take_number(&said, &number))
        json_object_set_new(service, "port", json_integer(number));
}

/* "NAME:" and the state of each, in its lines. */
static void add_said(json_t *service, const char *name, const char *said)
{
    size_t n = strlen(name);

    for (const char *line = said; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            add_state(service, line + n + 1);
    }
}

/* What a sandbox that is awake says; NULL: nothing. The caller drops it. */
static json_t *ask_inside(struct daemon *daemon, const char *workspace)
{
    json_t *answer = NULL;
    struct buf path;
    struct err err;

    client_workspace_path(&path, workspace, "/exec");
    json_t *body = json_pack("{s:s, s:i}", "command", look, "timeout_ms", ASK_MS);
    return client_do(daemon, "POST", &path, body, &answer, &err) < 0 ? NULL : answer;
}

static json_t *services_of(struct daemon *daemon, const char *workspace, json_t *execs)
{
    json_t *services = json_array();
    json_t *inside = NULL;
    json_t *exec;
    size_t i;

    json_array_foreach(execs, i, exec)
    {
        const char *actor = client_text(exec, "actor");
        if (!actor || strncmp(actor, ACTOR, strlen(ACTOR)) != 0)
            continue;
        if (!inside)
            inside = ask_inside(daemon, workspace);
        const char *name = actor + strlen(ACTOR);
        json_t *service = json_pack("{s:s, s:s, s:O, s:O}", "name", name, "state", "starting",
                                    "exec_id", json_object_get(exec, "exec_id"), "command",
                                    json_object_get(exec, "command"));
        add_said(service, name, client_text(inside, "stdout"));
        json_array_append_new(services, service);
    }
    json_decref(inside);
    return services;
}

static void add_row(struct table *table, const json_t *service)
{
    struct buf command;
    char ends[TEXT_SHORT];
    char port[TEXT_SHORT];

    buf_init(&command, 1 << 16);
    client_command(service, &command);
    const char *cells[] = {
        client_text(service, "name"),         client_text(service, "state"),
        client_number(service, "port", port), client_number(service, "ends", ends),
        client_text(service, "exec_id"),      buf_done(&command) == 0 ? command.p : "..."};
    table_add(table, cells);
    buf_clear(&command);
}

int ws_services(struct daemon *daemon, const struct ws_options *o, const char *const *words,
                struct err *err)
{
    static const char *const heads[] = {"NAME", "STATE", "PORT", "ENDS", "EXEC", "COMMAND", NULL};
    json_t *execs = NULL;
    struct buf path;

    client_workspace_path(&path, words[1], "/exec?state=running");
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the workspace's name is too long")
                                : daemon_list(daemon, path.p, "execs", &execs, err);
    buf_clear(&path);
    if (r < 0)
        return client_fail(err);
    json_t *services = services_of(daemon, words[1], execs);
    json_decref(execs);
    return client_table(json_pack("{s:o}", "services", services), "services", heads, add_row,
                        o->common.json);
}
