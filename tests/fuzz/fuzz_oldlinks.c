/* SPDX-License-Identifier: Apache-2.0 */
/* Links that a tenant has written: whatever they say, what is taken names one of the bucket's own
 * directories, and its place inside is the end of that directory's path. */
#include "fuzz.h"

#include <string.h>

#include "front/workspaces/oldlinks.h"

#define BUCKET "/mnt/r2/agents"

static void try_at(const char *at, const char *target)
{
    struct oldlink link = {.names = ""};
    char path[sizeof(BUCKET) + sizeof(link.names) + 1];

    if (!oldlink_read(BUCKET, "t1", at, target, &link))
        return;
    const char *name = strchr(link.names, '/');
    MUST(name && protocol_id_is_valid(name + 1));
    MUST(strncmp(link.names, "skills/", 7) == 0 || strncmp(link.names, "threads/", 8) == 0);
    int n = snprintf(path, sizeof(path), "%s/%s", BUCKET, link.names);
    size_t m = strlen(link.place);
    MUST(m > 0 && (size_t)n > m && path[(size_t)n - m - 1] == '/');
    MUST(strcmp(path + (size_t)n - m, link.place) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    try_at(".solven/skills/system", text);
    try_at(".ticket", text);
    free(text);
    return 0;
}
