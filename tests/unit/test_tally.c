/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/tally, sys/path: looking through a tree that somebody may be changing against us. */
#include "unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "sandbox/limits/tally.h"
#include "sys/path.h"

/* --- a folder of our own --- */

static char folder[4096];
static int top = -1;

static int open_folder(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/carrel-tally.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    top = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? -1 : 0;
}

static void close_folder(void)
{
    scope_close(&top);
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/rm", "rm", "-rf", "--", folder, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
}

static int make_file(int dir, const char *name, size_t bytes)
{
    static const char block[4096] = {1};
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    for (size_t n = 0; fd >= 0 && n < bytes; n += sizeof(block)) {
        if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
            return -1;
    }
    return fd < 0 ? -1 : close(fd);
}

/* A chain of directories "d"; the fd of the lowest, or -1. */
static int make_chain(int depth)
{
    int dir = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < depth && dir >= 0; i++) {
        int next =
            mkdirat(dir, "d", 0755) < 0 ? -1 : openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(dir);
        dir = next;
    }
    return dir;
}

static struct tally_sum count(struct tally *t)
{
    tally_reset(t);
    if (tally_begin(t, top) < 0)
        return (struct tally_sum){.hidden = true, .entries = UINT64_MAX};
    while (tally_step(t, 7))
        ;
    return *tally_sum(t);
}

static uint64_t blocks_of(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

/* --- tests --- */

TEST(an_empty_directory_is_its_own_blocks)
{
    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    struct tally_sum sum = count(t);
    CHECK(sum.entries == 0 && sum.bytes == blocks_of(top, ".") && !sum.hidden);
    tally_free(t);
    close_folder();
    return 0;
}

TEST(a_file_is_counted_by_its_blocks_not_its_size)
{
    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    uint64_t empty = count(t).bytes;
    CHECK(make_file(top, "real", 1 << 20) == 0 && make_file(top, "sparse", 0) == 0);
    scoped_fd int sparse = openat(top, "sparse", O_WRONLY | O_CLOEXEC);
    CHECK(ftruncate(sparse, 1LL << 34) == 0);
    struct tally_sum sum = count(t);
    CHECK(sum.entries == 2);
    CHECK(sum.bytes >= empty + (1 << 20) && sum.bytes < empty + (2 << 20));
    CHECK(sum.bytes == blocks_of(top, ".") + blocks_of(top, "real") + blocks_of(top, "sparse"));
    tally_free(t);
    close_folder();
    return 0;
}

TEST(an_inode_with_many_names_counts_once_and_each_name_is_an_entry)
{
    char name[32];

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    CHECK(mkdirat(top, "sub", 0755) == 0 && make_file(top, "a", 65536) == 0);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "%sname%d", i % 2 ? "sub/" : "", i);
        CHECK(linkat(top, "a", top, name, 0) == 0);
    }
    struct tally_sum sum = count(t);
    CHECK(sum.entries == 3002);
    CHECK(sum.bytes == blocks_of(top, ".") + blocks_of(top, "sub") + blocks_of(top, "a"));
    tally_free(t);
    close_folder();
    return 0;
}

TEST(many_inodes_with_two_names_are_all_remembered)
{
    char name[32];
    char other[32];
    uint64_t blocks = 0;

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        snprintf(other, sizeof(other), "b%d", i);
        CHECK(make_file(top, name, 1) == 0 && linkat(top, name, top, other, 0) == 0);
        blocks += blocks_of(top, name);
    }
    CHECK(count(t).bytes == blocks + blocks_of(top, "."));
    CHECK(count(t).bytes == blocks + blocks_of(top, ".")); /* the second time, too */
    tally_free(t);
    close_folder();
    return 0;
}

TEST(links_are_entries_and_lead_nowhere)
{
    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    CHECK(symlinkat("/", top, "root") == 0 && symlinkat(".", top, "loop") == 0 &&
          mkfifoat(top, "fifo", 0600) == 0);
    struct tally_sum sum = count(t);
    CHECK(sum.entries == 3 && !sum.hidden);
    tally_free(t);
    close_folder();
    return 0;
}

TEST(a_deep_tree_takes_few_descriptors)
{
    enum {
        DEPTH = 3000
    };
    struct rlimit old;

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    scoped_fd int low = make_chain(DEPTH);
    CHECK(low >= 0 && make_file(low, "leaf", 65536) == 0);
    CHECK(make_file(top, "beside", 1) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    struct rlimit few = {.rlim_cur = 32, .rlim_max = old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    struct tally_sum sum = count(t);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(sum.entries == DEPTH + 2 && !sum.hidden);
    CHECK(sum.bytes >= 65536 + (uint64_t)DEPTH * blocks_of(low, "."));
    tally_free(t);
    close_folder();
    return 0;
}

TEST(a_deep_and_wide_tree_is_counted_to_the_last_entry)
{
    char name[32];

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    scoped_fd int low = -1;
    for (int i = 0; i < 40; i++) { /* the way back leads through closed directories, half read */
        scope_close(&low);
        low = make_chain(0);
        for (int level = 0; level < i && low >= 0; level++) {
            int next = openat(low, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            (void)close(low);
            low = next;
        }
        for (int k = 0; k < 100; k++) {
            snprintf(name, sizeof(name), "%c%d", k % 20 ? 'a' : 'z', k);
            CHECK((k % 20 ? make_file(low, name, 0) : mkdirat(low, name, 0755)) == 0);
        }
        CHECK(mkdirat(low, "d", 0755) == 0);
    }
    struct tally_sum sum = count(t);
    CHECK(sum.entries == 40 * 101 && !sum.hidden);
    tally_free(t);
    close_folder();
    return 0;
}

TEST(who_is_moved_away_under_the_walk_makes_the_rest_hidden)
{
    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    scoped_fd int low = make_chain(60);
    CHECK(low >= 0);
    tally_reset(t);
    CHECK(tally_begin(t, top) == 0);
    for (int i = 0; i < 1000 && tally_sum(t)->entries < 60; i++)
        CHECK(tally_step(t, 1) == 1);
    CHECK(tally_sum(t)->entries == 60);
    CHECK(renameat(top, "d/d/d/d/d/d/d/d/d/d", top, "moved") == 0);
    while (tally_step(t, 1))
        ;
    CHECK(tally_sum(t)->hidden);
    CHECK(!count(t).hidden); /* the next one sees it as it is */
    tally_free(t);
    close_folder();
    return 0;
}

static atomic_bool stop;

static void *shuffle(void *unused)
{
    for (unsigned i = 0; !atomic_load(&stop); i++) {
        (void)renameat(top, i % 2 ? "y/d" : "x/d", top, i % 2 ? "x/d" : "y/d");
        (void)renameat(top, "x/file", top, "y/file");
        (void)mkdirat(top, "come", 0755);
        (void)renameat(top, "y/file", top, "x/file");
        (void)unlinkat(top, "come", AT_REMOVEDIR);
    }
    return unused;
}

TEST(a_tree_that_never_rests_is_counted_all_the_same)
{
    pthread_t thread;

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    CHECK(mkdirat(top, "x", 0755) == 0 && mkdirat(top, "y", 0755) == 0 &&
          mkdirat(top, "still", 0755) == 0);
    CHECK(mkdirat(top, "x/d", 0755) == 0 && make_file(top, "x/d/in", 65536) == 0 &&
          make_file(top, "x/file", 65536) == 0 && make_file(top, "still/file", 65536) == 0);
    CHECK(pthread_create(&thread, NULL, shuffle, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        struct tally_sum sum = count(t);
        CHECK(sum.bytes >= 65536 && sum.entries >= 4);
        CHECK(sum.bytes <= 16 * 65536); /* moved ones may be met twice */
    }
    atomic_store(&stop, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(!count(t).hidden);
    tally_free(t);
    close_folder();
    return 0;
}

/* In a process of its own, which is not root. */
static int count_as_somebody(mode_t mode)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0 &&
            (fchown(top, 54321, 54321) < 0 || setgid(54321) < 0 || setuid(54321) < 0))
            _exit(2);
        struct tally *t = tally_new();
        if (!t || mkdirat(top, "shut", 0700) < 0 || make_file(top, "shut/file", 65536) < 0 ||
            fchmodat(top, "shut", mode, 0) < 0)
            _exit(2);
        bool hidden = count(t).hidden;
        tally_free(t);
        (void)fchmodat(top, "shut", 0700, 0);
        _exit(hidden);
    }
    (void)waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(what_its_owner_shut_is_hidden_and_not_just_absent)
{
    static const struct {
        mode_t mode;
        int hidden;
    } cases[] = {{0700, 0}, {0500, 0}, {0300, 1}, {0100, 1}, {0400, 1}, {0, 1}};

    for (size_t i = 0; i < LENGTH(cases); i++) {
        CHECK(open_folder() == 0);
        CHECK(count_as_somebody(cases[i].mode) == cases[i].hidden);
        close_folder();
    }
    return 0;
}

TEST(a_file_without_a_name_counts_once)
{
    struct stat st;

    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    CHECK(make_file(top, "gone", 65536) == 0);
    scoped_fd int fd = openat(top, "gone", O_RDONLY | O_CLOEXEC);
    CHECK(unlinkat(top, "gone", 0) == 0 && fstat(fd, &st) == 0);
    uint64_t before = count(t).bytes;
    tally_add_unlinked(t, &st);
    tally_add_unlinked(t, &st);
    CHECK(tally_sum(t)->bytes == before + (uint64_t)st.st_blocks * 512);
    CHECK(tally_sum(t)->unlinked == (uint64_t)st.st_blocks * 512);
    tally_free(t);
    close_folder();
    return 0;
}

/* Some file systems keep the size of a directory that was emptied; there is something to see only
 * there. */
TEST(a_directory_that_has_been_large_counts_as_not_empty)
{
    char name[252];
    struct stat st;

    CHECK(open_folder() == 0);
    CHECK(path_dir_is_empty(top) == 1);
    CHECK(make_file(top, "file", 0) == 0);
    memset(name, 'x', sizeof(name));
    for (int times = 0; times < 2; times++) {
        for (int i = 0; i < 3600; i++) {
            snprintf(name + 240, 12, "%d", i);
            if (times == 0)
                CHECK(linkat(top, "file", top, name, 0) == 0);
            else
                CHECK(unlinkat(top, name, 0) == 0);
        }
    }
    CHECK(unlinkat(top, "file", 0) == 0 && lseek(top, 0, SEEK_SET) == 0);
    CHECK(fstat(top, &st) == 0);
    CHECK(path_dir_is_empty(top) == (st.st_size <= PATH_SMALL_DIR));
    close_folder();
    return 0;
}

TEST(a_single_file_is_a_tree_too)
{
    CHECK(open_folder() == 0);
    struct tally *t = tally_new();
    CHECK(make_file(top, "file", 65536) == 0);
    scoped_fd int fd = openat(top, "file", O_PATH | O_CLOEXEC);
    CHECK(tally_begin(t, fd) == 0 && tally_step(t, 1) == 0);
    CHECK(tally_sum(t)->bytes == blocks_of(top, "file") && tally_sum(t)->entries == 0);
    tally_free(t);
    close_folder();
    return 0;
}
