/* SPDX-License-Identifier: Apache-2.0 */
/* What the front knows, in SQLite: keys, workspaces, templates, ports, plans, commands. Every
 * function is one transaction; those that change something return when it is on disk (WAL,
 * synchronous=FULL), but for commands: their rows survive a crash of ours at once and a power cut a
 * moment later (the audit record has them on disk). Strings handed out live in the caller's arena.
 * The file is ours alone while it is open: keys and workspaces that were read before are answered
 * from memory until something is changed here, so what another program writes is seen late. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "plan/core/state.h"

struct store;

/* What a key may do; front/core/scope.h has their names, the table of routes who may what. */
enum {
    SCOPE_ADMIN = 1 << 0,
    SCOPE_USER = 1 << 1, /* an owner's that makes no keys: all those of before there were roles */
    SCOPE_APPROVE = 1 << 2, /* sees and decides plans */
    SCOPE_OWNER = 1 << 3,   /* makes workspaces, sets their policy, makes the three others */
    SCOPE_AGENT =
        1 << 4,          /* works in the workspaces it was made for; never policy, keys, approval */
    SCOPE_READ = 1 << 5, /* sees, and changes nothing */
};

struct store_key {
    const char *id;   /* public, random: "k…" */
    const char *hash; /* SHA-256 of the key, hex */
    const char *name; /* a person's words, "" */
    const char *owner;
    unsigned scopes;
    const char *made_by;    /* id of the key that made it, "" : the admin key or the socket */
    int64_t created_ms;     /* of the clock on the wall, as all times here */
    int64_t revoked_ms;     /* 0: not */
    const char *workspaces; /* JSON list of ids and patterns ('*', '?'); "": all of its owner's */
    const char *template;   /* an agent's: the name of what its workspaces are made on; "": none */
    const char *policy;     /* ... and their policy, as it was checked; "": none */
};

struct store_workspace {
    const char *id;
    const char *owner;
    const char *bucket;
    const char *policy; /* JSON text as it was checked */
    const char *links;  /* JSON text */
    const char *labels; /* JSON text: the client's own, "{}" */
    int64_t created_ms;
    int64_t updated_ms;
    int64_t deleted_ms; /* 0: not; in the trash since; below 0: the same, and for good: what is left
                           of it is being removed */
    const char *trash;  /* stamp of its place in the trash, "" */
    const char *template; /* id of the one whose environments it shares, "": none's */
    const char *base;     /* "WORKSPACE/SNAPSHOT" that a fork stands on; "": it is none */
    const char *builds;   /* name of the template that it is to become: one at a time; "": none */
    const char *store;    /* JSON: where it is mirrored to; "": nowhere */
    /* Of one that is there for a time (workspaces/lifetime.h); all "" and 0: it stays. */
    const char *lifetime; /* JSON: how it was asked for, and its tokens */
    const char *token;    /* SHA-256 of the token that stands for it alone, hex */
    int64_t ends_ms;      /* when something becomes of it by itself; 0: never */
};

/* A workspace that was frozen, for others to stand on.
 *
 *   freezing --> ready --(another has its name)--> retired --(nobody uses it)--> removing --> gone
 *      |           `------------------------------------------(it is deleted)----->
 *      `--> gone: nothing of it was done, and the workspace stays
 *
 * Of one name one is being frozen at a time, and while a workspace builds it, that one alone. */
struct store_template {
    const char *id;
    const char *name;
    const char *owner;     /* of the workspace that it was */
    const char *spec;      /* JSON: what the client says of it; env is used */
    const char *workspace; /* what it was */
    bool share_cache;      /* what is in its package caches is for all */
    const char *state;
    int64_t bytes;
    int64_t files;
    int64_t created_ms;
};

struct store_exec {
    const char *id;
    const char *workspace;
    const char *owner;   /* of the workspace */
    const char *actor;   /* who asked */
    const char *command; /* JSON: what was asked for */
    const char *state;   /* "running", "ended" */
    const char *result;  /* JSON, "" while it runs */
    int64_t started_ms;
    int64_t ended_ms;
    bool tty;
};

/* A port of a workspace that is reached through the daemon. */
struct store_port {
    const char *workspace;
    unsigned port;
    const char *hash;    /* SHA-256 of the token in its address, hex */
    const char *token;   /* itself, where it is no secret: "" with access by token */
    const char *access;  /* "key", "token" */
    const char *made_by; /* who opened it */
    int64_t created_ms;
};

/* A plan; its files are the broker's. */
struct store_plan {
    const char *id;
    const char *workspace;
    const char *owner; /* of the workspace */
    enum plan_state state;
    const char *origin;    /* "run", "submitted" */
    const char *key;       /* id of the key that made it, "": the admin key or the socket */
    const char *actor;     /* who that is in the record */
    const char *principal; /* the owner of that key */
    const char *exec_id;   /* the last command in it (of a shared one the first), "" */
    const char *hash;      /* of its manifest, hex; "" while it is open */
    const char *details;   /* JSON: command, findings, approval, apply, undo */
    bool keep_open;        /* it does not close with its command */
    bool shared;           /* ... and all that its key does in the workspace goes into it */
    int64_t operations;
    int64_t bytes;      /* of the content it carries */
    int64_t disk_bytes; /* that its directory takes */
    int64_t created_ms;
    int64_t updated_ms;
    int64_t due_ms; /* when something becomes of it by itself; 0: never */
    int64_t attempts;
    bool dropped; /* its files are no longer kept */
};

enum {
    STORE_PORTS_MOST = 64, /* of one workspace */
};

/* `path` is the database file. One that a newer version wrote is refused; older ones are migrated
 * in one transaction. Creates it 0600. */
int store_open(struct store **ret, const char *path, struct err *err);
void store_close(struct store *store);

int store_key_add(struct store *store, const struct store_key *key, struct err *err);
/* 1 found, 0 not; never a revoked one. The time it takes depends on the hash and on what was found
 * before, never on how much of a key is right. */
int store_key_by_hash(struct store *store, struct arena *arena, const char *hash,
                      struct store_key *ret, struct err *err);
int store_key_get(struct store *store, struct arena *arena, const char *id, struct store_key *ret,
                  struct err *err);
/* 1 revoked now, 0 there is none (or it was revoked already). */
int store_key_revoke(struct store *store, const char *id, int64_t now_ms, struct err *err);

/* Lists call `each` until it returns false; ordered by id (execs: newest first), after `after`. */
int store_keys(struct store *store, const char *owner, const char *after, size_t limit,
               bool (*each)(void *, const struct store_key *), void *context, struct err *err);

/* ERR_CONFLICT when there is one of that id, in the trash or not, or another builds the same;
 * ERR_NOT_FOUND: its template is gone. */
int store_workspace_add(struct store *store, const struct store_workspace *w, struct err *err);
/* 1 found (also in the trash), 0 not. */
int store_workspace_get(struct store *store, struct arena *arena, const char *id,
                        struct store_workspace *ret, struct err *err);
/* Policy, links, labels, its lifetime, updated_ms are written. ERR_NOT_FOUND, ERR_CONFLICT: it is
 * in the trash. */
int store_workspace_update(struct store *store, const struct store_workspace *w, struct err *err);
/* Into the trash, out of it, or on its way out for good: deleted_ms, trash, updated_ms are written
 * if deleted_ms was `was_deleted_ms`; one that was in the trash builds nothing any more.
 * ERR_NOT_FOUND, ERR_CONFLICT: it was not. */
int store_workspace_move(struct store *store, const struct store_workspace *w,
                         int64_t was_deleted_ms, struct err *err);
/* The row of one in the trash, and those of its commands. ERR_NOT_FOUND, ERR_CONFLICT: it is not.
 */
int store_workspace_remove(struct store *store, const char *id, struct err *err);

/* Which ones of a list. */
struct store_whose {
    const char *owner; /* NULL: everybody's */
    const char *ids;   /* JSON list of ids and patterns, as a key has it; NULL, "": all */
};

/* whose NULL: everybody's. deleted: only those in the trash, else only those that are not. */
int store_workspaces(struct store *store, const struct store_whose *whose, bool deleted,
                     const char *after, size_t limit,
                     bool (*each)(void *, const struct store_workspace *), void *context,
                     struct err *err);
/* The one that this token stands for, by its hash; never one in the trash. 1 found, 0 not. */
int store_workspace_by_token(struct store *store, struct arena *arena, const char *hash,
                             struct store_workspace *ret, struct err *err);
/* The one whose time is over first: 1 and it, 0: none has an end. */
int store_workspace_ends(struct store *store, struct arena *arena, struct store_workspace *ret,
                         struct err *err);
int store_count_workspaces(struct store *store, const char *owner, uint64_t *ret, struct err *err);
/* Forks, in the trash or not, of this snapshot of the workspace, or of any ("" for `snapshot`): how
 * many, and in words the names of the first; -1. */
int store_workspace_forks(struct store *store, struct arena *arena, const char *workspace,
                          const char *snapshot, const char **ret, struct err *err);

/* A plan that brings a fork's changes into a workspace, and the snapshot of the fork that it was
 * made of. Whether that is applied the plan's row says; here it is noted, for when that is gone. */
struct store_merge {
    const char *plan;
    const char *fork;
    const char *into;
    const char *snapshot;
};

int store_merge_add(struct store *store, const struct store_merge *m, struct err *err);
int store_merge_note(struct store *store, const char *plan, bool is_applied, struct err *err);
/* Forgets those of a fork of which nothing is, or can come to be, in a workspace. */
int store_merge_tidy(struct store *store, const char *fork, struct err *err);
/* The snapshot of the last one that is applied: 1; 0: none is. */
int store_merge_base(struct store *store, struct arena *arena, const char *fork, const char *into,
                     const char **ret, struct err *err);
/* Those that a merge is, or may be, the base of. */
int store_merge_snapshots(struct store *store, struct arena *arena, const char *fork,
                          void (*each)(void *context, const char *snapshot), void *context,
                          struct err *err);
/* The snapshots of a workspace that forks stand on, in the trash or not. */
int store_workspace_bases(struct store *store, struct arena *arena, const char *workspace,
                          void (*each)(void *context, const char *snapshot), void *context,
                          struct err *err);
/* 1 and the workspace that builds this template, 0: none does. */
int store_build_of(struct store *store, struct arena *arena, const char *name,
                   struct store_workspace *ret, struct err *err);
/* All that build one, by the template's name: how many, `most` at most. */
int store_builds(struct store *store, struct arena *arena, struct store_workspace *ret, size_t most,
                 struct err *err);

/* ERR_CONFLICT: another one of its name is being frozen, or built in another workspace. */
int store_template_add(struct store *store, const struct store_template *t, struct err *err);
/* 1 found, 0 not. */
int store_template_get(struct store *store, struct arena *arena, const char *id,
                       struct store_template *ret, struct err *err);
/* Likewise the one that the name means now. */
int store_template_named(struct store *store, struct arena *arena, const char *name,
                         struct store_template *ret, struct err *err);
/* Likewise the one of that name that is being frozen; and the one that this workspace becomes. */
int store_template_freezing(struct store *store, struct arena *arena, const char *name,
                            struct store_template *ret, struct err *err);
int store_template_frozen(struct store *store, struct arena *arena, const char *workspace,
                          struct store_template *ret, struct err *err);
/* It is what its name means from now on, others of that name are retired, and the row of the
 * workspace that it was goes, with those of its commands. ERR_CONFLICT: it was not being frozen. */
int store_template_ready(struct store *store, const struct store_template *t, struct err *err);
/* 1: no workspace uses it, and none can from now on; its files may be removed. 0: it is in use. */
int store_template_removing(struct store *store, const char *id, struct err *err);
/* The row, but of one that can be used. */
int store_template_remove(struct store *store, const char *id, struct err *err);
/* Those that can be named, by name; `unfinished`: all others, oldest first. */
int store_templates(struct store *store, bool unfinished, const char *after, size_t limit,
                    bool (*each)(void *, const struct store_template *), void *context,
                    struct err *err);
/* How many workspaces use it, in the trash or not. owner NULL: everybody's. */
int store_template_users(struct store *store, const char *id, const char *owner, uint64_t *ret,
                         struct err *err);
/* The first few of them, by id: how many. */
int store_template_user_names(struct store *store, struct arena *arena, const char *id,
                              const char **ret, size_t most, struct err *err);

/* Opens it, or gives it another address. ERR_NOT_FOUND: there is no such workspace. */
int store_port_put(struct store *store, const struct store_port *port, struct err *err);
/* 1 found, 0 not. */
int store_port_by_hash(struct store *store, struct arena *arena, const char *hash,
                       struct store_port *ret, struct err *err);
/* 1 closed now, 0 it was not open. */
int store_port_remove(struct store *store, const char *workspace, unsigned port, struct err *err);
/* All of a workspace, in order: how many (at most STORE_PORTS_MOST), or -1. */
int store_ports(struct store *store, struct arena *arena, const char *workspace,
                struct store_port *ret, struct err *err);

/* ERR_NOT_FOUND: there is no such workspace. */
int store_plan_add(struct store *store, const struct store_plan *plan, struct err *err);
/* 1 found, 0 not. */
int store_plan_get(struct store *store, struct arena *arena, const char *id, struct store_plan *ret,
                   struct err *err);
/* The one open plan that all of this key's changes of the workspace go into: 1 found, 0 not. */
int store_plan_shared(struct store *store, struct arena *arena, const char *workspace,
                      const char *key, struct store_plan *ret, struct err *err);
/* Writes all that can change of it, if its state was `was`. ERR_CONFLICT: it was not. */
int store_plan_change(struct store *store, const struct store_plan *plan, enum plan_state was,
                      struct err *err);
int store_plan_remove(struct store *store, const char *id, struct err *err);
/* Newest first; workspace NULL: all; state NULL: any. `before`: an id, or NULL for the newest. */
int store_plans(struct store *store, const char *workspace, const char *state, const char *before,
                size_t limit, bool (*each)(void *, const struct store_plan *), void *context,
                struct err *err);
/* Its files are no longer kept. */
int store_plan_drop(struct store *store, const char *id, struct err *err);
/* Rows of a workspace whose files are gone: beyond the newest `most`, and from before then. */
int store_plans_forget(struct store *store, const char *workspace, size_t most, int64_t before_ms,
                       struct err *err);
/* Those of a workspace that are over and have files, newest first, without their details. */
int store_plans_over(struct store *store, const char *workspace,
                     bool (*each)(void *, const struct store_plan *), void *context,
                     struct err *err);

/* How many of a workspace's plans are neither applied nor given up, and what they take: those that
 * this key made; NULL: all. */
struct store_undecided {
    size_t plans;
    uint64_t bytes;
};

int store_plans_count_undecided(struct store *store, const char *workspace, const char *key,
                                struct store_undecided *ret, struct err *err);
/* Those that are due, the oldest of each workspace, oldest first. */
int store_plans_due(struct store *store, int64_t now_ms,
                    bool (*each)(void *, const struct store_plan *), void *context,
                    struct err *err);
/* 1 and one of the workspace's plans that is neither applied nor given up, 0: there is none. */
int store_plan_undecided(struct store *store, struct arena *arena, const char *workspace,
                         struct store_plan *ret, struct err *err);

/* Around several store_exec_add, to write them in one piece. When the last fails none is there. */
int store_execs_begin(struct store *store, struct err *err);
int store_execs_commit(struct store *store, struct err *err);
int store_exec_add(struct store *store, const struct store_exec *e, struct err *err);
/* 1 changed, 0 there is none that runs. */
int store_exec_end(struct store *store, const char *id, const char *result, int64_t ended_ms,
                   struct err *err);
int store_exec_get(struct store *store, struct arena *arena, const char *id, struct store_exec *ret,
                   struct err *err);
/* workspace NULL: all; state NULL: any. `before`: an id, or NULL for the newest. */
int store_execs(struct store *store, const char *workspace, const char *state, const char *before,
                size_t limit, bool (*each)(void *, const struct store_exec *), void *context,
                struct err *err);
/* Forgets those that ended before then, calling `each` for everyone first. */
int store_execs_expire(struct store *store, int64_t ended_before_ms,
                       bool (*each)(void *, const struct store_exec *), void *context,
                       struct err *err);
