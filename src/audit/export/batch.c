/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "audit/export/export.h"

#define BATCH_BYTES (5UL << 20)
#define MOST_BYTES  (64UL << 20)

void batch_clear(struct batch *batch)
{
    buf_clear(&batch->docs);
    batch->count = 0;
}

static int add(struct batch *b, const char *line, size_t n, const char *host, struct err *err)
{
    struct bulk_item *item = &b->items[b->count];
    struct ecs_facts *facts = &b->facts[b->count];

    *item = (struct bulk_item){.at = b->docs.n, .verdict = BULK_RETRY};
    if (ecs_encode(line, n, host, true, &b->docs, facts) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "make a document of a record");
    item->n = b->docs.n - item->at;
    buf_str(&b->docs, "\n");
    memcpy(item->id, facts->id, sizeof(item->id));
    b->count++;
    return 0;
}

static int read_into(struct batch *b, const struct batch_source *source, struct err *err)
{
    const char *line;
    size_t n;

    while (b->count < BATCH_ITEMS && b->docs.n < BATCH_BYTES) {
        int r = audit_reader_next(source->reader, &line, &n, err);
        if (r < 0)
            return -1;
        if (r == 0)
            break;
        if (add(b, line, n, source->host, err) < 0)
            return -1;
    }
    return 0;
}

/* The reader is past lines that are in no batch: they are read once more. */
static int begin_anew(struct batch *b, struct batch_source *source)
{
    audit_reader_close(source->reader);
    source->reader = NULL;
    batch_clear(b);
    return -1;
}

int batch_fill(struct batch *b, struct batch_source *source, uint64_t after, struct err *err)
{
    batch_clear(b);
    if (!source->reader && audit_reader_open(&source->reader, source->record, after, err) < 0)
        return -1;
    buf_init(&b->docs, MOST_BYTES);
    int r = read_into(b, source, err);
    if (buf_done(&b->docs) < 0 || (r < 0 && err->code == ERR_LIMIT)) {
        err_set(err, ERR_LIMIT, ENOMEM, "make documents of records");
        return begin_anew(b, source);
    }
    /* Nothing is elsewhere that a power cut could still take from here. */
    if (b->count > 0 && audit_reader_sync(source->reader, err) < 0)
        return begin_anew(b, source);
    return r;
}
