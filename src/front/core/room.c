/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/room.h"

enum {
    LEAST = 16, /* with fewer open files than four times that nothing works */
};

static unsigned smaller(uint64_t wanted, uint64_t most)
{
    uint64_t n = wanted < most ? wanted : most;

    return n ? (unsigned)n : 1;
}

void room_for_connections(const struct settings *settings, uint64_t files, struct http_options *ret)
{
    uint64_t all = settings->max_connections < files / 4 ? settings->max_connections : files / 4;

    all = all < LEAST ? LEAST : all;
    ret->max_unknown = (unsigned)(all / 4);
    ret->max_connections = (unsigned)(all - all / 4);
    ret->owner_connections = smaller(settings->owner_connections, ret->max_connections / 2);
    ret->owner_streams = smaller(settings->owner_streams, ret->owner_connections * 3 / 4);
    ret->address_connections = smaller(settings->address_connections, ret->max_unknown / 2);
}
