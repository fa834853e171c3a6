/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/files/PATH and its sisters: from paths, queries and JSON to the one message
 * that a file server understands. What it means is decided there. */
#include "front/files/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "front/core/call.h"
#include "front/core/live.h"
#include "front/core/router.h"
#include "front/files/call.h"
#include "http/multipart.h"

#define FILES "/v1/workspaces/{ws}/files"

const struct route file_routes[] = {
    {HTTP_GET, FILES "/{*}", READERS, 0, 0, file_get,
     "format offset limit list depth brief cursor stat follow archive", IN_PLAN},
    {HTTP_PUT, FILES "/{*}", WORKERS, HTTP_BODY_STREAM, RAW, file_put, "mode parents append",
     IN_PLAN},
    {HTTP_DELETE, FILES "/{*}", WORKERS, 0, 0, file_delete, "recursive", IN_PLAN},
    {HTTP_POST, FILES "-edit", WORKERS, BODY_FILES, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-move", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-copy", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-mkdir", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-chmod", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-symlink", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-glob", READERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-grep", READERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-inventory", READERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-read", READERS, BODY_EXEC, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-write", WORKERS, BODY_FILES, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-repair", WORKERS, BODY_SMALL, 0, file_action, "", IN_PLAN},
    {HTTP_POST, FILES "-upload", WORKERS, BODY_FILES, RAW, file_upload, "path", IN_PLAN},
    {HTTP_POST, FILES "-unpack", WORKERS, HTTP_BODY_STREAM, RAW, file_unpack, "path format",
     IN_PLAN},
    {HTTP_GET, FILES "-watch", READERS, 0, 0, file_watch, "path recursive", IN_PLAN},
    ROUTES_END,
};

enum {
    LINES_DEFAULT = 2000,
    LIST_DEFAULT = 1000,
    LIST_MAX = 10000,
    GLOB_MAX = 1000000,
    GREP_DEFAULT = 1000,
    CONTEXT_MAX = 100,
    DEPTH_MAX = 4096,
    PARTS_MAX = 10000, /* of a form, which is read while all others wait */
};

/* --- paths --- */

/* `path`, if it came with others or is not in sight; NULL. It is shown if it is a text. */
static bool bad_path(struct call *call, const char *path)
{
    json_t *shown = path && strlen(path) < FILES_PATH ? json_string(path) : NULL;
    json_t *error = json_pack(
        "{s:s, s:s}", "code", "invalid_path", "message",
        "paths are absolute, at most 4095 bytes long, and have no empty, '.' or '..' part");

    if (shown)
        json_object_set_new(error, "details", json_pack("{s:o}", "path", shown));
    call_json(call, 400, json_pack("{s:o}", "error", error));
    return false;
}

static bool decode_path(struct call *call, const char **ret)
{
    char *path = arena_alloc(&call->arena, strlen(call->rest) + 2);

    *ret = path;
    return (path && http_decode_path(call->rest, path) && files_path_is_valid(path)) ||
           bad_path(call, NULL);
}

/* NAME as text, or NAME_b64: any bytes. Into `scratch` if they had to be decoded. 1 there is one, 0
 * none, -1 answered. */
static int field_bytes(struct call *call, const json_t *object, const char *name,
                       struct buf *scratch, const char **ret, size_t *ret_n)
{
    char encoded[64];

    snprintf(encoded, sizeof(encoded), "%s_b64", name);
    const json_t *text = json_object_get(object, name);
    const json_t *base64 = json_object_get(object, encoded);
    if (!text && !base64)
        return 0;
    if (json_is_string(text) && !base64) {
        *ret = json_string_value(text);
        *ret_n = json_string_length(text);
        return 1;
    }
    scratch->n = 0;
    if (json_is_string(base64) && !text &&
        bytes_add_decoded(scratch, json_string_value(base64), json_string_length(base64)) == 0 &&
        buf_done(scratch) == 0) {
        *ret = scratch->p;
        *ret_n = scratch->n;
        return 1;
    }
    call_bad_field(call, name, "a text; or give it in base64 with _b64 behind its name");
    return -1;
}

static bool field_path(struct call *call, const json_t *object, const char *name, const char *other,
                       const char **ret)
{
    scoped_buf struct buf scratch;
    const char *bytes;
    size_t n;

    buf_init(&scratch, 2UL * FILES_PATH);
    int r = field_bytes(call, object, name, &scratch, &bytes, &n);
    if (r < 0)
        return false;
    if (r == 0 && !other) {
        call_bad_field(call, name, "an absolute path");
        return false;
    }
    *ret = r == 0 ? other : arena_copy(&call->arena, bytes, n);
    return (*ret && (r == 0 || (strlen(*ret) == n && files_path_is_valid(*ret)))) ||
           bad_path(call, *ret);
}

/* --- GET, PUT, DELETE --- */

static void read_range(struct call *call, struct files_message *m)
{
    const char *text = http_header(http_request_of(call->x), "range");
    struct http_range range;

    _Static_assert(HTTP_RANGE_MOST == FILES_MOST, "the same number for the same");
    if (!text || !http_read_range(text, &range))
        return;
    m->flags |= FILES_RANGE;
    m->from = range.from;
    m->to = range.to;
}

/* A condition that cannot be understood is never taken for none. */
static bool etag_header(struct call *call, const char *name, const char **ret)
{
    const char *text = http_header(http_request_of(call->x), name);

    *ret = text ? text : "";
    if (!text || (*text && strlen(text) < FILES_ETAG))
        return true;
    call_bad_field(call, name, "one ETag, as a response gave it, or \"*\"");
    return false;
}

static bool get_text(struct call *call, struct files_message *m)
{
    const char *format = NULL;

    if (!call_text(call, "format", &format))
        return false;
    if (strcmp(format, "text") != 0) {
        call_bad_field(call, "format", "\"text\"");
        return false;
    }
    m->op = FILES_TEXT;
    return call_number(call, "offset", FILES_MOST, 0, &m->offset) &&
           call_number(call, "limit", FILES_MOST, LINES_DEFAULT, &m->limit);
}

static bool get_list(struct call *call, struct files_message *m)
{
    const char *cursor = NULL;
    uint64_t list;
    uint64_t brief;

    if (!call_number(call, "list", 1, 0, &list) || !list)
        return !call->status;
    m->op = FILES_LIST;
    if (!call_number(call, "brief", 1, 0, &brief) ||
        !call_number(call, "depth", DEPTH_MAX, 1, &m->depth) ||
        !call_number(call, "limit", LIST_MAX, LIST_DEFAULT, &m->limit) ||
        !call_text(call, "cursor", &cursor))
        return false;
    m->cursor = cursor ? cursor : "";
    m->flags |= brief ? FILES_BRIEF : 0;
    return true;
}

static bool get_archive(struct call *call, struct files_message *m)
{
    const char *kind = NULL;

    m->op = FILES_PACK;
    if (!call_text(call, "archive", &kind))
        return false;
    if (strcmp(kind, "tar") == 0 || strcmp(kind, "zip") == 0) {
        m->flags |= *kind == 'z' ? FILES_ZIP : 0;
        return true;
    }
    call_bad_field(call, "archive", "\"tar\" or \"zip\"");
    return false;
}

static bool get_stat(struct call *call, struct files_message *m)
{
    uint64_t stat;
    uint64_t follow;

    if (!call_number(call, "stat", 1, 0, &stat) || !stat)
        return !call->status;
    m->op = FILES_STAT;
    if (!call_number(call, "follow", 1, 0, &follow))
        return false;
    m->flags |= follow ? FILES_FOLLOW : 0;
    return true;
}

void file_get(struct call *call)
{
    static const struct {
        const char *parameter;
        bool (*read)(struct call *, struct files_message *);
    } kinds[] = {
        {"format", get_text}, {"list", get_list}, {"archive", get_archive}, {"stat", get_stat}};

    struct files_message m = {.op = FILES_READ, .to = FILES_MOST, .mode = FILES_MOST};
    const char *given;

    if (!decode_path(call, &m.path))
        return;
    if (!etag_header(call, "if-none-match", &m.if_none_match))
        return;
    read_range(call, &m);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        enum files_op before = m.op;
        if (!call_text(call, kinds[i].parameter, &given))
            return;
        if (given && !kinds[i].read(call, &m))
            return;
        if (before != FILES_READ && m.op != before) {
            call_error(call, 400, "invalid_request",
                       "use only one of the parameters format, list, archive and stat");
            return;
        }
    }
    if (file_call_begin(call, &m, NULL))
        file_call_go(call, false);
}

/* NULL: the usual one. */
static bool read_mode(struct call *call, const char *text, uint64_t *ret)
{
    char *end;

    *ret = FILES_MOST;
    if (!text)
        return true;
    *ret = strtoul(text, &end, 8);
    if (*text >= '0' && *text <= '7' && *end == '\0' && *ret <= 0777)
        return true;
    call_bad_field(call, "mode", "octal digits, at most 0777");
    return false;
}

static bool field_mode(struct call *call, const json_t *object, uint64_t *ret)
{
    const json_t *mode = json_object_get(object, "mode");

    if (!mode || json_is_string(mode))
        return read_mode(call, json_string_value(mode), ret);
    call_bad_field(call, "mode", "octal digits as a text, such as \"0644\"");
    return false;
}

static bool query_mode(struct call *call, uint64_t *ret)
{
    const char *text = NULL;

    return call_text(call, "mode", &text) && read_mode(call, text, ret);
}

void file_put(struct call *call)
{
    struct files_message m = {.op = FILES_WRITE, .to = FILES_MOST};
    uint64_t parents;
    uint64_t append;

    if (!decode_path(call, &m.path) || !query_mode(call, &m.mode) ||
        !call_number(call, "parents", 1, 1, &parents) ||
        !call_number(call, "append", 1, 0, &append))
        return;
    m.flags = parents ? FILES_PARENTS : 0;
    if (!etag_header(call, "if-match", &m.if_match) ||
        !etag_header(call, "if-none-match", &m.if_none_match))
        return;
    if (append)
        m.op = FILES_APPEND;
    if (file_call_begin(call, &m, append ? "file.append" : "file.write"))
        file_call_go(call, true);
}

void file_delete(struct call *call)
{
    struct files_message m = {.op = FILES_REMOVE, .to = FILES_MOST, .mode = FILES_MOST};
    uint64_t recursive;

    if (!decode_path(call, &m.path) || !call_number(call, "recursive", 1, 0, &recursive))
        return;
    m.flags = recursive ? FILES_RECURSIVE : 0;
    if (file_call_begin(call, &m, "file.delete"))
        file_call_go(call, false);
}

void file_unpack(struct call *call)
{
    struct files_message m = {.op = FILES_UNPACK, .to = FILES_MOST, .mode = FILES_MOST};
    const char *path = NULL;
    const char *format = NULL;

    if (!call_text(call, "path", &path) || !call_text(call, "format", &format))
        return;
    m.path = path ? path : "/";
    if (!files_path_is_valid(m.path)) {
        bad_path(call, m.path);
        return;
    }
    if (format && strcmp(format, "tar") != 0 && strcmp(format, "zip") != 0) {
        call_bad_field(call, "format", "\"tar\" or \"zip\"");
        return;
    }
    const char *type = http_header(http_request_of(call->x), "content-type");
    bool is_zip = format ? *format == 'z' : type && strcasecmp(type, "application/zip") == 0;
    m.flags = is_zip ? FILES_ZIP : 0;
    if (file_call_begin(call, &m, "file.unpack"))
        file_call_go(call, true);
}

void file_watch(struct call *call)
{
    struct files_message m = {.op = FILES_WATCH, .to = FILES_MOST, .mode = FILES_MOST};
    const char *path = NULL;
    uint64_t recursive;

    if (!call_text(call, "path", &path) || !call_number(call, "recursive", 1, 1, &recursive))
        return;
    m.path = path ? path : "/";
    m.flags = recursive ? FILES_RECURSIVE : 0;
    if (!files_path_is_valid(m.path))
        bad_path(call, m.path);
    else if (live_hold(call, HTTP_WATCH) && file_call_begin(call, &m, NULL))
        file_call_go(call, false);
}

/* --- POST …/files-ACTION --- */

static bool flag(struct call *call, const char *name, bool value, uint64_t bit, uint64_t *flags)
{
    if (!field_flag(call, call->body, name, &value))
        return false;
    *flags |= value ? bit : 0;
    return true;
}

static bool read_place(struct call *call, struct files_message *m)
{
    return field_path(call, call->body, "path", NULL, &m->path);
}

static bool read_below(struct call *call, struct files_message *m)
{
    return field_path(call, call->body, "path", "/", &m->path);
}

static bool read_two(struct call *call, struct files_message *m)
{
    return field_path(call, call->body, "from", NULL, &m->path) &&
           field_path(call, call->body, "to", NULL, &m->other) &&
           flag(call, "replace", true, FILES_REPLACE, &m->flags) &&
           flag(call, "parents", true, FILES_PARENTS, &m->flags) &&
           flag(call, "recursive", true, FILES_RECURSIVE, &m->flags);
}

static bool read_mkdir(struct call *call, struct files_message *m)
{
    return read_place(call, m) && field_mode(call, call->body, &m->mode) &&
           flag(call, "parents", true, FILES_PARENTS, &m->flags);
}

static bool read_chmod(struct call *call, struct files_message *m)
{
    if (!read_place(call, m) || !field_mode(call, call->body, &m->mode) ||
        !flag(call, "recursive", false, FILES_RECURSIVE, &m->flags))
        return false;
    if (m->mode != FILES_MOST)
        return true;
    call_bad_field(call, "mode", "given");
    return false;
}

static bool read_symlink(struct call *call, struct files_message *m)
{
    scoped_buf struct buf scratch;
    const char *bytes = NULL;
    size_t n = 0;

    buf_init(&scratch, 2UL * FILES_PATH);
    if (!read_place(call, m) || !flag(call, "parents", true, FILES_PARENTS, &m->flags) ||
        !flag(call, "replace", false, FILES_REPLACE, &m->flags))
        return false;
    int r = field_bytes(call, call->body, "target", &scratch, &bytes, &n);
    if (r < 0)
        return false;
    m->other = r == 1 && n > 0 && n < FILES_PATH ? arena_copy(&call->arena, bytes, n) : NULL;
    if (m->other && strlen(m->other) == n)
        return true;
    call_bad_field(call, "target", "the target of the link, 1 to 4095 bytes");
    return false;
}

static bool read_glob(struct call *call, struct files_message *m)
{
    m->limit = 10000;
    if (!read_below(call, m) ||
        !field_text(call, call->body, "pattern", FILES_PATTERN - 1, &m->pattern) ||
        !flag(call, "directories", false, FILES_DIRECTORIES, &m->flags) ||
        !field_number(call, call->body, "limit", 1, GLOB_MAX, &m->limit))
        return false;
    if (m->pattern && *m->pattern)
        return true;
    call_bad_field(call, "pattern", "a pattern such as \"**/*.py\"");
    return false;
}

static bool read_globs(struct call *call, struct files_message *m)
{
    const json_t *list = json_object_get(call->body, "globs");
    const char **globs = arena_alloc(&call->arena, (FILES_GLOBS + 1) * sizeof(*globs));
    size_t n = json_array_size(list);

    if (!globs || (list && (!json_is_array(list) || n > FILES_GLOBS))) {
        call_bad_field(call, "globs", "a list of at most 64 patterns");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        globs[i] = json_string_value(json_array_get(list, i));
        if (!globs[i] || !*globs[i]) {
            call_bad_field(call, "globs", "a list of texts");
            return false;
        }
    }
    globs[n] = NULL;
    m->globs = globs;
    return true;
}

static bool read_grep(struct call *call, struct files_message *m)
{
    m->limit = GREP_DEFAULT;
    if (!read_below(call, m) || !read_globs(call, m) ||
        !field_text(call, call->body, "pattern", FILES_PATTERN - 1, &m->pattern) ||
        !flag(call, "regex", false, FILES_REGEX, &m->flags) ||
        !flag(call, "ignore_case", false, FILES_IGNORE_CASE, &m->flags) ||
        !field_number(call, call->body, "context", 0, CONTEXT_MAX, &m->context) ||
        !field_number(call, call->body, "limit", 1, GLOB_MAX, &m->limit))
        return false;
    if (m->pattern && *m->pattern)
        return true;
    call_bad_field(call, "pattern", "the text or pattern to search for");
    return false;
}

static bool read_inventory(struct call *call, struct files_message *m)
{
    return read_below(call, m) && flag(call, "hash", true, FILES_HASH, &m->flags);
}

static bool read_edit(struct call *call, struct files_message *m)
{
    return read_place(call, m) && flag(call, "all", false, FILES_ALL, &m->flags) &&
           etag_header(call, "if-match", &m->if_match);
}

static bool read_nothing(struct call *call, struct files_message *m)
{
    (void)call;
    m->path = "/";
    return true;
}

static void put_length(struct call *call, uint64_t n)
{
    file_call_body(call, &n, sizeof(n));
}

/* The bodies of calls that have one, made of the JSON. False: answered, and the call is to end. */
static bool body_edit(struct call *call)
{
    scoped_buf struct buf scratch;
    scoped_buf struct buf other;
    const char *bytes[2];
    size_t n[2];

    buf_init(&scratch, 128UL << 20);
    buf_init(&other, 128UL << 20);
    int old = field_bytes(call, call->body, "old", &scratch, &bytes[0], &n[0]);
    int new = old < 0 ? -1 : field_bytes(call, call->body, "new", &other, &bytes[1], &n[1]);
    bool good = old == 1 && new == 1;
    if (good) {
        put_length(call, n[0]);
        file_call_body(call, bytes[0], n[0]);
        file_call_body(call, bytes[1], n[1]);
    } else if (old == 0 || new == 0) {
        call_bad_field(call, old == 0 ? "old" : "new", "given");
    }
    return good;
}

static bool body_paths(struct call *call)
{
    const json_t *list = json_object_get(call->body, "paths");
    const json_t *item;
    size_t i;

    if (!json_is_array(list)) {
        call_bad_field(call, "paths", "a list of paths");
        return false;
    }
    json_array_foreach(list, i, item)
    {
        json_t *object = json_is_string(item) ? json_pack("{s:O}", "path", item)
                                              : json_incref((json_t *)(uintptr_t)item);
        const char *path;
        bool good = field_path(call, object, "path", NULL, &path);
        json_decref(object);
        if (!good)
            return false;
        file_call_body(call, path, strlen(path) + 1);
    }
    return true;
}

static void put_content(struct call *call, const char *path, uint64_t mode, const char *bytes,
                        size_t n)
{
    file_call_path(call, path);
    put_length(call, strlen(path));
    put_length(call, n);
    put_length(call, mode);
    file_call_body(call, path, strlen(path));
    file_call_body(call, bytes, n);
}

static bool put_file(struct call *call, const json_t *item)
{
    static const char *const known[] = {"path", "path_b64", "content", "content_b64", "mode", NULL};
    scoped_buf struct buf scratch;
    const char *path = NULL;
    const char *bytes;
    uint64_t mode;
    size_t n;

    buf_init(&scratch, 128UL << 20);
    if (!json_is_object(item) || !fields_known(call, item, known) ||
        !field_path(call, item, "path", NULL, &path) || !field_mode(call, item, &mode) ||
        field_bytes(call, item, "content", &scratch, &bytes, &n) != 1)
        return false; /* also without a content: that is no change of the mode */
    put_content(call, path, mode, bytes, n);
    return true;
}

static bool too_many(struct call *call, unsigned most)
{
    call_error(call, 413, "too_large",
               "more than %u files, or too long paths, for one call; send several calls", most);
    return false;
}

static bool body_files(struct call *call)
{
    const json_t *list = json_object_get(call->body, "files");
    const json_t *item;
    size_t i;

    if (!json_is_array(list)) {
        call_bad_field(call, "files", "a list of {\"path\", \"content\"}");
        return false;
    }
    if (json_array_size(list) > FILES_BATCH)
        return too_many(call, FILES_BATCH);
    json_array_foreach(list, i, item)
    {
        if (put_file(call, item))
            continue;
        if (!call->status)
            call_bad_field(call, "files", "a list of {\"path\", \"content\"}");
        return false;
    }
    return true;
}

static const struct action {
    const char *name;
    enum files_op op;
    const char *operation; /* in the record */
    bool (*read)(struct call *, struct files_message *);
    bool (*body)(struct call *);
    const char *known[9];
} actions[] = {
    {"edit",
     FILES_EDIT,
     "file.edit",
     read_edit,
     body_edit,
     {"path", "path_b64", "old", "old_b64", "new", "new_b64", "all"}},
    {"move",
     FILES_MOVE,
     "file.move",
     read_two,
     NULL,
     {"from", "from_b64", "to", "to_b64", "replace", "parents", "recursive"}},
    {"copy",
     FILES_COPY,
     "file.copy",
     read_two,
     NULL,
     {"from", "from_b64", "to", "to_b64", "replace", "parents", "recursive"}},
    {"mkdir", FILES_MKDIR, "file.mkdir", read_mkdir, NULL, {"path", "path_b64", "mode", "parents"}},
    {"chmod",
     FILES_CHMOD,
     "file.chmod",
     read_chmod,
     NULL,
     {"path", "path_b64", "mode", "recursive"}},
    {"symlink",
     FILES_SYMLINK,
     "file.symlink",
     read_symlink,
     NULL,
     {"path", "path_b64", "target", "target_b64", "replace", "parents"}},
    {"glob",
     FILES_GLOB,
     NULL,
     read_glob,
     NULL,
     {"path", "path_b64", "pattern", "limit", "directories"}},
    {"grep",
     FILES_GREP,
     NULL,
     read_grep,
     NULL,
     {"path", "path_b64", "pattern", "regex", "ignore_case", "globs", "context", "limit"}},
    {"inventory", FILES_INVENTORY, NULL, read_inventory, NULL, {"path", "path_b64", "hash"}},
    {"read", FILES_BATCH_READ, NULL, read_nothing, body_paths, {"paths"}},
    {"write", FILES_BATCH_WRITE, "file.write_many", read_nothing, body_files, {"files"}},
    {"repair", FILES_REPAIR, "file.repair", read_below, NULL, {"path", "path_b64"}},
};

static const struct action *action_of(const struct call *call)
{
    const char *name = strrchr(call->route->path, '-') + 1; /* …/files-NAME */

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    }
    return NULL;
}

void file_action(struct call *call)
{
    const struct action *action = action_of(call);
    struct files_message m = {.to = FILES_MOST, .mode = FILES_MOST};

    if (!action) { /* a route without its action: a mistake of ours */
        call_error(call, 500, "internal", "the route has no action");
        return;
    }
    m.op = action->op;
    if (!fields_known(call, call->body, action->known) || !action->read(call, &m) ||
        !file_call_begin(call, &m, action->operation))
        return;
    if (action->body) {
        file_call_body(call, "", 0); /* it has one, though it may be empty */
        if (!action->body(call)) {
            file_call_drop(call);
            return;
        }
    }
    call_drop_body(call);
    file_call_go(call, false);
}

/* --- POST …/files-upload, of a form --- */

static bool put_part(struct call *call, const char *below, const struct http_part *part)
{
    const char *name = part->filename ? part->filename : "";
    size_t n = strlen(below) + strlen(name) + 2;
    char *path = arena_alloc(&call->arena, n);

    if (!part->filename) {
        call_error(call, 400, "invalid_request",
                   "the part \"%.100s\" has no filename; only files can be uploaded", part->name);
        return false;
    }
    if (!path)
        return too_many(call, PARTS_MAX);
    snprintf(path, n, "%s/%s", strcmp(below, "/") == 0 ? "" : below, name);
    if (!*name || !files_path_is_valid(path)) /* "" would be the directory itself */
        return bad_path(call, path);
    put_content(call, path, FILES_MOST, part->bytes, part->n);
    return true;
}

/* Each file is called as the form says, below `path`. False: answered. */
static bool put_form(struct call *call, const char *below)
{
    const char *type = http_header(http_request_of(call->x), "content-type");
    struct http_multipart *form = arena_alloc(&call->arena, sizeof(*form));
    const char *why = "it is too large";
    unsigned count = 0;
    struct http_part part;
    size_t n;
    const char *bytes = http_body(call->x, &n);

    int r = form ? http_multipart_begin(form, type, bytes, n, &why) : -1;
    while (r == 0 && (r = http_multipart_next(form, &part, &why)) == 1) {
        if (++count > PARTS_MAX)
            return too_many(call, PARTS_MAX);
        if (!put_part(call, below, &part))
            return false;
        r = 0;
    }
    if (r == 0)
        return true;
    call_error(call, 400, "invalid_request", "the form cannot be read: %s", why);
    return false;
}

void file_upload(struct call *call)
{
    struct files_message m = {
        .op = FILES_BATCH_WRITE, .path = "/", .to = FILES_MOST, .mode = FILES_MOST};
    const char *below = NULL;

    if (!call_text(call, "path", &below))
        return;
    if (below && !files_path_is_valid(below)) {
        bad_path(call, below);
        return;
    }
    if (!file_call_begin(call, &m, "file.write_many"))
        return;
    file_call_body(call, "", 0);
    if (!put_form(call, below ? below : "/")) {
        file_call_drop(call);
        return;
    }
    call_drop_body(call);
    file_call_go(call, false);
}
