/* SPDX-License-Identifier: Apache-2.0 */
/* Archives of others: hostile, broken, huge. */
#include "archive_ground.h"

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>

#include "files/archive/landing.h"

static bool is_absent(const char *path)
{
    struct stat st;

    return lstat(path, &st) < 0 && errno == ENOENT;
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
