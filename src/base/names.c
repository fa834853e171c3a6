/* SPDX-License-Identifier: Apache-2.0 */
#include "base/names.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

static bool is_among(const char *name, size_t n, const char *const *names)
{
    for (; *names; names++) {
        if (strlen(*names) == n && memcmp(*names, name, n) == 0)
            return true;
    }
    return false;
}

enum name_kind name_kind_n(const char *name, size_t n)
{
    static const char *const of_system[] = {CARREL_SYSTEM_NAMES, NULL};
    static const char *const own[] = {CARREL_OWN_NAMES, NULL};
    static const char *const staged[] = {CARREL_STAGED_NAMES, NULL};

    return is_among(name, n, of_system) ? NAME_SYSTEM
           : is_among(name, n, own)     ? NAME_CARREL
           : is_among(name, n, staged)  ? NAME_STAGED
                                        : NAME_FREE;
}

enum name_kind name_kind(const char *path)
{
    return name_kind_n(path, strcspn(path, "/"));
}
