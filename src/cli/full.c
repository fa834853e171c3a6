/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-full: the verbs and options that need JSON. The command `carrel` execs it; both have the
 * same options, help and behaviour. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/programs.h"
#include "cli/cli.h"
#include "cli/plan.h"
#include "policy/network_sets.h"
#include "policy/policy.h"
#include "json/result.h"

static int print_json(const struct carrel_result *result, json_t *plan)
{
    json_t *object = result_json(result, true);

    if (plan)
        json_object_set(object, "plan", plan);
    char *text = json_dumps(object, JSON_REAL_PRECISION(6));
    json_decref(object);
    if (!text)
        return cli_fail("out of memory");
    int status = cli_put(text);
    free(text);
    return status ? status : cli_put("\n");
}

static int explain_it(const struct run_options *options)
{
    struct carrel_error error = {0};
    char *text = NULL;

    if (carrel_explain(&options->spec, options->json ? CARREL_JSON : CARREL_TEXT, &text, &error) <
        0)
        return cli_fail(error.message);
    int status = cli_put(text);
    free(text);
    return status;
}

/* Sets of names lie where Carrel was installed, or in its sources. */
static const char *find_sets(char *path, size_t size)
{
    const char *own =
        getenv("CARREL_NETWORKS"); /* one thread here; NOLINT(concurrency-mt-unsafe) */

    return own && *own ? own : program_share("networks", path, size);
}

static int expand_sets(struct run_options *options, struct err *err)
{
    char path[4096];
    const char *dir = find_sets(path, sizeof(path));

    return network_sets_expand(options->spec.net_rules, dir, NULL, &options->arena,
                               &options->spec.net_rules, err);
}

static int load_policy(struct run_options *options, struct err *err)
{
    char path[4096];
    struct policy *policy = arena_alloc(&options->arena, sizeof(*policy));

    if (!policy)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (policy_load(policy, &options->arena, options->policy_path, options->spec.workspace, err) <
            0 ||
        policy_expand_sets(policy, &options->arena, find_sets(path, sizeof(path)), err) < 0)
        return -1;
    if (policy->base)
        return err_set(
            err, ERR_INVALID, 0,
            "policy: \"system\" is for workspaces of the daemon; carrel run has --system");
    if (policy->store_count)
        return err_set(
            err, ERR_INVALID, 0,
            "policy: the store '%s' is mounted by the daemon, for its workspaces; carrel "
            "run knows of none",
            policy->stores[0].store);
    return policy_apply(policy, &options->arena, &options->spec, err);
}

static int fail(const struct err *err)
{
    char text[512];

    return cli_fail(err_text(err, text, sizeof(text)));
}

/* The plan may be NULL. */
static int run_it(struct run_options *options, struct cli_plan *plan)
{
    struct carrel_result result;
    struct err err = {0};
    json_t *told = NULL;
    int status = cli_call(options, &result);

    if (status != 0) {
        if (plan)
            cli_plan_abandon(plan);
        return status;
    }
    if (plan && cli_plan_end(plan, &result, &told, &err) < 0)
        status = fail(&err); /* what the command has written is told all the same */
    int written = options->json ? print_json(&result, told) : 0;
    if (!options->json)
        cli_print_end(&result);
    if (told && !options->json)
        cli_plan_say(plan, told);
    json_decref(told);
    if (status == 0)
        status = written ? written : result.exit_code;
    carrel_result_clear(&result);
    return status;
}

static int run_planned(struct run_options *options)
{
    static struct cli_plan plan;
    struct err err = {0};
    int status;

    if (cli_plan_begin(&plan, options, &err) < 0) {
        cli_plan_abandon(&plan);
        status = fail(&err);
    } else {
        status = options->explain ? explain_it(options) : run_it(options, &plan);
    }
    cli_plan_clear(&plan);
    return status;
}

int cli_run_full(struct run_options *options, char **argv)
{
    struct err err = {0};

    (void)argv;
    if ((options->net_rule_count && expand_sets(options, &err) < 0) ||
        (options->policy_path && load_policy(options, &err) < 0))
        return fail(&err);
    int status = cli_open_files(options);
    if (status != 0)
        return status;
    options->spec.capture = options->json && !options->explain;
    if (options->plan)
        return run_planned(options);
    return options->explain ? explain_it(options) : run_it(options, NULL);
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return cli_run(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "doctor") == 0)
        return cli_doctor(argc - 1, argv + 1);
    return cli_fail("carrel-full is a part of carrel; run 'carrel help'");
}
