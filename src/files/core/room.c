/* SPDX-License-Identifier: Apache-2.0 */
/* What calls may still add to the workspace, where its policy bounds the disk and nothing else
 * keeps that. The broker counts the trees, for commands and calls alike, and says what is left;
 * what calls take since is counted here. When that is too much the broker is asked to count again,
 * as something may have been deleted; then what does not fit is refused before it is written. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/core/paths.h"
#include "protocol/files_join.h"

enum {
    PATIENCE_MS = 2000, /* for a count: a large tree is not counted all the time */
    PAUSE_MS = 2,
};

static struct files_activity *shared; /* NULL: nothing is bounded */
static int wake;
static _Atomic uint64_t counts_seen;
static _Atomic uint64_t taken;   /* since then */
static _Atomic uint64_t unnamed; /* of that, in files that no count meets: they have no name yet */
static _Thread_local uint64_t unnamed_here;

void files_room_begin(struct files_activity *activity, int fd)
{
    shared = activity;
    wake = fd;
}

void files_room_end_call(void)
{
    atomic_fetch_sub(&unnamed, unnamed_here);
    unnamed_here = 0;
}

static void hear_of_counts(void)
{
    uint64_t seen = atomic_load(&counts_seen);
    uint64_t counts = atomic_load(&shared->counts);

    if (seen != counts && atomic_compare_exchange_strong(&counts_seen, &seen, counts))
        atomic_store(&taken, atomic_load(&unnamed));
}

static bool fits(uint64_t left, uint64_t n)
{
    hear_of_counts();
    uint64_t before = atomic_fetch_add(&taken, n);

    if (left != FILES_BEING_COUNTED && before <= left && n <= left - before)
        return true;
    atomic_fetch_sub(&taken, n);
    return false;
}

/* What is left is looked at once: another call may have the next count begun by then. A count that
 * was under way is no answer, and is not told: what was deleted it may have met before. */
static bool fits_when_counted(uint64_t n)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    uint64_t before = atomic_load(&shared->counts);
    uint64_t one = 1;

    if (write(wake, &one, sizeof(one)) != (ssize_t)sizeof(one))
        return false;
    for (int i = 0; i < PATIENCE_MS / PAUSE_MS; i++) {
        bool counted = atomic_load(&shared->counts) != before;
        uint64_t left = atomic_load(&shared->left);
        if (counted && left != FILES_BEING_COUNTED)
            return fits(left, n);
        (void)nanosleep(&pause, NULL);
    }
    return false; /* nobody counts, or not soon enough */
}

int files_room_take(int fd, uint64_t n)
{
    struct stat st;

    if (!shared || n == 0 || atomic_load(&shared->left) == FILES_UNBOUNDED)
        return 0;
    if (!fits(atomic_load(&shared->left), n) && !fits_when_counted(n))
        return -EDQUOT;
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_nlink == 0) {
        atomic_fetch_add(&unnamed, n);
        unnamed_here += n;
    }
    return 0;
}
