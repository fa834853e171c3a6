/* SPDX-License-Identifier: Apache-2.0 */
/* /files of envd: what is downloaded is our own file server's answer; what is uploaded goes, file
 * by file, to our own PUT, at the pace at which that takes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ZLIB_CONST
#include <zlib.h>

#include "front/e2b/files.h"
#include "front/e2b/form.h"
#include "front/e2b/rpc.h"
#include "front/files/call.h"
#include "http/server.h"

enum {
    PLAIN = 65536, /* bytes made of compressed ones at a time */
    MOST_FILES = 1000,
};

/* --- down --- */

/* Who asks, and the path of the query. False: answered. */
static bool read_query(struct call *call, const char **ret_user, const char **ret_path)
{
    const char *path = NULL;
    const char *user = NULL;

    if (!e2b_query(call, "path", &path) || !e2b_query(call, "username", &user))
        return false;
    *ret_user = user && *user ? user : rpc_user(call);
    if (!*ret_user)
        return false;
    if (strcmp(*ret_user, "user") != 0 && strcmp(*ret_user, "root") != 0) {
        call_error(call, 401, "unauthorized", "error looking up user '%.64s': unknown user",
                   *ret_user);
        return false;
    }
    *ret_path = path;
    return true;
}

void files_download(struct call *call)
{
    const char *range = http_header(http_request_of(call->x), "range");
    struct files_message m = {.op = FILES_READ, .to = FILES_MOST, .mode = FILES_MOST};
    struct http_range wanted;
    const char *user;
    const char *path;

    if (!read_query(call, &user, &path))
        return;
    m.path = rpc_path(call, user, path ? path : "");
    if (!m.path)
        return;
    if (range && http_read_range(range, &wanted)) {
        m.flags |= FILES_RANGE;
        m.from = wanted.from;
        m.to = wanted.to;
    }
    if (file_call_begin(call, &m, NULL))
        file_call_go(call, false);
}

/* --- up --- */

struct upload {
    struct call *call;
    struct e2b *e; /* who asks; its inner is ours */
    const char *user;
    const char *path; /* of the query; NULL: each part has its own */
    const char *now;  /* of the file that is going in; NULL: none */
    struct inner *inner;
    bool skips; /* a part that is no file */
    bool waits; /* all of a file is in, and its answer yet to come */
    bool is_form;
    bool is_whole;   /* all of the body has come */
    bool is_blocked; /* what it goes to takes no more for now */
    bool is_closed;  /* the only file is */
    bool over;
    bool is_packed;
    bool unpacked; /* all of it */
    z_stream z;
    char *plain;
    size_t plain_at;
    size_t plain_n;
    struct form form;
    json_t *written;
};

static void stop(struct upload *u, int status, const char *code, const char *why)
{
    if (!u->over)
        call_error(u->call, status, code, "%s", why);
    u->over = true;
}

static void go_on(struct upload *u)
{
    if (u->call->x)
        http_continue_body(u->call->x);
}

static void finish(struct upload *u)
{
    if (u->over || u->waits || !u->is_whole)
        return;
    u->over = true;
    if (json_array_size(u->written) == 0)
        call_error(u->call, 400, "invalid_request", "there is no file in the body");
    else
        call_json(u->call, 200, json_incref(u->written));
}

static void settle(struct upload *u);

static void room(void *context)
{
    struct upload *u = context;

    u->is_blocked = false;
    if (u->is_whole)
        settle(u);
    else
        go_on(u);
}

static void landed(void *context, int status, const struct buf *body)
{
    struct upload *u = context;
    const char *name = strrchr(u->now, '/');

    u->inner = NULL;
    u->waits = false;
    if (status >= 200 && status < 300) {
        json_array_append_new(u->written, json_pack("{s:s, s:s, s:s}", "name", name ? name + 1 : "",
                                                    "type", "file", "path", u->now));
        u->now = NULL;
        if (u->is_whole)
            settle(u);
        else
            go_on(u);
        return;
    }
    json_t *object = body->n ? json_loadb(body->p, body->n, 0, NULL) : NULL;
    const json_t *error = json_object_get(object, "error");
    const char *code = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    char text[512];
    snprintf(text, sizeof(text), "path '%.300s': %.180s", u->now,
             message ? message : "writing it failed");
    stop(u, status >= 400 ? status : 500, code ? code : "internal", text);
    json_decref(object);
}

/* False: answered. */
static bool open_file(struct upload *u, const char *path)
{
    struct call *call = u->call;
    const char *now = rpc_path(call, u->user, path);
    const json_t *one;
    size_t i;

    if (!now) {
        u->over = true;
        return false;
    }
    json_array_foreach(u->written, i, one)
    {
        if (strcmp(json_string_value(json_object_get(one, "path")), now) == 0) {
            stop(u, 400, "invalid_request",
                 "you cannot upload multiple files to the same path in one request");
            return false;
        }
    }
    char *target = NULL;
    if (asprintf(&target, "/v1/workspaces/%s/files%s?parents=1", call->workspace.id,
                 e2b_encoded(call, now, true)) < 0)
        target = NULL;
    const struct inner_request request = {.method = HTTP_PUT,
                                          .target = target,
                                          .feeds = true,
                                          .done = landed,
                                          .room = room,
                                          .context = u};
    u->now = now;
    u->inner = target ? inner_start(call->front, &u->e->who, &request) : NULL;
    free(target);
    if (!u->inner)
        stop(u, 503, "unavailable", "the daemon has no room for this now; try again");
    return u->inner != NULL;
}

static void close_file(struct upload *u)
{
    u->waits = true;
    inner_feed_end(u->inner);
}

/* --- a form --- */

static bool part(void *context, const char *name, const char *filename)
{
    struct upload *u = context;
    const char *path = u->path ? u->path : filename;

    u->skips = strcmp(name, "file") != 0;
    if (u->skips)
        return true;
    if (json_array_size(u->written) >= MOST_FILES) {
        stop(u, 400, "invalid_request", "there are more than 1000 files in the body");
        return false;
    }
    if (u->path && json_array_size(u->written)) {
        stop(u, 400, "invalid_request",
             "you cannot upload multiple files to the same path in one request");
        return false;
    }
    if (!path) {
        stop(u, 400, "invalid_request", "a file of the form has no filename, and there is no path");
        return false;
    }
    const char *copy = arena_copy(&u->call->arena, path, strlen(path));
    return copy && open_file(u, copy);
}

static size_t part_bytes(void *context, const char *bytes, size_t n)
{
    struct upload *u = context;

    if (u->skips || u->over || !u->inner)
        return n;
    size_t taken = inner_feed(u->inner, bytes, n);
    u->is_blocked = taken < n;
    return taken;
}

static bool part_end(void *context)
{
    struct upload *u = context;

    if (u->skips || u->over)
        return true;
    if (u->inner && !u->waits)
        close_file(u);
    return !u->waits; /* again, when it has landed */
}

static const struct form_calls form_calls = {.part = part, .bytes = part_bytes, .end = part_end};

/* --- the bytes --- */

/* How many of these plain bytes were taken. */
static size_t put(struct upload *u, const char *bytes, size_t n)
{
    if (u->over)
        return n;
    if (!u->is_form) {
        size_t some = u->inner ? inner_feed(u->inner, bytes, n) : n;
        u->is_blocked = some < n;
        return some;
    }
    size_t taken = form_feed(&u->form, bytes, n);
    if (u->form.state == FORM_BROKEN && !u->over)
        stop(u, 400, "invalid_request", u->form.why);
    return taken;
}

static bool put_plain(struct upload *u)
{
    while (u->plain_at < u->plain_n) {
        size_t n = put(u, u->plain + u->plain_at, u->plain_n - u->plain_at);
        u->plain_at += n;
        if (n == 0)
            return false;
    }
    return true;
}

static size_t put_packed(struct upload *u, const char *bytes, size_t n)
{
    u->z.next_in = (const unsigned char *)bytes;
    u->z.avail_in = (uInt)n;
    while (put_plain(u) && !u->over && !u->unpacked) {
        u->z.next_out = (unsigned char *)u->plain;
        u->z.avail_out = PLAIN;
        int r = inflate(&u->z, Z_NO_FLUSH);
        u->plain_at = 0;
        u->plain_n = PLAIN - u->z.avail_out;
        u->unpacked = r == Z_STREAM_END;
        if (r != Z_OK && r != Z_STREAM_END && r != Z_BUF_ERROR)
            stop(u, 400, "invalid_request", "the body is not gzip");
        if (u->plain_n == 0 && u->z.avail_in == 0)
            break;
    }
    (void)put_plain(u);
    return u->over || u->unpacked ? n : n - u->z.avail_in;
}

static size_t piece(struct call *call, const char *bytes, size_t n)
{
    struct upload *u = ((struct e2b *)call->context)->data;

    if (u->over)
        return n;
    return u->is_packed ? put_packed(u, bytes, n) : put(u, bytes, n);
}

/* All of the body has come: what of it still waits goes on, and at last it is answered. */
static void settle(struct upload *u)
{
    if (u->is_packed)
        (void)put_packed(u, "", 0);
    else if (u->is_form && !u->over)
        (void)put(u, "", 0);
    if (u->over || u->waits || u->is_blocked)
        return;
    if (u->is_packed && (!u->unpacked || u->plain_at < u->plain_n)) {
        stop(u, 400, "invalid_request", "the body is not all of a gzip file");
    } else if (u->is_form && u->form.state != FORM_OVER) {
        stop(u, 400, "invalid_request", "the form ends in the middle of a part");
    } else if (!u->is_form && !u->is_closed) {
        u->is_closed = true;
        close_file(u);
    } else {
        finish(u);
    }
}

static void whole(struct call *call)
{
    struct upload *u = ((struct e2b *)call->context)->data;

    u->is_whole = true;
    if (!u->over)
        settle(u);
}

static void dropped(struct e2b *e)
{
    struct upload *u = e->data;

    u->call->piece = NULL;
    u->call->whole = NULL;
    inner_drop(u->inner);
    if (u->is_packed)
        (void)inflateEnd(&u->z);
    if (u->is_form)
        form_free(&u->form);
    free(u->plain);
    json_decref(u->written);
    free(u);
}

static bool has_metadata(const struct http_request *request)
{
    for (size_t i = 0; i < request->header_count; i++) {
        if (strncmp(request->headers[i].name, "x-metadata-", 11) == 0)
            return true;
    }
    return false;
}

static bool begin_packed(struct upload *u, const char *encoding)
{
    if (!encoding || strcasecmp(encoding, "identity") == 0)
        return true;
    if (strcasecmp(encoding, "gzip") != 0) {
        stop(u, 400, "invalid_request", "the body is neither plain nor gzip");
        return false;
    }
    u->plain = malloc(PLAIN);
    u->is_packed = u->plain && inflateInit2(&u->z, 15 + 16) == Z_OK;
    if (!u->is_packed)
        stop(u, 503, "unavailable", "out of memory");
    return u->is_packed;
}

static void begin(struct upload *u)
{
    const struct http_request *request = http_request_of(u->call->x);
    const char *type = http_header(request, "content-type");

    if (has_metadata(request)) {
        stop(u, 400, "unsupported", "files have no metadata here");
        return;
    }
    if (!begin_packed(u, http_header(request, "content-encoding")))
        return;
    if (type && strncasecmp(type, "application/octet-stream", 24) == 0) {
        if (!u->path)
            stop(u, 400, "invalid_request", "path is needed with application/octet-stream");
        else
            (void)open_file(u, u->path);
        return;
    }
    u->is_form = form_begin(&u->form, type, &form_calls, u);
    if (!u->is_form)
        stop(u, 400, "invalid_request",
             "the body is neither multipart/form-data nor application/octet-stream");
}

void files_upload(struct call *call)
{
    const char *user;
    const char *path;

    if (!read_query(call, &user, &path))
        return;
    struct upload *u = calloc(1, sizeof(*u));
    if (!u) {
        call_error(call, 503, "unavailable", "out of memory");
        return;
    }
    u->call = call;
    u->user = user;
    u->path = path;
    u->written = json_array();
    u->e = e2b_begin(call, u);
    if (!u->e) {
        json_decref(u->written);
        free(u);
        return;
    }
    u->e->dropped = dropped;
    call->piece = piece;
    call->whole = whole;
    begin(u);
}
