/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "plan/local/files.h"
#include "plan/local/recover.h"
#include "plan/local/tool.h"

enum {
    SHOWN_MAX = 2 * PATH_MAX,
};

/* --- the run --- */

static int name_all(struct cli_plan *plan, const char *id, struct err *err)
{
    const char *dir = plan->run->spec.workspace ? plan->run->spec.workspace : ".";

    if (plan_name_home(dir, plan->dir, plan->plans, err) < 0)
        return -1;
    int n = snprintf(plan->path, sizeof(plan->path), "%s/%s", plan->plans, id);
    if (n < 0 || (size_t)n >= sizeof(plan->path))
        return err_set(err, ERR_INVALID, ENAMETOOLONG, "a plan beside '%.200s'", plan->dir);
    plan->id = plan->path + strlen(plan->plans) + 1;
    return 0;
}

/* Words of a command are any bytes; what is no text is shown as such. */
static json_t *words(char *const *argv)
{
    json_t *list = json_array();

    for (size_t i = 0; argv[i]; i++) {
        json_t *word = json_string(argv[i]);
        json_array_append_new(list, word ? word : json_string("?"));
    }
    return list;
}

/* From before the run until its changes are derived the plan is locked: nobody else goes on with it
 * meanwhile. */
static int continue_plan(struct cli_plan *plan, int plans, struct err *err)
{
    plan->place = plan_open_place(plans, plan->id);
    if (plan->place < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "'%.200s' has no plan '%.64s'", plan->dir,
                       plan->id);
    plan->lock = plan_lock(plan->place, plan->id, err);
    if (plan->lock < 0)
        return -1;
    plan->state = plan_read_state(plan->place);
    enum plan_state state = plan_state_of(plan->state);
    if (!plan_state_allows(state, PLAN_ACT_CONTINUE))
        return err_set(err, ERR_CONFLICT, 0,
                       "plan '%.64s' is not open (%.32s), so no command can add to it; leave "
                       "--plan-id out to begin a new plan",
                       plan->id, state == PLAN_NONE ? "it has no state" : plan_state_name(state));
    return 0;
}

/* Its state is written first: what is broken off must not lie there unknown. */
static int make_plan(struct cli_plan *plan, int plans, struct err *err)
{
    plan->place = plan_make_place(plans, plan->id, err);
    if (plan->place < 0)
        return -1;
    plan->made = true;
    plan->lock = plan_lock(plan->place, plan->id, err);
    if (plan->lock < 0)
        return -1;
    plan->state =
        json_pack("{s:s, s:s, s:s, s:o, s:o}", "id", plan->id, "state", plan_state_name(PLAN_OPEN),
                  "origin", "run", "created", plan_time_now(), "argv", words(plan->run->spec.argv));
    return plan_own(plan->tree, plan->place, err) < 0
               ? -1
               : plan_write_state(plan->place, plan->state, err);
}

int cli_plan_begin(struct cli_plan *plan, struct run_options *options, struct err *err)
{
    char id[PLAN_ID_SIZE];

    *plan = (struct cli_plan){.tree = -1, .place = -1, .lock = -1, .run = options};
    if (options->plan_id && !plan_is_id(options->plan_id))
        return err_set(err, ERR_INVALID, 0, "--plan-id '%.64s' is no plan's name",
                       options->plan_id);
    if (!options->plan_id && plan_make_id(id, err) < 0)
        return -1;
    if (name_all(plan, options->plan_id ? options->plan_id : id, err) < 0)
        return -1;
    options->spec.plan = plan->path;
    if (options->explain)
        return 0;
    plan->tree = open(plan->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (plan->tree < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "workspace '%.200s'", plan->dir);
    scoped_fd int plans = -1;
    if (plan_make_home(plan->plans, &plan->made_plans, &plans, err) < 0 ||
        plans_make_whole(plan->tree, plans, err) < 0)
        return -1;
    return options->plan_id ? continue_plan(plan, plans, err) : make_plan(plan, plans, err);
}

static int derive(const struct cli_plan *plan, bool privileged, json_t **ret, struct err *err)
{
    char job[96];

    snprintf(job, sizeof(job), "{\"mode\":\"%s\",\"privileged\":%s}",
             plan->run->keep_open ? "look" : "close", privileged ? "true" : "false");
    return plan_tool_answer(plan->tree, plan->place, "derive", job, ret, err);
}

static void copy_members(json_t *to, const json_t *from, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        json_t *value = json_object_get(from, names[i]);
        if (value)
            json_object_set(to, names[i], value);
    }
}

int cli_plan_end(struct cli_plan *plan, const struct carrel_result *result, json_t **ret,
                 struct err *err)
{
    static const char *const kept[] = {"hash", "operations", "bytes", "copied_bytes", "flaw_count"};
    static const char *const told[] = {"id",    "hash",         "operations",
                                       "state", "copied_bytes", "flaw_count"};
    bool open = plan->run->keep_open;
    json_t *answer = NULL;

    json_object_set_new(plan->state, "argv", words(plan->run->spec.argv));
    json_object_set_new(plan->state, "privileged", json_boolean(result->plan_privileged));
    if (plan_write_state(plan->place, plan->state, err) < 0 ||
        derive(plan, result->plan_privileged, &answer, err) < 0)
        return -1;
    if (plan_own(plan->tree, plan->place, err) < 0) { /* derive wrote as root */
        json_decref(answer);
        return -1;
    }
    if (open)
        (void)json_object_del(answer, "hash"); /* it is not done */
    copy_members(plan->state, answer, kept, sizeof(kept) / sizeof(kept[0]));
    json_decref(answer);
    int r = open ? plan_write_state(plan->place, plan->state, err)
                 : plan_change_state(plan->place, plan->state, PLAN_EVENT_MADE, 0, err);
    if (r < 0)
        return -1;
    *ret = json_object();
    copy_members(*ret, plan->state, told, sizeof(told) / sizeof(told[0]));
    return 0;
}

void cli_plan_abandon(struct cli_plan *plan)
{
    static const char *const parts[] = {"upper", "work/work", "work/index", "work"};
    bool empty = true;

    if (plan->made && plan->place >= 0) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
            empty =
                (unlinkat(plan->place, parts[i], AT_REMOVEDIR) == 0 || errno == ENOENT) && empty;
        if (empty && (unlinkat(plan->place, "state.json", 0) == 0 || errno == ENOENT) &&
            (unlinkat(plan->place, ".lock", 0) == 0 || errno == ENOENT))
            ignore(rmdir(plan->path) == 0);
    }
    if (plan->made_plans)
        ignore(rmdir(plan->plans) == 0); /* not empty: there are others */
}

void cli_plan_say(const struct cli_plan *plan, const json_t *told)
{
    char text[SHOWN_MAX];
    json_int_t n = json_integer_value(json_object_get(told, "operations"));
    bool open = plan->run->keep_open;

    snprintf(text, sizeof(text),
             "plan %s: %lld change%s, none made yet%s; see: carrel plan show --dir '%s' %s",
             plan->id, (long long)n, n == 1 ? "" : "s", open ? ", still open" : "", plan->dir,
             plan->id);
    cli_say(text);
}

void cli_plan_clear(struct cli_plan *plan)
{
    scope_close(&plan->tree);
    scope_close(&plan->place);
    scope_close(&plan->lock);
    json_decref(plan->state);
    plan->state = NULL;
}
