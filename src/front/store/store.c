/* SPDX-License-Identifier: Apache-2.0 */
#include "front/store/store.h"

#include <errno.h>
#include <stdlib.h>

#include "front/store/db.h"

void store_close(struct store *store)
{
    if (!store)
        return;
    for (size_t i = 0; i < QUERY_COUNT_; i++)
        (void)sqlite3_finalize(store->queries[i]);
    (void)sqlite3_close(store->quick);
    (void)sqlite3_close(store->durable);
    cache_clear(&store->keys);
    cache_clear(&store->workspaces);
    free(store);
}

int store_open(struct store **ret, const char *path, struct err *err)
{
    struct store *store = calloc(1, sizeof(*store));

    if (!store)
        return err_set(err, ERR_LIMIT, ENOMEM, "open '%s'", path);
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
    *ret = store;
    return 0;
}
