/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of paths: any bytes, then a NUL and a path. Making and matching end soon, whatever they
 * are; what matches can be come to from every directory above it. */
#include "fuzz.h"

#include <string.h>

#include "files/core/call.h"
#include "policy/glob.h"

static void try_path(const struct glob *glob, char *path)
{
    bool matches = glob_match(glob, path);

    (void)glob_may_match_below(glob, path);
    for (char *c = path; *c && matches; c++) {
        /* Above what matches: what stands before slashes at the end is that itself. */
        if (*c != '/' || c == path || c[-1] == '/' || c[strspn(c, "/")] == '\0')
            continue;
        *c = '\0';
        MUST(glob_may_match_below(glob, path));
        *c = '/';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *why = NULL;
    char *text = malloc(size + 2);

    if (!text || size >= FILES_PATTERN) {
        free(text);
        return 0;
    }
    memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    struct glob *glob = glob_make(text, &why);
    MUST(glob ? !why : why && *why);
    if (glob) {
        char *path = strlen(text) < size ? text + strlen(text) + 1 : text;
        for (size_t i = 0; i < glob_count(glob); i++) {
            struct buf b;
            bool exact = false;
            buf_init(&b, 4 * FILES_PATTERN);
            (void)glob_write(glob, i, &b, &exact);
            buf_clear(&b);
        }
        try_path(glob, path);
        glob_take_dots(glob);
        try_path(glob, path);
    }
    glob_free(glob);
    free(text);
    return 0;
}
