/* SPDX-License-Identifier: Apache-2.0 */
/* policy/policy: untrusted JSON in, a checked structure out. */
#include "unit.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy_scene.h"

/* --- reading --- */

TEST(an_empty_policy_sets_nothing)
{
    scoped_desk;
    static const struct policy nothing;

    CHECK(parse(&d, "{}") == 0);
    CHECK(memcmp(&d.policy, &nothing, sizeof(nothing)) == 0);
    return 0;
}

TEST(every_key_is_read)
{
    scoped_desk;

    CHECK(parse(&d, "{\"level\":\"ns\", \"network\":\"host\", \"user\":\"root\","
                    " \"mounts\":[{\"source\":\"/a\",\"target\":\"/b\",\"writable\":true},"
                    "             {\"source\":\"/c\"}],"
                    " \"env\":{\"K\":\"V\",\"E\":\"\"},"
                    " \"limits\":{\"timeout\":\"30s\",\"tmp_size\":\"64M\",\"max_output\":1000,"
                    "           \"memory\":\"256M\",\"pids\":20,\"cpu\":1.5,\"io\":\"10M\","
                    "           \"disk\":\"image:2G\",\"files\":1000}}") == 0);
    CHECK(d.policy.level == CARREL_LEVEL_NS);
    CHECK(d.policy.net == CARREL_NET_HOST);
    CHECK(d.policy.user == CARREL_USER_ROOT);
    CHECK(d.policy.mount_count == 2);
    CHECK(strcmp(d.policy.mounts[0].source, "/a") == 0);
    CHECK(strcmp(d.policy.mounts[0].target, "/b") == 0);
    CHECK(d.policy.mounts[0].writable);
    CHECK(strcmp(d.policy.mounts[1].source, "/c") == 0);
    CHECK(d.policy.mounts[1].target == NULL);
    CHECK(!d.policy.mounts[1].writable);
    CHECK(d.policy.env_count == 2);
    CHECK(strcmp(d.policy.env[0], "K=V") == 0);
    CHECK(strcmp(d.policy.env[1], "E=") == 0);
    CHECK(d.policy.timeout_ms == 30000);
    CHECK(d.policy.tmp_bytes == 64 << 20);
    CHECK(d.policy.output_bytes == 1000);
    CHECK(d.policy.limits.memory_bytes == 256 << 20);
    CHECK(d.policy.limits.pids == 20);
    CHECK(d.policy.limits.cpu_milli == 1500);
    CHECK(d.policy.limits.io_bytes == 10 << 20);
    CHECK(d.policy.limits.disk_bytes == 2ULL << 30 && d.policy.limits.disk_image);
    CHECK(d.policy.limits.disk_files == 1000);
    return 0;
}

TEST(writes_are_direct_unless_they_are_planned)
{
    scoped_desk;

    CHECK(parse(&d, "{}") == 0 && d.policy.writes == POLICY_WRITES_DIRECT);
    CHECK(parse(&d, "{\"writes\":\"direct\"}") == 0 && d.policy.writes == POLICY_WRITES_DIRECT);
    CHECK(parse(&d, "{\"writes\":\"plan\",\"limits\":{\"disk\":\"1G\"}}") == 0);
    CHECK(d.policy.writes == POLICY_WRITES_PLAN);
    return 0;
}

TEST(every_word_is_read)
{
    scoped_desk;

    CHECK(parse(&d, "{\"level\":\"dir\",\"network\":\"none\",\"user\":\"user\"}") == 0);
    CHECK(d.policy.level == CARREL_LEVEL_DIR);
    CHECK(d.policy.net == CARREL_NET_NONE);
    CHECK(d.policy.user == CARREL_USER_USER);
    return 0;
}

/* What is refused, and a word that the message must hold so that a person finds the place. */
static const struct {
    const char *text;
    const char *says;
} refused[] = {
    /* not an object, not JSON */
    {"", "line 1"},
    {"null", "line 1"},
    {"[]", "object"},
    {"\"ns\"", "line 1"},
    {"{", "line 1"},
    {"{}x", "line 1"},
    {"{} {}", "line 1"},
    {"{'level':'ns'}", "line 1"},
    {"{\"level\":\"ns\",}", "line 1"},
    {"{\"level\":\"\xff\"}", "line 1"},
    /* unknown keys, on every floor */
    {"{\"Level\":\"ns\"}", "Level"},
    {"{\"net\":\"none\"}", "net"},
    {"{\"\":1}", "unknown"},
    {"{\"mounts\":[{\"source\":\"/a\",\"rw\":true}]}", "rw"},
    {"{\"mounts\":[{\"store\":\"a\",\"at\":\"/b/c\"}]}", "a name at the top"},
    {"{\"mounts\":[{\"store\":\"../a\",\"at\":\"/b\"}]}", "the name of a store"},
    {"{\"mounts\":[{\"store\":\"a\",\"at\":\"/b\",\"source\":\"/c\"}]}", "source"},
    {"{\"limits\":{\"swap\":\"1G\"}}", "swap"},
    {"{\"plan\":{\"approve\":\"none\"}}", "approve"},
    {"{\"plan\":{\"types\":{\"allow\":[]}}}", "allow"},
    {"{\"plan\":{\"history\":{\"weeks\":1}}}", "weeks"},
    /* duplicates, on every floor */
    {"{\"level\":\"ns\",\"level\":\"dir\"}", "duplicate"},
    {"{\"env\":{\"A\":\"1\",\"A\":\"2\"}}", "duplicate"},
    {"{\"mounts\":[{\"source\":\"/a\",\"source\":\"/b\"}]}", "duplicate"},
    {"{\"limits\":{\"timeout\":\"1s\",\"timeout\":\"9h\"}}", "duplicate"},
    {"{\"plan\":{\"approval\":\"required\",\"approval\":\"none\"}}", "duplicate"},
    /* plans */
    {"{\"plan\":null}", "plan"},
    {"{\"plan\":\"none\"}", "plan"},
    {"{\"plan\":[]}", "plan"},
    {"{\"plan\":{\"base\":\"open\"}}", "base"},
    {"{\"plan\":{\"base\":null}}", "base"},
    {"{\"plan\":{\"approval\":true}}", "approval"},
    {"{\"plan\":{\"approval\":\"\"}}", "approval"},
    {"{\"plan\":{\"expires\":72}}", "expires"},
    {"{\"plan\":{\"expires\":\"0h\"}}", "expires"},
    {"{\"plan\":{\"allow\":null}}", "allow"},
    {"{\"plan\":{\"allow\":\"**\"}}", "allow"},
    {"{\"plan\":{\"allow\":[\"\"]}}", "allow"},
    {"{\"plan\":{\"allow\":[\"/etc\"]}}", "allow"},
    {"{\"plan\":{\"allow\":[\"a/../b\"]}}", "allow"},
    {"{\"plan\":{\"allow\":[\"..\"]}}", "allow"},
    {"{\"plan\":{\"allow\":[1]}}", "allow"},
    {"{\"plan\":{\"allow\":[\"{a,b/c}\"]}}", "allow"},
    {"{\"plan\":{\"protect\":[null]}}", "protect"},
    {"{\"plan\":{\"protect\":{}}}", "protect"},
    {"{\"plan\":{\"operations\":[\"chown\"]}}", "operations"},
    {"{\"plan\":{\"operations\":\"all\"}}", "operations"},
    {"{\"plan\":{\"operations\":[\"\"]}}", "operations"},
    {"{\"plan\":{\"max_file_bytes\":0}}", "max_file_bytes"},
    {"{\"plan\":{\"max_bytes\":-1}}", "max_bytes"},
    {"{\"plan\":{\"max_bytes\":null}}", "max_bytes"},
    {"{\"plan\":{\"max_operations\":200001}}", "max_operations"},
    {"{\"plan\":{\"max_operations\":0}}", "max_operations"},
    {"{\"plan\":{\"types\":[\".exe\"]}}", "types"},
    {"{\"plan\":{\"types\":{\"deny\":\".exe\"}}}", "deny"},
    {"{\"plan\":{\"types\":{\"deny\":[\"exe\"]}}}", "deny"},
    {"{\"plan\":{\"types\":{\"deny\":[\"\"]}}}", "deny"},
    {"{\"plan\":{\"types\":{\"deny\":[\".\"]}}}", "deny"},
    {"{\"plan\":{\"types\":{\"deny\":[\".a/b\"]}}}", "deny"},
    {"{\"plan\":{\"executables\":\"deny\"}}", "executables"},
    {"{\"plan\":{\"sensitive\":null}}", "sensitive"},
    {"{\"plan\":{\"case_twins\":false}}", "case_twins"},
    {"{\"plan\":{\"history\":30}}", "history"},
    {"{\"plan\":{\"history\":{\"keep\":0}}}", "keep"},
    {"{\"plan\":{\"history\":{\"days\":\"30\"}}}", "days"},
    {"{\"plan\":{\"history\":{\"bytes\":0}}}", "bytes"},
    /* null and empty never mean "anything goes" */
    {"{\"level\":null}", "level"},
    {"{\"level\":\"\"}", "level"},
    {"{\"network\":null}", "network"},
    {"{\"network\":\"\"}", "network"},
    {"{\"user\":null}", "user"},
    {"{\"user\":\"\"}", "user"},
    {"{\"mounts\":null}", "mounts"},
    {"{\"mounts\":[null]}", "mounts"},
    {"{\"mounts\":[{}]}", "mounts"},
    {"{\"mounts\":[{\"source\":null}]}", "source"},
    {"{\"mounts\":[{\"source\":\"\"}]}", "source"},
    {"{\"mounts\":[{\"source\":\"/a\",\"target\":null}]}", "target"},
    {"{\"mounts\":[{\"source\":\"/a\",\"target\":\"\"}]}", "target"},
    {"{\"mounts\":[{\"source\":\"/a\",\"writable\":null}]}", "writable"},
    {"{\"env\":null}", "env"},
    {"{\"env\":{\"A\":null}}", "env"},
    {"{\"env\":{\"\":\"x\"}}", "env"},
    {"{\"limits\":null}", "limits"},
    {"{\"limits\":{\"timeout\":null}}", "timeout"},
    {"{\"limits\":{\"timeout\":\"\"}}", "timeout"},
    {"{\"limits\":{\"tmp_size\":null}}", "tmp_size"},
    {"{\"limits\":{\"tmp_size\":\"\"}}", "tmp_size"},
    {"{\"limits\":{\"max_output\":null}}", "max_output"},
    {"{\"limits\":{\"max_output\":\"\"}}", "max_output"},
    /* wrong types */
    {"{\"level\":1}", "level"},
    {"{\"level\":[\"ns\"]}", "level"},
    {"{\"network\":false}", "network"},
    {"{\"network\":{}}", "network"},
    {"{\"user\":0}", "user"},
    {"{\"mounts\":{}}", "mounts"},
    {"{\"mounts\":\"/a\"}", "mounts"},
    {"{\"mounts\":[\"/a\"]}", "mounts"},
    {"{\"mounts\":[[]]}", "mounts"},
    {"{\"mounts\":[{\"source\":1}]}", "source"},
    {"{\"mounts\":[{\"source\":\"/a\",\"writable\":1}]}", "writable"},
    {"{\"mounts\":[{\"source\":\"/a\",\"writable\":\"true\"}]}", "writable"},
    {"{\"env\":[]}", "env"},
    {"{\"env\":\"A=1\"}", "env"},
    {"{\"env\":{\"A\":1}}", "env"},
    {"{\"limits\":[]}", "limits"},
    {"{\"limits\":{\"timeout\":30}}", "timeout"},
    {"{\"limits\":{\"tmp_size\":1.5}}", "tmp_size"},
    {"{\"limits\":{\"tmp_size\":true}}", "tmp_size"},
    {"{\"limits\":{\"max_output\":{}}}", "max_output"},
    /* wrong words */
    {"{\"level\":\"auto\"}", "level"},
    {"{\"level\":\"NS\"}", "level"},
    {"{\"level\":\"ns \"}", "level"},
    {"{\"network\":\"all\"}", "network"},
    {"{\"user\":\"0\"}", "user"},
    {"{\"mounts\":[{\"source\":\"a\"}]}", "source"},
    {"{\"mounts\":[{\"source\":\"../a\"}]}", "source"},
    {"{\"mounts\":[{\"source\":\"/a\",\"target\":\"b\"}]}", "target"},
    {"{\"mounts\":[{\"target\":\"/b\"}]}", "mounts"},
    {"{\"mounts\":[{\"target\":\"/b\",\"writable\":true}]}", "mounts"},
    {"{\"env\":{\"A=B\":\"x\"}}", "env"},
    {"{\"limits\":{\"memory\":0}}", "memory"},
    {"{\"limits\":{\"memory\":1.5}}", "memory"},
    {"{\"limits\":{\"pids\":0}}", "pids"},
    {"{\"limits\":{\"pids\":-1}}", "pids"},
    {"{\"limits\":{\"pids\":\"20\"}}", "pids"},
    {"{\"limits\":{\"pids\":1000000}}", "pids"},
    {"{\"limits\":{\"cpu\":0}}", "cpu"},
    {"{\"limits\":{\"cpu\":-1}}", "cpu"},
    {"{\"limits\":{\"cpu\":0.0001}}", "cpu"},
    {"{\"limits\":{\"cpu\":1e30}}", "cpu"},
    {"{\"limits\":{\"cpu\":\"all\"}}", "cpu"},
    {"{\"limits\":{\"cpu\":true}}", "cpu"},
    {"{\"limits\":{\"io\":\"10M/s\"}}", "io"},
    {"{\"limits\":{\"disk\":\"image\"}}", "disk"},
    {"{\"limits\":{\"disk\":\"image:\"}}", "disk"},
    {"{\"limits\":{\"disk\":\"quota:2G\"}}", "disk"},
    {"{\"limits\":{\"disk\":0}}", "disk"},
    {"{\"writes\":\"plans\"}", "writes"},
    {"{\"writes\":true}", "writes"},
    {"{\"writes\":\"plan\",\"limits\":{\"disk\":\"image:1G\"}}", "image"},
    {"{\"limits\":{\"disk\":\"image:1G\"},\"writes\":\"plan\"}", "image"},
    {"{\"limits\":{\"files\":0}}", "files"},
    {"{\"limits\":{\"files\":\"10K\"}}", "files"},
    {"{\"limits\":{\"files\":1000000001}}", "files"},
    {"{\"limits\":{\"timeout\":\"30\"}}", "timeout"},
    {"{\"limits\":{\"timeout\":\"forever\"}}", "timeout"},
    /* zero, below zero, too large */
    {"{\"limits\":{\"timeout\":\"0s\"}}", "timeout"},
    {"{\"limits\":{\"timeout\":\"-1s\"}}", "timeout"},
    {"{\"limits\":{\"tmp_size\":0}}", "tmp_size"},
    {"{\"limits\":{\"tmp_size\":-1}}", "tmp_size"},
    {"{\"limits\":{\"tmp_size\":\"0\"}}", "tmp_size"},
    {"{\"limits\":{\"max_output\":0}}", "max_output"},
    {"{\"limits\":{\"max_output\":-9223372036854775808}}", "max_output"},
    {"{\"limits\":{\"max_output\":9223372036854775807}}", "max_output"},
    {"{\"limits\":{\"max_output\":1152921504606846977}}", "max_output"},
    {"{\"limits\":{\"max_output\":18446744073709551617}}", "line 1"},
    {"{\"limits\":{\"max_output\":\"18446744073709551617\"}}", "max_output"},
    {"{\"limits\":{\"tmp_size\":\"16777217T\"}}", "tmp_size"},
    {"{\"limits\":{\"timeout\":\"18446744073709552s\"}}", "timeout"},
    /* a NUL byte would cut what the kernel sees short of what was checked */
    {"{\"level\":\"ns\\u0000\"}", "line 1"},
    {"{\"env\":{\"A\":\"x\\u0000y\"}}", "line 1"},
    {"{\"env\":{\"A\\u0000\":\"x\"}}", "line 1"},
    {"{\"mounts\":[{\"source\":\"/a\\u0000b\"}]}", "line 1"},
    {"{\"limits\":{\"timeout\":\"1s\\u0000h\"}}", "line 1"},
};

TEST(what_is_not_understood_in_full_is_refused_in_words)
{
    for (size_t i = 0; i < LENGTH(refused); i++) {
        scoped_desk;
        CHECK_FOR(refused[i].text, parse(&d, refused[i].text) < 0);
        CHECK_FOR(refused[i].text, d.err.code == ERR_INVALID);
        CHECK_FOR(d.err.msg, strncmp(d.err.msg, "policy: ", 8) == 0);
        CHECK_FOR(d.err.msg, strstr(d.err.msg, refused[i].says) != NULL);
    }
    return 0;
}

TEST(bytes_past_the_given_length_are_not_read)
{
    scoped_desk;
    char *exact = malloc(2);

    CHECK(exact != NULL);
    memcpy(exact, "{}", 2);
    int r = policy_parse(&d.policy, &d.arena, exact, 2, &d.err);
    free(exact);
    CHECK(r == 0);
    return 0;
}

/* --- plans --- */

TEST(every_key_of_plans_is_read)
{
    scoped_desk;
    const struct plan_policy *plan = &d.policy.plan;

    CHECK(parse(&d, "{\"plan\":{\"base\":\"locked\",\"approval\":\"required\",\"expires\":\"72h\","
                    "\"allow\":[\"work/**\",\"*.{a,b}\"],\"protect\":[\"contracts\"],"
                    "\"operations\":[\"create\",\"chmod\"],\"max_file_bytes\":\"1M\","
                    "\"max_bytes\":99,\"max_operations\":200000,\"waiting_bytes\":\"2K\","
                    "\"types\":{\"deny\":[\".exe\",\"elf\",\"mach-o\"]},"
                    "\"executables\":\"allow\",\"sensitive\":\"refuse\",\"case_twins\":\"review\","
                    "\"history\":{\"keep\":5,\"days\":30,\"bytes\":\"1G\"}}}") == 0);
    CHECK(plan->base == PLAN_BASE_LOCKED && plan->approval == PLAN_APPROVAL_REQUIRED);
    CHECK(plan->expires_ms == PLAN_POLICY_EXPIRES_MS);
    CHECK(plan->has_allow && plan->allow.count == 2);
    CHECK(strcmp(plan->allow.at[1], "*.{a,b}") == 0);
    CHECK(plan->protect.count == 1 && strcmp(plan->protect.at[0], "contracts") == 0);
    CHECK(plan->has_operations && plan->operations == (1U << 1 | 1U << 6));
    CHECK(plan->max_file_bytes == 1 << 20 && plan->max_bytes == 99);
    CHECK(plan->max_operations == PLAN_POLICY_MOST_OPERATIONS && plan->waiting_bytes == 2048);
    CHECK(plan->ending_count == 1 && strcmp(plan->endings[0], ".exe") == 0);
    CHECK(plan->magics == (1U << PLAN_MAGIC_ELF | 1U << PLAN_MAGIC_MACH));
    CHECK(plan->executables == PLAN_CARE_ALLOW && plan->sensitive == PLAN_CARE_REFUSE);
    CHECK(plan->case_twins == PLAN_CARE_REVIEW);
    CHECK(plan->history_keep == 5 && plan->history_days == 30 && plan->history_bytes == 1 << 30);
    return 0;
}

/* What is empty is less, never more. */
TEST(an_empty_list_of_paths_or_operations_allows_none)
{
    scoped_desk;

    CHECK(parse(&d, "{\"plan\":{\"allow\":[],\"operations\":[],\"protect\":[]}}") == 0);
    CHECK(d.policy.plan.has_allow && d.policy.plan.allow.count == 0);
    CHECK(d.policy.plan.has_operations && d.policy.plan.operations == 0);
    CHECK(parse(&d, "{\"plan\":{}}") == 0);
    CHECK(!d.policy.plan.has_allow && !d.policy.plan.has_operations);
    CHECK(d.policy.plan.sensitive == PLAN_CARE_DEFAULT);
    CHECK(d.policy.plan.executables == PLAN_CARE_DEFAULT);
    return 0;
}

/* No option has a say in it: what is under the spec says nothing of plans. */
TEST(options_leave_the_rules_for_plans_alone)
{
    scoped_desk;

    CHECK(apply(&d, "{\"plan\":{\"approval\":\"required\",\"allow\":[\"a\"]}}") == 0);
    CHECK(d.policy.plan.approval == PLAN_APPROVAL_REQUIRED && d.policy.plan.allow.count == 1);
    return 0;
}

/* --- ceilings --- */

static char *repeat(const char *head, const char *item, unsigned count, const char *tail)
{
    scoped_buf struct buf b;

    buf_init(&b, 1 << 20);
    buf_str(&b, head);
    for (unsigned i = 0; i < count; i++) {
        buf_str(&b, i ? "," : "");
        buf_printf(&b, item, i); /* NOLINT: the formats are the literals below */
    }
    buf_str(&b, tail);
    return buf_done(&b) < 0 ? NULL : strdup(b.p);
}

TEST(as_many_mounts_and_variables_as_fit_and_not_one_more)
{
    static const struct {
        const char *head;
        const char *item;
        unsigned most;
        const char *tail;
    } lists[] = {
        {"{\"mounts\":[", "{\"source\":\"/m%u\"}", POLICY_MAX_MOUNTS, "]}"},
        {"{\"env\":{", "\"V%u\":\"x\"", POLICY_MAX_ENV, "}}"},
    };

    for (size_t i = 0; i < LENGTH(lists); i++) {
        scoped_desk;
        char *most = repeat(lists[i].head, lists[i].item, lists[i].most, lists[i].tail);
        char *more = repeat(lists[i].head, lists[i].item, lists[i].most + 1, lists[i].tail);
        CHECK(most && more);
        int fits = parse(&d, most);
        size_t got = d.policy.mount_count + d.policy.env_count;
        int too_many = parse(&d, more);
        free(most);
        free(more);
        CHECK_FOR(lists[i].head, fits == 0);
        CHECK_FOR(lists[i].head, got == lists[i].most);
        CHECK_FOR(lists[i].head, too_many < 0);
    }
    return 0;
}

TEST(a_policy_that_needs_more_memory_than_allowed_is_refused)
{
    scoped_desk;

    d.arena.max = 8;
    CHECK(parse(&d, "{\"env\":{\"A\":\"0123456789\"}}") < 0);
    CHECK(parse(&d, "{\"mounts\":[{\"source\":\"/0123456789\"}]}") < 0);
    return 0;
}

TEST(deep_nesting_is_refused_not_followed)
{
    scoped_desk;
    char deep[100001];

    memset(deep, '[', sizeof(deep) - 1);
    deep[sizeof(deep) - 1] = '\0';
    CHECK(parse(&d, deep) < 0);
    return 0;
}

/* --- files --- */

static int write_temporary(char *path, size_t size, size_t bytes)
{
    const char *folder = getenv("TMPDIR");

    snprintf(path, size, "%s/carrel-unit.XXXXXX", folder ? folder : "/tmp");
    int fd = mkstemp(path);
    for (size_t i = 0; fd >= 0 && i < bytes; i++) {
        if (write(fd, i == 0 ? "{" : i == bytes - 1 ? "}" : " ", 1) != 1)
            return -1;
    }
    return fd < 0 ? -1 : close(fd);
}

TEST(a_policy_file_is_read_up_to_its_bound)
{
    scoped_desk;
    char path[4096];

    CHECK(write_temporary(path, sizeof(path), 256 << 10) == 0);
    int fits = policy_load(&d.policy, &d.arena, path, NULL, &d.err);
    (void)unlink(path);
    CHECK(write_temporary(path, sizeof(path), (256 << 10) + 1) == 0);
    int too_large = policy_load(&d.policy, &d.arena, path, NULL, &d.err);
    (void)unlink(path);
    CHECK(fits == 0);
    CHECK(too_large < 0);
    CHECK(d.err.code == ERR_LIMIT);
    return 0;
}

TEST(a_policy_that_is_not_there_not_a_file_or_endless_is_refused)
{
    static const char *const paths[] = {"", "/nonexistent/policy.json", "/", "/dev/zero",
                                        "/dev/null"};

    for (size_t i = 0; i < LENGTH(paths); i++) {
        scoped_desk;
        CHECK_FOR(paths[i], policy_load(&d.policy, &d.arena, paths[i], NULL, &d.err) < 0);
    }
    return 0;
}

/* As `--policy <(yes)` would give it. */
TEST(a_policy_from_a_pipe_that_never_ends_is_refused)
{
    scoped_desk;
    char path[32];
    int ends[2];

    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        (void)close(ends[0]);
        while (write(ends[1], "          ", 10) > 0) /* until nobody reads */
            ;
        _exit(0);
    }
    (void)close(ends[1]);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", ends[0]);
    int r = policy_load(&d.policy, &d.arena, path, NULL, &d.err);
    (void)close(ends[0]);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(r < 0 && d.err.code == ERR_LIMIT);
    return 0;
}
