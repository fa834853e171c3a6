/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/parser.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "front/core/call.h"
#include "http/server.h"

enum {
    STACK_BYTES = 2 << 20 /* JSON may be 2,048 levels deep */
};

struct parse {
    struct parse *next;
    struct call *call;
    char owner[FRONT_ID];
    uint64_t turn;
    void (*heard)(struct call *, const struct parsed *);
    struct http_taken body;
    struct parsed parsed;
};

struct parses {
    struct parse *first;
    struct parse *last;
};

struct parser {
    pthread_mutex_t lock; /* of both lists */
    pthread_cond_t given;
    struct parses todo;
    struct parses done;
    char last[FRONT_ID]; /* whose was begun last, */
    uint64_t turn;       /* ... and in which turn: each owner has one place in each */
    int told;            /* an eventfd: something is done */
    struct watch watch;
};

/* --- JSON --- */

/* How many values there can be at most. A value of two bytes takes a hundred once it is parsed. */
static size_t count_values(const char *bytes, size_t n)
{
    const char *end = bytes + n;
    size_t count = 0;

    for (const char *at = bytes; at < end; at++) {
        if (*at == ',' || *at == '[' || *at == '{')
            count++;
        if (*at != '"')
            continue;
        for (at++; (at = memchr(at, '"', (size_t)(end - at))) != NULL; at++) {
            size_t escapes = 0;
            while (at[-1 - (ptrdiff_t)escapes] == '\\')
                escapes++;
            if (escapes % 2 == 0)
                break;
        }
        if (!at)
            break; /* a string without an end: the parser says so */
    }
    return count;
}

void parse_json(const char *bytes, size_t n, struct parsed *ret)
{
    *ret = (struct parsed){.has_too_many = n > PARSER_MOST_VALUES &&
                                           count_values(bytes, n) > PARSER_MOST_VALUES};
    if (!ret->has_too_many)
        ret->json = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &ret->error);
}

/* --- the two threads --- */

static void append(struct parses *list, struct parse *p)
{
    p->next = NULL;
    if (list->first)
        list->last->next = p;
    else
        list->first = p;
    list->last = p;
}

static struct parse *take_out(struct parses *list, struct parse **at)
{
    struct parse *p = *at;

    if (!p)
        return NULL;
    *at = p->next;
    if (list->last == p) {
        list->last = list->first;
        while (list->last && list->last->next)
            list->last = list->last->next;
    }
    return p;
}

/* Behind the owner's others: who sends many keeps each of the others waiting for one. */
static void join_queue(struct parser *parser, struct parse *p)
{
    p->turn = parser->turn + (strcmp(p->owner, parser->last) == 0);
    for (const struct parse *q = parser->todo.first; q; q = q->next) {
        if (q->turn >= p->turn && strcmp(q->owner, p->owner) == 0)
            p->turn = q->turn + 1;
    }
    append(&parser->todo, p);
}

static struct parse *take_next(struct parser *parser)
{
    struct parse **first = &parser->todo.first;

    for (struct parse **at = first; *at; at = &(*at)->next) {
        if ((*at)->turn < (*first)->turn)
            first = at;
    }
    struct parse *p = take_out(&parser->todo, first);
    if (p) {
        parser->turn = p->turn;
        memcpy(parser->last, p->owner, sizeof(parser->last));
    }
    return p;
}

static void tell(const struct parser *parser)
{
    const uint64_t one = 1;

    ignore(write(parser->told, &one, sizeof(one)) == (ssize_t)sizeof(one)); /* it is told already */
}

static void *work(void *context)
{
    struct parser *parser = context;
    struct parsed rehearsed;

    parse_json("{}", 2, &rehearsed); /* asks for memory while everything is allowed */
    json_decref(rehearsed.json);
    tell(parser);
    (void)pthread_mutex_lock(&parser->lock);
    for (;;) {
        struct parse *p = take_next(parser);
        if (!p) {
            (void)pthread_cond_wait(&parser->given, &parser->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&parser->lock);
        parse_json(p->body.bytes.p, p->body.bytes.n, &p->parsed);
        (void)pthread_mutex_lock(&parser->lock);
        append(&parser->done, p);
        tell(parser);
    }
    return NULL;
}

static struct parse *next_done(struct parser *parser)
{
    (void)pthread_mutex_lock(&parser->lock);
    struct parse *p = take_out(&parser->done, &parser->done.first);
    (void)pthread_mutex_unlock(&parser->lock);
    return p;
}

static void is_done(struct watch *watch, uint32_t what)
{
    struct parser *parser = container_of(watch, struct parser, watch);
    struct parse *p;
    uint64_t count;

    (void)what;
    ignore(read(parser->told, &count, sizeof(count)) == (ssize_t)sizeof(count));
    while ((p = next_done(parser)) != NULL) {
        struct call *call = p->call;
        call->abandoned = NULL;
        call->context = NULL;
        http_free_taken(call->front->http, call->x, &p->body);
        p->heard(call, &p->parsed);
        free(p);
        call_release(call);
    }
}

/* The client has left: what was not begun is not begun any more. */
static void forget(struct call *call)
{
    struct parser *parser = call->front->parser;
    struct parse **at = &parser->todo.first;

    (void)pthread_mutex_lock(&parser->lock);
    while (*at && *at != call->context)
        at = &(*at)->next;
    struct parse *p = take_out(&parser->todo, at);
    (void)pthread_mutex_unlock(&parser->lock);
    if (!p)
        return;
    http_free_taken(call->front->http, NULL, &p->body);
    free(p);
    call->pending--; /* who calls this frees it then */
}

bool parser_give(struct parser *parser, struct call *call,
                 void (*heard)(struct call *, const struct parsed *))
{
    struct parse *p = calloc(1, sizeof(*p));

    if (!p)
        return false;
    p->call = call;
    p->heard = heard;
    snprintf(p->owner, sizeof(p->owner), "%s",
             call->workspace.owner ? call->workspace.owner : call->actor.owner);
    http_take_body(call->x, &p->body);
    call->context = p;
    call->abandoned = forget;
    call->pending++;
    (void)pthread_mutex_lock(&parser->lock);
    join_queue(parser, p);
    (void)pthread_cond_signal(&parser->given);
    (void)pthread_mutex_unlock(&parser->lock);
    return true;
}

/* --- the beginning --- */

/* Signals are the first thread's: they wake its loop. */
static int start_thread(struct parser *parser)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t before;

    int r = pthread_attr_init(&attr);
    if (r != 0)
        return -r;
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread, &attr, work, parser);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -r;
}

/* So that nobody can choose names that make a large object slow. The library would look for the
 * seed in a file that we may not open; and the two threads must not do it at the same time. */
static int seed_objects(void)
{
    size_t seed;

    if (getrandom(&seed, sizeof(seed), 0) != (ssize_t)sizeof(seed))
        return -errno;
    json_object_seed(seed | 1); /* 0 would mean: by itself */
    return 0;
}

int parser_open(struct parser **ret, struct events *events)
{
    static struct parser parser = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                   .given = PTHREAD_COND_INITIALIZER,
                                   .watch = {.ready = is_done, .fd = -1}};
    uint64_t ready;

    int r = seed_objects();
    if (r < 0)
        return r;
    parser.told = eventfd(0, EFD_CLOEXEC);
    if (parser.told < 0)
        return -errno;
    r = start_thread(&parser);
    if (r < 0)
        return r;
    while (read(parser.told, &ready, sizeof(ready)) < 0)
        if (errno != EINTR)
            return -errno;
    *ret = &parser;
    return events_watch(events, &parser.watch, parser.told, EPOLLIN);
}
