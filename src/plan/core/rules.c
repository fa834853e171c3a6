/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/core/rules.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "plan/core/fold.h"
#include "policy/units.h"

#define KIND(kind) (1U << (kind))
#define EVERY      ((1U << PLAN_KIND_COUNT_) - 1)
#define FINAL      (EVERY & ~KIND(PLAN_DELETE)) /* those that have a final path */
#define CARE(key)  ((long)offsetof(struct plan_policy, key))

_Static_assert((int)PLAN_KIND_COUNT_ == (int)PLAN_POLICY_KINDS, "a policy names every kind");

bool hearing_say(const struct hearing *h, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(h->message, PLAN_MESSAGE, format, args);
    va_end(args);
    return true;
}

/* --- what an operation is --- */

enum has {
    NEVER,
    MAYBE,
    ALWAYS,
};

static const struct shape {
    mode_t types[3]; /* zero: no more; none: any */
    enum has base;
    enum has from;
    enum has target;
    enum has link;
    enum has hash;
} shapes[PLAN_KIND_COUNT_] = {
    [PLAN_MKDIR] = {{S_IFDIR}, NEVER, NEVER, NEVER, NEVER, NEVER},
    [PLAN_CREATE] = {{S_IFREG}, NEVER, NEVER, NEVER, MAYBE, MAYBE},
    [PLAN_WRITE] = {{S_IFREG}, ALWAYS, MAYBE, NEVER, MAYBE, MAYBE},
    [PLAN_SYMLINK] = {{S_IFLNK}, MAYBE, MAYBE, ALWAYS, NEVER, NEVER},
    [PLAN_MOVE] = {{S_IFREG, S_IFDIR, S_IFLNK}, ALWAYS, ALWAYS, MAYBE, NEVER, MAYBE},
    [PLAN_DELETE] = {{0}, ALWAYS, NEVER, NEVER, NEVER, NEVER},
    [PLAN_CHMOD] = {{S_IFREG, S_IFDIR}, ALWAYS, MAYBE, NEVER, NEVER, NEVER},
};

static bool fits(enum has wanted, bool has)
{
    return wanted == MAYBE || (wanted == ALWAYS) == has;
}

static bool type_fits(const struct shape *shape, mode_t mode)
{
    for (size_t i = 0; i < 3 && shape->types[i]; i++) {
        if ((mode & S_IFMT) == shape->types[i])
            return true;
    }
    return !shape->types[0];
}

/* Moved from a path to the same path: into a directory that the plan puts where its own was. */
static bool enters_another_directory(const struct hearing *h)
{
    char origin[PLAN_MAX_PATH + 1];
    ssize_t by;
    enum plan_place place = plan_place_of(h->judge->index, h->operation->path, origin, &by);

    return h->operation->kind == PLAN_MOVE &&
           (place == PLACE_NEW || (origin[0] && strcmp(origin, h->operation->path) != 0));
}

static bool breaks_shape(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    const struct shape *shape = &shapes[o->kind];

    if (!o->path || !fits(shape->base, o->has_base) || !fits(shape->from, o->from != NULL) ||
        !fits(shape->target, o->target != NULL) || !fits(shape->link, o->link != NULL) ||
        !fits(shape->hash, o->has_hash))
        return hearing_say(h, "says too much or too little for its kind");
    if ((o->kind == PLAN_CREATE || o->kind == PLAN_WRITE) && !o->has_hash && !o->link)
        return hearing_say(h, "carries no content");
    if (o->from && strcmp(o->from, o->path) == 0 && !enters_another_directory(h))
        return hearing_say(h, "comes from where it goes to");
    return false;
}

static bool is_special(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;

    if (!type_fits(&shapes[o->kind], o->mode))
        return hearing_say(h, "is of a type that this kind of operation does not make");
    if (o->kind != PLAN_DELETE && o->mode & (S_ISUID | S_ISGID | S_ISVTX))
        return hearing_say(h, "has the setuid, setgid or sticky bit (mode %04o)", o->mode & 07777);
    return false;
}

static bool has_bad_path(const struct hearing *h)
{
    const char *const paths[] = {h->operation->path, h->operation->from, h->operation->link};
    struct err err = {0};

    for (size_t i = 0; i < 3; i++) {
        if (paths[i] && !plan_is_reserved(paths[i]) &&
            plan_check_path(paths[i], strlen(paths[i]), &err) < 0)
            return hearing_say(h, "%s", err.msg);
    }
    return false;
}

static bool is_reserved(const struct hearing *h)
{
    const char *const paths[] = {h->operation->path, h->operation->from, h->operation->link};

    for (size_t i = 0; i < 3; i++) {
        if (paths[i] && plan_is_reserved(paths[i]))
            return hearing_say(h, "'%.*s' at the top is a name that Carrel keeps for itself",
                               (int)strcspn(paths[i], "/"), paths[i]);
    }
    return false;
}

/* --- against the plan itself --- */

/* The name of another operation, in words. */
static const char *other(const struct hearing *h, ssize_t number)
{
    static const char nobody[] = "nothing";

    return number < 0 ? nobody : h->judge->plan->operations[number].path;
}

static bool hangs_in_the_air(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    const struct plan_index *index = h->judge->index;
    char origin[PLAN_MAX_PATH + 1];
    char parent[PLAN_MAX_PATH + 1];
    const char *slash = strrchr(o->path, '/');
    ssize_t by;

    enum plan_place place = plan_place_of(index, o->path, origin, &by);
    if (place == PLACE_BLOCKED)
        return hearing_say(h,
                           "lies below '%.200s', which the plan makes something else than a "
                           "directory",
                           other(h, by));
    if (place == PLACE_GONE && o->from && plan_is_below(o->path, o->from))
        return hearing_say(h, "is moved into itself");
    if (place == PLACE_GONE)
        return hearing_say(h,
                           "lies in a directory that is no longer there: the plan moves or "
                           "deletes '%.200s'",
                           other(h, by));
    if (place != PLACE_NEW || !slash || (size_t)(slash - o->path) > PLAN_MAX_PATH)
        return false;
    memcpy(parent, o->path, (size_t)(slash - o->path));
    parent[slash - o->path] = '\0';
    return plan_after(index, parent) == PLAN_NOBODY
               ? hearing_say(h, "lies in a directory that nothing makes")
               : false;
}

/* A delete takes with it what lies below. */
static bool goes_twice(const struct hearing *h)
{
    char parent[PLAN_MAX_PATH + 1];
    const char *path = h->operation->path;
    const char *slash = strrchr(path, '/');
    ssize_t by;

    if (!slash || (size_t)(slash - path) > PLAN_MAX_PATH)
        return false;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    by = plan_before_or_above(h->judge->index, parent);
    return by != PLAN_NOBODY && h->judge->plan->operations[by].kind == PLAN_DELETE
               ? hearing_say(h, "is deleted already with '%.200s'", other(h, by))
               : false;
}

/* What a hard link is to: content of the plan's, or a file of the base's. */
static bool is_linked_to_nothing(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;

    if (!o->link)
        return false;
    ssize_t to = plan_after(h->judge->index, o->link);
    const struct plan_operation *there = to < 0 ? NULL : &h->judge->plan->operations[to];
    if (o->has_hash) {
        if (!there || !there->has_hash || there->link || there == o ||
            memcmp(there->hash, o->hash, PLAN_HASH) != 0)
            return hearing_say(h, "is a hard link to '%.200s', which does not carry its content",
                               o->link);
        return false;
    }
    if (there ? S_ISREG(there->mode) && there->has_base
              : h->fact->linked.state == SIGHT_PRESENT && S_ISREG(h->fact->linked.mode))
        return false;
    return hearing_say(h, "is a hard link to '%.200s', which is not a file there", o->link);
}

static bool contradicts(const struct hearing *h)
{
    int32_t rival = h->judge->rival[h->number];

    if (rival != PLAN_NOBODY)
        return hearing_say(h, "is one of two operations for the same file: the other is number %d",
                           rival);
    if (h->operation->kind == PLAN_DELETE)
        return goes_twice(h);
    return hangs_in_the_air(h) || is_linked_to_nothing(h);
}

static bool has_twin(const struct hearing *h)
{
    int32_t twin = h->judge->twin[h->number];
    const char *beside =
        twin != PLAN_NOBODY ? h->judge->plan->operations[twin].path : h->fact->twin;

    return beside ? hearing_say(h, "differs from '%.200s' in the case of letters only", beside)
                  : false;
}

/* --- against the base --- */

static const char *const sight_words[] = {
    [SIGHT_NONE] = "has not been looked at",
    [SIGHT_ABSENT] = "is no longer there",
    [SIGHT_PRESENT] = "has been changed or replaced",
    [SIGHT_LINK_ABOVE] = "is now reached through a symbolic link",
    [SIGHT_FILE_ABOVE] = "lies below something that is no directory now",
    [SIGHT_ELSEWHERE] = "is now on another file system",
    [SIGHT_DENIED] = "may no longer be looked at",
    [SIGHT_FAILED] = "cannot be looked at",
};

static bool is_stale(const struct hearing *h)
{
    const char *path = plan_base_path(h->operation);

    if (!path || (h->fact->base.state == SIGHT_PRESENT && h->fact->same))
        return false;
    if (h->operation->base.ino == PLAN_FORGOTTEN)
        return hearing_say(h, "'%.200s' was changed in the tree, too, while the plan was open",
                           path);
    if (h->operation->kind == PLAN_DELETE && S_ISDIR(h->operation->mode) &&
        h->fact->base.state == SIGHT_PRESENT)
        return hearing_say(h, "the directory, or something in it, has been changed since the plan "
                              "was made");
    return hearing_say(h, "'%.200s' %s since the plan was made", path,
                       sight_words[h->fact->base.state]);
}

/* What is at its place already and stays there. */
static bool is_occupied(const struct hearing *h)
{
    char origin[PLAN_MAX_PATH + 1];
    ssize_t by;

    if (plan_place_of(h->judge->index, h->operation->path, origin, &by) != PLACE_BASE ||
        h->fact->there.state != SIGHT_PRESENT)
        return false;
    return hearing_say(h, "there is %s at this place already",
                       S_ISDIR(h->fact->there.mode) ? "a directory" : "a file");
}

/* Where the base has its directory, that must be one, and reached without a link. */
static bool has_no_parent(const struct hearing *h)
{
    char origin[PLAN_MAX_PATH + 1];
    const struct plan_fact *fact = h->fact;
    ssize_t by;

    if (plan_place_of(h->judge->index, h->operation->path, origin, &by) != PLACE_BASE)
        return false;
    if (fact->parent.state == SIGHT_PRESENT && S_ISLNK(fact->parent.mode))
        return hearing_say(h, "its directory is a symbolic link");
    if (fact->parent.state == SIGHT_PRESENT && !S_ISDIR(fact->parent.mode))
        return hearing_say(h, "its directory is no directory");
    /* The plan has it: then its place in the base has been looked at, and that is enough. */
    if (fact->parent.state != SIGHT_PRESENT && fact->parent.state != SIGHT_NONE)
        return hearing_say(h, "its directory %s", sight_words[fact->parent.state]);
    if (fact->there.state != SIGHT_PRESENT && fact->there.state != SIGHT_ABSENT)
        return hearing_say(h, "its place %s", sight_words[fact->there.state]);
    return false;
}

/* Applied, nobody could look at it there again: not even to take it back. */
static bool lies_in_closed(const struct hearing *h)
{
    const char *path = h->operation->path;
    char above[PLAN_MAX_PATH + 1];

    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        if ((size_t)(slash - path) > PLAN_MAX_PATH)
            return false;
        memcpy(above, path, (size_t)(slash - path));
        above[slash - path] = '\0';
        ssize_t by = plan_after(h->judge->index, above);
        uint32_t mode = by < 0 ? S_IXUSR : h->judge->plan->operations[by].mode;
        if (S_ISDIR(mode) && !(mode & S_IXUSR))
            return hearing_say(h, "lies in '%.200s', which is left closed to its owner (mode %04o)",
                               other(h, by), mode & 07777U);
    }
    return false;
}

static bool has_lost_content(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    const struct plan_sight *staged = &h->fact->staged;

    if (!o->has_hash || o->link)
        return false;
    if (staged->state != SIGHT_PRESENT || !S_ISREG(staged->mode))
        return hearing_say(h, "its content is not where the plan keeps it");
    return staged->size != o->size
               ? hearing_say(h, "its content has changed since the plan was closed")
               : false;
}

/* --- against the policy --- */

static bool is_of_no_allowed_kind(const struct hearing *h)
{
    const struct plan_policy *policy = h->judge->policy;
    enum plan_kind kind = h->operation->kind;

    return policy->has_operations && !(policy->operations & KIND(kind))
               ? hearing_say(h, "operations of the kind \"%s\" are not allowed",
                             plan_policy_kinds[kind])
               : false;
}

static bool is_outside(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    const char *const paths[] = {o->path, o->from, o->link};

    for (size_t i = 0; h->judge->policy->has_allow && i < 3; i++) {
        if (paths[i] && !patterns_match(&h->judge->allow, paths[i]))
            return hearing_say(h, "'%.200s' is not among the paths that plans may change",
                               paths[i]);
    }
    return false;
}

static bool is_protected(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    const char *const paths[] = {o->path, o->from, o->link};

    for (size_t i = 0; i < 3; i++) {
        if (paths[i] && patterns_match(&h->judge->protect, paths[i]))
            return hearing_say(h, "'%.200s' is protected", paths[i]);
    }
    return h->fact->protected_path
               ? hearing_say(h, "'%.200s' in it is protected", h->fact->protected_path)
               : false;
}

static bool is_too_large(const struct hearing *h)
{
    uint64_t most = h->judge->policy->max_file_bytes;
    char size[UNITS_TEXT];
    char limit[UNITS_TEXT];

    if (!most || !h->operation->has_hash || h->operation->size <= most)
        return false;
    return hearing_say(h, "its content of %s is larger than the %s that a file may have",
                       units_text(UNITS_SIZE, h->operation->size, size),
                       units_text(UNITS_SIZE, most, limit));
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path);
    size_t more = strlen(ending);

    return n >= more && fold_compare(path + n - more, ending) == 0;
}

static bool is_of_denied_type(const struct hearing *h)
{
    const struct plan_policy *policy = h->judge->policy;

    if (!S_ISREG(h->operation->mode))
        return false;
    for (size_t i = 0; i < policy->ending_count; i++) {
        if (ends_in(h->operation->path, policy->endings[i]))
            return hearing_say(h, "files that end in \"%s\" are denied", policy->endings[i]);
    }
    return policy->magics & (1U << h->fact->magic) && h->fact->magic != PLAN_MAGIC_NONE
               ? hearing_say(h, "its content is of the denied type \"%s\"",
                             plan_policy_magics[h->fact->magic])
               : false;
}

static bool gains_execution(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;

    if (!S_ISREG(o->mode) || !(o->mode & 0111) || (o->has_base && o->base.mode & 0111))
        return false;
    return hearing_say(h, "becomes executable (mode %04o)", o->mode & 07777);
}

static bool is_sensitive(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;
    bool arrives = o->kind == PLAN_MOVE && S_ISDIR(o->mode);
    const char *why = plan_sensitive(o->path, arrives);

    if (!why && o->from)
        why = plan_sensitive(o->from, arrives);
    if (!why && o->link)
        why = plan_sensitive(o->link, false);
    if (why)
        return hearing_say(h, "%s", why);
    if (h->fact->sensitive_path)
        return hearing_say(h, "'%.200s' in it: %s", h->fact->sensitive_path,
                           h->fact->sensitive_why);
    return h->fact->is_unsearched ? hearing_say(h, "what is in it could not all be looked at")
                                  : false;
}

/* A mode is the file's, not the name's: it changes wherever else the file is known. Content that
 * the plan carries is a file of its own. */
static bool reaches_other_names(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;

    if (!o->has_base || o->has_hash || !S_ISREG(o->base.mode) || h->fact->names < 2 ||
        (o->mode & 0777) == (o->base.mode & 0777))
        return false;
    return hearing_say(h, "changes the mode of a file that has %llu names, wherever they are",
                       (unsigned long long)h->fact->names);
}

static bool names_places(const struct plan_policy *policy)
{
    return policy->has_allow || policy->protect.count > 0;
}

static bool may_reach_closed_names(const struct hearing *h)
{
    return names_places(h->judge->policy) && reaches_other_names(h);
}

static bool may_surprise_other_names(const struct hearing *h)
{
    return !names_places(h->judge->policy) && reaches_other_names(h);
}

/* By the letters of the target alone: from the directory of the link, never above the top. */
static bool leads_out(const char *path, const char *target)
{
    size_t depth = 0;

    for (const char *at = path; *at; at++)
        depth += *at == '/';
    for (const char *at = target; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && memcmp(at, "..", 2) == 0) {
            if (depth == 0)
                return true;
            depth--;
        } else if (n > 0 && !(n == 1 && *at == '.')) {
            depth++;
        }
        at += n + (at[n] == '/');
    }
    return *target == '/';
}

/* In a directory that is moved, where no operation names it. */
static bool brings_link_out(const struct hearing *h)
{
    const struct plan_fact *fact = h->fact;

    if (fact->lead == PLAN_LEAD_INSIDE)
        return false;
    if (!fact->lead_path)
        return hearing_say(h, "the symbolic links in it could not all be looked at");
    return fact->lead == PLAN_LEAD_UNKNOWN
               ? hearing_say(h, "'%.200s' in it is a symbolic link whose way is too long to follow",
                             fact->lead_path)
               : hearing_say(h, "'%.200s' in it is a symbolic link that leads out of the tree then",
                             fact->lead_path);
}

/* Or by the way that was found (lead.h), which is through other links as well. */
static bool is_link_out(const struct hearing *h)
{
    const struct plan_operation *o = h->operation;

    if (S_ISDIR(o->mode))
        return brings_link_out(h);
    if (!S_ISLNK(o->mode) || !o->target ||
        (h->fact->lead == PLAN_LEAD_INSIDE && !leads_out(o->path, o->target)))
        return false;
    if (h->fact->lead == PLAN_LEAD_UNKNOWN)
        return hearing_say(h, "is a symbolic link whose way, by '%.200s', is too long to follow",
                           o->target);
    if (h->fact->lead_through)
        return hearing_say(h,
                           "is a symbolic link that leads out of the tree, to '%.150s' and there "
                           "through the link '%.150s'",
                           o->target, h->fact->lead_through);
    return hearing_say(h, "is a symbolic link that leads out of the tree, to '%.200s'", o->target);
}

#define AGAIN "make a new plan from the tree as it is now"

const struct rule plan_rules[] = {
    {"shape", EVERY, PLAN_REFUSE, RULE_FIXED, breaks_shape, "write the operation in full"},
    {"special", EVERY, PLAN_REFUSE, RULE_FIXED, is_special,
     "plans make plain files, directories and symbolic links, with modes up to 0777"},
    {"path", EVERY, PLAN_REFUSE, RULE_FIXED, has_bad_path,
     "name it by a path within the tree, such as \"a/b\""},
    {"reserved", EVERY, PLAN_REFUSE, RULE_FIXED, is_reserved, "choose another name"},
    {"contradiction", EVERY, PLAN_REFUSE, RULE_FIXED, contradicts,
     "take one of the two operations out of the plan"},
    {"stale", EVERY, PLAN_REFUSE, RULE_FIXED, is_stale, AGAIN},
    {"parent", FINAL, PLAN_REFUSE, RULE_FIXED, has_no_parent, AGAIN},
    {"closed", FINAL, PLAN_REFUSE, RULE_FIXED, lies_in_closed,
     "let the owner enter the directory (chmod u+rwx), and make a new plan"},
    {"occupied", FINAL, PLAN_REFUSE, RULE_FIXED, is_occupied,
     "choose another name, or delete what is there in the same plan"},
    {"content", FINAL, PLAN_REFUSE, RULE_FIXED, has_lost_content, "discard the plan"},
    {"operations", EVERY, PLAN_REFUSE, RULE_FIXED, is_of_no_allowed_kind,
     "leave it out, or have the kind added to \"operations\" in the policy's \"plan\""},
    {"allow", EVERY, PLAN_REFUSE, RULE_FIXED, is_outside,
     "leave it out, or have the path added to \"allow\" in the policy's \"plan\""},
    {"protect", EVERY, PLAN_REFUSE, RULE_FIXED, is_protected,
     "leave it out; \"protect\" in the policy's \"plan\" names the path"},
    {"hard_link", KIND(PLAN_CHMOD) | KIND(PLAN_MOVE), PLAN_REFUSE, RULE_FIXED,
     may_reach_closed_names,
     "leave the mode as it is: another of its names may be one that the policy closes"},
    {"hard_link", KIND(PLAN_CHMOD) | KIND(PLAN_MOVE), PLAN_REVIEW, RULE_FIXED,
     may_surprise_other_names, "look at where the file's other names are"},
    {"max_file_bytes", FINAL, PLAN_REFUSE, RULE_FIXED, is_too_large,
     "make it smaller, or have \"max_file_bytes\" in the policy's \"plan\" raised"},
    {"types", FINAL, PLAN_REFUSE, RULE_FIXED, is_of_denied_type,
     "leave it out; \"types\" in the policy's \"plan\" denies it"},
    {"executables", FINAL, PLAN_REVIEW, CARE(executables), gains_execution,
     "look at what it runs, or take the execute bit off"},
    {"sensitive", EVERY, PLAN_REVIEW, CARE(sensitive), is_sensitive,
     "review the change; programs that open the tree may run it without asking"},
    {"case_twins", FINAL, PLAN_REFUSE, CARE(case_twins), has_twin, "rename one of the two"},
    {"link_out", FINAL, PLAN_REVIEW, RULE_FIXED, is_link_out,
     "look at where it leads, or make it relative to its directory"},
};

const size_t plan_rule_count = sizeof(plan_rules) / sizeof(plan_rules[0]);
