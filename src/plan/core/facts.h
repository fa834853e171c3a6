/* SPDX-License-Identifier: Apache-2.0 */
/* What the base looks like now, where a plan wants to touch it: looked up once, by descriptor, and
 * judged afterwards without looking again (verify.h). Nothing is opened but directories and the
 * plan's own content; no link is followed and no mount crossed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/core/index.h"
#include "plan/core/lead.h"
#include "plan/core/patterns.h"
#include "policy/plan_policy.h"

enum plan_sight_state {
    SIGHT_NONE, /* not looked at: there was no reason */
    SIGHT_ABSENT,
    SIGHT_PRESENT,
    SIGHT_LINK_ABOVE, /* a directory on the way is a symlink */
    SIGHT_FILE_ABOVE, /* ... or no directory at all */
    SIGHT_ELSEWHERE,  /* ... or on another file system */
    SIGHT_DENIED,
    SIGHT_FAILED,
};

struct plan_sight {
    enum plan_sight_state state;
    uint32_t mode; /* with the type, where something is present */
    uint64_t size;
};

struct plan_fact {
    struct plan_sight base;     /* at its base path */
    bool same;                  /* ... which is what the plan noted, down to what lies below it */
    uint64_t names;             /* ... under how many names its file is known; 0: not looked at */
    struct plan_sight there;    /* at its final path, where no operation names what the base has */
    struct plan_sight parent;   /* of the final path, where the base has it */
    struct plan_sight staged;   /* the content it carries */
    struct plan_sight linked;   /* what its hard link is to, where the base has it */
    enum plan_magic magic;      /* of the content; looked at only where the policy asks */
    const char *protected_path; /* in a directory that is moved or deleted, or NULL */
    const char *sensitive_path; /* in a directory that is moved, or NULL */
    const char *sensitive_why;
    bool is_unsearched;       /* ... there is more in it than was looked at, or it cannot be read */
    enum plan_lead lead;      /* of a symbolic link, or of the ones in a directory that is moved */
    const char *lead_through; /* another link that makes it so, or NULL */
    const char *lead_path;    /* the one in a directory that is moved, or NULL */
    const char *twin;         /* a name of the base beside it that differs in case only, or NULL */
};

struct plan_facts {
    struct plan_fact *at; /* one for each operation */
    size_t count;
    bool twins_unknown; /* too many names to look through */
    uint64_t free_bytes;
    uint64_t free_files;
    struct arena arena;
};

struct plan_sources {
    int tree; /* the base */
    int dir;  /* the plan's directory */
    const int64_t
        *ctimes; /* of base objects, after steps that were taken back (journal.h); or NULL */
};

int plan_facts_gather(struct plan_facts *ret, const struct plan_index *index,
                      const struct plan_policy *policy, const struct plan_sources *from,
                      struct err *err);
void plan_facts_clear(struct plan_facts *facts);

/* What is at a path now; "" is the tree itself. */
void plan_look(int tree, const char *path, struct plan_sight *ret);

#define scoped_facts __attribute__((cleanup(plan_facts_clear)))

/* Names of the base beside new ones, differing in case only (twins.c). */
int plan_facts_twins(struct plan_facts *facts, const struct plan_index *index, int tree,
                     struct err *err);
