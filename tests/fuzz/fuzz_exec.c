/* SPDX-License-Identifier: Apache-2.0 */
/* The body of an exec request, as any client may send it: what is accepted can be said to the
 * broker, and is understood there. The input is a policy, a NUL byte, and the body; a member
 * "links" in it stands for those of the workspace, as they were asked for when it was made. */
#include <errno.h>

#include "http/server.h"
#define http_request_of no_request /* there is no server */
static const struct http_request *no_request(const struct exchange *x);
#define store_workspace_get no_store /* nor a database */
#define store_template_get  no_template
#include "front/core/fields.c"
#include "front/core/links.c"
#include "front/core/sandbox_request.c"
#include "front/exec/request.c" /* with what it calls below, and no daemon around it */
#include "front/plans/plan_request.c"
#include "front/store/store.h"

#undef store_workspace_get
#undef store_template_get

static struct http_request request;
static bool answered;

/* Some are there, some are another's or gone, and once in a while it cannot be told. */
int no_store(struct store *store, struct arena *arena, const char *id, struct store_workspace *ret,
             struct err *err)
{
    (void)store;
    (void)arena;
    if (id[0] == 'e')
        return err_set(err, ERR_IO, EIO, "read the database");
    *ret = (struct store_workspace){
        .id = id, .owner = "o", .created_ms = 5, .deleted_ms = id[0] == 'd'};
    return id[0] != 'n';
}

static const struct http_request *no_request(const struct exchange *x)
{
    (void)x;
    return &request;
}

void call_error(struct call *call, int status, const char *code, const char *format, ...)
{
    (void)call;
    (void)status;
    (void)code;
    (void)format;
    answered = true;
}

void call_fail(struct call *call, const struct err *err)
{
    (void)call;
    (void)err;
    answered = true;
}

void call_bad_field(struct call *call, const char *field, const char *expected)
{
    (void)call;
    (void)field;
    (void)expected;
    answered = true;
}

bool actor_may_see(const struct actor *actor, const char *owner, const char *workspace)
{
    (void)owner;
    (void)workspace;
    return !(actor->scopes & SCOPE_USER);
}

bool planned_workspace(const struct store_workspace *w)
{
    return w->created_ms & 1;
}

int planned_find(struct call *call, enum planned_need need, struct plan_request *ret)
{
    (void)call;
    (void)need;
    ret->is_plan = ret->is_new = true;
    ret->id = "p234567abcdefghijklmnopqrst";
    return 1;
}

int no_template(struct store *store, struct arena *arena, const char *id,
                struct store_template *ret, struct err *err)
{
    (void)store;
    (void)arena;
    (void)err;
    *ret = (struct store_template){.id = id, .spec = "{\"env\":{\"OF\":\"a template\"}}"};
    return 1;
}

bool follow_format_of(const char *text, enum follow_format *ret)
{
    *ret = FOLLOW_SSE;
    return text && strcmp(text, "sse") == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct call *call, struct exec_request *wanted)
{
    struct exec_message heard;
    uint64_t tag;
    struct buf b;

    wanted->sandbox.message.exec = "xaaaaaaaaaaaaaaaaaaaaaaaaaa";
    buf_init(&b, 4000000);
    protocol_pack_exec(&b, 7, &wanted->sandbox.message);
    /* Larger than agreed is refused by the front itself; the rest must be the same on the far side.
     */
    if (buf_done(&b) == 0 && protocol_unpack_exec(b.p, b.n, &call->arena, &tag, &heard) &&
        (tag != 7 || strcmp(heard.argv[0], wanted->sandbox.message.argv[0]) != 0 ||
         heard.timeout_ms != wanted->sandbox.message.timeout_ms ||
         heard.tty != wanted->sandbox.message.tty))
        __builtin_trap();
    buf_clear(&b);
    json_decref(wanted->shown);
}

/* As a workspace is made with them: false when they were refused. */
static bool keep_links(struct call *call, uint8_t choice)
{
    json_t *links = json_incref(json_object_get(call->body, "links"));

    json_object_del(call->body, "links");
    call->actor.scopes = choice & 1 ? SCOPE_ADMIN : choice & 2 ? SCOPE_USER : 0;
    if (!json_is_object(links)) {
        json_decref(links);
        return true;
    }
    bool ok = links_check(call, links, "o");
    if (ok == answered)
        __builtin_trap();
    char *text = ok ? json_dumps(links, JSON_COMPACT) : NULL;
    if (text)
        call->workspace.links = arena_copy(&call->arena, text, strlen(text));
    free(text);
    json_decref(links);
    return ok;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct settings settings = {.spool_bytes = 64UL << 20};
    static const struct exec_mode mode = {.read = plan_request_read};
    static struct front front = {.settings = &settings, .exec_mode = &mode};
    struct call call = {.front = &front, .id = "r", .actor = {.name = "fuzz"}};
    const uint8_t *nul = memchr(data, 0, size);
    struct exec_request wanted;

    if (!nul)
        return 0;
    size_t n = (size_t)(nul - data);
    arena_init(&call.arena, 32UL << 20);
    call.workspace =
        (struct store_workspace){.id = "w",
                                 .template = size % 2 ? "tabcdefghijklmnopqrstuvwxyz" : "",
                                 .bucket = "main",
                                 .owner = "o",
                                 .policy = arena_copy(&call.arena, (const char *)data, n),
                                 .links = "{}"};
    call.body = json_loadb((const char *)nul + 1, size - n - 1, JSON_REJECT_DUPLICATES, NULL);
    answered = false;
    if (json_is_object(call.body) && keep_links(&call, size & 3)) {
        if (exec_request_read(&call, &wanted))
            check(&call, &wanted);
        else if (!answered)
            __builtin_trap(); /* a client would wait for ever */
    }
    json_decref(call.body);
    arena_clear(&call.arena);
    return 0;
}
