/* SPDX-License-Identifier: Apache-2.0 */
#include "front/e2b/rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "protocol/files.h"

#define STREAM_TYPE "application/connect+json"

/* --- streams --- */

void rpc_end(struct call *call, const char *code, const char *message)
{
    scoped_buf struct buf b;

    buf_init(&b, 65536);
    envelope_end(&b, code, message);
    call->refused = NULL;
    if (buf_done(&b) == 0)
        call_reply(call, 200, STREAM_TYPE, NULL, b.p, b.n);
    else
        call_error(call, 503, "unavailable", "out of memory");
}

static void refused(struct call *call, int status, json_t *object)
{
    const json_t *error = json_object_get(object, "error");
    const char *ours = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    int unused;

    rpc_end(call, e2b_rpc_code(status, ours ? ours : "", &unused), message);
    json_decref(object);
}

void rpc_is_stream(struct call *call)
{
    call->refused = refused;
}

json_t *rpc_message(struct call *call)
{
    const char *json = NULL;
    size_t json_n = 0;
    size_t n;
    const char *bytes = http_body(call->x, &n);
    ssize_t taken = envelope_next(bytes, n, &json, &json_n);
    json_t *object = taken > 0 && (size_t)taken == n ? json_loadb(json, json_n, 0, NULL) : NULL;

    if (json_is_object(object))
        return object;
    json_decref(object);
    rpc_end(call, "invalid_argument", "the body is not one message of Connect in JSON");
    return NULL;
}

/* --- single messages --- */

void rpc_is_unary(struct call *call)
{
    call->translate = e2b_rpc_words;
}

void rpc_error(struct call *call, int status, const char *code, const char *message)
{
    call_json(call, status, json_pack("{s:s, s:s}", "code", code, "message", message));
}

void rpc_done(struct call *call)
{
    call_json(call, 200, json_object());
}

/* --- what a request says of itself --- */

static uint64_t header_number(const struct call *call, const char *name, uint64_t most)
{
    const char *text = http_header(http_request_of(call->x), name);
    char *end = NULL;
    unsigned long long number = text ? strtoull(text, &end, 10) : 0;

    if (!text || end == text || *end || *text == '-')
        return 0;
    return number < most ? number : most;
}

uint64_t rpc_timeout(const struct call *call)
{
    return header_number(call, "connect-timeout-ms", 86400000ULL * 365);
}

uint64_t rpc_keepalive(const struct call *call)
{
    uint64_t seconds = header_number(call, "keepalive-ping-interval", 86400);

    return 1000 * (seconds ? seconds : 90);
}

/* The name in "Basic base64(name:)"; NULL: none. */
static const char *basic_user(struct call *call)
{
    static const char scheme[] = "basic ";
    const char *header = http_header(http_request_of(call->x), "authorization");
    const char *text = header + sizeof(scheme) - 1;

    if (!header || strncasecmp(header, scheme, sizeof(scheme) - 1) != 0)
        return NULL;
    size_t n = strlen(text);
    char *name = arena_alloc(&call->arena, n + 4);
    ssize_t got = name ? bytes_from_base64(text, n, name) : -1;
    if (got < 0)
        return "";
    name[got] = '\0';
    name[strcspn(name, ":")] = '\0';
    return name;
}

const char *rpc_user(struct call *call)
{
    const char *user = basic_user(call);

    if (!user || !*user || strcmp(user, "user") == 0)
        return "user";
    if (strcmp(user, "root") == 0)
        return "root";
    const char *why = arena_printf(&call->arena, "invalid username: '%.64s'", user);
    call_error(call, 401, "unauthorized", "%s", why ? why : "invalid username");
    return NULL;
}

/* Without empty parts, "." and "..", as our own paths are. */
static char *plain_path(struct call *call, const char *path)
{
    char *plain = arena_alloc(&call->arena, strlen(path) + 2);
    size_t at = 0;

    while (plain && *path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && memcmp(path, "..", 2) == 0) {
            while (at > 0 && plain[--at] != '/') {
            }
        } else if (n > 0 && !(n == 1 && *path == '.')) {
            plain[at++] = '/';
            memcpy(plain + at, path, n);
            at += n;
        }
        path += n + (path[n] == '/');
    }
    if (plain && at == 0)
        plain[at++] = '/';
    if (plain)
        plain[at] = '\0';
    return plain;
}

const char *rpc_path(struct call *call, const char *user, const char *path)
{
    const char *home = strcmp(user, "root") == 0 ? "/root" : E2B_HOME;
    const char *whole = *path == '/'                       ? path
                        : !*path || strcmp(path, "~") == 0 ? home
                        : strncmp(path, "~/", 2) == 0      ? NULL
                        : *path == '~'                     ? ""
                                                           : NULL;

    if (!whole)
        whole = arena_printf(&call->arena, "%s/%s", home, *path == '~' ? path + 2 : path);
    char *plain = whole && *whole ? plain_path(call, whole) : NULL;
    if (plain && files_path_is_valid(plain))
        return plain;
    call_error(call, 400, "invalid_request", "the path '%.200s' cannot be resolved", path);
    return NULL;
}
