/* SPDX-License-Identifier: Apache-2.0 */
/* Test builds (-DCARREL_WEAK) can leave a named control out, so that each escape test is shown to
 * be able to fail. In the real build the answer is a constant and the name never reaches the
 * binary. */
#pragma once

#include <stdbool.h>

#ifdef CARREL_WEAK
#include <stdlib.h>
#include <string.h>

/* The list comes from CARREL_WEAKEN=name,name; pid 1 inherits the variable in these builds. */
static inline bool weak(const char *control)
{
    const char *list = getenv("CARREL_WEAKEN");
    size_t n = strlen(control);

    while (list && *list) {
        if (strncmp(list, control, n) == 0 && (list[n] == ',' || list[n] == '\0'))
            return true;
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    return false;
}
#else
#define weak(control) false
#endif
