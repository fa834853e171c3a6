/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request on its way: who asks, what for, and how to answer. A call outlives its client
 * when something of it is still under way with the broker; it then answers nobody. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "front/core/front.h"

struct actor {
    char name[FRONT_ID + 8]; /* "key:k…", "admin", "socket": for the record */
    char key[28];            /* id of the key; "" : the administrator's own */
    char owner[FRONT_ID];
    unsigned scopes;
    const char *workspaces; /* those it was made for, as in its row; "": all; NULL: nobody's key */
    const char *secret;     /* of FOREIGN routes: the key, or token, that was shown; NULL: none */
};

/* Who reaches what listens on a workspace's ports. */
#define PORT_SCOPES (SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER | SCOPE_AGENT)

struct exec;
struct ending;
struct links_look;
struct exec_manner;

struct call {
    struct front *front;
    struct exchange *x; /* NULL: the client has gone, or was answered */
    struct arena arena;
    char id[28];
    struct actor actor;
    const struct route *route;
    char *params[3];                  /* decoded path parameters, in order */
    const char *rest;                 /* of the path, still encoded, where the route ends in {*} */
    struct owner_use *tenant;         /* who pays for its body; NULL: it has none to keep */
    struct store_workspace workspace; /* of routes that name one: checked to be the actor's */
    bool planned;                     /* what it changes goes into its key's plan: planned.h */
    /* Of FOREIGN routes, instead of front->translate; or NULL. */
    json_t *(*translate)(struct call *, int *status, json_t *object);
    json_t *body;                     /* of routes with a JSON body: an object */
    const struct exec_manner *manner; /* another protocol's, of a command: follow.h; NULL: ours */
    void *manner_data;                /* ... and what it keeps */
    unsigned number;                  /* of the port, of a request for one of another protocol's */
    void *context;                    /* the handler's own */
    struct links_look *looking;       /* where links of old lead: workspaces/find_links.h */
    void (*leaving)(struct call *);   /* first of two: before anything of it is given up */
    void (*abandoned)(struct call *); /* the exchange is over, or the client has gone; or NULL */
    /* Or NULL: has the next refusal (a status from 400 on, and its object) instead of the client,
     * once. Whoever has something to take back first sets it. */
    void (*refused)(struct call *, int status, json_t *object);
    size_t (*piece)(struct call *, const char *, size_t); /* of a streamed body */
    void (*whole)(struct call *);                         /* ... and its end */
    void (*heard)(struct call *, struct answer *);        /* who waits for the broker's answer */
    bool records;                                         /* ... which is about a record */
    /* It has to end before its time: what it then says, or NULL: an error if it was not answered,
     * else it is cut off. */
    void (*ending)(struct call *, const struct ending *);
    struct call *live_next; /* in front->calls */
    struct call **live_at;
    unsigned pending; /* not freed while this is not 0 */
    int status;
    const char *allow; /* of a 405: the header line that says what works */
    uint64_t began_us;
};

/* Whether this actor may know of this workspace of this owner. The one place that decides it. */
bool actor_may_see(const struct actor *actor, const char *owner, const char *workspace);
/* Whether it acts for this owner: of what belongs to no workspace. */
bool actor_is_of(const struct actor *actor, const char *owner);
/* Whether it sees some of its owner's workspaces only, and must not learn of the others. */
bool actor_is_limited(const struct actor *actor);
/* Whether a model is behind the key, and no person: it never sets the boundary, nor decides. */
bool actor_is_agent(const struct actor *actor);
/* Whether it may know of a plan of a workspace that it sees, which the key of that id made: what is
 * in one that is not applied yet is no agent's to read but its author's. */
bool actor_may_see_plan(const struct actor *actor, const char *key);

/* Sends the answer and may free the call. Do not use it afterwards. */
void call_json(struct call *call, int status, json_t *object);
void call_empty(struct call *call);
/* Bytes of another type. */
void call_bytes(struct call *call, const char *type, const char *bytes, size_t n);
void call_error(struct call *call, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* 429: which quota it is, by the name of its setting, and a sentence. */
void call_quota(struct call *call, const char *setting, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* ... for the owner of its workspace: owner_use_begin_chore said no. */
void call_chores(struct call *call);
/* What an answer says of our own error; its words into `text`. */
enum err_said failure_said(const struct err *err, char *text, size_t size);
void call_fail(struct call *call, const struct err *err);
/* 400, with the field that is at fault. */
void call_bad_field(struct call *call, const char *field, const char *expected);
/* Answers with a stream; the handler's pull is called with `context`. */
void call_stream(struct call *call, int status, const char *type, const char *headers,
                 http_pull *pull, void *context);

/* With its size, or HTTP_SIZE_UNKNOWN. */
void call_stream_sized(struct call *call, const struct http_streamed *s);
/* Bytes of another type, with headers. */
void call_reply(struct call *call, int status, const char *type, const char *headers,
                const char *bytes, size_t n);

/* Notes the status of an answer that a handler has written by itself, past call_reply. */
void call_answered(struct call *call, int status);

/* What was asked for is understood, and the answer may take its time: lets go of the body. */
void call_drop_body(struct call *call);

/* Waits for one answer of the broker. `heard` is called also when the client has gone, so that what
 * was begun is finished; what it then answers is dropped. */
typedef void call_heard(struct call *call, struct answer *answer);
uint64_t call_expect(struct call *call, call_heard *heard);
/* Gives one reference (call->pending) back. May free the call. */
void call_release(struct call *call);
/* Writes a record, and calls `heard` when it is on disk. */
void call_record(struct call *call, const char *workspace, const char *operation,
                 const char *result, json_t *details, call_heard *heard);
/* Asks the broker for what needs no more than texts (struct plain_message); unused ones are NULL.
 */
void call_ask(struct call *call, uint32_t kind, const char *a, const char *b, const char *c,
              call_heard *heard);

/* The texts in the broker's answer, at most so many, ended by NULL; they are gone after the answer.
 * NULL: answered with what is wrong. */
const char **call_texts(struct call *call, struct answer *answer, size_t most);
/* A call_heard: nothing is the answer, or what is wrong. */
void call_heard_empty(struct call *call, struct answer *answer);

/* Query parameter as a number within bounds; `fallback` when absent. False: answered with 400. */
bool call_number(struct call *call, const char *name, uint64_t max, uint64_t fallback,
                 uint64_t *ret);
/* After a wait: whether the actor may still do this, and the id is still the same workspace of the
 * same owner. */
bool call_still_may(struct call *call);
/* Whether, of that, only the policy has changed, so that changes would now go into a plan, or no
 * longer. */
bool call_is_replanned(struct call *call);
/* Answers a call for which call_still_may is false. */
void call_no_more(struct call *call);
/* How many items a page of a list has. */
bool call_limit(struct call *call, uint64_t *ret);
/* As text in the arena; NULL when absent. False: answered with 400. */
bool call_text(struct call *call, const char *name, const char **ret);

/* fields.c: members of a JSON object; each answers 400 itself and returns false when one is wrong.
 * A member that is absent, or null, leaves *ret as it was. */
bool field_text(struct call *call, const json_t *object, const char *name, size_t max,
                const char **ret);
bool field_number(struct call *call, const json_t *object, const char *name, uint64_t min,
                  uint64_t max, uint64_t *ret);
bool field_flag(struct call *call, const json_t *object, const char *name, bool *ret);
bool field_object(struct call *call, const json_t *object, const char *name, json_t **ret);
/* Refuses members that are not in the list, which ends with NULL. */
bool fields_known(struct call *call, const json_t *object, const char *const *names);
/* A text of the store's, which was JSON when it was written. */
json_t *json_parsed(const char *text);
/* The other way; NULL is {}. NULL without room. */
char *json_compact(struct arena *arena, const json_t *object);
