/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/patterns.h"

#include <stdio.h>
#include <string.h>

#include "policy/glob.h"

static int add(struct patterns *patterns, const char *text, struct err *err)
{
    const char *why = NULL;
    struct glob *glob = glob_make(text, &why);

    if (!glob)
        return err_set(err, ERR_INVALID, 0,
                       "policy: the pattern '%.80s' of \"plan\" is invalid: %s", text, why);
    glob_take_dots(glob);
    patterns->at[patterns->count++] = glob;
    return 0;
}

/* NAME is found at any depth, and so is what lies below it; DIR/NAME begins at the top. */
static int add_below(struct patterns *patterns, const char *text, struct err *err)
{
    char below[PLAN_POLICY_PATTERN_BYTES + 8];
    const char *anywhere = strchr(text, '/') ? "" : "**/";

    if (text[strlen(text) - 1] == '/')
        return 0; /* it means what is in it already */
    if ((size_t)snprintf(below, sizeof(below), "%s%s/**", anywhere, text) >= sizeof(below))
        return err_set(err, ERR_LIMIT, 0, "policy: the pattern '%.40s…' is too long", text);
    return add(patterns, below, err);
}

int patterns_make(struct patterns *ret, const struct plan_patterns *texts, struct err *err)
{
    *ret = (struct patterns){0};
    for (size_t i = 0; i < texts->count; i++) {
        if (add(ret, texts->at[i], err) < 0 || add_below(ret, texts->at[i], err) < 0) {
            patterns_clear(ret);
            return -1;
        }
    }
    return 0;
}

void patterns_clear(struct patterns *patterns)
{
    for (size_t i = 0; i < patterns->count; i++)
        glob_free(patterns->at[i]);
    patterns->count = 0;
}

bool patterns_match(const struct patterns *patterns, const char *path)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (glob_match(patterns->at[i], path))
            return true;
    }
    return false;
}

bool patterns_may_match_below(const struct patterns *patterns, const char *directory)
{
    for (size_t i = 0; i < patterns->count; i++) {
        if (glob_may_match_below(patterns->at[i], directory))
            return true;
    }
    return false;
}
