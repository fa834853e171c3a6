/* SPDX-License-Identifier: Apache-2.0 */
/* Archives, many files at once, and repair: in a directory of their own, by
 * absolute paths. */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <zlib.h>

#include "archive_scene.h"
#include "base/fd.h"
#include "files/archive.h"
#include "files/landing.h"
#include "unit.h"

/* --- a place to work in --- */

static char base[64];
static int hidden = -1;

static const char *at(const char *format, ...)
{
    static char paths[8][FILES_PATH];
    static unsigned next;
    char *path = paths[next++ % 8];
    va_list args;
    size_t n = (size_t)snprintf(path, FILES_PATH, "%s/", base);

    va_start(args, format);
    (void)vsnprintf(path + n, FILES_PATH - n, format, args);
    va_end(args);
    return path;
}

static void leave(void)
{
    ignore(chmod(base, 0700));
    scene_remove(base);
    scope_close(&hidden);
}

static void fresh(void)
{
    static bool begun;

    if (begun)
        leave();
    else
        (void)atexit(leave);
    begun = true;
    (void)snprintf(base, sizeof(base), "%s/carrel-archive-XXXXXX",
                   getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(base) || mkdir(at("hidden"), 0700) < 0)
        abort();
    hidden = open(at("hidden"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void put(const char *path, const char *text)
{
    scoped_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
}

static bool has(const char *path, const char *text)
{
    scoped_fd int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    char bytes[4096];
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return n >= 0 && (size_t)n == strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static bool is_absent(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 && errno == ENOENT;
}

static mode_t mode_of(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 ? 0 : st.st_mode;
}

static bool is_empty(const char *directory)
{
    struct dirent **names = NULL;
    int n = scandir(directory, &names, NULL, NULL);

    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    return n == 2;
}

/* --- archives by hand --- */

struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[8],
        rest[247];
};

static void tar_raw(struct buf *b, char type, const char *name, const char *link, const void *bytes,
                    size_t n, uint64_t says)
{
    static const char zeros[512];
    struct tar_header h = {.type = type};
    unsigned sum = 0;

    memcpy(h.name, name, strnlen(name, sizeof(h.name)));
    memcpy(h.link, link, strnlen(link, sizeof(h.link)));
    (void)snprintf(h.mode, sizeof(h.mode), "%07o", 04755U);
    memcpy(h.uid, "0000000", 7);
    memcpy(h.gid, "0000000", 7);
    (void)snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)says);
    (void)snprintf(h.mtime, sizeof(h.mtime), "%011o", 1000000000U);
    memcpy(h.magic, "ustar\00000", 8);
    memset(h.sum, ' ', 8);
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((const unsigned char *)&h)[i];
    (void)snprintf(h.sum, sizeof(h.sum), "%06o", sum);
    buf_add(b, &h, sizeof(h));
    buf_add(b, bytes, n);
    buf_add(b, zeros, (512 - n % 512) % 512);
}

static void tar_put(struct buf *b, char type, const char *name, const char *link, const char *text)
{
    tar_raw(b, type, name, link, text, strlen(text), strlen(text));
}

static void tar_end(struct buf *b)
{
    static const char zeros[1024];

    buf_add(b, zeros, sizeof(zeros));
}

static void le(struct buf *b, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = i < 8 ? (unsigned char)(value >> (8 * i)) : 0;
        buf_add(b, &c, 1);
    }
}

static uint32_t sum_of(const void *bytes, size_t n)
{
    return (uint32_t)crc32(0, bytes, (uInt)n);
}

/* Stored. */
static void zip_raw(struct buf *b, const char *name, const char *text, uint32_t crc, uint64_t says)
{
    le(b, 0x04034b50, 4);
    le(b, 20, 2);
    le(b, 0x800, 2);
    le(b, 0, 2);
    le(b, 0x21 << 16, 4);
    le(b, crc, 4);
    le(b, says, 4);
    le(b, says, 4);
    le(b, strlen(name), 2);
    le(b, 0, 2);
    buf_str(b, name);
    buf_str(b, text);
}

static void zip_put(struct buf *b, const char *name, const char *text)
{
    zip_raw(b, name, text, sum_of(text, strlen(text)), strlen(text));
}

static void zip_central(struct buf *b, const char *name, unsigned mode)
{
    le(b, 0x02014b50, 4);
    le(b, 3 << 8 | 20, 2);
    le(b, 20, 2);
    le(b, 0, 4);
    le(b, 0x21 << 16, 4);
    le(b, 0, 12);
    le(b, strlen(name), 2);
    le(b, 0, 8);
    le(b, (uint64_t)mode << 16, 4);
    le(b, 0, 4);
    buf_str(b, name);
}

static void zip_end(struct buf *b)
{
    le(b, 0x06054b50, 4);
    le(b, 0, 18);
}

static void gzip(struct buf *b, const void *bytes, size_t n, size_t times)
{
    z_stream z = {.next_in = NULL};
    unsigned char out[65536];
    int rc = deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);

    for (size_t i = 0; rc == Z_OK && i <= times; i++) {
        union {
            const void *in;
            Bytef *out;
        } cast = {bytes};

        z.next_in = cast.out;
        z.avail_in = i < times ? (uInt)n : 0;
        do {
            z.next_out = out;
            z.avail_out = sizeof(out);
            (void)deflate(&z, i < times ? Z_NO_FLUSH : Z_FINISH);
            buf_add(b, out, sizeof(out) - z.avail_out);
        } while (z.avail_out == 0);
    }
    (void)deflateEnd(&z);
}

/* --- calls --- */

static void unpack_to(const char *path, const struct buf *archive, uint64_t flags, bool cut,
                      struct answer *ret)
{
    struct files_message m = {.op = FILES_UNPACK, .path = path, .flags = flags};
    struct scene_feed feed = {.body = archive->p, .n = archive->n, .cut = cut};

    scene_call(files_unpack_tree, &m, hidden, &feed, ret);
}

static bool says(const struct answer *a, unsigned status, const char *text)
{
    if (a->head.status == status && a->whole && strstr(a->b.p ? a->b.p : "", text))
        return true;
    printf("    answer %u%s: %.600s\n", a->head.status, a->whole ? "" : " (cut)",
           a->b.p ? a->b.p : "");
    return false;
}

/* Unpacks into "in", says whether the answer is like that, frees both. */
static bool unpacks(struct buf *archive, uint64_t flags, unsigned status, const char *text)
{
    struct answer a;

    unpack_to(at("in"), archive, flags, false, &a);
    bool is = says(&a, status, text);
    buf_clear(&a.b);
    buf_clear(archive);
    buf_init(archive, 1U << 30);
    return is;
}

static void pack(const char *path, uint64_t flags, struct answer *ret)
{
    struct files_message m = {.op = FILES_PACK, .path = path, .flags = flags};
    struct scene_feed feed = {.body = ""};

    scene_call(files_pack_tree, &m, hidden, &feed, ret);
}

/* --- trees --- */

struct seen {
    struct buf b;
    const char *top;
};

static enum walk_answer see(void *context, const struct walk_entry *entry)
{
    struct seen *s = context;
    char bytes[8192];
    ssize_t n = 0;

    buf_printf(&s->b, "%s\n%o %lld\n", entry->path, entry->st.st_mode,
               (long long)entry->st.st_mtim.tv_sec);
    if (S_ISLNK(entry->st.st_mode))
        n = readlinkat(entry->dir, entry->name, bytes, sizeof(bytes));
    scoped_fd int fd =
        S_ISREG(entry->st.st_mode) ? openat(entry->dir, entry->name, O_RDONLY | O_CLOEXEC) : -1;
    while (fd >= 0 && (n = read(fd, bytes, sizeof(bytes))) > 0)
        buf_add(&s->b, bytes, (size_t)n);
    if (fd < 0 && n > 0)
        buf_add(&s->b, bytes, (size_t)n);
    buf_str(&s->b, "\n");
    return WALK_ON;
}

static bool same_trees(const char *one, const char *two)
{
    struct seen a = {.top = one};
    struct seen b = {.top = two};

    buf_init(&a.b, 256 << 20);
    buf_init(&b.b, 256 << 20);
    bool same = files_walk(one, 1000, see, NULL, &a) == 0 &&
                files_walk(two, 1000, see, NULL, &b) == 0 && a.b.n == b.b.n && a.b.n > 0 &&
                memcmp(a.b.p, b.b.p, a.b.n) == 0;
    if (!same)
        printf("    %.*s\n    -----\n    %.*s\n", (int)(a.b.n < 900 ? a.b.n : 900), a.b.p,
               (int)(b.b.n < 900 ? b.b.n : 900), b.b.p);
    buf_clear(&a.b);
    buf_clear(&b.b);
    return same;
}

static void make_tree(void)
{
    char name[256];
    struct timespec times[2] = {{1, 0}, {1234567890, 123456789}};

    ignore(mkdir(at("tree"), 0755));
    ignore(mkdir(at("tree/a"), 0750));
    ignore(mkdir(at("tree/a/empty"), 0700));
    put(at("tree/a/one"), "one\n");
    put(at("tree/a/empty file"), "");
    put(at("tree/\xff\xfe no text"), "bytes");
    put(at("tree/e\xcc\x81 and \xc3\xa9"), "two ways to write one letter");
    put(at("tree/new\nline"), "x");
    put(at("tree/-rf"), "x");
    put(at("tree/trailing "), "x");
    memset(name, 'n', 255);
    name[255] = '\0';
    put(at("tree/%s", name), "long");
    ignore(mkdir(at("tree/%.200s", name), 0755));
    ignore(mkdir(at("tree/%.200s/%.200s", name, name), 0755));
    put(at("tree/%.200s/%.200s/deep", name, name), "deep");
    ignore(symlink("../outside/of it", at("tree/link")));
    ignore(symlink(at("tree/%.200s/%.200s/deep", name, name), at("tree/long link")));
    put(at("tree/program"), "#!/bin/sh\n");
    ignore(chmod(at("tree/program"), 0755));
    scoped_fd int fd = open(at("tree/large"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    for (unsigned i = 0; i < 300000; i++)
        ignore(write(fd, &i, sizeof(i)));
    ignore(utimensat(AT_FDCWD, at("tree/a/one"), times, 0));
    ignore(utimensat(AT_FDCWD, at("tree/link"), times, AT_SYMLINK_NOFOLLOW));
    ignore(utimensat(AT_FDCWD, at("tree/a"), times, 0));
}

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

/* --- hostile archives --- */

TEST(names_that_climb_or_are_absolute_are_refused_and_the_rest_is_unpacked)
{
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    put(at("victim"), "as it was");
    tar_put(&b, '0', "../victim", "", "evil");
    tar_put(&b, '0', at("victim"), "", "evil");
    tar_put(&b, '0', "a/../../victim", "", "evil");
    tar_put(&b, '0', "..", "", "evil");
    tar_put(&b, '5', "../", "", "");
    tar_put(&b, '0', "./good//file", "", "good");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200,
                  "\"files\":1,\"directories\":0,\"links\":0,\"bytes\":4,"
                  "\"skipped_count\":5,\"skipped\":[{\"path\":\"../victim\""));
    CHECK(has(at("victim"), "as it was") && has(at("in/good/file"), "good"));
    zip_put(&b, "../victim", "evil");
    zip_put(&b, at("victim"), "evil");
    zip_put(&b, "good/file", "better");
    zip_central(&b, "../victim", S_IFREG | 0777);
    zip_central(&b, "good/file", S_IFREG | 06751);
    zip_end(&b);
    CHECK(unpacks(&b, FILES_ZIP, 200, "\"skipped_count\":2"));
    CHECK(has(at("victim"), "as it was") && has(at("in/good/file"), "better"));
    CHECK(mode_of(at("victim")) == (S_IFREG | 0644));
    CHECK(mode_of(at("in/good/file")) == (S_IFREG | 0751));
    buf_clear(&b);
    return 0;
}

TEST(nothing_is_written_through_a_link_of_the_archive)
{
    struct buf b;
    struct stat st;

    fresh();
    buf_init(&b, 1 << 20);
    ignore(mkdir(at("outside"), 0755));
    put(at("outside/victim"), "as it was");
    tar_put(&b, '2', "link", at("outside"), "");
    tar_put(&b, '0', "link/victim", "", "evil");
    tar_put(&b, '0', "link/new", "", "evil");
    tar_put(&b, '2', "file", at("outside/victim"), "");
    tar_put(&b, '0', "file", "", "evil");
    tar_put(&b, '2', "chain", "link", "");
    tar_put(&b, '5', "chain", "", "");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "a directory is in its place"));
    CHECK(has(at("outside/victim"), "as it was") && is_absent(at("outside/new")));
    /* A second archive finds the links of the first. */
    tar_put(&b, '2', "second", at("outside"), "");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"links\":1"));
    CHECK(lstat(at("in/second"), &st) == 0 && S_ISLNK(st.st_mode));
    tar_put(&b, '0', "second/victim", "", "evil");
    tar_put(&b, '5', "second/dir", "", "");
    tar_put(&b, '5', "second", "", "");
    tar_put(&b, '2', "second/link", "x", "");
    tar_put(&b, '0', "a", "", "a");
    tar_put(&b, '1', "second/hard", "a", "");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"skipped_count\":5"));
    CHECK(has(at("outside/victim"), "as it was") && is_absent(at("outside/dir")));
    CHECK(is_absent(at("outside/hard")) && is_absent(at("outside/link")));
    CHECK(is_empty(at("hidden")));
    buf_clear(&b);
    return 0;
}

TEST(links_of_a_zip_are_links_and_nothing_goes_through_them)
{
    struct buf b;
    char target[256] = "";

    fresh();
    buf_init(&b, 1 << 20);
    ignore(mkdir(at("outside"), 0755));
    put(at("in-victim"), "as it was");
    zip_put(&b, "link", at("outside"));
    zip_put(&b, "plain", "plain");
    zip_central(&b, "link", S_IFLNK | 0777);
    zip_central(&b, "link/x", S_IFREG | 0777);
    zip_end(&b);
    CHECK(unpacks(&b, FILES_ZIP, 200, "\"files\":1,\"directories\":0,\"links\":1"));
    CHECK(readlink(at("in/link"), target, sizeof(target) - 1) > 0);
    CHECK(strcmp(target, at("outside")) == 0);
    zip_put(&b, "link/x", "evil");
    zip_central(&b, "link/x", S_IFREG | 0777);
    zip_end(&b);
    CHECK(unpacks(&b, FILES_ZIP, 200, "\"skipped_count\":1"));
    CHECK(is_absent(at("outside/x")));
    /* Its directory names a file that it has not brought. */
    put(at("in/mine"), "/etc/passwd");
    zip_put(&b, "other", "x");
    zip_central(&b, "mine", S_IFLNK | 0777);
    zip_end(&b);
    CHECK(unpacks(&b, FILES_ZIP, 200, "\"links\":0"));
    CHECK(has(at("in/mine"), "/etc/passwd"));
    buf_clear(&b);
    return 0;
}

TEST(hard_links_lead_only_to_what_was_unpacked_before)
{
    struct buf b;
    struct stat st;

    fresh();
    buf_init(&b, 1 << 20);
    put(at("secret"), "secret");
    ignore(mkdir(at("in"), 0755));
    put(at("in/mine"), "was there");
    tar_put(&b, '1', "one", at("secret"), "");
    tar_put(&b, '1', "two", "../secret", "");
    tar_put(&b, '1', "three", "mine", "");
    tar_put(&b, '1', "four", "later", "");
    tar_put(&b, '0', "later", "", "later");
    tar_put(&b, '1', "five", "later", "");
    tar_put(&b, '1', "later", "later", "");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"links\":2,\"bytes\":5,\"skipped_count\":4"));
    CHECK(is_absent(at("in/one")) && is_absent(at("in/two")) && is_absent(at("in/three")));
    CHECK(stat(at("in/five"), &st) == 0 && st.st_nlink == 2);
    CHECK(is_empty(at("hidden")));
    buf_clear(&b);
    return 0;
}

TEST(devices_and_pipes_are_skipped_and_told_and_modes_lose_what_is_special)
{
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    tar_put(&b, '3', "tty", "", "");
    tar_put(&b, '4', "disk", "", "");
    tar_put(&b, '6', "pipe", "", "");
    tar_put(&b, '0', "setuid", "", "x");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "{\"path\":\"pipe\",\"why\":"));
    CHECK(is_absent(at("in/tty")) && is_absent(at("in/disk")) && is_absent(at("in/pipe")));
    CHECK(mode_of(at("in/setuid")) == (S_IFREG | 0755));
    buf_clear(&b);
    return 0;
}

TEST(the_last_of_two_with_one_name_stays)
{
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    tar_put(&b, '0', "twice", "", "first");
    tar_put(&b, '0', "twice", "", "second");
    tar_put(&b, '5', "dir", "", "");
    tar_put(&b, '5', "dir", "", "");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"files\":2"));
    CHECK(has(at("in/twice"), "second"));
    buf_clear(&b);
    return 0;
}

TEST(a_directory_where_a_file_should_be_is_an_error)
{
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    tar_put(&b, '5', "x", "", "");
    tar_put(&b, '0', "x", "", "file");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 409, "is_directory"));
    tar_put(&b, '0', "y", "", "file");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"files\":1"));
    tar_put(&b, '0', "y/z", "", "file");
    tar_end(&b);
    CHECK(unpacks(&b, 0, 409, "not_a_directory"));
    CHECK(has(at("in/y"), "file") && is_empty(at("hidden")));
    buf_clear(&b);
    return 0;
}

TEST(an_archive_that_is_none_or_ends_early_is_an_error_and_whole_files_stay)
{
    struct answer a;
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    buf_str(&b, "this is no archive, whatever one says");
    CHECK(unpacks(&b, 0, 400, "invalid_archive"));
    buf_str(&b, "this is no archive, whatever one says");
    CHECK(unpacks(&b, FILES_ZIP, 400, "invalid_archive"));
    CHECK(unpacks(&b, FILES_ZIP, 400, "invalid_archive"));
    put(at("in/lies"), "old");
    tar_put(&b, '0', "whole", "", "whole");
    tar_raw(&b, '0', "lies", "", "short", 5, 5000);
    CHECK(unpacks(&b, 0, 400, "invalid_archive"));
    CHECK(has(at("in/whole"), "whole") && has(at("in/lies"), "old") && is_empty(at("hidden")));
    zip_put(&b, "zipped", "zipped");
    zip_raw(&b, "lies", "short", sum_of("short", 5), 4);
    CHECK(unpacks(&b, FILES_ZIP, 400, "invalid_archive"));
    zip_raw(&b, "lies", "damaged", sum_of("wrong", 5), 7);
    CHECK(unpacks(&b, FILES_ZIP, 400, "damaged"));
    CHECK(has(at("in/zipped"), "zipped") && has(at("in/lies"), "old"));
    /* No directory at its end. */
    zip_put(&b, "zipped", "zipped");
    CHECK(unpacks(&b, FILES_ZIP, 400, "ends early"));
    /* The client leaves. */
    tar_raw(&b, '0', "lies", "", "x", 1, 100000);
    unpack_to(at("in"), &b, 0, true, &a);
    CHECK(says(&a, 400, "incomplete_body"));
    CHECK(has(at("in/lies"), "old") && is_empty(at("hidden")));
    buf_clear(&a.b);
    buf_clear(&b);
    return 0;
}

/* What libarchive writes to, when it writes for the test. */
static la_ssize_t to_buf(struct archive *a, void *context, const void *bytes, size_t n)
{
    (void)a;
    buf_add(context, bytes, n);
    return (la_ssize_t)n;
}

TEST(a_bomb_does_not_go_off)
{
    static char zeros[1 << 20];
    struct archive *a = archive_write_new();
    struct archive_entry *entry = archive_entry_new();
    struct landing p = {.fd = -1};
    struct buf b;

    fresh();
    buf_init(&b, 64 << 20);
    /* xz packs 6,800 to one. */
    CHECK(archive_write_add_filter_xz(a) == ARCHIVE_OK);
    CHECK(archive_write_set_filter_option(a, "xz", "compression-level", "0") == ARCHIVE_OK);
    CHECK(archive_write_set_format_ustar(a) == ARCHIVE_OK);
    CHECK(archive_write_open(a, &b, NULL, to_buf, NULL) == ARCHIVE_OK);
    archive_entry_set_pathname(entry, "bomb");
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_size(entry, 100 * (la_int64_t)sizeof(zeros));
    CHECK(archive_write_header(a, entry) == ARCHIVE_OK);
    for (int i = 0; i < 100; i++)
        CHECK(archive_write_data(a, zeros, sizeof(zeros)) > 0);
    CHECK(archive_write_free(a) == ARCHIVE_OK);
    archive_entry_free(entry);
    CHECK(unpacks(&b, 0, 413, "too_large"));
    CHECK(is_absent(at("in/bomb")) && is_empty(at("hidden")));
    /* A zip that says at once how much it is, and one that does not. */
    le(&b, 0x04034b50, 4);
    le(&b, 45, 2);
    le(&b, 0, 2);
    le(&b, 8, 2);
    le(&b, 0, 8);
    le(&b, UINT32_MAX, 4);
    le(&b, UINT32_MAX, 4);
    le(&b, 4, 2);
    le(&b, 20, 2);
    buf_str(&b, "bomb");
    le(&b, 1, 2);
    le(&b, 16, 2);
    le(&b, 65ULL << 30, 8);
    le(&b, 65ULL << 20, 8);
    CHECK(unpacks(&b, FILES_ZIP, 413, "64 GiB"));
    CHECK(landing_ratio(&p, 1 << 20, 1000 << 20) == 0);
    CHECK(landing_ratio(&p, 1 << 20, 1100ULL << 20) == -E2BIG);
    buf_clear(&b);
    return 0;
}

TEST(a_compressed_tar_is_taken_and_a_bomb_of_it_is_not)
{
    static char zeros[1 << 20];
    struct buf tar;
    struct buf b;

    fresh();
    buf_init(&tar, 8 << 20);
    buf_init(&b, 64 << 20);
    tar_put(&tar, '0', "zipped", "", "content");
    tar_end(&tar);
    gzip(&b, tar.p, tar.n, 1);
    CHECK(unpacks(&b, 0, 200, "\"files\":1"));
    CHECK(has(at("in/zipped"), "content"));
    /* Twice compressed: 10^6 to one. */
    struct buf inner;
    buf_init(&inner, 64 << 20);
    tar.n = 0;
    tar_raw(&tar, '0', "bomb", "", "", 0, 4ULL << 30);
    gzip(&inner, tar.p, tar.n, 1);
    gzip(&inner, zeros, sizeof(zeros), 50);
    gzip(&b, inner.p, inner.n, 1);
    CHECK(unpacks(&b, 0, 400, "invalid_archive"));
    CHECK(is_absent(at("in/bomb")));
    buf_clear(&inner);
    buf_clear(&tar);
    buf_clear(&b);
    return 0;
}

TEST(a_hundred_thousand_entries_are_unpacked)
{
    struct buf b;
    char name[64];

    fresh();
    buf_init(&b, 256 << 20);
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(name, sizeof(name), "d%u/f%u", i / 1000, i);
        tar_put(&b, '0', name, "", "");
    }
    tar_end(&b);
    CHECK(unpacks(&b, 0, 200, "\"files\":100000"));
    CHECK(has(at("in/d99/f99999"), "") && is_empty(at("hidden")));
    buf_clear(&b);
    return 0;
}

TEST(names_too_long_and_too_deep_are_skipped)
{
    char *name = calloc(1, 70000);
    struct buf b;

    fresh();
    buf_init(&b, 1 << 20);
    for (int i = 0; i < 30000; i++)
        memcpy(name + 2 * i, "a/", 2);
    zip_put(&b, name, "");
    memset(name, 'x', 256);
    name[256] = '\0';
    zip_put(&b, name, "");
    zip_put(&b, "fine", "");
    zip_end(&b);
    CHECK(unpacks(&b, FILES_ZIP, 200, "\"skipped_count\":2"));
    free(name);
    buf_clear(&b);
    return 0;
}

TEST(without_a_hidden_directory_it_works_too_and_leaves_nothing)
{
    struct answer packed;

    fresh();
    make_tree();
    pack(at("tree"), 0, &packed);
    scope_close(&hidden);
    CHECK(unpacks(&packed.b, 0, 200, "\"skipped_count\":0"));
    CHECK(same_trees(at("tree"), at("in")));
    tar_put(&packed.b, '0', "waits", "", "for its name");
    tar_raw(&packed.b, '0', "a", "", "short", 5, 5000);
    CHECK(unpacks(&packed.b, 0, 400, "invalid_archive"));
    CHECK(unlink(at("in/waits")) == 0 && same_trees(at("tree"), at("in")));
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
