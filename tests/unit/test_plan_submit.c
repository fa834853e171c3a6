/* SPDX-License-Identifier: Apache-2.0 */
#include "plan_ground.h"
#include "unit.h"

/* a, b, d/x, d/sub/y.pdf, d/z.pdf, and the symlink "link" to d. */
static int open_ground(struct ground *g)
{
    if (ground_open(g) < 0 || mkdir(ground_path(g, "tree/d"), 0755) < 0 ||
        mkdir(ground_path(g, "tree/d/sub"), 0755) < 0 ||
        symlink("d", ground_path(g, "tree/link")) < 0)
        return -1;
    static const char *const files[] = {"tree/a", "tree/b", "tree/d/x", "tree/d/z.pdf",
                                        "tree/d/sub/y.pdf"};
    for (size_t i = 0; i < LENGTH(files); i++) {
        if (ground_write(g, files[i], files[i]) < 0)
            return -1;
    }
    return 0;
}

static int submit(struct ground *g, const char *text)
{
    int r = plan_derive_written(&g->plan, g->tree, g->dir, text, strlen(text), &g->err);

    if (r < 0)
        memset(&g->plan, 0, sizeof(g->plan));
    return r;
}

TEST(written_plans_say_what_they_do)
{
    static const struct {
        const char *text;
        const char *list;
    } rows[] = {
        {"[]", ""},
        {"{}", ""},
        {"[{\"op\":\"move\",\"src\":\"a\",\"dest\":\"b\"},{\"op\":\"move\",\"src\":\"b\",\"dest\":"
         "\"a\"}]",
         "move a<b\nmove b<a\n"},
        {"{\"moves\":[{\"src\":\"/a\",\"dest\":\"/new/deep/a\"}]}",
         "mkdir new\nmkdir new/deep\nmove new/deep/a<a\n"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"d\"}]}", "move d/a<a\n"},
        {"{\"moves\":[{\"source\":\"a\",\"destination\":\"d/\"}]}", "move d/a<a\n"},
        {"[{\"op\":\"move\",\"source_b64\":\"YQ==\",\"dest\":\"c\"}]", "move c<a\n"},
        {"{\"moves\":[{\"src\":\"d/**/*.pdf\",\"dest\":\"pdf/\"}],\"deletions\":[{\"path\":\"d\","
         "\"recursive\":true}]}",
         "delete d\nmkdir pdf\nmove pdf/y.pdf<d/sub/y.pdf\nmove pdf/z.pdf<d/z.pdf\n"},
        {"{\"deletions\":[\"a\"],\"creations\":[{\"path\":\"a\",\"kind\":\"mkdir\",\"mode\":"
         "\"0700\"},"
         "{\"path\":\"a/s\",\"kind\":\"symlink\",\"target\":\"../b\"},{\"path\":\"a/"
         "f\",\"content\":\"1\"}]}",
         "mkdir a\ndelete a\ncreate a/f\nsymlink a/s\n"},
        {"[{\"op\":\"move\",\"src\":\"d\",\"dest\":\"e\"},{\"op\":\"write\",\"path\":\"e/"
         "x\",\"content\":\"2\"},"
         "{\"op\":\"chmod\",\"path\":\"e/sub\",\"mode\":\"700\"},{\"op\":\"chmod\",\"path\":\"e\","
         "\"mode\":\"0711\"}]",
         "move e<d\nchmod e/sub<d/sub\nwrite e/x<d/x\n"},
        {"[{\"op\":\"move\",\"src\":\"d\",\"dest\":\"e\"},{\"op\":\"create\",\"path\":\"d/"
         "n\",\"content\":\"\"}]",
         "mkdir d\ncreate d/n\nmove e<d\n"},
        {"[{\"op\":\"mkdir\",\"path\":\"d\"},{\"op\":\"write\",\"path\":\"d/"
         "new\",\"content_b64\":\"AAE=\"}]",
         "create d/new\n"},
        {"[{\"op\":\"create\",\"path_b64\":\"/w==\",\"content\":\"\"}]", "create \xff\n"},
        {"[{\"op\":\"move\",\"src\":\"d/x\",\"dest\":\"x\"},{\"op\":\"move\",\"src\":\"d/"
         "z.pdf\",\"dest\":\"/\"},"
         "{\"op\":\"delete\",\"path\":\"d/"
         "sub\",\"recursive\":true},{\"op\":\"delete\",\"path\":\"d\"}]",
         "delete d\ndelete d/sub\nmove x<d/x\nmove z.pdf<d/z.pdf\n"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct ground g;
        CHECK(open_ground(&g) == 0);
        CHECK_FOR(g.err.msg, submit(&g, rows[i].text) == 0);
        CHECK_FOR(ground_list(&g.plan), strcmp(ground_list(&g.plan), rows[i].list) == 0);
        ground_close(&g);
    }
    return 0;
}

TEST(what_a_plan_may_not_say_is_refused)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *word;
    } rows[] = {
        {"", ERR_INVALID, "written plan"},
        {"7", ERR_INVALID, "expected"},
        {"[7]", ERR_INVALID, "'op'"},
        {"[{\"op\":\"mknod\",\"path\":\"n\"}]", ERR_INVALID, "mknod"},
        {"{\"removals\":[]}", ERR_INVALID, "removals"},
        {"{\"moves\":{}}", ERR_INVALID, "no list"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\",\"force\":true}]}", ERR_INVALID, "force"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\",\"from\":\"b\"}]}", ERR_INVALID,
         "'from' of a 'move' is unknown"},
        {"{\"moves\":[{\"src\":\"a\"}]}", ERR_INVALID, "lacks 'dest'"},
        {"{\"moves\":[{\"src\":7,\"dest\":\"c\"}]}", ERR_INVALID, "must be a text"},
        {"{\"moves\":[{\"src\":\"a\",\"source\":\"a\",\"dest\":\"c\"}]}", ERR_INVALID,
         "mean the same"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\",\"destination_b64\":\"Yw==\"}]}", ERR_INVALID,
         "mean the same"},
        {"{\"moves\":[{\"source\":\"a\",\"destination\":\"../c\"}]}", ERR_INVALID, ".."},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\",\"dest\":\"d\"}]}", ERR_INVALID, "duplicate"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"../c\"}]}", ERR_INVALID, ".."},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"/../c\"}]}", ERR_INVALID, ".."},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"//c\"}]}", ERR_INVALID, "component"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"usr/c\"}]}", ERR_INVALID, "for itself"},
        {"{\"moves\":[{\"src\":\"none\",\"dest\":\"c\"}]}", ERR_CONFLICT, "not in the tree"},
        {"{\"moves\":[{\"src\":\"none*\",\"dest\":\"c/\"}]}", ERR_CONFLICT, "matches"},
        {"{\"moves\":[{\"src\":\"*\",\"dest\":\"c\"}]}", ERR_INVALID, "directory"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"b\"}]}", ERR_CONFLICT, "already"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"a\"}]}", ERR_INVALID, "where it is"},
        {"{\"moves\":[{\"src\":\"d\",\"dest\":\"d/sub/d\"}]}", ERR_INVALID, "itself"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\"},{\"src\":\"a\",\"dest\":\"e\"}]}", ERR_INVALID,
         "take"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"c\"},{\"src\":\"b\",\"dest\":\"c\"}]}", ERR_INVALID,
         "for 'c'"},
        {"{\"moves\":[{\"src\":\"link/x\",\"dest\":\"c\"}]}", ERR_INVALID, "symlink"},
        {"{\"moves\":[{\"src\":\"a\",\"dest\":\"link/x2\"}]}", ERR_INVALID, "symlink"},
        {"{\"deletions\":[\"d\"]}", ERR_INVALID, "recursive"},
        {"{\"deletions\":[\"a\",\"/a\"]}", ERR_INVALID, "take"},
        {"{\"deletions\":[\"link/x\"]}", ERR_INVALID, "symlink"},
        {"{\"creations\":[{\"path\":\"a\",\"content\":\"\"}]}", ERR_CONFLICT, "already"},
        {"{\"creations\":[{\"path\":\"n\",\"content\":\"\",\"mode\":\"4755\"}]}", ERR_INVALID,
         "setuid"},
        {"{\"creations\":[{\"path\":\"n\",\"content\":\"\",\"content_b64\":\"\"}]}", ERR_INVALID,
         "one of them"},
        {"{\"creations\":[{\"path\":\"n\",\"content_b64\":\"!\"}]}", ERR_INVALID, "base64"},
        {"{\"creations\":[{\"path\":\"n\",\"kind\":\"device\"}]}", ERR_INVALID, "device"},
        {"{\"creations\":[{\"path\":\"n\",\"content\":\"\"},{\"path\":\"n/m\",\"content\":\"\"}]}",
         ERR_INVALID, "directory"},
        {"{\"creations\":[{\"path\":\"n\",\"kind\":\"symlink\",\"target\":\"d\"},{\"path\":\"n/m\","
         "\"content\":\"\"}]}",
         ERR_INVALID, "directory"},
        {"{\"creations\":[{\"path\":\"a/m\",\"content\":\"\"}]}", ERR_INVALID, "directory"},
        {"{\"validations\":[{\"check\":\"magic\"}]}", ERR_INVALID, "magic"},
        {"[{\"op\":\"chmod\",\"path\":\"none\",\"mode\":\"0600\"}]", ERR_CONFLICT,
         "not in the tree"},
        {"[{\"op\":\"write\",\"path\":\"d\",\"content\":\"\"}]", ERR_CONFLICT, "no file"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct ground g;
        CHECK(open_ground(&g) == 0);
        CHECK_FOR(rows[i].text, submit(&g, rows[i].text) < 0);
        CHECK_FOR(g.err.msg, g.err.code == rows[i].code);
        CHECK_FOR(g.err.msg, strstr(g.err.msg, rows[i].word) != NULL);
        CHECK_FOR(rows[i].text, access(ground_path(&g, "plan/upper/n"), F_OK) < 0);
        ground_close(&g);
    }
    return 0;
}

TEST(the_content_of_a_written_plan_is_staged)
{
    struct ground g;
    char content[16] = "";
    struct stat st;

    CHECK(open_ground(&g) == 0);
    CHECK(submit(&g, "{\"creations\":[{\"path\":\"n/m\",\"content\":\"hello\",\"mode\":\"0750\"}],"
                     "\"validations\":[{\"path\":\"a\",\"check\":\"exists\"}]}") == 0);
    int fd = open(ground_path(&g, "plan/upper/n/m"), O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, content, sizeof(content)) == 5 && strcmp(content, "hello") == 0);
    CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0750);
    (void)close(fd);
    CHECK(g.plan.bytes == 5 && plan_find_final(&g.plan, "n/m")->mtime_ns == plan_mtime(&st));
    CHECK(strcmp(g.plan.validations, "[{\"check\":\"exists\",\"path\":\"a\"}]") == 0);
    unsigned char hash[PLAN_HASH];
    unsigned char again[PLAN_HASH];
    CHECK(plan_save(&g.plan, g.dir, "manifest", hash, &g.err) == 0);
    plan_clear(&g.plan);
    CHECK_FOR(g.err.msg, plan_load(&g.plan, g.dir, "manifest", again, &g.err) == 0);
    CHECK(memcmp(hash, again, PLAN_HASH) == 0);
    ground_close(&g);
    return 0;
}

TEST(too_much_is_refused_before_it_is_parsed)
{
    static const char *const pieces[] = {"{\"op\":\"delete\",\"path\":\"a\"},", "\"a\",", "{},"};

    for (size_t i = 0; i < LENGTH(pieces); i++) {
        struct ground g;
        struct buf b;
        buf_init(&b, 64 << 20);
        buf_str(&b, "[");
        for (int n = 0; n < 3000000 && b.n < 32 << 20; n++)
            buf_str(&b, pieces[i]);
        buf_str(&b, "0]");
        CHECK(ground_open(&g) == 0);
        CHECK(plan_derive_written(&g.plan, g.tree, g.dir, b.p, b.n, &g.err) < 0);
        CHECK_FOR(g.err.msg, g.err.code == ERR_LIMIT);
        memset(&g.plan, 0, sizeof(g.plan));
        buf_clear(&b);
        ground_close(&g);
    }
    return 0;
}
