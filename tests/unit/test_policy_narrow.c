/* SPDX-License-Identifier: Apache-2.0 */
/* policy/policy, applied: options narrow it, never widen it. */
#include "unit.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/network_sets.h"
#include "policy_scene.h"

/* --- applying: the policy fills what was not asked for --- */

TEST(what_was_not_asked_for_comes_from_the_policy)
{
    scoped_desk;

    CHECK(apply(&d, "{\"level\":\"ns\",\"network\":\"host\",\"user\":\"root\","
                    "\"limits\":{\"timeout\":\"9s\",\"tmp_size\":9,\"max_output\":8}}") == 0);
    CHECK(d.spec.level == CARREL_LEVEL_NS);
    CHECK(d.spec.net == CARREL_NET_HOST);
    CHECK(d.spec.user == CARREL_USER_ROOT);
    CHECK(d.spec.timeout_ms == 9000);
    CHECK(d.spec.tmp_bytes == 9);
    CHECK(d.spec.output_bytes == 8);
    return 0;
}

TEST(an_empty_policy_allows_the_defaults_and_nothing_wider)
{
    static const struct carrel_spec wider[] = {
        {.level = CARREL_LEVEL_DIR}, {.net = CARREL_NET_HOST}, {.user = CARREL_USER_ROOT}};
    scoped_desk;

    CHECK(apply(&d, "{}") == 0);
    CHECK(d.spec.level != CARREL_LEVEL_DIR);
    CHECK(d.spec.net != CARREL_NET_HOST);
    CHECK(d.spec.user != CARREL_USER_ROOT);
    for (size_t i = 0; i < LENGTH(wider); i++) {
        d.spec = wider[i];
        CHECK(apply(&d, "{}") == -1);
        CHECK(d.err.code == ERR_DENIED);
    }
    return 0;
}

/* Every choice of the caller's against every choice of the policy's, for the three that widen. */
TEST(reach_is_narrowed_never_widened)
{
    static const struct {
        const char *policy;
        struct carrel_spec asked;
        int result;
        struct carrel_spec becomes;
    } cases[] = {
        {"{\"network\":\"none\"}", {.net = CARREL_NET_HOST}, -1, {0}},
        {"{\"network\":\"none\"}", {.net = CARREL_NET_NONE}, 0, {.net = CARREL_NET_NONE}},
        {"{\"network\":\"none\"}", {0}, 0, {.net = CARREL_NET_NONE}},
        {"{\"network\":\"host\"}", {.net = CARREL_NET_NONE}, 0, {.net = CARREL_NET_NONE}},
        {"{\"network\":\"host\"}", {.net = CARREL_NET_HOST}, 0, {.net = CARREL_NET_HOST}},
        {"{\"user\":\"user\"}", {.user = CARREL_USER_ROOT}, -1, {0}},
        {"{\"user\":\"user\"}", {.user = CARREL_USER_USER}, 0, {.user = CARREL_USER_USER}},
        {"{\"user\":\"user\"}", {0}, 0, {.user = CARREL_USER_USER}},
        {"{\"user\":\"root\"}", {.user = CARREL_USER_USER}, 0, {.user = CARREL_USER_USER}},
        {"{\"user\":\"root\"}", {.user = CARREL_USER_ROOT}, 0, {.user = CARREL_USER_ROOT}},
        {"{\"level\":\"ns\"}", {.level = CARREL_LEVEL_DIR}, -1, {0}},
        {"{\"level\":\"ns\"}", {.level = CARREL_LEVEL_NS}, 0, {.level = CARREL_LEVEL_NS}},
        {"{\"level\":\"ns\"}", {0}, 0, {.level = CARREL_LEVEL_NS}},
        {"{\"level\":\"dir\"}", {.level = CARREL_LEVEL_NS}, 0, {.level = CARREL_LEVEL_NS}},
        {"{\"level\":\"dir\"}", {.level = CARREL_LEVEL_DIR}, 0, {.level = CARREL_LEVEL_DIR}},
        {"{\"level\":\"dir\"}", {0}, 0, {.level = CARREL_LEVEL_DIR}},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        scoped_desk;
        d.spec = cases[i].asked;
        CHECK_FOR(cases[i].policy, apply(&d, cases[i].policy) == cases[i].result);
        if (cases[i].result < 0) {
            CHECK_FOR(cases[i].policy, d.err.code == ERR_DENIED);
            continue;
        }
        CHECK_FOR(cases[i].policy, d.spec.level == cases[i].becomes.level);
        CHECK_FOR(cases[i].policy, d.spec.net == cases[i].becomes.net);
        CHECK_FOR(cases[i].policy, d.spec.user == cases[i].becomes.user);
    }
    return 0;
}

/* Level dir cannot keep it, so the engine must get to see that it was asked for, and refuse. */
TEST(names_of_the_network_become_rules)
{
    scoped_desk;
    static const char *const rules[] = {"api.example.com",
                                        "*.example.org:8443",
                                        "@python",
                                        "db.example.net:5432 tls=opaque",
                                        "in.example.com methods=GET paths=/v1/* secret=key "
                                        "header=X-Key",
                                        "!upload.example.org"};

    CHECK(parse(&d, "{\"network\":{\"allow\":[\"api.example.com\",\"*.example.org:8443\","
                    "\"@python\",{\"host\":\"db.example.net\",\"port\":5432,"
                    "\"tls\":\"opaque\"},{\"host\":\"in.example.com\",\"methods\":"
                    "[\"GET\"],\"paths\":[\"/v1/*\"],\"secret\":{\"from\":\"key\","
                    "\"header\":\"X-Key\"}}],\"deny\":[\"upload.example.org\"],"
                    "\"connections\":64,\"bytes_per_hour\":\"1G\"}}") == 0);
    CHECK(d.policy.net == CARREL_NET_ALLOW && d.policy.net_rule_count == 6);
    for (size_t i = 0; i < 6; i++)
        CHECK(strcmp(d.policy.net_rules[i], rules[i]) == 0);
    CHECK(d.policy.net_connections == 64 && d.policy.net_bytes_per_hour == 1UL << 30);
    return 0;
}

TEST(what_is_no_name_or_cannot_be_kept_is_refused)
{
    static const char *const wrong[] = {"\"*\"",
                                        "\"127.0.0.1\"",
                                        "\"0x7f.1\"",
                                        "\"2130706433\"",
                                        "\"[::1]\"",
                                        "\"a b\"",
                                        "\"ex\\u0000.org\"",
                                        "\"user@example.org\"",
                                        "\"example.org:0\"",
                                        "\"example.org:65536\"",
                                        "\"!example.org\"",
                                        "\"@../etc\"",
                                        "\"@\"",
                                        "7",
                                        "{\"port\":80}",
                                        "{\"host\":\"example.org\",\"methods\":[]}",
                                        "{\"host\":\"example.org\",\"methods\":[\"GET x\"]}",
                                        "{\"host\":\"example.org\",\"paths\":[\"v1\"]}",
                                        "{\"host\":\"example.org\",\"secret\":{}}",
                                        "{\"host\":\"example.org\",\"udp\":true}",
                                        "{\"host\":\"example.org\",\"tls\":\"none\"}",
                                        "{\"host\":\"example.org tls=opaque\"}"};
    char text[256];

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        scoped_desk;
        snprintf(text, sizeof(text), "{\"network\":{\"allow\":[%s]}}", wrong[i]);
        if (parse(&d, text) == 0)
            fprintf(stderr, "taken: %s\n", wrong[i]);
        CHECK(parse(&d, text) < 0 && d.err.msg[0]);
    }
    return 0;
}

TEST(names_are_narrowed_never_widened)
{
    static const struct {
        const char *asked[3];
        const char *policy;
        int result;
        const char *joined; /* with bars between them */
    } rows[] = {
        {{NULL},
         "{\"allow\":[\"*.example.org\"],\"deny\":[\"a.example.org\"]}",
         0,
         "*.example.org|!a.example.org|"},
        {{"b.example.org"},
         "{\"allow\":[\"*.example.org\"],\"deny\":[\"a.example.org\"]}",
         0,
         "b.example.org|!a.example.org|"},
        {{"!b.example.org"}, "{\"allow\":[\"*.example.org\"]}", 0, "!b.example.org|*.example.org|"},
        {{"other.example.com"}, "{\"allow\":[\"*.example.org\"]}", -1, ""},
        {{"b.example.org:22"}, "{\"allow\":[\"*.example.org\"]}", -1, ""},
        {{"b.example.org"}, "\"none\"", -1, ""},
        {{"b.example.org"}, "\"host\"", 0, "b.example.org|"},
        {{"!b.example.org"}, "\"host\"", -1, ""},
    };

    char policy[128];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        scoped_desk;
        char joined[256] = "";
        snprintf(policy, sizeof(policy), "{\"network\":%s}", rows[i].policy);
        if (rows[i].asked[0])
            d.spec.net_rules = rows[i].asked;
        if (rows[i].asked[0] && rows[i].asked[0][0] != '!')
            d.spec.net = CARREL_NET_ALLOW;
        CHECK(apply(&d, policy) == rows[i].result);
        for (size_t j = 0; rows[i].result == 0 && d.spec.net_rules[j]; j++)
            snprintf(joined + strlen(joined), sizeof(joined) - strlen(joined), "%s|",
                     d.spec.net_rules[j]);
        CHECK(strcmp(joined, rows[i].joined) == 0);
        CHECK(rows[i].result < 0 || d.spec.net == CARREL_NET_ALLOW);
    }
    return 0;
}

static int write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    return file && fputs(text, file) >= 0 && fclose(file) == 0 ? 0 : -1;
}

TEST(a_set_is_what_its_file_says)
{
    static const char *const asked[] = {"@mine", "!@not", "z.example.org", NULL};
    static const char *const got[] = {"a.example.org",           "b.example.org:8080",
                                      "mirror.example.net:3141", "!c.example.org",
                                      "z.example.org",           NULL};
    const char *const *rules;
    struct arena arena = {.max = 4 << 20};
    struct err err = {0};
    const struct network_mirror mirrors[] = {{"pip", "http://user@mirror.example.net:3141/simple/"},
                                             {NULL, NULL}};

    CHECK(mkdir("sets", 0700) == 0);
    CHECK(write_text("sets/mine", "# a set\n a.example.org # one\n\nb.example.org:8080\n"
                                  "mirrors pip\n") == 0);
    CHECK(write_text("sets/not", "c.example.org\n") == 0);
    CHECK(write_text("sets/bad", "10.0.0.1\n") == 0);
    CHECK(unsetenv("HOME") == 0 && unsetenv("PIP_INDEX_URL") == 0);
    CHECK(network_sets_expand(asked, "sets", mirrors, &arena, &rules, &err) == 0);
    size_t n = 0;
    for (; got[n]; n++) {
        bool found = false;
        for (size_t i = 0; rules[i]; i++)
            found = found || strcmp(rules[i], got[n]) == 0;
        CHECK(found); /* this host may have a mirror of its own */
    }
    CHECK(network_sets_expand((const char *const[]){"@bad", NULL}, "sets", NULL, &arena, &rules,
                              &err) < 0);
    CHECK(strstr(err.msg, "sets/bad"));
    CHECK(network_sets_expand((const char *const[]){"@none", NULL}, "sets", NULL, &arena, &rules,
                              &err) < 0);
    CHECK(strstr(err.msg, "@none"));
    arena_clear(&arena);
    return 0;
}

TEST(a_network_the_policy_forbids_is_not_forgotten_at_level_dir)
{
    scoped_desk;

    CHECK(apply(&d, "{\"level\":\"dir\",\"network\":\"none\"}") == -1 ||
          d.spec.net == CARREL_NET_NONE);
    return 0;
}

TEST(limits_are_lowered_never_raised)
{
    static const struct {
        const char *policy;
        uint64_t policy_value;
        size_t field;
    } limits[] = {
        {"{\"limits\":{\"timeout\":\"9s\"}}", 9000, offsetof(struct carrel_spec, timeout_ms)},
        {"{\"limits\":{\"tmp_size\":\"9K\"}}", 9216, offsetof(struct carrel_spec, tmp_bytes)},
        {"{\"limits\":{\"max_output\":\"9K\"}}", 9216, offsetof(struct carrel_spec, output_bytes)},
        {"{\"limits\":{\"memory\":\"9K\"}}", 9216,
         offsetof(struct carrel_spec, limits.memory_bytes)},
        {"{\"limits\":{\"pids\":9}}", 9, offsetof(struct carrel_spec, limits.pids)},
        {"{\"limits\":{\"cpu\":\"0.25\"}}", 250, offsetof(struct carrel_spec, limits.cpu_milli)},
        {"{\"limits\":{\"io\":9}}", 9, offsetof(struct carrel_spec, limits.io_bytes)},
        {"{\"limits\":{\"disk\":\"9K\"}}", 9216, offsetof(struct carrel_spec, limits.disk_bytes)},
        {"{\"limits\":{\"files\":9}}", 9, offsetof(struct carrel_spec, limits.disk_files)},
    };

    for (size_t i = 0; i < LENGTH(limits); i++) {
        uint64_t most = limits[i].policy_value;

        const struct {
            uint64_t asked;
            int result;
            uint64_t becomes;
        } cases[] = {{0, 0, most},    {1, 0, 1},         {most - 1, 0, most - 1},
                     {most, 0, most}, {most + 1, -1, 0}, {1ULL << 60, -1, 0}};

        for (size_t j = 0; j < LENGTH(cases); j++) {
            scoped_desk;
            uint64_t *field = (uint64_t *)((char *)&d.spec + limits[i].field);
            *field = cases[j].asked;
            CHECK_FOR(limits[i].policy, apply(&d, limits[i].policy) == cases[j].result);
            CHECK_FOR(limits[i].policy, cases[j].result < 0 || *field == cases[j].becomes);
            CHECK_FOR(limits[i].policy, cases[j].result == 0 || d.err.code == ERR_DENIED);
        }
    }
    return 0;
}

TEST(a_flag_beyond_the_policy_is_told_how_much_is_allowed)
{
    scoped_desk;

    d.spec.limits.memory_bytes = 2UL << 30;
    CHECK(apply(&d, "{\"limits\":{\"memory\":\"64M\"}}") < 0);
    CHECK(strstr(d.err.msg, "--memory 2G") && strstr(d.err.msg, "limit of 64M"));
    d.spec.limits.memory_bytes = 0;
    d.spec.limits.cpu_milli = 2000;
    CHECK(apply(&d, "{\"limits\":{\"cpu\":1.5}}") < 0);
    CHECK(strstr(d.err.msg, "--cpu 2 ") && strstr(d.err.msg, "limit of 1.5"));
    return 0;
}

TEST(a_limit_the_policy_does_not_set_is_the_callers)
{
    scoped_desk;

    d.spec.timeout_ms = 5;
    d.spec.tmp_bytes = 6;
    d.spec.output_bytes = 7;
    CHECK(apply(&d, "{}") == 0);
    CHECK(d.spec.timeout_ms == 5);
    CHECK(d.spec.tmp_bytes == 6);
    CHECK(d.spec.output_bytes == 7);
    return 0;
}

TEST(an_image_the_policy_wants_stays_an_image)
{
    scoped_desk;

    d.spec.limits.disk_bytes = 5;
    CHECK(apply(&d, "{\"limits\":{\"disk\":\"image:9K\"}}") == 0);
    CHECK(d.spec.limits.disk_bytes == 5 && d.spec.limits.disk_image);
    d.spec.limits.disk_image = true;
    CHECK(apply(&d, "{\"limits\":{\"disk\":\"9K\"}}") == 0);
    CHECK(d.spec.limits.disk_image);
    return 0;
}

TEST(the_default_size_of_tmp_is_left_to_the_memory)
{
    scoped_desk;

    CHECK(apply(&d, "{\"limits\":{\"memory\":\"64M\"}}") == 0);
    CHECK(d.spec.tmp_bytes == 0);
    return 0;
}

TEST(mounts_are_the_policys_alone)
{
    static const struct carrel_mount own = {.source = "/etc", .target = "/mnt"};
    scoped_desk;

    d.spec.mounts = &own;
    d.spec.mount_count = 1;
    CHECK(apply(&d, "{\"mounts\":[{\"source\":\"/etc\",\"target\":\"/mnt\"}]}") == -1);
    CHECK(d.err.code == ERR_DENIED);
    d.spec.mount_count = 0;
    CHECK(apply(&d, "{\"mounts\":[{\"source\":\"/a\"}]}") == 0);
    CHECK(d.spec.mount_count == 1);
    CHECK(strcmp(d.spec.mounts[0].source, "/a") == 0);
    d.spec = (struct carrel_spec){.mounts = &own};
    CHECK(apply(&d, "{}") == 0);
    CHECK(d.spec.mount_count == 0);
    return 0;
}

TEST(variables_are_joined_and_the_policys_come_last_where_they_win)
{
    static const char *const own[] = {"A=caller", "B=caller", NULL};
    scoped_desk;

    d.spec.env = own;
    CHECK(apply(&d, "{\"env\":{\"A\":\"policy\"}}") == 0);
    CHECK(strcmp(d.spec.env[0], "A=caller") == 0);
    CHECK(strcmp(d.spec.env[1], "B=caller") == 0);
    CHECK(strcmp(d.spec.env[2], "A=policy") == 0);
    CHECK(d.spec.env[3] == NULL);
    d.spec.env = NULL;
    CHECK(apply(&d, "{}") == 0);
    CHECK(d.spec.env[0] == NULL);
    return 0;
}
