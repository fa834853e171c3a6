/* SPDX-License-Identifier: Apache-2.0 */
#include "files/core/search.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"

enum {
    BUDGET_MS = 5000,
    MOST_ANSWER = 48 << 20, /* less than an emit keeps */
    MOST_PATH = 16 << 20,
};

const char *const search_passed[] = {CARREL_SYSTEM_NAMES, "etc", "proc", "sys", "dev", NULL};

bool search_is_passed(const char *name)
{
    for (size_t i = 0; search_passed[i]; i++) {
        if (strcmp(name, search_passed[i]) == 0)
            return true;
    }
    return false;
}

bool search_passes(const char *root, const struct tree_entry *entry)
{
    return entry->depth == 1 && !root[1] && search_is_passed(entry->name);
}

const char *search_path(struct buf *b, const char *root, const char *path)
{
    b->n = 0;
    b->max = MOST_PATH;
    buf_str(b, root[1] ? root : "");
    buf_str(b, "/");
    buf_str(b, path);
    return buf_done(b) == 0 ? b->p : NULL;
}

void search_refuse(struct files_call *call, const char *pattern, const char *why)
{
    if (strcmp(why, "unavailable") == 0)
        answer_errno(call, ENOMEM, call->m->path);
    else if (strcmp(why, "pattern_too_broad") == 0)
        answer_error(call, 400, why,
                     "the braces in '%.200s' stand for too many patterns: ask for fewer at a time",
                     pattern);
    else
        answer_error(call, 400, why,
                     "'%.200s' is no pattern: it must not be empty, nor have \"..\" in it",
                     pattern);
}

struct search {
    struct files_call *call;
    const struct glob *glob;
    struct emit e;
    struct buf path;
    uint64_t deadline;
    uint64_t found;
    bool truncated;
};

/* False: that is enough. */
static bool take(struct search *s, const struct tree_entry *entry)
{
    const struct files_message *m = s->call->m;

    if (!glob_match(s->glob, entry->path))
        return true;
    if (s->found == m->limit) {
        s->truncated = true;
        return false;
    }
    s->found++;
    const char *path = search_path(&s->path, m->path, entry->path);
    if (path)
        emit_entry(&s->e, path, &entry->st, NULL);
    return path && emit_alive(&s->e);
}

static enum walk_answer see(void *context, const struct tree_entry *entry)
{
    struct search *s = context;
    const struct files_message *m = s->call->m;

    if (now_ms() > s->deadline || s->e.b.n > MOST_ANSWER) {
        s->truncated = true;
        return WALK_STOP;
    }
    if (S_ISDIR(entry->st.st_mode)) {
        if (search_passes(m->path, entry))
            return WALK_PAST;
        if ((m->flags & FILES_DIRECTORIES) && !take(s, entry))
            return WALK_STOP;
        return glob_may_match_below(s->glob, entry->path) ? WALK_ON : WALK_PAST;
    }
    return !S_ISREG(entry->st.st_mode) || take(s, entry) ? WALK_ON : WALK_STOP;
}

void files_glob(struct files_call *call)
{
    struct search s = {.call = call, .deadline = now_ms() + BUDGET_MS};
    const char *why = NULL;
    struct glob *glob = glob_make(call->m->pattern, &why);

    if (!glob) {
        search_refuse(call, call->m->pattern, why);
        return;
    }
    s.glob = glob;
    emit_begin(&s.e, call, false, FILES_TYPE_JSON);
    emit_raw(&s.e, "{\"matches\":[");
    int r = files_walk(call->m->path, UINT32_MAX, see, NULL, &s);
    if (r < 0) {
        buf_clear(&s.e.b);
        answer_errno(call, r, call->m->path);
    } else {
        emit_raw(&s.e, s.truncated ? "],\"truncated\":true}" : "],\"truncated\":false}");
        emit_finish(&s.e, 200);
    }
    buf_clear(&s.path);
    glob_free(glob);
}
