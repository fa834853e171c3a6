/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that were read, until the database changes. Every request asks for its key and its workspace
 * first, and a question to SQLite is locks and a walk through two trees.
 *
 * 1. A row counts only while the durable connection has changed nothing since it was read. Keys
 *    and workspaces are written by that connection alone: the quick one writes commands, which
 *    refer to workspaces and nothing to them, and triggers are off.
 * 2. Nothing is kept of what was read in a transaction: it may be taken back.
 * 3. That there is no such row is never remembered. */
#include "front/store/db.h"

#include <string.h>

#include "base/hash.h"

static const char *text_at(const void *row, size_t offset)
{
    const char *text;

    memcpy(&text, (const char *)row + offset, sizeof(text));
    return text;
}

static void set_text(void *row, size_t offset, const char *text)
{
    memcpy((char *)row + offset, &text, sizeof(text));
}

/* Two names with the same slot evict each other; nothing else happens. */
static struct cache_slot *slot_of(struct cache *cache, const char *name)
{
    return &cache->slots[hash_text(name) % CACHE_SLOTS];
}

bool cache_find(struct store *store, struct cache *cache, const struct cache_kind *kind,
                const char *name, struct arena *arena, void *ret)
{
    const struct cache_slot *slot = slot_of(cache, name);

    if (slot->texts.n == 0 || slot->changes != sqlite3_total_changes64(store->durable) ||
        strcmp(text_at(&slot->row, kind->name), name) != 0)
        return false;
    const char *copy = arena_copy(arena, slot->texts.p, slot->texts.n);
    if (!copy)
        return false; /* there is none for what the database has either: it says so */
    memcpy(ret, &slot->row, kind->size);
    for (size_t i = 0; i < kind->count; i++)
        set_text(ret, kind->texts[i], copy + (text_at(ret, kind->texts[i]) - slot->texts.p));
    return true;
}

/* Copies the texts of the slot's row, and has it point to them. One too long leaves the slot empty.
 */
static void own_texts(const struct cache_kind *kind, struct cache_slot *slot)
{
    for (size_t i = 0; i < kind->count; i++) {
        const char *text = text_at(&slot->row, kind->texts[i]);
        buf_add(&slot->texts, text, strlen(text) + 1);
    }
    if (slot->texts.failed) {
        buf_clear(&slot->texts);
        return;
    }
    const char *at = slot->texts.p;
    for (size_t i = 0; i < kind->count; i++) {
        set_text(&slot->row, kind->texts[i], at);
        at += strlen(at) + 1;
    }
}

void cache_keep(struct store *store, struct cache *cache, const struct cache_kind *kind,
                const void *row)
{
    struct cache_slot *slot = slot_of(cache, text_at(row, kind->name));

    buf_clear(&slot->texts);
    if (!sqlite3_get_autocommit(store->durable))
        return;
    buf_init(&slot->texts, CACHE_ROW_MAX);
    memcpy(&slot->row, row, kind->size);
    slot->changes = sqlite3_total_changes64(store->durable);
    own_texts(kind, slot);
}

void cache_clear(struct cache *cache)
{
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        buf_clear(&cache->slots[i].texts);
}
