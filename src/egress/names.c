/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/names.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/egress.h"

enum {
    FIRST = 2,                               /* 1 is the name server's */
    COUNT = (1 << (32 - EGRESS_PREFIX)) - 4, /* the last is for broadcasts */
    FIRST_ROOM = 64,
    PROBES = 128, /* more in a row have been chosen to be there */
};

struct named {
    uint32_t address;
    char name[];
};

static uint32_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return (uint32_t)(hash ^ hash >> 32);
}

/* Where that address is, or would be. There is always a free slot. */
static struct named **slot_of(struct named **slots, size_t room, uint32_t address)
{
    size_t at = (size_t)(address * 2654435761U) & (room - 1);

    while (slots[at] && slots[at]->address != address)
        at = (at + 1) & (room - 1);
    return &slots[at];
}

static int grow(struct names *names)
{
    size_t room = names->room ? names->room * 2 : FIRST_ROOM;
    struct named **slots = calloc(room, sizeof(struct named *));

    if (!slots)
        return -1;
    for (size_t i = 0; i < names->room; i++) {
        if (names->slots[i])
            *slot_of(slots, room, names->slots[i]->address) = names->slots[i];
    }
    free(names->slots);
    names->slots = slots;
    names->room = room;
    return 0;
}

uint32_t names_give(struct names *names, const char *name)
{
    size_t size = strlen(name) + 1;
    uint32_t begin = hash_of(name) % COUNT;

    if (2 * (names->count + 1) > names->room && grow(names) < 0)
        return 0;
    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t address = EGRESS_NETWORK + FIRST + (begin + i) % COUNT;
        struct named **slot = slot_of(names->slots, names->room, address);
        if (*slot && strcmp((*slot)->name, name) == 0)
            return address;
        if (*slot)
            continue;
        if (names->count == NAMES_MOST || names->bytes + size > NAMES_BYTES)
            return 0;
        struct named *named = malloc(sizeof(*named) + size);
        if (!named)
            return 0;
        named->address = address;
        memcpy(named->name, name, size);
        *slot = named;
        names->count++;
        names->bytes += size;
        return address;
    }
    return 0;
}

const char *names_find(const struct names *names, uint32_t address)
{
    if (names->room == 0)
        return NULL;
    const struct named *named = *slot_of(names->slots, names->room, address);
    return named ? named->name : NULL;
}

void names_clear(struct names *names)
{
    for (size_t i = 0; i < names->room; i++)
        free(names->slots[i]);
    free(names->slots);
    *names = (struct names){.count = 0};
}
