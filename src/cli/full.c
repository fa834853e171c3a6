/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-full: the verbs and options that need JSON. The command `carrel` execs it; both have the
 * same options, help and behaviour. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "policy/policy.h"
#include "json/result.h"

static int print_json(const struct carrel_result *result)
{
    json_t *object = result_json(result, true);
    char *text = json_dumps(object, JSON_REAL_PRECISION(6));
    json_decref(object);
    if (!text)
        return cli_fail("no memory for the result");
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

static int load_policy(struct run_options *options, struct err *err)
{
    struct policy *policy = arena_alloc(&options->arena, sizeof(*policy));

    if (!policy)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (policy_load(policy, &options->arena, options->policy_path, err) < 0)
        return -1;
    return policy_apply(policy, &options->arena, &options->spec, err);
}

int cli_run_full(struct run_options *options, char **argv)
{
    char text[512];
    struct err err = {0};
    struct carrel_result result;

    (void)argv;
    if (options->policy_path && load_policy(options, &err) < 0)
        return cli_fail(err_text(&err, text, sizeof(text)));
    int status = cli_open_files(options);
    if (status != 0)
        return status;
    if (options->explain)
        return explain_it(options);
    options->spec.capture = options->json;
    status = cli_call(options, &result);
    if (status != 0)
        return status;
    int written = 0;
    if (options->json)
        written = print_json(&result);
    else
        cli_print_end(&result);
    status = written ? written : result.exit_code;
    carrel_result_clear(&result);
    return status;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "run") == 0)
        return cli_run(argc - 1, argv + 1);
    if (argc >= 2 && strcmp(argv[1], "doctor") == 0)
        return cli_doctor(argc - 1, argv + 1);
    return cli_fail("carrel-full is a part of carrel; run 'carrel help'");
}
