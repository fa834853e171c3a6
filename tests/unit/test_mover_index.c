/* SPDX-License-Identifier: Apache-2.0 */
/* mover/index: what may be in a store is known, however often jobs are killed. */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fd.h"
#include "mover/tree.h"

static const struct entry old = {.path = "d/a", .kind = ENTRY_FILE, .size = 1};
static const struct entry new = {.path = "b", .kind = ENTRY_FILE, .size = 2};

static int new_state(struct mover *m)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/state.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    *m = (struct mover){.state = path, .state_fd = -1};
    if (!mkdtemp(path))
        return -1;
    m->state_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return m->state_fd < 0 ? -1 : 0;
}

TEST(what_an_earlier_job_sent_is_known_until_it_was_removed)
{
    const struct entry *const first[] = {&old};
    const struct entry *const second[] = {&new};
    struct mover m;
    struct index index;
    struct err err;

    CHECK(new_state(&m) == 0);
    CHECK(index_intend(&m, first, 1, NULL, 0, &err) == 0);
    /* Killed. The file is gone by now: the next job is about to remove it, and is killed, too. */
    CHECK(index_load(&m, &index, &err) == 0 && index.tree.count == 1);
    CHECK(tree_find(&index.tree, "d/a") && tree_find(&index.tree, "d/a")->dirty);
    tree_clear(&index.tree);
    CHECK(index_intend(&m, second, 1, first, 1, &err) == 0);
    CHECK(index_load(&m, &index, &err) == 0 && index.tree.count == 2);
    CHECK(tree_find(&index.tree, "d/a") && tree_find(&index.tree, "b"));
    tree_clear(&index.tree);
    /* One that gets to its end. */
    index = (struct index){.manifest = ""};
    tree_init(&index.tree);
    CHECK(tree_add(&index.tree, &new) == 0 && index_save(&m, &index, &err) == 0);
    tree_clear(&index.tree);
    CHECK(index_load(&m, &index, &err) == 0 && index.tree.count == 1);
    CHECK(tree_find(&index.tree, "b") && !tree_find(&index.tree, "b")->dirty);
    tree_clear(&index.tree);
    scope_close(&m.state_fd);
    return 0;
}
