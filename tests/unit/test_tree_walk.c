/* SPDX-License-Identifier: Apache-2.0 */
/* sys/tree_walk, sys/tree_remove: a tree that somebody makes hard to go through, and changes. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "sys/tree_remove.h"
#include "sys/tree_walk.h"

enum {
    DEEP = 1000,
    SKIPPED = 77
};

/* --- a folder of our own: "tree" is what is walked, "outside" is beside it --- */

static char folder[4096];
static int all = -1;
static int top = -1;

static int open_folder(void)
{
    const char *base = getenv("TMPDIR");

    snprintf(folder, sizeof(folder), "%s/carrel-walk.XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    all = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mkdirat(all, "tree", 0755) < 0 || mkdirat(all, "outside", 0755) < 0)
        return -1;
    top = openat(all, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? -1 : 0;
}

static int close_folder(void)
{
    scope_close(&top);
    scope_close(&all);
    char *name = strrchr(folder, '/');
    *name = '\0';
    scoped_fd int above = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return tree_remove(above, name + 1);
}

static int make_file(int dir, const char *name)
{
    scoped_fd int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    return fd < 0 ? -1 : 0;
}

static bool is_there(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A chain of directories "d" in `dir`, in each a file "f"; the lowest, or -1. */
static int make_chain(int dir, int depth)
{
    int at = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (int i = 0; i < depth && at >= 0; i++) {
        int next = mkdirat(at, "d", 0755) < 0 || make_file(at, "f") < 0
                       ? -1
                       : openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        (void)close(at);
        at = next;
    }
    return at;
}

/* All paths, with a space behind each and "/" for the second time of a directory; "!" is an error.
 */
static char seen[65536];

static int walk_all(unsigned flags)
{
    struct tree_walk w;
    struct tree_entry e;
    int result = 0;
    size_t n = 0;

    *seen = '\0';
    int r = tree_walk_begin(&w, top, flags);
    while (r == 0 && (r = tree_walk_next(&w, &e)) != 0) {
        n += (size_t)snprintf(seen + n, sizeof(seen) - n, "%s%s%s ", r < 0 ? "!" : "", e.path,
                              e.after ? "/" : "");
        result = r < 0 && result == 0 ? r : result;
        r = 0;
    }
    tree_walk_end(&w);
    return r < 0 ? r : result;
}

/* --- what is met --- */

TEST(names_come_in_their_order_and_a_directory_before_and_after_what_is_in_it)
{
    CHECK(open_folder() == 0);
    CHECK(mkdirat(top, "b", 0755) == 0 && mkdirat(top, "b/y", 0755) == 0);
    CHECK(make_file(top, "c") == 0 && make_file(top, "a") == 0 && make_file(top, "b/x") == 0);
    CHECK(make_file(top, "b!") == 0 && make_file(top, "b/y/z") == 0);
    CHECK(walk_all(TREE_SORTED | TREE_POST) == 0);
    CHECK(strcmp(seen, "a b b/x b/y b/y/z b/y/ b/ b! c ") == 0);
    CHECK(walk_all(TREE_SORTED) == 0);
    CHECK(strcmp(seen, "a b b/x b/y b/y/z b! c ") == 0);
    CHECK(close_folder() == 0);
    return 0;
}

TEST(a_link_is_an_entry_and_leads_nowhere)
{
    CHECK(open_folder() == 0);
    CHECK(make_file(all, "outside/secret") == 0);
    CHECK(symlinkat("../outside", top, "a") == 0 && symlinkat(".", top, "b") == 0);
    CHECK(walk_all(TREE_SORTED | TREE_STAT) == 0);
    CHECK(strcmp(seen, "a b ") == 0);
    CHECK(close_folder() == 0);
    return 0;
}

TEST(a_directory_is_passed_over_or_entered_again_on_demand)
{
    struct tree_walk w;
    struct tree_entry e;
    unsigned found = 0;
    bool again = true;

    CHECK(open_folder() == 0);
    CHECK(mkdirat(top, "a", 0755) == 0 && make_file(top, "a/f") == 0);
    CHECK(mkdirat(top, "b", 0755) == 0 && make_file(top, "b/g") == 0);
    CHECK(tree_walk_begin(&w, top, TREE_SORTED | TREE_POST | TREE_STAT) == 0);
    while (tree_walk_next(&w, &e) == 1) {
        if (strcmp(e.path, "b") == 0 && !e.after)
            tree_walk_skip(&w);
        CHECK(strcmp(e.path, "b/g") != 0);
        found += strcmp(e.path, "a/f") == 0 && e.depth == 2 && !e.is_dir && S_ISREG(e.st.st_mode);
        if (strcmp(e.path, "a") == 0 && e.after && again) {
            again = false;
            tree_walk_again(&w);
        }
    }
    tree_walk_end(&w);
    CHECK(found == 2);
    CHECK(close_folder() == 0);
    return 0;
}

TEST(all_of_a_large_directory_comes_once)
{
    char name[300];
    unsigned count = 0;
    struct tree_walk w;
    struct tree_entry e;

    CHECK(open_folder() == 0);
    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof(name), "%0200d", i);
        CHECK(i % 3 ? make_file(top, name) == 0 : mkdirat(top, name, 0755) == 0);
    }
    for (int sorted = 0; sorted < 2; sorted++) {
        count = 0;
        CHECK(tree_walk_begin(&w, top, sorted ? TREE_SORTED : 0) == 0);
        while (tree_walk_next(&w, &e) == 1)
            count++;
        tree_walk_end(&w);
        CHECK(count == 2000);
    }
    CHECK(close_folder() == 0);
    return 0;
}

/* --- constraints --- */

/* Of the sanitizers' library; not every compiler has its header. */
int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t),
                                              void (*)(const volatile void *));

static atomic_uint allocations;

static void count_allocation(const volatile void *at, size_t size)
{
    (void)at;
    (void)size;
    allocations++;
}

static void ignore_free(const volatile void *at)
{
    (void)at;
}

/* In a child of a process with threads another thread may hold the heap's lock for ever. */
TEST(nothing_is_allocated_without_an_order)
{
    struct tree_walk w;
    struct tree_entry e;
    unsigned entries = 0;

    CHECK(open_folder() == 0);
    scoped_fd int lowest = make_chain(top, 200);
    CHECK(lowest >= 0);
    CHECK(__sanitizer_install_malloc_and_free_hooks(count_allocation, ignore_free) > 0);
    void *volatile one = malloc(1);
    free(one);
    CHECK(allocations > 0);
    allocations = 0;
    CHECK(tree_walk_begin(&w, top, TREE_STAT | TREE_POST | TREE_ONE_MOUNT) == 0);
    while (tree_walk_next(&w, &e) == 1)
        entries++;
    tree_walk_end(&w);
    CHECK(entries == 600 && allocations == 0);
    CHECK(tree_remove(all, "tree") == 0 && allocations == 0);
    CHECK(close_folder() == 0);
    return 0;
}

/* Runs with no more descriptors than `most` beside those that are open now. */
static int with_few(int (*run)(void), unsigned most)
{
    struct rlimit own;
    int next = fcntl(top, F_DUPFD_CLOEXEC, 0);

    (void)close(next);
    if (getrlimit(RLIMIT_NOFILE, &own) < 0)
        return -1;
    struct rlimit few = {.rlim_cur = (rlim_t)next + most, .rlim_max = own.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &few) < 0)
        return -1;
    int r = run();
    return setrlimit(RLIMIT_NOFILE, &own) < 0 ? -1 : r;
}

static int walk_the_deep(void)
{
    static const unsigned kinds[] = {0, TREE_SORTED, TREE_POST | TREE_STAT,
                                     TREE_SORTED | TREE_POST | TREE_ONE_MOUNT};

    for (size_t i = 0; i < LENGTH(kinds); i++) {
        struct tree_walk w;
        struct tree_entry e;
        unsigned entries = 0;
        unsigned deepest = 0;
        int r;

        CHECK(tree_walk_begin(&w, top, kinds[i]) == 0);
        while ((r = tree_walk_next(&w, &e)) == 1) {
            entries++;
            deepest = e.depth > deepest ? e.depth : deepest;
        }
        tree_walk_end(&w);
        CHECK(r == 0 && deepest == DEEP);
        CHECK(entries == (kinds[i] & TREE_POST ? 3 : 2) * (unsigned)DEEP);
    }
    return 0;
}

static int remove_the_deep(void)
{
    return tree_remove(all, "tree");
}

TEST(any_depth_takes_no_more_descriptors_than_promised)
{
    CHECK(open_folder() == 0);
    scoped_fd int lowest = make_chain(top, DEEP);
    CHECK(lowest >= 0);
    scope_close(&lowest);
    CHECK(with_few(walk_the_deep, TREE_MOST_FDS - 1) == 0); /* the top is the caller's */
    CHECK(with_few(remove_the_deep, TREE_MOST_FDS) == 0);
    CHECK(!is_there(all, "tree"));
    CHECK(close_folder() == 0);
    return 0;
}

TEST(a_walk_may_end_anywhere_and_leaves_nothing_open)
{
    struct tree_walk w;
    struct tree_entry e;

    CHECK(open_folder() == 0);
    scoped_fd int lowest = make_chain(top, 50);
    int before = fcntl(top, F_DUPFD_CLOEXEC, 0);
    (void)close(before);
    CHECK(tree_walk_begin(&w, top, TREE_POST) == 0);
    for (int i = 0; i < 70; i++)
        CHECK(tree_walk_next(&w, &e) == 1);
    tree_walk_end(&w);
    tree_walk_end(&w);
    int after = fcntl(top, F_DUPFD_CLOEXEC, 0);
    (void)close(after);
    CHECK(after == before);
    CHECK(tree_walk_begin(&w, STDIN_FILENO, 0) < 0);
    tree_walk_end(&w);
    CHECK(close_folder() == 0);
    return 0;
}

/* --- changes --- */

/* Down to the lowest, then what is in the middle is moved beside the tree, and a decoy put in the
 * place of the way back. */
static int move_away(unsigned flags, int *ret_stale, bool *ret_outside, bool *ret_rest)
{
    struct tree_walk w;
    struct tree_entry e;
    bool moved = false;
    int r;

    *ret_stale = 0;
    *ret_outside = *ret_rest = false;
    if (tree_walk_begin(&w, top, flags) < 0)
        return -1;
    while ((r = tree_walk_next(&w, &e)) != 0) {
        *ret_stale += r == -ESTALE;
        *ret_outside |= strcmp(e.name, "secret") == 0;
        *ret_rest |= strcmp(e.path, "z") == 0;
        if (r < 0 && r != -ESTALE)
            return r;
        if (e.depth < 50 || moved || e.after)
            continue;
        moved = true;
        if (renameat(top, "d/d/d", all, "outside/d") < 0 || renameat(top, "d", all, "e") < 0 ||
            mkdirat(top, "d", 0755) < 0 || mkdirat(top, "d/d", 0755) < 0)
            return -1;
    }
    tree_walk_end(&w);
    return moved ? 0 : -1;
}

TEST(a_directory_that_is_moved_away_is_noticed_and_not_followed)
{
    static const unsigned kinds[] = {0, TREE_SORTED, TREE_POST, TREE_SORTED | TREE_POST};
    char kind[12];
    int stale;
    bool outside;
    bool rest;

    for (size_t i = 0; i < LENGTH(kinds); i++) {
        snprintf(kind, sizeof(kind), "%zu", i);
        CHECK(open_folder() == 0);
        scoped_fd int lowest = make_chain(top, 50);
        CHECK(lowest >= 0 && make_file(top, "z") == 0 && make_file(all, "outside/secret") == 0);
        CHECK_FOR(kind, move_away(kinds[i], &stale, &outside, &rest) == 0);
        CHECK_FOR(kind, stale > 0 && !outside && rest);
        CHECK(close_folder() == 0);
    }
    return 0;
}

/* While all on the way is still open. */
TEST(a_move_is_noticed_when_the_directory_is_left)
{
    struct tree_walk w;
    struct tree_entry e;
    int r;

    CHECK(open_folder() == 0);
    CHECK(mkdirat(top, "a", 0755) == 0 && make_file(top, "a/f") == 0);
    CHECK(tree_walk_begin(&w, top, TREE_POST) == 0);
    CHECK(tree_walk_next(&w, &e) == 1 && strcmp(e.path, "a") == 0);
    CHECK(tree_walk_next(&w, &e) == 1 && strcmp(e.path, "a/f") == 0);
    CHECK(renameat(top, "a", all, "outside/a") == 0);
    CHECK(tree_walk_next(&w, &e) == -ESTALE && strcmp(e.path, "a") == 0);
    CHECK(tree_walk_next(&w, &e) == 0);
    tree_walk_end(&w);

    CHECK(renameat(all, "outside/a", top, "a") == 0);
    CHECK(tree_walk_begin(&w, top, TREE_POST) == 0);
    CHECK(tree_walk_next(&w, &e) == 1 && tree_walk_next(&w, &e) == 1);
    CHECK(unlinkat(top, "a/f", 0) == 0 && unlinkat(top, "a", AT_REMOVEDIR) == 0);
    r = tree_walk_next(&w, &e);
    CHECK(r == 1 && e.after && strcmp(e.path, "a") == 0); /* gone for good is no move */
    tree_walk_end(&w);
    CHECK(close_folder() == 0);
    return 0;
}

/* In a mount namespace of its own; 77: there are none to be had. */
static int with_mount(int (*run)(void))
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        unsigned flags = CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0U);
        if (unshare((int)flags) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            fchdir(top) < 0 || mount("t", "m", "tmpfs", 0, NULL) < 0)
            _exit(SKIPPED);
        _exit(run());
    }
    return pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

static int cross_nothing(void)
{
    if (make_file(top, "m/inside") < 0 || walk_all(TREE_SORTED | TREE_ONE_MOUNT) != -EXDEV ||
        strcmp(seen, "a m !m z ") != 0)
        return 1;
    if (walk_all(TREE_SORTED) != 0 || strcmp(seen, "a m m/inside z ") != 0)
        return 2;
    if (tree_remove(top, "m") != -EBUSY || tree_remove(all, "tree") != -EBUSY)
        return 3;
    return is_there(top, "m/inside") ? 0 : 4;
}

TEST(a_mount_is_not_crossed)
{
    CHECK(open_folder() == 0);
    CHECK(mkdirat(top, "m", 0755) == 0 && make_file(top, "a") == 0 && make_file(top, "z") == 0);
    int r = with_mount(cross_nothing);
    CHECK(r == 0 || r == SKIPPED);
    CHECK(close_folder() == 0);
    return 0;
}

/* --- removing --- */

TEST(a_tree_is_removed_whatever_its_modes_say)
{
    int status;

    CHECK(open_folder() == 0);
    CHECK(mkdirat(top, "closed", 0755) == 0 && mkdirat(top, "closed/in", 0755) == 0);
    CHECK(make_file(top, "closed/in/f") == 0 && mkdirat(top, "kept", 0755) == 0);
    CHECK(make_file(top, "kept/f") == 0 && mkdirat(top, "kept/empty", 0) == 0);
    CHECK(symlinkat("../outside", top, "link") == 0 && make_file(all, "outside/f") == 0);
    CHECK(fchmodat(top, "closed/in", 0400, 0) == 0 && fchmodat(top, "closed", 0, 0) == 0);
    CHECK(fchmodat(top, "kept", 0500, 0) == 0 && fchmod(top, 0500) == 0);
    if (geteuid() == 0) { /* who is asked for no permission anywhere */
        CHECK(fchown(all, 65534, 65534) == 0 && fchown(top, 65534, 65534) == 0);
        static const char *const theirs[] = {"closed", "closed/in", "kept", "kept/empty"};
        for (size_t i = 0; i < LENGTH(theirs); i++)
            CHECK(fchownat(top, theirs[i], 65534, 65534, 0) == 0);
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
            _exit(2);
        _exit(tree_remove(all, "tree") == 0 ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(!is_there(all, "tree") && is_there(all, "outside/f"));
    CHECK(close_folder() == 0);
    return 0;
}

TEST(removing_takes_what_has_that_name_and_nothing_is_no_failure)
{
    CHECK(open_folder() == 0);
    CHECK(make_file(top, "f") == 0 && symlinkat("../outside", top, "link") == 0);
    CHECK(tree_remove(top, "f") == 0 && tree_remove(top, "link") == 0);
    CHECK(tree_remove(top, "f") == 0);
    CHECK(!is_there(top, "f") && !is_there(top, "link") && is_there(all, "outside"));
    CHECK(close_folder() == 0);
    return 0;
}

static atomic_bool racing;

/* Puts a link in the place of a directory, and things into what is being emptied. */
static void *race(void *context)
{
    (void)context;
    while (racing) {
        ignore(renameat(top, "d/d", top, "x") == 0); /* whatever is there just now */
        ignore(symlinkat("../../outside", top, "d/d") == 0);
        ignore(unlinkat(top, "d/d", 0) == 0);
        ignore(renameat(top, "x", top, "d/d") == 0);
        ignore(mkdirat(top, "d/n", 0755) == 0);
    }
    return NULL;
}

TEST(somebody_who_renames_in_it_leads_no_removal_out)
{
    pthread_t thread;

    CHECK(open_folder() == 0);
    CHECK(make_file(all, "outside/secret") == 0);
    racing = true;
    CHECK(pthread_create(&thread, NULL, race, NULL) == 0);
    for (int i = 0; i < 200; i++) {
        scoped_fd int lowest = make_chain(top, 8);
        ignore(tree_remove(top, "d") == 0); /* or more has come than can be removed */
    }
    racing = false;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(is_there(all, "outside/secret"));
    CHECK(close_folder() == 0);
    return 0;
}
