/* SPDX-License-Identifier: Apache-2.0 */
/* carrel plan run: a command whose changes become a plan. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/programs.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/plan/plan.h"
#include "client/plan/plan_tree.h"

enum {
    FIXED_WORDS = 24 /* of the command line of `carrel run`, beside variables and command */
};

/* On standard error: the output is the command's. */
static void tell(const struct plan_options *o, const json_t *plan)
{
    const struct plan_address place = {.workspace = o->exec.workspace};
    const char *id = client_text(plan, "id");
    const char *hash = client_text(plan, "hash");
    uint64_t copied = (uint64_t)json_integer_value(json_object_get(plan, "copied_bytes"));
    char size[TEXT_SHORT];
    struct buf text;

    if (!id) {
        cli_say("the daemon returned no plan; it may be older than this command");
        return;
    }
    buf_init(&text, 65536);
    buf_printf(&text, "plan %s: ", id);
    changes_print_number(&text, (uint64_t)json_integer_value(json_object_get(plan, "operations")));
    buf_str(&text, " changes, none made yet");
    if (copied > 0)
        buf_printf(&text, "; %s were copied", text_bytes(copied, size));
    if (hash && *hash)
        buf_printf(&text, "; hash %s", hash);
    buf_str(&text, "; see: carrel plan show ");
    plan_print_where(&text, &place, id);
    cli_say(buf_done(&text) == 0 ? text.p : id);
    buf_clear(&text);
}

static int run_remote(const struct plan_options *o, struct err *err)
{
    struct daemon daemon = {0};
    json_t *request = NULL;
    json_t *end = NULL;

    if (exec_prepare(&o->exec, &daemon, &request, err) < 0)
        return client_fail(err);
    json_object_set_new(request, "mode", json_string("plan"));
    if (o->plan)
        json_object_set_new(request, "plan", json_string(o->plan));
    if (o->keep_open)
        json_object_set_new(request, "keep_open", json_true());
    int status = o->common.json ? exec_ask(&o->exec, &daemon, request, err)
                                : exec_stream(&o->exec, &daemon, request, &end, err);
    if (end)
        tell(o, json_object_get(end, "plan"));
    json_decref(end);
    daemon_close(&daemon);
    return status;
}

/* The command line of `carrel run`, which makes plans of plain directories. */
static int run_local(const struct plan_options *o, struct err *err)
{
    static const char *argv[2 * ARGS_LIST + FIXED_WORDS + 4096];

    const struct {
        const char *option;
        const char *value;
    } settings[] = {
        {"--workspace", o->dir},        {"--plan-id", o->plan},   {"--cwd", o->exec.cwd},
        {"--timeout", o->exec.timeout}, {"--user", o->exec.user}, {"--stdin", o->exec.stdin_path},
        {"-c", o->exec.line},
    };

    size_t n = 0;
    char path[4096];

    argv[n++] = "carrel";
    argv[n++] = "run";
    argv[n++] = "--plan";
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        if (settings[i].value) {
            argv[n++] = settings[i].option;
            argv[n++] = settings[i].value;
        }
    }
    for (size_t i = 0; i < o->exec.env.count; i++) {
        argv[n++] = "--env";
        argv[n++] = o->exec.env.items[i];
    }
    if (o->keep_open)
        argv[n++] = "--keep-open";
    if (o->common.json)
        argv[n++] = "--json";
    if (!o->exec.line)
        argv[n++] = "--";
    for (size_t i = 0; !o->exec.line && o->exec.argv[i]; i++) {
        if (n + 1 >= sizeof(argv) / sizeof(argv[0]))
            return cli_fail("the command has too many words; put it into a script");
        argv[n++] = o->exec.argv[i];
    }
    argv[n] = NULL;
    if (program_find("carrel", path, sizeof(path)) ||
        program_find("../../bin/carrel", path, sizeof(path)))
        execv(path, (char *const *)(uintptr_t)argv);
    err_set(err, ERR_NOT_FOUND, errno, "the program carrel cannot be found or executed");
    return client_fail(err);
}

int plan_run(const struct plan_options *o, struct err *err)
{
    return o->dir ? run_local(o, err) : run_remote(o, err);
}
