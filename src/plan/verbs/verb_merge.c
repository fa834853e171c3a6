/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that hold versions of a tree against each other. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "plan/core/verbs.h"
#include "plan/trees/merge.h"
#include "plan/trees/version.h"
#include "plan/verbs/saved.h"
#include "sys/path.h"

enum {
    MOST_CHANGES = 20000, /* of a comparison that are told */
};

/* The trees that a merge or a comparison is of, and what has to be closed. */
struct trees {
    struct version ours;
    struct version theirs;
    struct version base;
    bool has_base;
    int theirs_tree;
    int base_tree;
};

static void close_trees(struct trees *t)
{
    version_clear(&t->ours);
    version_clear(&t->theirs);
    version_clear(&t->base);
    scope_close(&t->theirs_tree);
    scope_close(&t->base_tree);
}

static int read_word(const char *word, enum merge_side *ret, struct err *err)
{
    static const char *const words[] = {"", "ours", "theirs"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i], word) == 0) {
            *ret = (enum merge_side)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, 0, "a conflict is decided for \"ours\" or \"theirs\"");
}

static int check_decided(const json_t *decided, struct err *err)
{
    enum merge_side side = MERGE_UNDECIDED;
    const char *path;
    const json_t *word;

    json_object_foreach((json_t *)(uintptr_t)decided, path, word)
    {
        const char *text = json_string_value(word);
        if (!text || !*text || read_word(text, &side, err) < 0)
            return err_set(err, ERR_INVALID, 0, "'%.200s' is decided for \"ours\" or \"theirs\"",
                           path);
    }
    return 0;
}

static int read_trees(const struct verb_call *call, struct trees *t, struct err *err)
{
    t->has_base = call->base >= 0;
    if (call->theirs < 0)
        return err_set(err, ERR_INVALID, 0, "the version to be brought in is missing");
    if (version_read_kept(&t->theirs, call->theirs, &t->theirs_tree, err) < 0 ||
        version_read(&t->ours, call->tree, err) < 0)
        return -1;
    return t->has_base ? version_read_kept(&t->base, call->base, &t->base_tree, err) : 0;
}

static int answer_merge(const struct verb_call *call, const struct merge_outcome *made,
                        json_t *answer, struct err *err)
{
    json_t *told = json_pack("{s:O, s:I, s:I, s:I}", "conflicts", made->conflicts, "conflict_count",
                             (json_int_t)made->conflict_count, "undecided",
                             (json_int_t)made->undecided, "merged", (json_int_t)made->merged);
    int r = told ? json_object_update(answer, told) : -1;

    json_decref(told);
    if (r < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "tell about the merge");
    return made->undecided ? 0 : verb_save_plan(call, &made->plan, "manifest", answer, err);
}

int verb_merge(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct trees t = {.theirs_tree = -1, .base_tree = -1};
    struct merge_wish wish = {.ours = &t.ours, .theirs = &t.theirs, .dir = call->dir};
    struct merge_outcome made;
    const char *prefer = "";

    if (verb_read(call, err, "{s?s, s?o}", "prefer", &prefer, "decided", &wish.decided) < 0 ||
        read_word(prefer, &wish.prefer, err) < 0 || check_decided(wish.decided, err) < 0)
        return -1;
    int r = read_trees(call, &t, err);
    wish.base = t.has_base ? &t.base : NULL;
    if (r == 0)
        r = merge_plan(&made, &wish, err);
    if (r == 0) {
        r = answer_merge(call, &made, answer, err);
        merge_clear(&made);
    }
    close_trees(&t);
    return r;
}

/* From the base, or where none was given from the tree as it is now; to the other, likewise. */
int verb_compare(const struct verb_call *call, json_t *answer, struct err *err)
{
    struct version from = {.root = -1};
    struct version to = {.root = -1};
    scoped_fd int from_tree = -1;
    scoped_fd int to_tree = -1;
    json_t *changes = json_array();
    size_t count = 0;
    int r = verb_read(call, err, "{}");

    if (r == 0)
        r = call->base < 0 ? version_read(&from, call->tree, err)
                           : version_read_kept(&from, call->base, &from_tree, err);
    if (r == 0)
        r = call->theirs < 0 ? version_read(&to, call->tree, err)
                             : version_read_kept(&to, call->theirs, &to_tree, err);
    if (r == 0)
        r = version_diff(&from, &to, MOST_CHANGES, changes, &count, err);
    if (r == 0 && (json_object_set(answer, "changes", changes) < 0 ||
                   json_object_set_new(answer, "count", json_integer((json_int_t)count)) < 0))
        r = err_set(err, ERR_LIMIT, ENOMEM, "tell what has changed");
    version_clear(&from);
    version_clear(&to);
    json_decref(changes);
    return r;
}
