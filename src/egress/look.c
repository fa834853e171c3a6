/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/look.h"

void look_begin(struct look *l, const char *name, uint16_t port, const struct network_rule *rule)
{
    *l = (struct look){.state = LOOK_FREE, .cleared = UINT64_MAX, .name = name, .port = port};
    (void)rule;
}

int look_up(struct look *l, const unsigned char *bytes, size_t n)
{
    (void)l;
    (void)bytes;
    (void)n;
    return 0;
}

void look_down(struct look *l, const unsigned char *bytes, size_t n)
{
    (void)l;
    (void)bytes;
    (void)n;
}

bool look_wants_down(const struct look *l)
{
    return l->state != LOOK_FREE;
}

void look_clear(struct look *l)
{
    (void)l;
}
