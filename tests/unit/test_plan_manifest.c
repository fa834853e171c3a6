/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_ground.h"
#include "unit.h"

#include <sys/mman.h>

#include "base/bytes.h"

static const struct plan_identity file_identity = {.dev = UINT64_MAX,
                                                   .ino = UINT64_MAX - 1,
                                                   .size = 7,
                                                   .mtime_ns = -5,
                                                   .ctime_ns = 9,
                                                   .mode = S_IFREG | 04755};

static struct plan_operation *add(struct plan *plan, enum plan_kind kind, const char *path,
                                  uint32_t mode)
{
    struct err err;
    struct plan_operation *o = plan_add(plan, &err);

    o->kind = kind;
    o->path = path;
    o->mode = mode;
    return o;
}

static void with_base(struct plan_operation *o, const char *from, uint32_t mode)
{
    o->from = from;
    o->has_base = true;
    o->base = file_identity;
    o->base.mode = mode;
}

/* One of each kind, not in order. */
static void make_plan(struct plan *plan)
{
    struct err err;

    plan_init(plan);
    plan->validations = "[{\"check\":\"exists\",\"path\":\"x\"}]";
    with_base(add(plan, PLAN_DELETE, "old", S_IFDIR | 0755), NULL, S_IFDIR | 02755);
    with_base(add(plan, PLAN_MOVE, "to\n\"there\\", S_IFREG | 0600), "from", S_IFREG | 0644);
    with_base(add(plan, PLAN_CHMOD, "to/\xff\xfe", S_IFREG | 0600), "there/\x01", S_IFREG | 04755);
    add(plan, PLAN_MKDIR, "a", S_IFDIR | 0700)->mtime_ns = -1;
    add(plan, PLAN_SYMLINK, "a-link", S_IFLNK | 0777)->target = "/etc/passwd";
    struct plan_operation *o = add(plan, PLAN_CREATE, "a/b", S_IFREG | 0644);
    o->has_hash = true;
    o->size = 3;
    o->mtime_ns = 1700000000123456789;
    memset(o->hash, 0xab, PLAN_HASH);
    o = add(plan, PLAN_WRITE, "w", S_IFREG | 0644);
    with_base(o, NULL, S_IFREG | 0644);
    o->link = "a/b";
    o->has_hash = true;
    memset(o->hash, 0xab, PLAN_HASH);
    (void)plan_add_flaw(plan, PLAN_FLAW_FIFO, "pipe", &err);
    (void)plan_add_flaw(plan, PLAN_FLAW_SETID, "a/\xff", &err);
}

/* The plan as bytes in `text`; how many. */
static ssize_t written(const struct plan *plan, char *text, size_t size,
                       unsigned char hash[PLAN_HASH])
{
    struct err err;
    int fd = memfd_create("manifest", MFD_CLOEXEC);
    ssize_t n = plan_write(plan, fd, hash, &err) < 0 ? -1 : pread(fd, text, size - 1, 0);

    (void)close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return n;
}

static int read_back(const char *text, size_t n, struct plan *ret, unsigned char hash[PLAN_HASH],
                     struct err *err)
{
    int fd = memfd_create("manifest", MFD_CLOEXEC);
    int r = write(fd, text, n) == (ssize_t)n && lseek(fd, 0, SEEK_SET) == 0
                ? plan_read(ret, fd, hash, err)
                : -1;

    (void)close(fd);
    return r;
}

TEST(a_plan_is_read_as_it_was_written)
{
    char first[8192];
    char second[8192];
    unsigned char hash[3][PLAN_HASH];
    struct plan plan;
    struct plan again;
    struct err err = {0};

    make_plan(&plan);
    CHECK(plan_put_in_order(&plan, &err) == 0);
    ssize_t n = written(&plan, first, sizeof(first), hash[0]);
    CHECK(n > 0);
    CHECK_FOR(err.msg, read_back(first, (size_t)n, &again, hash[1], &err) == 0);
    CHECK(again.count == plan.count && again.bytes == 3 && again.flaw_count == 2);
    CHECK(strcmp(again.validations, plan.validations) == 0);
    CHECK(written(&again, second, sizeof(second), hash[2]) == n && strcmp(first, second) == 0);
    CHECK(memcmp(hash[0], hash[1], PLAN_HASH) == 0 && memcmp(hash[0], hash[2], PLAN_HASH) == 0);
    CHECK(strstr(first, "\"ino\":\"18446744073709551614\"") != NULL);
    CHECK(strstr(first, "\"path_b64\":\"dG8v//4=\"") != NULL);
    plan_clear(&plan);
    plan_clear(&again);
    return 0;
}

TEST(the_order_of_making_a_plan_is_not_its_order)
{
    char first[8192];
    char second[8192];
    unsigned char hash[PLAN_HASH];
    struct plan plan;
    struct err err;

    make_plan(&plan);
    CHECK(plan_put_in_order(&plan, &err) == 0);
    CHECK(written(&plan, first, sizeof(first), hash) > 0);
    for (size_t i = 0; i < plan.count / 2; i++) {
        struct plan_operation swapped = plan.operations[i];
        plan.operations[i] = plan.operations[plan.count - 1 - i];
        plan.operations[plan.count - 1 - i] = swapped;
    }
    CHECK(plan_put_in_order(&plan, &err) == 0);
    CHECK(written(&plan, second, sizeof(second), hash) > 0 && strcmp(first, second) == 0);
    CHECK(strcmp(plan.operations[0].path, "a") == 0);
    CHECK(strcmp(plan.operations[1].path, "a/b") == 0);
    CHECK(strcmp(plan.operations[2].path, "a-link") == 0);
    plan_clear(&plan);
    return 0;
}

/* Any byte that is changed, left out or put in makes another plan, or none. */
TEST(nothing_can_be_in_a_manifest_that_is_not_in_the_plan)
{
    char text[8192];
    char bent[8200];
    unsigned char hash[PLAN_HASH];
    unsigned char other[PLAN_HASH];
    struct plan plan;
    struct err err;

    make_plan(&plan);
    CHECK(plan_put_in_order(&plan, &err) == 0);
    size_t n = (size_t)written(&plan, text, sizeof(text), hash);
    plan_clear(&plan);
    for (size_t i = 0; i < n; i++) {
        for (int way = 0; way < 3; way++) {
            size_t less = way == 1;
            size_t more = way == 2;
            memcpy(bent, text, i);
            if (way != 1)
                bent[i] = way == 0 ? (char)(text[i] ^ 1) : ' ';
            memcpy(bent + i + (way != 1), text + i + (way != 2), n - i - (way != 2));
            if (read_back(bent, n - less + more, &plan, other, &err) < 0)
                continue;
            CHECK_FOR(bent, memcmp(hash, other, PLAN_HASH) != 0);
            char again[8200];
            ssize_t m = written(&plan, again, sizeof(again), hash);
            CHECK(m == (ssize_t)(n - less + more) && memcmp(again, bent, (size_t)m) == 0);
            CHECK(memcmp(hash, other, PLAN_HASH) == 0);
            plan_clear(&plan);
            (void)read_back(text, n, &plan, hash, &err);
            plan_clear(&plan);
        }
    }
    return 0;
}

TEST(what_is_no_plan_is_refused_in_words)
{
    static const char *const bad[] = {
        "",
        "\n",
        "{}\n",
        "{\"plan\":2,\"operations\":0,\"flaws\":0,\"bytes\":0}\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n",
        "{\"plan\":1,\"operations\":0,\"flaws\":0,\"bytes\":1}\n",
        "{\"plan\":1,\"operations\":0,\"flaws\":0,\"bytes\":0,\"validations\":[]}\n",
        "{\"plan\":1,\"operations\":0,\"flaws\":0,\"bytes\":0}",
        "{\"plan\":1,\"operations\":0,\"flaws\":0,\"bytes\":0}\n\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"../"
        "a\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"usr/"
        "a\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"4755\",\"mtime_ns\":0}"
        "\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"file\",\"mode\":\"0755\",\"mtime_ns\":0}\n",
        "{\"plan\":1,\"operations\":1,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"create\",\"path\":\"a\",\"type\":\"file\",\"mode\":\"0755\"}\n",
        "{\"plan\":1,\"operations\":2,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"b\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}"
        "\n"
        "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}"
        "\n",
        "{\"plan\":1,\"operations\":2,\"flaws\":0,\"bytes\":0}\n"
        "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}"
        "\n"
        "{\"op\":\"mkdir\",\"path\":\"a\",\"type\":\"directory\",\"mode\":\"0755\",\"mtime_ns\":0}"
        "\n",
    };

    for (size_t i = 0; i < LENGTH(bad); i++) {
        struct plan plan;
        struct err err = {0};
        unsigned char hash[PLAN_HASH];
        CHECK_FOR(bad[i], read_back(bad[i], strlen(bad[i]), &plan, hash, &err) < 0);
        CHECK_FOR(bad[i], err.code == ERR_INVALID && err.msg[0]);
    }
    return 0;
}

TEST(two_operations_for_one_place_are_refused)
{
    struct plan plan;
    struct err err = {0};

    plan_init(&plan);
    add(&plan, PLAN_MKDIR, "a", S_IFDIR | 0755);
    with_base(add(&plan, PLAN_DELETE, "a", S_IFREG | 0644), NULL, S_IFREG | 0644);
    CHECK(plan_put_in_order(&plan, &err) == 0);
    CHECK(plan_find_final(&plan, "a")->kind == PLAN_MKDIR && !plan_find_final(&plan, "b"));
    with_base(add(&plan, PLAN_MOVE, "b", S_IFREG | 0644), "a", S_IFREG | 0644);
    CHECK(plan_put_in_order(&plan, &err) < 0 && strstr(err.msg, "take 'a'"));
    plan.operations[plan.count - 1].from = "c";
    plan.operations[plan.count - 1].path = "a";
    CHECK(plan_put_in_order(&plan, &err) < 0 && strstr(err.msg, "for 'a'"));
    plan_clear(&plan);
    return 0;
}

TEST(paths_are_what_they_look_like)
{
    static const struct {
        const char *path;
        bool good;
    } rows[] = {
        {"a", true},       {"a/b", true},      {"...", true},    {".a", true},      {"a/usr", true},
        {"\xff\n", true},  {"userdata", true}, {"", false},      {"/", false},      {"/a", false},
        {"a/", false},     {"a//b", false},    {".", false},     {"a/.", false},    {"..", false},
        {"a/../b", false}, {"usr", false},     {"tmp/x", false}, {".cache", false},
    };
    struct err err;
    char name[PLAN_MAX_PATH + 2];

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].path,
                  (plan_check_path(rows[i].path, strlen(rows[i].path), &err) == 0) == rows[i].good);
    memset(name, 'n', sizeof(name));
    CHECK(plan_check_path(name, 255, &err) == 0 && plan_check_path(name, 256, &err) < 0);
    for (size_t i = 200; i < sizeof(name); i += 200)
        name[i] = '/';
    CHECK(plan_check_path(name, PLAN_MAX_PATH, &err) == 0);
    CHECK(plan_check_path(name, PLAN_MAX_PATH + 1, &err) < 0);
    CHECK(plan_check_path("a\0b", 3, &err) < 0);
    CHECK(plan_compare_paths("a/b", "a-b") < 0 && plan_compare_paths("a", "a/b") < 0);
    CHECK(plan_is_below("a/b", "a") && plan_is_below("a", "a") && !plan_is_below("ab", "a"));
    return 0;
}

TEST(bytes_go_through_base64_and_hex_unchanged)
{
    unsigned char bytes[256];
    unsigned char back[260];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        struct buf b;
        char hex[2 * sizeof(bytes) + 1];
        buf_init(&b, 1024);
        bytes_add_base64(&b, bytes, n);
        CHECK(buf_done(&b) == 0);
        CHECK(bytes_from_base64(b.p, b.n, back) == (ssize_t)n && memcmp(bytes, back, n) == 0);
        bytes_to_hex(bytes, n, hex);
        CHECK(bytes_from_hex(hex, n, back) && memcmp(bytes, back, n) == 0);
        buf_clear(&b);
    }
    CHECK(bytes_from_base64("QQ=", 3, back) < 0 && bytes_from_base64("QR==", 4, back) < 0);
    CHECK(bytes_from_base64("Q===", 4, back) < 0 && bytes_from_base64("QQ==QQ==", 8, back) < 0);
    CHECK(!bytes_from_hex("0G", 1, back) && !bytes_are_utf8("\xc0\x80", 2));
    return 0;
}
