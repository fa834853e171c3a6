/* SPDX-License-Identifier: Apache-2.0 */
/* Where control groups are found, and which of them can take children: on texts and on directories
 * that look like the kernel's. The kernel's own are tried by tests/integration/limits_*. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/limits/cgroup.h"
#include "sys/cgroup.h"
#include "unit.h"

static bool is(const char *text, const char *expected)
{
    return strcmp(text, expected) == 0;
}

/* --- finding --- */

static const char hybrid_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "36 31 0:33 /docker/a1 /mnt/with\\040space rw,relatime - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
static const char hybrid_own[] = "9:name=systemd:/x\n8:pids:/docker/a1/b\n4:memory:/jobs/7\n"
                                 "1:cpu,cpuacct:/\n0::/user.slice\n";

TEST(a_group_is_found_in_every_kind_of_hierarchy)
{
    struct cgroup_spot spot;

    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "memory", &spot) == 0);
    CHECK(is(spot.path, "/sys/fs/cgroup/memory/jobs/7") && spot.mount_length == 21);
    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "cpuacct", &spot) == 0);
    CHECK(is(spot.path, "/sys/fs/cgroup/cpu,cpuacct"));
    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "pids", &spot) == 0);
    CHECK(is(spot.path, "/mnt/with space/b"));
    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "", &spot) == 0);
    CHECK(is(spot.path, "/sys/fs/cgroup/unified/user.slice"));
    return 0;
}

TEST(what_is_not_mounted_or_out_of_sight_is_not_found)
{
    struct cgroup_spot spot;

    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "blkio", &spot) == -ENOENT);
    CHECK(cgroup_locate(hybrid_mounts, hybrid_own, "cpuac", &spot) == -ENOENT);
    CHECK(cgroup_locate(hybrid_mounts, "0::/../other\n", "", &spot) == -ENOENT);
    CHECK(cgroup_locate(hybrid_mounts, "8:pids:/docker/a12/b\n", "pids", &spot) == -ENOENT);
    CHECK(cgroup_locate("", hybrid_own, "memory", &spot) == -ENOENT);
    CHECK(cgroup_locate(hybrid_mounts, "", "memory", &spot) == -ENOENT);
    CHECK(cgroup_locate("x\n - \n - cgroup2", "::\n0:\n", "", &spot) == -ENOENT);
    return 0;
}

/* --- which can take children --- */

struct tree {
    char top[2048];
    struct cgroup_spot own; /* top/slice/job */
};

static int put(const struct tree *t, const char *group, const char *file, const char *text)
{
    char path[4400];

    snprintf(path, sizeof(path), "%s%s/%s", t->top, group, file);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    return fd >= 0 && close(fd) == 0 && ok ? 0 : -1;
}

static int fill(const struct tree *t, const char *group, const char *children, const char *procs)
{
    return put(t, group, "cgroup.controllers", "cpu io memory pids\n") ||
           put(t, group, "cgroup.subtree_control", children) ||
           put(t, group, "cgroup.procs", procs);
}

static int tree_make(struct tree *t)
{
    const char *tmp = getenv("TMPDIR");
    char path[4400];

    snprintf(t->top, sizeof(t->top), "%s/carrel-cgroup.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(t->top))
        return -1;
    snprintf(path, sizeof(path), "%s/slice", t->top);
    if (mkdir(path, 0755) < 0)
        return -1;
    snprintf(t->own.path, sizeof(t->own.path), "%s/slice/job", t->top);
    t->own.mount_length = strlen(t->top);
    /* The root has no cgroup.events: that is how it is told from the others. */
    return mkdir(t->own.path, 0755) || put(t, "/slice", "cgroup.events", "") ||
           put(t, "/slice/job", "cgroup.events", "");
}

static void tree_clear(struct tree *t)
{
    static const char *const groups[] = {"/slice/job", "/slice", ""};
    static const char *const files[] = {"cgroup.controllers", "cgroup.subtree_control",
                                        "cgroup.procs", "cgroup.events"};
    char path[4400];

    for (size_t i = 0; i < LENGTH(groups); i++) {
        for (size_t j = 0; j < LENGTH(files); j++) {
            snprintf(path, sizeof(path), "%s%s/%s", t->top, groups[i], files[j]);
            (void)unlink(path);
        }
        snprintf(path, sizeof(path), "%s%s", t->top, groups[i]);
        (void)rmdir(path);
    }
}

/* Which of the three was chosen: "" the root, "/slice", "/slice/job"; or "none". */
static const char *choose(struct tree *t, bool *ret_move)
{
    static char chosen[4400];
    char link[64];
    unsigned wanted = 1U << CGROUP_MEMORY | 1U << CGROUP_PIDS;
    int fd = cgroup_choose_parent(&t->own, wanted, ret_move);

    if (fd < 0)
        return "none";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, chosen, sizeof(chosen) - 1);
    (void)close(fd);
    chosen[n > 0 ? n : 0] = '\0';
    return chosen + strlen(t->top);
}

#define TREE(name)                                                                                 \
    __attribute__((cleanup(tree_clear))) struct tree name;                                         \
    CHECK(tree_make(&name) == 0)

static const char *own_pid(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "%d\n", (int)getpid());
    return text;
}

TEST(a_group_whose_children_have_the_controllers_is_taken_as_it_is)
{
    TREE(t);
    bool move = true;

    CHECK(fill(&t, "/slice/job", "memory pids\n", "") == 0);
    CHECK(is(choose(&t, &move), "/slice/job") && !move);
    return 0;
}

TEST(a_process_alone_in_its_group_makes_room_in_it)
{
    TREE(t);
    bool move = false;

    CHECK(fill(&t, "/slice/job", "", own_pid()) == 0);
    CHECK(is(choose(&t, &move), "/slice/job") && move);
    return 0;
}

TEST(with_company_the_group_above_is_asked_and_then_the_root)
{
    TREE(t);
    bool move = true;

    CHECK(fill(&t, "/slice/job", "", "1\n2\n") == 0);
    CHECK(fill(&t, "/slice", "memory pids\n", "") == 0);
    CHECK(fill(&t, "", "", "1\n") == 0);
    CHECK(is(choose(&t, &move), "/slice") && !move);
    CHECK(fill(&t, "/slice", "memory\n", "") == 0); /* pids can be switched on: nobody is in it */
    CHECK(is(choose(&t, &move), "/slice") && !move);
    CHECK(fill(&t, "/slice", "memory\n", "3\n") == 0);
    CHECK(is(choose(&t, &move), "") && !move); /* the root may have processes and children */
    return 0;
}

TEST(a_group_without_the_controller_is_of_no_use)
{
    TREE(t);
    bool move;

    CHECK(fill(&t, "/slice/job", "", own_pid()) == 0 && fill(&t, "/slice", "", "") == 0 &&
          fill(&t, "", "", "") == 0);
    CHECK(put(&t, "/slice/job", "cgroup.controllers", "cpu pids\n") == 0);
    CHECK(put(&t, "/slice", "cgroup.controllers", "hugetlb\n") == 0);
    CHECK(put(&t, "", "cgroup.controllers", "memory_recursive pids\n") == 0);
    CHECK(is(choose(&t, &move), "none"));
    return 0;
}

TEST(a_process_that_made_room_before_does_not_do_it_again)
{
    TREE(t);
    bool move = true;

    CHECK(fill(&t, "/slice/job", "memory pids\n", "") == 0);
    strncat(t.own.path, "/carrel-main", sizeof(t.own.path) - strlen(t.own.path) - 1);
    CHECK(is(choose(&t, &move), "/slice/job") && !move);
    return 0;
}

/* --- files --- */

TEST(numbers_are_read_alone_or_behind_their_name)
{
    TREE(t);
    uint64_t n = 0;
    int dir = open(t.top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(dir >= 0);
    CHECK(put(&t, "", "cgroup.procs", "42\n") == 0);
    CHECK(cgroup_number(dir, "cgroup.procs", NULL, &n) == 0 && n == 42);
    CHECK(put(&t, "", "cgroup.procs", "max\n") == 0);
    CHECK(cgroup_number(dir, "cgroup.procs", NULL, &n) == -ENODATA && n == 42);
    CHECK(put(&t, "", "cgroup.procs", "oom 1\noom_kill 2\noom_group_kill 3\n") == 0);
    CHECK(cgroup_number(dir, "cgroup.procs", "oom_kill", &n) == 0 && n == 2);
    CHECK(cgroup_number(dir, "cgroup.procs", "max", &n) == -ENODATA);
    CHECK(cgroup_number(dir, "missing", NULL, &n) == -ENOENT && n == 2);
    CHECK(cgroup_lists(dir, "cgroup.procs", "oom") && !cgroup_lists(dir, "cgroup.procs", "kill"));
    (void)close(dir);
    return 0;
}
