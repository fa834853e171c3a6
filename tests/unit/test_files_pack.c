/* SPDX-License-Identifier: Apache-2.0 */
/* Trees that come back from archives as they were, many files at once, and repair. */
#include "archive_ground.h"

#include <sys/un.h>

#include "files/archive/archive.h"

TEST(a_tree_comes_back_from_tar_and_from_zip_as_it_was)
{
    for (unsigned zip = 0; zip < 2; zip++) {
        struct answer packed;
        struct answer again;
        fresh();
        make_tree();
        pack(at("tree"), zip ? FILES_ZIP : 0, &packed);
        CHECK(packed.whole && packed.head.status == 200);
        CHECK(packed.head.type == (zip ? FILES_TYPE_ZIP : FILES_TYPE_TAR));
        CHECK(unpacks(&packed.b, zip ? FILES_ZIP : 0, 200, "\"skipped_count\":0"));
        CHECK(same_trees(at("tree"), at("in")));
        CHECK(is_empty(at("hidden")));
        /* Over itself, and the same bytes again. */
        pack(at("in"), zip ? FILES_ZIP : 0, &packed);
        pack(at("in"), zip ? FILES_ZIP : 0, &again);
        CHECK(packed.b.n == again.b.n && memcmp(packed.b.p, again.b.p, again.b.n) == 0);
        CHECK(unpacks(&packed.b, zip ? FILES_ZIP : 0, 200, "\"skipped_count\":0"));
        CHECK(same_trees(at("tree"), at("in")));
        buf_clear(&packed.b);
        buf_clear(&again.b);
    }
    return 0;
}

TEST(fractions_of_seconds_and_hard_links_come_back_from_tar)
{
    struct answer packed;
    struct stat a;
    struct stat b;

    fresh();
    make_tree();
    ignore(link(at("tree/a/one"), at("tree/second name")));
    pack(at("tree"), 0, &packed);
    CHECK(unpacks(&packed.b, 0, 200, "\"skipped_count\":0"));
    CHECK(same_trees(at("tree"), at("in")));
    CHECK(stat(at("in/a/one"), &a) == 0 && stat(at("in/second name"), &b) == 0);
    CHECK(a.st_ino == b.st_ino && a.st_nlink == 2 && a.st_mtim.tv_nsec == 123456789);
    CHECK(is_empty(at("hidden")));
    buf_clear(&packed.b);
    return 0;
}

TEST(a_single_file_is_an_archive_of_one_and_a_missing_one_an_error)
{
    struct answer packed;

    fresh();
    put(at("file"), "content");
    pack(at("file"), 0, &packed);
    CHECK(packed.whole && unpacks(&packed.b, 0, 200, "\"files\":1"));
    CHECK(has(at("in/file"), "content"));
    buf_clear(&packed.b);
    pack(at("nothing"), 0, &packed);
    CHECK(says(&packed, 404, "file_not_found"));
    buf_clear(&packed.b);
    CHECK(mkfifo(at("pipe"), 0600) == 0);
    pack(at("pipe"), 0, &packed);
    CHECK(says(&packed, 409, "not_a_file"));
    buf_clear(&packed.b);
    return 0;
}

TEST(pipes_and_sockets_are_left_out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    scoped_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct answer packed;

    fresh();
    ignore(mkdir(at("tree"), 0755));
    CHECK(mkfifo(at("tree/pipe"), 0600) == 0);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", at("tree/socket"));
    CHECK(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    put(at("tree/file"), "x");
    pack(at("tree"), FILES_ZIP, &packed);
    CHECK(packed.whole && unpacks(&packed.b, FILES_ZIP, 200, "\"files\":1,\"directories\":0"));
    buf_clear(&packed.b);
    return 0;
}

TEST(holes_stay_holes_in_tar_and_are_too_large_for_zip)
{
    struct answer packed;
    struct stat st;
    char bytes[8];

    fresh();
    ignore(mkdir(at("tree"), 0755));
    scoped_fd int fd = open(at("tree/sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    off_t huge = (off_t)15 << 40;
    if (ftruncate(fd, huge) < 0)
        huge = (off_t)1 << 40; /* where files are smaller */
    CHECK(ftruncate(fd, huge) == 0);
    CHECK(pwrite(fd, "middle", 6, huge / 2) == 6);
    pack(at("tree"), FILES_ZIP, &packed);
    CHECK(says(&packed, 413, "too_large"));
    buf_clear(&packed.b);
    pack(at("tree"), 0, &packed);
    CHECK(packed.whole && packed.b.n < 100000);
    CHECK(unpacks(&packed.b, 0, 200, "\"files\":1"));
    CHECK(stat(at("in/sparse"), &st) == 0 && st.st_size == huge && st.st_blocks < 100);
    scoped_fd int out = open(at("in/sparse"), O_RDONLY | O_CLOEXEC);
    CHECK(pread(out, bytes, 7, huge / 2) == 7 && memcmp(bytes, "middle", 7) == 0);
    buf_clear(&packed.b);
    return 0;
}

TEST(what_cannot_be_read_is_an_error_before_the_answer_and_not_left_out)
{
    struct answer packed;

    fresh();
    ignore(mkdir(at("tree"), 0755));
    ignore(mkdir(at("tree/b"), 0755));
    put(at("tree/b/closed"), "x");
    ignore(chmod(at("tree/b/closed"), 0));
    ignore(chmod(base, 0711));
    bool is_root = geteuid() == 0;
    CHECK(!is_root || seteuid(65534) == 0);
    bool reached = euidaccess(at("tree"), R_OK) == 0; /* or a directory above is closed as well */
    pack(at("tree"), 0, &packed);
    CHECK(!is_root || seteuid(0) == 0);
    CHECK(says(&packed, 403, reached ? "tree/b/closed" : "tree"));
    buf_clear(&packed.b);
    return 0;
}

TEST(a_file_that_becomes_shorter_cuts_the_answer_off)
{
    struct packer *p = calloc(1, sizeof(*p));
    struct files_message m = {.path = "/"};
    int ends[2];

    fresh();
    put(at("file"), "some bytes");
    scoped_fd int fd = open(at("file"), O_RDWR | O_CLOEXEC);
    struct pack_item item = {.name = "file", .fd = fd};
    CHECK(p && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    CHECK(fstat(fd, &item.st) == 0 && ftruncate(fd, 5) == 0);
    for (unsigned zip = 0; zip < 2; zip++) {
        struct files_call call = {.m = &m, .stream = ends[1], .hidden = -1, .pieces = true};
        p->call = &call;
        buf_init(&p->central, 4096);
        (zip ? zip_item : tar_item)(p, &item);
        CHECK_FOR(zip ? "zip" : "tar", call.gone);
        buf_clear(&p->central);
    }
    zip_clear(p);
    free(p);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return 0;
}

/* --- many at once --- */

static void batch_item(struct buf *b, const char *path, const char *text, uint64_t mode)
{
    uint64_t sizes[3] = {strlen(path), strlen(text), mode};

    buf_add(b, sizes, sizeof(sizes));
    buf_str(b, path);
    buf_str(b, text);
}

static bool batches(files_operation *operation, struct buf *b, unsigned status, const char *text)
{
    struct files_message m = {.op = FILES_BATCH_WRITE, .path = "/"};
    struct scene_feed feed = {.body = b->p, .n = b->n};
    struct answer a;

    scene_call(operation, &m, hidden, &feed, &a);
    bool is = says(&a, status, text);
    buf_clear(&a.b);
    b->n = 0;
    return is;
}

TEST(a_batch_writes_and_reads_with_a_result_for_each)
{
    scoped_buf struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    ignore(mkdir(at("dir"), 0755));
    batch_item(&b, at("new/parents/one"), "first", FILES_MOST);
    batch_item(&b, at("dir"), "no", FILES_MOST);
    batch_item(&b, "relative", "no", FILES_MOST);
    batch_item(&b, at("two"), "second", 0600);
    CHECK(batches(files_batch_write, &b, 200, "\"error\":{\"code\":\"is_directory\""));
    CHECK(has(at("new/parents/one"), "first") && has(at("two"), "second"));
    CHECK(mode_of(at("two")) == (S_IFREG | 0600) && is_empty(at("hidden")));
    put(at("binary"), "\xff\xfe");
    buf_add(&b, at("new/parents/one"), strlen(at("new/parents/one")) + 1);
    buf_add(&b, at("nothing"), strlen(at("nothing")) + 1);
    buf_add(&b, at("binary"), strlen(at("binary")) + 1);
    CHECK(batches(files_batch_read, &b, 200, "\"content\":\"first\",\"etag\":"));
    buf_add(&b, at("nothing"), strlen(at("nothing")) + 1);
    buf_add(&b, at("binary"), strlen(at("binary")) + 1);
    buf_add(&b, at("dir"), strlen(at("dir")) + 1);
    CHECK(batches(files_batch_read, &b, 200,
                  "\"error\":{\"code\":\"file_not_found\",\"message\":\"there is "
                  "no such file\"}},"));
    CHECK(batches(files_batch_read, &b, 200, "{\"results\":[]}"));
    CHECK(batches(files_batch_write, &b, 200, "{\"results\":[]}"));
    buf_str(&b, "/no/end");
    CHECK(batches(files_batch_read, &b, 400, "invalid_request"));
    batch_item(&b, at("two"), "torn", FILES_MOST);
    b.n -= 2;
    CHECK(batches(files_batch_write, &b, 400, "incomplete_body"));
    CHECK(has(at("two"), "second"));
    return 0;
}

TEST(a_batch_reads_only_so_much)
{
    scoped_buf struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    scoped_fd int fd = open(at("large"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CHECK(ftruncate(fd, (16 << 20) + 1) == 0);
    buf_add(&b, at("large"), strlen(at("large")) + 1);
    CHECK(batches(files_batch_read, &b, 200, "too_large"));
    char piece[4096];
    memset(piece, 'x', sizeof(piece));
    for (int i = 0; i < 4096; i++)
        CHECK(pwrite(fd, piece, sizeof(piece), (off_t)i * 4096) == 4096);
    CHECK(ftruncate(fd, 16 << 20) == 0);
    for (int i = 0; i < 5; i++)
        buf_add(&b, at("large"), strlen(at("large")) + 1);
    CHECK(batches(files_batch_read, &b, 200, "too_large"));
    /* Every byte becomes six: more than an answer in one piece could be. */
    memset(piece, '\t', sizeof(piece));
    for (int i = 0; i < 2816; i++)
        CHECK(pwrite(fd, piece, sizeof(piece), (off_t)i * 4096) == 4096);
    CHECK(ftruncate(fd, 2816 * 4096) == 0);
    buf_add(&b, at("large"), strlen(at("large")) + 1);
    CHECK(batches(files_batch_read, &b, 200, "\\u0009\",\"etag\":"));
    return 0;
}

/* --- repair --- */

TEST(repair_opens_what_was_closed)
{
    struct files_message m = {.op = FILES_REPAIR};
    struct scene_feed feed = {.body = ""};
    struct answer a;

    fresh();
    ignore(mkdir(at("tree"), 0755));
    ignore(mkdir(at("tree/closed"), 0755));
    ignore(mkdir(at("tree/closed/inner"), 0755));
    put(at("outside"), "x");
    ignore(chmod(at("outside"), 0));
    put(at("tree/closed/inner/file"), "x");
    put(at("tree/closed/program"), "x");
    ignore(symlink(at("outside"), at("tree/link")));
    ignore(chmod(at("tree/closed/inner/file"), 0));
    ignore(chmod(at("tree/closed/program"), 0011));
    ignore(chmod(at("tree/closed/inner"), 0));
    ignore(chmod(at("tree/closed"), 0));
    m.path = at("tree");
    scene_call(files_repair, &m, hidden, &feed, &a);
    CHECK(says(&a, 200, "{\"changed\":4,\"left_count\":0,\"left\":[]}"));
    CHECK(mode_of(at("tree/closed/inner/file")) == (S_IFREG | 0600));
    CHECK(mode_of(at("tree/closed/program")) == (S_IFREG | 0711));
    CHECK(mode_of(at("tree/closed")) == (S_IFDIR | 0700));
    CHECK(mode_of(at("outside")) == S_IFREG);
    buf_clear(&a.b);
    m.path = at("nothing");
    scene_call(files_repair, &m, hidden, &feed, &a);
    CHECK(says(&a, 404, "file_not_found"));
    buf_clear(&a.b);
    return 0;
}
