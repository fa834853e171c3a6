/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/lead.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/core/reach.h"

enum {
    MOST_LINKS = 40, /* as the kernel follows them */
};

struct lead {
    struct plan_leads *leads;
    char at[PLAN_MAX_PATH + 1];       /* the directory it has come to; "": the top */
    char rest[2 * PLAN_MAX_PATH + 2]; /* where it goes from there */
    char target[PLAN_MAX_PATH + 1];
    char *through;
    unsigned links;
};

/* A link of the tree as it is. */
static bool read_base_link(struct plan_leads *leads, const char *origin, char *target)
{
    const char *name;
    int parent = reach_parent(&leads->tree, origin, &name);
    ssize_t n = parent < 0 ? -1 : readlinkat(parent, name, target, PLAN_MAX_PATH + 1);

    if (n < 0 || n > PLAN_MAX_PATH)
        return false; /* no link, or nothing at all */
    target[n] = '\0';
    return true;
}

/* Whether there is a symbolic link at `path` once the plan is applied, and to where. */
static bool read_link(struct lead *l, const char *path)
{
    const struct plan_index *index = l->leads->index;
    char origin[PLAN_MAX_PATH + 1];
    ssize_t by = plan_after(index, path);

    if (by == PLAN_NOBODY)
        return plan_place_of(index, path, origin, &by) == PLACE_BASE &&
               read_base_link(l->leads, origin, l->target);
    const struct plan_operation *o = &index->plan->operations[by];
    if (!S_ISLNK(o->mode))
        return false;
    if (!o->target)
        return o->from && read_base_link(l->leads, o->from, l->target);
    int n = snprintf(l->target, sizeof(l->target), "%s", o->target);
    return n >= 0 && (size_t)n < sizeof(l->target);
}

/* Puts the link's target before what is left. False: too long. */
static bool turn(struct lead *l)
{
    size_t n = strlen(l->target);
    size_t left = strlen(l->rest);

    if (n + 1 + left >= sizeof(l->rest))
        return false;
    memmove(l->rest + n + 1, l->rest, left + 1);
    memcpy(l->rest, l->target, n);
    l->rest[n] = '/';
    return true;
}

/* One name further; PLAN_LEAD_COUNT_: and on. */
static enum plan_lead step(struct lead *l, const char *name, size_t n)
{
    char path[PLAN_MAX_PATH + 1];

    if (n == 0 || (n == 1 && *name == '.'))
        return PLAN_LEAD_COUNT_;
    if (n == 2 && memcmp(name, "..", 2) == 0) {
        char *slash = strrchr(l->at, '/');
        if (!l->at[0])
            return PLAN_LEAD_OUT;
        *(slash ? slash : l->at) = '\0';
        return PLAN_LEAD_COUNT_;
    }
    int length = snprintf(path, sizeof(path), "%s%s%.*s", l->at, l->at[0] ? "/" : "", (int)n, name);
    if (length < 0 || (size_t)length >= sizeof(path) || l->leads->looks == 0)
        return PLAN_LEAD_UNKNOWN;
    l->leads->looks--;
    if (!read_link(l, path)) {
        memcpy(l->at, path, (size_t)length + 1);
        return PLAN_LEAD_COUNT_;
    }
    if (++l->links > MOST_LINKS)
        return PLAN_LEAD_UNKNOWN; /* the kernel follows so many from each name it is given */
    memcpy(l->through, path, (size_t)length + 1);
    if (l->target[0] == '/')
        return PLAN_LEAD_OUT;
    return turn(l) ? PLAN_LEAD_COUNT_ : PLAN_LEAD_UNKNOWN;
}

enum plan_lead plan_lead_of(struct plan_leads *leads, const char *path, const char *target,
                            char through[PLAN_MAX_PATH + 1])
{
    struct lead l = {.leads = leads, .through = through};
    const char *slash = strrchr(path, '/');
    char name[PLAN_MAX_PATH + 1];

    through[0] = '\0';
    if (*target == '/')
        return PLAN_LEAD_OUT;
    if (strlen(target) > PLAN_MAX_PATH || strlen(path) > PLAN_MAX_PATH)
        return PLAN_LEAD_UNKNOWN;
    if (slash)
        memcpy(l.at, path, (size_t)(slash - path));
    memcpy(l.rest, target, strlen(target) + 1);
    while (l.rest[0]) {
        size_t n = strcspn(l.rest, "/");
        size_t past = n + strspn(l.rest + n, "/");
        if (n > PLAN_MAX_PATH)
            return PLAN_LEAD_UNKNOWN;
        memcpy(name, l.rest, n);
        memmove(l.rest, l.rest + past, strlen(l.rest + past) + 1);
        enum plan_lead found = step(&l, name, n);
        if (found != PLAN_LEAD_COUNT_)
            return found;
    }
    return PLAN_LEAD_INSIDE;
}

enum plan_lead plan_lead_of_moved(struct plan_leads *leads, const char *base, const char *path,
                                  char through[PLAN_MAX_PATH + 1])
{
    char target[PLAN_MAX_PATH + 1];

    through[0] = '\0';
    return read_base_link(leads, base, target) ? plan_lead_of(leads, path, target, through)
                                               : PLAN_LEAD_UNKNOWN;
}

void plan_leads_init(struct plan_leads *leads, const struct plan_index *index, int tree,
                     uint64_t looks)
{
    *leads = (struct plan_leads){.index = index, .looks = looks};
    reach_init(&leads->tree, tree);
}

void plan_leads_clear(struct plan_leads *leads)
{
    reach_forget(&leads->tree);
}
