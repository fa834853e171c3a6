/* SPDX-License-Identifier: Apache-2.0 */
/* Written plans: any bytes, held against a small tree. What becomes a plan can be written and read
 * again; the tree stays as it is. */
#include "fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/core/plan.h"

static int tree = -1;
static char folder[4096];

static void make_file(const char *path)
{
    int fd = openat(tree, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    MUST(fd >= 0 && write(fd, path, strlen(path)) == (ssize_t)strlen(path) && close(fd) == 0);
}

/* a, b, d/x, d/sub/y.pdf, a symlink out of it and one to d. */
static void make_tree(void)
{
    const char *at = getenv("FUZZ_TMP");
    char path[4200];

    snprintf(folder, sizeof(folder), "%s/submit.XXXXXX", at ? at : "/tmp");
    MUST(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tree", folder);
    MUST(mkdir(path, 0755) == 0);
    tree = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST(tree >= 0 && mkdirat(tree, "d", 0755) == 0 && mkdirat(tree, "d/sub", 0755) == 0);
    make_file("a");
    make_file("b");
    make_file("d/x");
    make_file("d/sub/y.pdf");
    MUST(symlinkat("/etc", tree, "out") == 0 && symlinkat("d", tree, "link") == 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    return at->level == 0 ? 0 : remove(path);
}

static void must_be_a_plan(const struct plan *plan)
{
    unsigned char hash[2][PLAN_HASH];
    struct plan again;
    struct err err;
    int fd = memfd_create("manifest", MFD_CLOEXEC);

    MUST(fd >= 0 && plan_write(plan, fd, hash[0], &err) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    MUST(plan_read(&again, fd, hash[1], &err) == 0);
    MUST(again.count == plan->count && memcmp(hash[0], hash[1], PLAN_HASH) == 0);
    plan_clear(&again);
    (void)close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[4200];
    struct plan plan;
    struct err err = {0};
    struct stat st;

    if (tree < 0)
        make_tree();
    snprintf(path, sizeof(path), "%s/plan", folder);
    MUST(mkdir(path, 0755) == 0 || errno == EEXIST);
    int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(dir >= 0);
    if (plan_derive_written(&plan, tree, dir, (const char *)data, size, &err) == 0) {
        must_be_a_plan(&plan);
        plan_clear(&plan);
    } else {
        MUST(err.msg[0] && err.code != ERR_NONE);
    }
    (void)close(dir);
    if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
        (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    MUST(fstatat(tree, "d/x", &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == 3);
    return 0;
}
