/* SPDX-License-Identifier: Apache-2.0 */
/* filesystem.Filesystem: what our own routes of files say, in the words of envd. Of a symbolic link
 * they tell what it is; envd tells what it leads to, so each is asked for twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/e2b/entry.h"
#include "front/e2b/files.h"
#include "front/e2b/rpc.h"

enum {
    LIST_MOST = 10000,
};

struct work {
    const char *path;
    const char *other;
    json_t *entries; /* as our routes have them */
    size_t at;       /* the link that is asked for */
    json_t *told;
    bool is_list;
    bool is_move;
};

static void forget(struct e2b *e)
{
    struct work *w = e->data;

    json_decref(w->entries);
    json_decref(w->told);
    free(w);
}

/* A path of the body, as envd reads it. NULL: answered. */
static const char *body_path(struct call *call, const char *name)
{
    const char *text = json_string_value(json_object_get(call->body, name));
    const char *user = rpc_user(call);

    return user ? rpc_path(call, user, text ? text : "") : NULL;
}

/* NULL: answered. */
static struct e2b *begin(struct call *call, const char *path)
{
    struct work *w = path ? calloc(1, sizeof(*w)) : NULL;

    if (!path)
        return NULL;
    if (!w) {
        call_error(call, 503, "unavailable", "out of memory");
        return NULL;
    }
    w->path = path;
    struct e2b *e = e2b_begin(call, w);
    if (e)
        e->dropped = forget;
    else
        free(w);
    return e;
}

static void ask_file(struct e2b *e, enum http_method method, const char *path, const char *query,
                     void (*heard)(struct e2b *, int, json_t *))
{
    e2b_ask(e, method, NULL, heard, "/v1/workspaces/%s/files%s%s", e->call->workspace.id,
            e2b_encoded(e->call, path, true), query);
}

static const char *code_of(json_t *object)
{
    const char *code = json_string_value(json_object_get(json_object_get(object, "error"), "code"));

    return code ? code : "";
}

/* What was refused, with a code of Connect's that its clients tell apart. */
static void refuse(struct e2b *e, int status, json_t *object)
{
    const struct work *w = e->data;
    const char *code = code_of(object);
    char text[512];

    if (strcmp(code, "file_not_found") == 0) {
        snprintf(text, sizeof(text), "path not found: '%.400s'", w->path);
        rpc_error(e->call, 404, "not_found", text);
    } else if (strcmp(code, "not_a_directory") == 0 || strcmp(code, "is_directory") == 0) {
        snprintf(text, sizeof(text), "path is %sa directory: '%.400s'", *code == 'n' ? "not " : "",
                 w->path);
        rpc_error(e->call, 400, "invalid_argument", text);
    } else if (strcmp(code, "invalid_path") == 0) {
        snprintf(text, sizeof(text), "path cannot be followed: '%.400s'", w->path);
        rpc_error(e->call, 400, "failed_precondition", text);
    } else {
        e2b_refuse(e, status, object);
    }
}

/* --- entries --- */

static void next_link(struct e2b *e);

static void answer(struct e2b *e)
{
    struct work *w = e->data;

    if (w->is_list)
        call_json(e->call, 200, json_pack("{s:O}", "entries", w->told));
    else
        call_json(e->call, 200, json_pack("{s:O}", "entry", json_array_get(w->told, 0)));
}

static void heard_link(struct e2b *e, int status, json_t *object)
{
    struct work *w = e->data;

    json_array_append_new(
        w->told, entry_told(json_array_get(w->entries, w->at), status == 200 ? object : NULL));
    w->at++;
    next_link(e);
}

/* Tells what is no link, up to the next one that is. */
static void next_link(struct e2b *e)
{
    struct work *w = e->data;

    for (; w->at < json_array_size(w->entries); w->at++) {
        json_t *one = json_array_get(w->entries, w->at);
        const char *type = json_string_value(json_object_get(one, "type"));
        const char *path = json_string_value(json_object_get(one, "path"));
        if (type && path && strcmp(type, "symlink") == 0) {
            ask_file(e, HTTP_GET, path, "?stat=1&follow=1", heard_link);
            return;
        }
        if (path)
            json_array_append_new(w->told, entry_told(one, one));
    }
    answer(e);
}

static void tell(struct e2b *e, json_t *entries)
{
    struct work *w = e->data;

    w->entries = entries;
    w->told = json_array();
    next_link(e);
}

static void heard_one(struct e2b *e, int status, json_t *object)
{
    if (status == 200)
        tell(e, json_pack("[O]", object));
    else
        refuse(e, status, object);
}

void filesystem_stat(struct call *call)
{
    rpc_is_unary(call);
    struct e2b *e = begin(call, body_path(call, "path"));
    if (e)
        ask_file(e, HTTP_GET, ((struct work *)e->data)->path, "?stat=1", heard_one);
}

/* --- lists --- */

static void heard_list(struct e2b *e, int status, json_t *object)
{
    if (status == 200)
        tell(e, json_incref(json_object_get(object, "entries")));
    else
        refuse(e, status, object);
}

void filesystem_list(struct call *call)
{
    json_int_t depth = json_integer_value(json_object_get(call->body, "depth"));
    char query[64];

    rpc_is_unary(call);
    struct e2b *e = begin(call, body_path(call, "path"));
    if (!e)
        return;
    ((struct work *)e->data)->is_list = true;
    depth = depth > 0 && depth < 4096 ? depth : 1;
    snprintf(query, sizeof(query), "?list=1&depth=%lld&limit=%d", (long long)depth, LIST_MOST);
    ask_file(e, HTTP_GET, ((struct work *)e->data)->path, query, heard_list);
}

/* --- changes --- */

static void made_dir(struct e2b *e, int status, json_t *object)
{
    heard_one(e, status == 201 ? 200 : status, object);
}

static void looked_for_dir(struct e2b *e, int status, json_t *object)
{
    const struct work *w = e->data;
    const char *type = json_string_value(json_object_get(object, "type"));
    char text[512];

    if (status == 200 && type && strcmp(type, "directory") == 0) {
        snprintf(text, sizeof(text), "directory already exists: '%.400s'", w->path);
        rpc_error(e->call, 409, "already_exists", text);
    } else if (status == 200) {
        snprintf(text, sizeof(text), "path already exists but it is not a directory: '%.400s'",
                 w->path);
        rpc_error(e->call, 400, "invalid_argument", text);
    } else if (strcmp(code_of(object), "file_not_found") == 0) {
        e2b_ask(e, HTTP_POST, json_pack("{s:s, s:b}", "path", w->path, "parents", 1), made_dir,
                "/v1/workspaces/%s/files-mkdir", e->call->workspace.id);
    } else {
        refuse(e, status, object);
    }
}

void filesystem_make_dir(struct call *call)
{
    rpc_is_unary(call);
    struct e2b *e = begin(call, body_path(call, "path"));
    if (e)
        ask_file(e, HTTP_GET, ((struct work *)e->data)->path, "?stat=1&follow=1", looked_for_dir);
}

static void moved(struct e2b *e, int status, json_t *object)
{
    const struct work *w = e->data;

    if (status < 300)
        ask_file(e, HTTP_GET, w->other, "?stat=1", heard_one);
    else
        refuse(e, status, object);
}

void filesystem_move(struct call *call)
{
    rpc_is_unary(call);
    const char *from = body_path(call, "source");
    const char *to = from ? body_path(call, "destination") : NULL;
    struct e2b *e = to ? begin(call, from) : NULL;
    if (!e)
        return;
    ((struct work *)e->data)->other = to;
    e2b_ask(e, HTTP_POST,
            json_pack("{s:s, s:s, s:b, s:b}", "from", from, "to", to, "replace", 1, "parents", 1),
            moved, "/v1/workspaces/%s/files-move", call->workspace.id);
}

static void removed(struct e2b *e, int status, json_t *object)
{
    if (status < 300 || strcmp(code_of(object), "file_not_found") == 0)
        rpc_done(e->call);
    else
        refuse(e, status, object);
}

void filesystem_remove(struct call *call)
{
    rpc_is_unary(call);
    struct e2b *e = begin(call, body_path(call, "path"));
    if (e)
        ask_file(e, HTTP_DELETE, ((struct work *)e->data)->path, "?recursive=1", removed);
}
