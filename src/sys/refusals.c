/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/refusals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sys/path.h"

enum {
    TEXT_BYTES = 16384 /* several times what Linux 6.18 says */
};

/* The number under the word `column` in the first table, whose first line has the words:
 *   Ip: Forwarding DefaultTTL ...
 *   Ip: 2 64 ... */
static uint64_t number_under(char *text, const char *column)
{
    char *values = strchr(text, '\n');
    char *word_at;
    char *value_at;

    if (!values)
        return 0;
    *values++ = '\0';
    char *word = strtok_r(text, " ", &word_at);
    char *value = strtok_r(values, " \n", &value_at);
    while (word && value && strcmp(word, column) != 0) {
        word = strtok_r(NULL, " ", &word_at);
        value = strtok_r(NULL, " \n", &value_at);
    }
    return word && value ? strtoull(value, NULL, 10) : 0;
}

static uint64_t number_after(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

uint64_t network_refusals(const char *net)
{
    char path[64];
    char text[TEXT_BYTES];
    uint64_t n = 0;

    snprintf(path, sizeof(path), "%s/snmp", net);
    if (path_read_small(path, text, sizeof(text)) > 0)
        n += number_under(text, "OutNoRoutes");
    snprintf(path, sizeof(path), "%s/snmp6", net);
    if (path_read_small(path, text, sizeof(text)) > 0)
        n += number_after(text, "Ip6OutNoRoutes");
    return n;
}
