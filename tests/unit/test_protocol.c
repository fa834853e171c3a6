/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/broker.h"

#define EXEC_ID     "xabcdefghijklmnopqrstuvw234"
#define PLAN_ID     "pabcdefghijklmnopqrstuvwxyz"
#define TEMPLATE_ID "tabcdefghijklmnopqrstuvwxyz"

static const char *const argv[] = {"sh", "-c", "echo", NULL};
static const char *const env[] = {"A=1", "B=", NULL};
static const char *const shared[] = {"skills/u1", "/srv/skills/u1", "ro", "w2", "/.ticket", "rw",
                                     NULL};
static const char *const rules[] = {"a.example.org", "!b.example.org", NULL};
static const char *const mounts[] = {"/srv/a", "/a", "ro", "/srv/b", "/b", "rw", NULL};

static struct exec_message example(void)
{
    return (struct exec_message){
        .bucket = "main",
        .workspace = "w1",
        .exec = EXEC_ID,
        .plan = PLAN_ID,
        .actor = "key:ab",
        .request = "r1",
        .spec = {.level = CARREL_LEVEL_NS,
                 .net = CARREL_NET_ALLOW,
                 .net_rules = rules,
                 .net_connections = 7,
                 .net_bytes_per_hour = 1 << 20,
                 .user = CARREL_USER_ROOT,
                 .limits = {.memory_bytes = 1 << 30, .disk_image = true},
                 .tmp_bytes = 7,
                 .env = env,
                 .mounts = mounts,
                 .shared = shared,
                 .template = TEMPLATE_ID,
                 .base = "debian-12",
                 .owner = "alice"},
        .argv = argv,
        .env = env,
        .cwd = "/x",
        .timeout_ms = 5,
        .tty = true,
        .root = true,
        .input = true,
        .rows = 24,
        .columns = 80,
        .limits = {.pids = 3},
    };
}

/* Whether the broker would take it, from exactly its bytes. */
static bool is_taken(const struct exec_message *m, struct exec_message *ret, struct arena *arena,
                     char **ret_bytes)
{
    struct buf b;
    uint64_t tag = 0;

    buf_init(&b, 1 << 20);
    protocol_pack_exec(&b, 77, m);
    if (buf_done(&b) < 0)
        return false;
    char *exact = malloc(b.n);
    memcpy(exact, b.p, b.n);
    bool good = protocol_unpack_exec(exact, b.n, arena, &tag, ret) && tag == 77;
    *ret_bytes = exact;
    buf_clear(&b);
    return good;
}

static bool taken(const struct exec_message *m)
{
    struct arena arena;
    struct exec_message ret;
    char *bytes = NULL;

    arena_init(&arena, 1 << 20);
    bool good = is_taken(m, &ret, &arena, &bytes);
    free(bytes);
    arena_clear(&arena);
    return good;
}

TEST(an_exec_arrives_as_it_was)
{
    struct exec_message m = example();
    struct exec_message ret;
    struct arena arena;
    char *bytes = NULL;

    arena_init(&arena, 1 << 20);
    CHECK(is_taken(&m, &ret, &arena, &bytes));
    CHECK(strcmp(ret.bucket, "main") == 0 && strcmp(ret.workspace, "w1") == 0);
    CHECK(strcmp(ret.exec, EXEC_ID) == 0 && strcmp(ret.actor, "key:ab") == 0);
    CHECK(strcmp(ret.plan, PLAN_ID) == 0);
    CHECK(strcmp(ret.argv[2], "echo") == 0 && !ret.argv[3]);
    CHECK(strcmp(ret.env[1], "B=") == 0 && !ret.env[2]);
    CHECK(strcmp(ret.spec.mounts[5], "rw") == 0 && !ret.spec.mounts[6]);
    CHECK(ret.spec.limits.memory_bytes == 1 << 30 && ret.spec.limits.disk_image);
    CHECK(strcmp(ret.spec.shared[1], "/srv/skills/u1") == 0);
    CHECK(strcmp(ret.spec.shared[4], "/.ticket") == 0);
    CHECK(strcmp(ret.spec.shared[5], "rw") == 0 && !ret.spec.shared[6]);
    CHECK(strcmp(protocol_shown(&ret.spec), "w2") == 0);
    CHECK(ret.spec.net == CARREL_NET_ALLOW && ret.spec.net_connections == 7);
    CHECK(strcmp(ret.spec.net_rules[1], "!b.example.org") == 0 && !ret.spec.net_rules[2]);
    CHECK(ret.spec.net_bytes_per_hour == 1 << 20);
    CHECK(strcmp(ret.spec.template, TEMPLATE_ID) == 0);
    CHECK(strcmp(ret.spec.base, "debian-12") == 0 && ret.root);
    CHECK(strcmp(ret.spec.owner, "alice") == 0);
    CHECK(ret.tty && ret.input && ret.rows == 24 && ret.columns == 80);
    CHECK(ret.limits.pids == 3 && ret.timeout_ms == 5 && strcmp(ret.cwd, "/x") == 0);
    free(bytes);
    arena_clear(&arena);
    return 0;
}

static bool plan_taken(const struct plan_message *m, size_t cut)
{
    struct plan_message ret;
    struct buf b;
    uint64_t tag = 0;

    buf_init(&b, 1 << 20);
    protocol_pack_plan(&b, 9, m);
    char *exact = malloc(b.n - cut); /* to its byte, so that reading beyond is seen */
    memcpy(exact, b.p, b.n - cut);
    bool good = protocol_unpack_plan(exact, b.n - cut, &tag, &ret) && tag == 9 &&
                strcmp(ret.plan, m->plan) == 0 && strcmp(ret.workspace, m->workspace) == 0 &&
                ret.verb == m->verb;
    free(exact);
    buf_clear(&b);
    return good;
}

TEST(a_plans_job_arrives_as_it_was_or_not_at_all)
{
    const struct plan_message good = {.bucket = "main",
                                      .workspace = "w1",
                                      .plan = PLAN_ID,
                                      .actor = "key:ab",
                                      .request = "r1",
                                      .verb = PLAN_APPLY};
    struct plan_message m = good;

    CHECK(plan_taken(&m, 0));
    CHECK(!plan_taken(&m, 1) && !plan_taken(&m, 30));
    m.verb = PLAN_VERB_COUNT_;
    CHECK(!plan_taken(&m, 0));
    m = good;
    m.plan = "..";
    CHECK(!plan_taken(&m, 0));
    m = good;
    m.workspace = "../x";
    CHECK(!plan_taken(&m, 0));
    m = good;
    m.bucket = "";
    CHECK(!plan_taken(&m, 0));
    CHECK(protocol_plan_id_is_valid(PLAN_ID) && !protocol_plan_id_is_valid("p1"));
    CHECK(protocol_details_are_sane("{\"a\":[1]}") && !protocol_details_are_sane("{\"a\":1}}"));
    return 0;
}

TEST(an_exec_that_is_not_sane_is_refused)
{
    static const char *const nothing[] = {NULL};
    static const char *const two[] = {"/a", "/b", NULL};
    static const char *const mode[] = {"/a", "/b", "rx", NULL};
    static const char *const no_name[] = {"=1", NULL};
    static const char *const no_sign[] = {"A", NULL};
    struct exec_message m = example();

    CHECK(taken(&m));
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        m = example();                                                                             \
        m.change;                                                                                  \
        CHECK_FOR(#change, !taken(&m));                                                            \
    } while (0)
    REFUSED(bucket = "..");
    REFUSED(bucket = "");
    REFUSED(workspace = "a/b");
    REFUSED(workspace = ".hidden");
    REFUSED(exec = "x1");
    REFUSED(plan = "../../../etc");
    REFUSED(plan = EXEC_ID);
    REFUSED(argv = nothing);
    REFUSED(env = no_name);
    REFUSED(env = no_sign);
    REFUSED(spec.level = 9);
    REFUSED(spec.net = CARREL_NET_ALLOW + 1);
    REFUSED(spec.user = 3);
    REFUSED(spec.mounts = two);
    REFUSED(spec.mounts = mode);
    REFUSED(spec.template = "../tools");
    REFUSED(spec.template = PLAN_ID);
    REFUSED(spec.base = "../bases");
    REFUSED(spec.owner = "../alice");
    REFUSED(spec.limits.memory_bytes = UINT64_MAX);
    REFUSED(timeout_ms = UINT64_MAX);
    REFUSED(rows = 70000);
#undef REFUSED
    m = example();
    m.spec.shared = NULL;
    CHECK(*protocol_shown(&m.spec) == '\0');
    m.spec.template = "";
    m.spec.mounts = NULL;
    m.cwd = NULL;
    CHECK(taken(&m));
    return 0;
}

static bool share(const char *source, const char *mode, size_t times)
{
    const char *list[3 * 4 + 1] = {NULL};
    struct exec_message m = example();

    for (size_t i = 0; i < times; i++) {
        list[3 * i] = source;
        list[3 * i + 1] = "/x";
        list[3 * i + 2] = mode;
    }
    m.spec.shared = list;
    return taken(&m);
}

TEST(what_is_shared_is_of_the_bucket_and_named_by_an_id)
{
    static const char *const bad[] = {"",           "/etc",        "..",         "../x",
                                      "a/b",        "Skills/u1",   "skills/",    "skills/..",
                                      "skills/a/b", "skills/.old", "threads/w2", "/skills/u1",
                                      ".carrel",    "skills//u1",  "skills/u1/"};

    CHECK(share("skills/u1", "ro", 3) && share("w2", "ro", 1) && share("w2", "rw", 1));
    CHECK(!share("skills/u1", "ro", 4));
    CHECK(!share("skills/u1", "rw", 1)); /* who else has it must not be written to */
    CHECK(!share("w2", "ro", 2));        /* a tree is locked by one name */
    CHECK(!share("w2", "rx", 1));
    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i], !share(bad[i], "ro", 1));
    return 0;
}

TEST(no_shorter_or_longer_message_is_taken)
{
    struct exec_message m = example();
    struct exec_message ret;
    struct arena arena;
    struct buf b;
    uint64_t tag;

    buf_init(&b, 1 << 20);
    protocol_pack_exec(&b, 1, &m);
    CHECK(buf_done(&b) == 0);
    for (size_t n = 0; n <= b.n + 1; n++) {
        char *exact = calloc(1, n ? n : 1);
        memcpy(exact, b.p, n < b.n ? n : b.n);
        arena_init(&arena, 1 << 20);
        CHECK(protocol_unpack_exec(exact, n, &arena, &tag, &ret) == (n == b.n));
        arena_clear(&arena);
        free(exact);
    }
    buf_clear(&b);
    return 0;
}

TEST(an_end_arrives_as_it_was)
{
    struct carrel_denial denials[2] = {
        {.what = "connect 203.0.113.5:443", .rule = "network none", .fix = "say so", .count = 3},
        {.what = "x", .source = CARREL_SOURCE_INFERRED, .count = 1}};
    struct ended_message m = {
        .exec = EXEC_ID,
        .workspace = "w1",
        .result = {.exit_code = 137,
                   .signal = 9,
                   .reason = CARREL_ENDED_OOM,
                   .truncated = true,
                   .level = CARREL_LEVEL_NS,
                   .duration_ms = 12.5,
                   .usage = {.cpu_user_ms = 1.25, .processes = CARREL_UNKNOWN},
                   .denials = denials,
                   .denial_count = 2,
                   .denials_dropped = 4,
                   .disk_method = "quota",
                   .note = "why"},
        .ended_at_ms = 1234567890123,
        .why = "oom",
        .flags = ENDED_SETTLED | ENDED_GONE,
        .unrecorded = 28,
    };
    struct ended_message ret;
    struct arena arena;
    struct buf b;

    arena_init(&arena, 1 << 16);
    buf_init(&b, 1 << 16);
    protocol_pack_ended(&b, &m);
    protocol_pack_ended_flags(&b, m.flags, m.unrecorded);
    CHECK(buf_done(&b) == 0);
    CHECK(protocol_unpack_ended(b.p, b.n, &arena, &ret));
    CHECK(strcmp(ret.exec, EXEC_ID) == 0 && strcmp(ret.why, "oom") == 0);
    CHECK(ret.result.exit_code == 137 && ret.result.signal == 9 && ret.result.truncated);
    CHECK(ret.result.reason == CARREL_ENDED_OOM && ret.result.duration_ms == 12.5);
    CHECK(ret.result.usage.cpu_user_ms == 1.25 && ret.result.usage.processes == CARREL_UNKNOWN);
    CHECK(ret.result.denial_count == 2 && ret.result.denials_dropped == 4);
    CHECK(strcmp(ret.result.denials[0].rule, "network none") == 0);
    CHECK(ret.result.denials[1].source == CARREL_SOURCE_INFERRED);
    CHECK(strcmp(ret.result.disk_method, "quota") == 0 && strcmp(ret.result.note, "why") == 0);
    CHECK(ret.ended_at_ms == 1234567890123);
    CHECK(ret.flags == (ENDED_SETTLED | ENDED_GONE) && ret.unrecorded == 28 && ret.tag == 0);
    protocol_set_tag(&b, 77); /* ANSWER_RAN */
    CHECK(protocol_unpack_ended(b.p, b.n, &arena, &ret));
    CHECK(ret.tag == 77 && strcmp(ret.exec, EXEC_ID) == 0);
    for (size_t n = 0; n < b.n; n++)
        CHECK(!protocol_unpack_ended(b.p, n, &arena, &ret));
    buf_clear(&b);
    arena_clear(&arena);
    return 0;
}

static bool record_is_taken(const char *details, const char *operation)
{
    struct record_message m = {.actor = "key:a", .operation = operation, .details = details};
    struct record_message ret;
    struct buf b;
    uint64_t tag;

    buf_init(&b, 1 << 20);
    protocol_pack_record(&b, 5, &m);
    bool good = buf_done(&b) == 0 && protocol_unpack_record(b.p, b.n, &tag, &ret) && tag == 5 &&
                strcmp(ret.details, details) == 0 && strcmp(ret.actor, "key:a") == 0;
    buf_clear(&b);
    return good;
}

TEST(details_of_a_record_stay_one_object_on_one_line)
{
    CHECK(!protocol_details_are_sane("{\"a\":\"\\\n\"}")); /* an escaped line end is one, too */
    CHECK(protocol_details_are_sane("{\"a\":\"\\n\\\"}\"}"));
    static const char *const good[] = {"", "{}", "{\"a\":[1,{\"b\":\"}\\\"{\"}]}", "{\"a\":\"]\"}"};
    static const char *const bad[] = {
        "x",
        "{}}",
        "{},\"actor\":\"root\",\"x\":{}",
        "{\"a\":\n1}",
        "{\"a\":[}]",
        "{\"a\":\"}",
        "{",
        "{} ",
        " {}",
        "[]",
        "{\"a\":\"\\\"}",
        "{\"\\\\\"}\"}",
    };

    for (size_t i = 0; i < LENGTH(good); i++)
        CHECK_FOR(good[i], record_is_taken(good[i], "key.create"));
    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i], !record_is_taken(bad[i], "key.create"));
    CHECK(!record_is_taken("{}", ""));
    CHECK(!record_is_taken("{}", "a b"));
    return 0;
}

TEST(errors_and_plain_messages_arrive_as_they_were)
{
    struct err err;
    struct err err_ret;
    struct plain_message m = {.texts = {"a", NULL, "c"}, .number = 9};
    struct plain_message ret;
    struct buf b;
    uint64_t tag;

    buf_init(&b, 4096);
    err_set(&err, ERR_LIMIT, 28, "no room for '%s'", "x");
    err.said = SAID_ALLOW_NET_HOST;
    protocol_pack_error(&b, 3, &err);
    CHECK(buf_done(&b) == 0 && protocol_unpack_error(b.p, b.n, &tag, &err_ret));
    CHECK(tag == 3 && err_ret.code == ERR_LIMIT && err_ret.os_errno == 28);
    CHECK(err_ret.said == SAID_ALLOW_NET_HOST);
    CHECK(strcmp(err_ret.msg, err.msg) == 0);
    buf_clear(&b);
    protocol_pack_plain(&b, 4, &m);
    CHECK(buf_done(&b) == 0 && protocol_unpack_plain(b.p, b.n, &tag, &ret));
    CHECK(tag == 4 && ret.number == 9 && strcmp(ret.texts[0], "a") == 0);
    CHECK(*ret.texts[1] == '\0' && strcmp(ret.texts[2], "c") == 0 && *ret.texts[3] == '\0');
    for (size_t n = 0; n < b.n; n++)
        CHECK(!protocol_unpack_plain(b.p, n, &tag, &ret));
    buf_clear(&b);
    return 0;
}

TEST(secrets_arrive_as_they_were)
{
    const char *owner;
    const char *name;
    const char *value;
    struct buf b;
    uint64_t tag;

    buf_init(&b, 4096);
    protocol_pack_secret(&b, 5, "alice", "example-key", "00ff");
    CHECK(buf_done(&b) == 0 && protocol_unpack_secret(b.p, b.n, &tag, &owner, &name, &value));
    CHECK(tag == 5 && strcmp(owner, "alice") == 0 && strcmp(name, "example-key") == 0);
    CHECK(strcmp(value, "00ff") == 0);
    for (size_t n = 0; n < b.n; n++)
        CHECK(!protocol_unpack_secret(b.p, n, &tag, &owner, &name, &value));
    buf_clear(&b);
    return 0;
}

TEST(ids_are_safe_file_names)
{
    static const char *const good[] = {
        "a", "A.b_c-9", "0", "1234567890123456789012345678901234567890123456789012345678901234"};
    static const char *const bad[] = {
        "",
        ".",
        "..",
        "-a",
        "_a",
        ".a",
        "a/b",
        "a b",
        "a\n",
        "\xc3\xa4",
        "12345678901234567890123456789012345678901234567890123456789012345"};

    for (size_t i = 0; i < LENGTH(good); i++)
        CHECK_FOR(good[i], protocol_id_is_valid(good[i]));
    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i], !protocol_id_is_valid(bad[i]));
    CHECK(protocol_exec_id_is_valid(EXEC_ID));
    CHECK(!protocol_exec_id_is_valid(EXEC_ID "a"));
    CHECK(!protocol_exec_id_is_valid("xabcdefghijklmnopqrstuvw23"));
    CHECK(!protocol_exec_id_is_valid("xabcdefghijklmnopqrstuvw231"));
    CHECK(!protocol_exec_id_is_valid("yabcdefghijklmnopqrstuvw234"));
    CHECK(!protocol_exec_id_is_valid(""));
    return 0;
}
