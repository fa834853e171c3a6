/* SPDX-License-Identifier: Apache-2.0 */
/* What a server answers to _bulk, the address it is said to be at, and a record as a document. A
 * verdict other than "again" is given to all or to none, and only when the ids are ours. */
#include "fuzz.h"

#include <string.h>

#include "audit/export/bulk.h"
#include "audit/export/ecs.h"
#include "audit/export/target.h"

enum {
    ITEMS = 3
};

static void try_answer(const char *bytes, size_t n)
{
    struct bulk_item list[ITEMS] = {{.id = "1-a"}, {.id = "2-b"}, {.id = "3-c"}};
    struct bulk_item *items[ITEMS] = {&list[0], &list[1], &list[2]};

    for (size_t count = 0; count <= ITEMS; count++) {
        bool good = bulk_judge(bytes, n, items, count);
        for (size_t i = 0; i < count; i++) {
            MUST(good || list[i].verdict == BULK_RETRY);
            MUST(memchr(list[i].reason, '\0', sizeof(list[i].reason)));
            for (const char *c = list[i].reason; *c; c++)
                MUST(*c >= ' ' && *c < 0x7f);
        }
    }
    (void)bulk_is_own_error(bytes, n, 400);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char *exact = malloc(size ? size : 1);
    struct ecs_facts facts;
    struct target target;
    struct err err;
    struct buf doc;

    memcpy(text, data, size);
    memcpy(exact, data, size);
    text[size] = '\0';
    try_answer(exact, size);
    if (target_parse(text, &target, &err) == 0)
        MUST(strcmp(target.text, text) == 0 && (target.port || target.path[0] == '/'));
    buf_init(&doc, 1 << 20);
    if (ecs_encode(exact, size, "h", true, &doc, &facts) == 0)
        MUST(buf_done(&doc) == 0 && !memchr(doc.p, '\n', doc.n));
    buf_clear(&doc);
    free(text);
    free(exact);
    return 0;
}
