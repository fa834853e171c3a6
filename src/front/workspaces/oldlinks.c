/* SPDX-License-Identifier: Apache-2.0 */
#include "front/workspaces/oldlinks.h"

#include <stdio.h>
#include <string.h>

/* Goes from `path`, which is absolute, to where a link's text leads; "/" is "". A ".." after a name
 * may mean something else to the kernel, if that name is a symlink: such a text is not taken. */
static bool follow(char path[OLDLINK_PATH], const char *text)
{
    bool named = false;
    size_t n = strlen(path);

    while (*text) {
        size_t length = strcspn(text, "/");
        bool up = length == 2 && memcmp(text, "..", 2) == 0;
        if (up && named)
            return false;
        if (up) {
            const char *slash = strrchr(path, '/');
            n = slash ? (size_t)(slash - path) : 0; /* above the root is the root */
        } else if (length > 0 && !(length == 1 && *text == '.')) {
            if (n + 1 + length >= OLDLINK_PATH)
                return false;
            path[n++] = '/';
            memcpy(path + n, text, length);
            n += length;
            named = true;
        }
        path[n] = '\0';
        text += length;
        text += strspn(text, "/");
    }
    return true;
}

/* "PATH/skills/NAME" -> "skills/NAME". */
static const char *within_bucket(const char *bucket, const char *path)
{
    size_t n = strlen(bucket);

    if (strncmp(path, bucket, n) != 0 || path[n] != '/')
        return NULL;
    const char *rest = path + n + 1;
    const char *name = strncmp(rest, "skills/", 7) == 0    ? rest + 7
                       : strncmp(rest, "threads/", 8) == 0 ? rest + 8
                                                           : NULL;
    return name && protocol_id_is_valid(name) ? rest : NULL;
}

bool oldlink_read(const char *bucket, const char *workspace, const char *at, const char *target,
                  struct oldlink *ret)
{
    char outside[OLDLINK_PATH] = "";
    char inside[OLDLINK_PATH] = "";
    const char *slash = strrchr(at, '/');
    int above = slash ? (int)(slash - at) : 0;

    if (*target != '/') {
        int n = snprintf(outside, sizeof(outside), "%s/threads/%s%s%.*s", bucket, workspace,
                         above ? "/" : "", above, at);
        int m = snprintf(inside, sizeof(inside), "%s%.*s", above ? "/" : "", above, at);
        if (n >= OLDLINK_PATH || m >= OLDLINK_PATH)
            return false;
    }
    if (!follow(outside, target) || !follow(inside, target))
        return false;
    const char *names = within_bucket(bucket, outside);
    if (!names || !*inside)
        return false;
    snprintf(ret->names, sizeof(ret->names), "%s", names);
    snprintf(ret->place, sizeof(ret->place), "%s", inside + 1);
    return true;
}
