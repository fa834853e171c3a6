/* SPDX-License-Identifier: Apache-2.0 */
/* Policy files. The first byte chooses what the caller asks for; the rest is the file. Whatever the
 * file says, what comes out is bounded, and never wider than both sides agree to. */
#include "fuzz.h"

#include <string.h>

#include "policy/policy.h"

#define LARGEST (1ULL << 60)

static struct policy policy;

static void check_parsed(const struct policy *p)
{
    MUST(p->mount_count <= POLICY_MAX_MOUNTS && p->env_count <= POLICY_MAX_ENV);
    for (size_t i = 0; i < p->mount_count; i++) {
        MUST(p->mounts[i].source && p->mounts[i].source[0] == '/');
        MUST(!p->mounts[i].target || p->mounts[i].target[0] == '/');
    }
    for (size_t i = 0; i < p->env_count; i++) {
        const char *equals = strchr(p->env[i], '=');
        MUST(equals && equals != p->env[i]);
    }
    MUST(p->net_rule_count <= NETWORK_MOST);
    MUST(p->net_rule_count == 0 || p->net == CARREL_NET_ALLOW);
    for (size_t i = 0; i < p->net_rule_count; i++)
        MUST(p->net_rules[i][0]);
    MUST(p->plan.allow.count <= PLAN_POLICY_PATTERNS && p->plan.ending_count <= PLAN_POLICY_TYPES);
    MUST(p->plan.protect.count <= PLAN_POLICY_PATTERNS);
    MUST(p->plan.has_allow || p->plan.allow.count == 0);
    MUST(p->plan.has_operations || p->plan.operations == 0);
    MUST(p->plan.operations >> PLAN_POLICY_KINDS == 0 && !(p->plan.magics & 1));
    MUST(p->plan.max_operations <= PLAN_POLICY_MOST_OPERATIONS);
    for (size_t i = 0; i < p->plan.allow.count; i++)
        MUST(p->plan.allow.at[i][0] && p->plan.allow.at[i][0] != '/');
    MUST(p->timeout_ms <= LARGEST && p->tmp_bytes <= LARGEST && p->output_bytes <= LARGEST);
}

static struct carrel_spec ask(uint8_t choice)
{
    static const char *const env[] = {"A=1", "B=2", NULL};

    return (struct carrel_spec){
        .level = (enum carrel_level)(choice % 3),
        .net = (enum carrel_net)(choice / 3 % 3),
        .user = (enum carrel_user)(choice / 9 % 3),
        .timeout_ms = choice & 128 ? 5000 : 0,
        .tmp_bytes = choice & 64 ? 4096 : 0,
        .output_bytes = choice & 32 ? 100 : 0,
        .env = choice & 16 ? env : NULL,
    };
}

static void check_limit(uint64_t got, uint64_t asked, uint64_t allowed)
{
    MUST(!allowed || (got && got <= allowed));
    MUST(!asked || got == asked);
}

static void check_applied(const struct policy *p, const struct carrel_spec *asked,
                          const struct carrel_spec *got)
{
    MUST(got->level != CARREL_LEVEL_DIR || p->level == CARREL_LEVEL_DIR);
    MUST(got->net != CARREL_NET_HOST || p->net == CARREL_NET_HOST);
    MUST(got->net == CARREL_NET_NONE || p->net != CARREL_NET_NONE);
    MUST(got->net != CARREL_NET_ALLOW || p->net == CARREL_NET_ALLOW);
    MUST(got->user != CARREL_USER_ROOT || p->user == CARREL_USER_ROOT);
    check_limit(got->timeout_ms, asked->timeout_ms, p->timeout_ms);
    check_limit(got->tmp_bytes, asked->tmp_bytes, p->tmp_bytes);
    check_limit(got->output_bytes, asked->output_bytes, p->output_bytes);
    MUST(got->mount_count == p->mount_count);
    size_t n = 0;
    while (got->env[n])
        n++;
    MUST(n == p->env_count + (asked->env ? 2 : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct err err = {0};

    if (size < 1)
        return 0;
    char *exact = malloc(size);
    memcpy(exact, data + 1, size - 1);
    arena_init(&arena, 1 << 20);
    if (policy_parse(&policy, &arena, exact, size - 1, &err) == 0) {
        struct carrel_spec asked = ask(data[0]);
        struct carrel_spec got = asked;
        check_parsed(&policy);
        if (policy_apply(&policy, &arena, &got, &err) == 0)
            check_applied(&policy, &asked, &got);
    } else {
        MUST(err.code == ERR_INVALID && memchr(err.msg, '\0', sizeof(err.msg)));
    }
    arena_clear(&arena);
    free(exact);
    return 0;
}
