/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of srt, read as a policy: whatever they say, what comes out is bounded, of absolute
 * paths, and allows no names where it allows none. */
#include "fuzz.h"

#include <string.h>

#include "policy/srt.h"

static struct policy policy;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct err err = {0};

    if (size < 1)
        return 0;
    json_t *root = json_loadb((const char *)data + 1, size - 1, JSON_REJECT_DUPLICATES, NULL);
    arena_init(&arena, 1 << 20);
    if (root && srt_is(root)) {
        if (srt_read(&policy, &arena, root, data[0] % 2 ? "/usr/share" : NULL, &err) == 0) {
            MUST(policy.mount_count <= POLICY_MAX_MOUNTS && policy.net_rule_count <= NETWORK_MOST);
            MUST(policy.net != CARREL_NET_HOST && policy.net != CARREL_NET_DEFAULT);
            MUST(policy.net_rule_count == 0 || policy.net == CARREL_NET_ALLOW);
            for (size_t i = 0; i < policy.mount_count; i++) {
                MUST(policy.mounts[i].source[0] == '/' && policy.mounts[i].target[0] == '/');
                MUST(!policy.mounts[i].writable || strcmp(policy.mounts[i].source, "/") != 0);
            }
        } else {
            MUST(err.code != ERR_NONE && memchr(err.msg, '\0', sizeof(err.msg)));
        }
    }
    json_decref(root);
    arena_clear(&arena);
    return 0;
}
