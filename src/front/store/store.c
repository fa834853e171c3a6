/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "front/store/db.h"

enum {
    RESERVE = 1 << 20, /* bytes behind the end of the log ... */
    LEAST_RESERVE = RESERVE / 2,
    CHECKPOINT = 1000, /* pages, as SQLite does without a hook of ours */
    FRAME = 4096 + 24, /* of a page in the log; with pages of another size it is about that */
};

/* Keeps room behind the end of the log: on a full disk a key can still be revoked and a workspace
 * deleted. The record refuses what else would use it (src/broker/record.c). */
static void reserve(struct store *store, int64_t end)
{
    bool has_shrunk = end < store->log_end; /* begun anew, and what was behind it may be gone */

    store->log_end = end;
    if (!has_shrunk && end + LEAST_RESERVE <= store->log_reserved)
        return;
    if (store->log < 0)
        store->log = open(store->log_path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (store->log >= 0 && fallocate(store->log, FALLOC_FL_KEEP_SIZE, end, RESERVE) == 0)
        store->log_reserved = end + RESERVE;
}

static int committed(void *context, sqlite3 *db, const char *name, int frames)
{
    reserve(context, (int64_t)frames * FRAME);
    if (frames >= CHECKPOINT)
        (void)sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return SQLITE_OK;
}

static void keep_reserve(struct store *store)
{
    struct stat st;

    (void)sqlite3_wal_hook(store->durable, committed, store);
    (void)sqlite3_wal_hook(store->quick, committed, store);
    reserve(store, stat(store->log_path, &st) == 0 ? st.st_size : 0);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < QUERY_COUNT_; i++)
        (void)sqlite3_finalize(store->queries[i]);
    (void)sqlite3_close(store->quick);
    (void)sqlite3_close(store->durable);
    scope_close(&store->log);
    cache_clear(&store->keys);
    cache_clear(&store->workspaces);
    free(store);
}

int store_open(struct store **ret, const char *path, struct err *err)
{
    struct store *store = calloc(1, sizeof(*store));

    if (!store)
        return err_set(err, ERR_LIMIT, ENOMEM, "open '%s'", path);
    store->log = -1;
    if (snprintf(store->log_path, sizeof(store->log_path), "%s-wal", path) >=
        (int)sizeof(store->log_path)) {
        free(store);
        return err_set(err, ERR_INVALID, 0, "the path '%s' is too long", path);
    }
    if (db_open(&store->durable, path, "FULL", err) < 0) {
        store_close(store);
        return -1;
    }
    if (db_prepare(store->durable, db_steps, STORE_VERSION, err) < 0) {
        store_close(store);
        return err_wrap(err, "open '%s'", path);
    }
    if (db_open(&store->quick, path, "NORMAL", err) < 0) {
        store_close(store);
        return -1;
    }
    keep_reserve(store);
    *ret = store;
    return 0;
}
