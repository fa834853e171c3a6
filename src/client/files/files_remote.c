/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on files, as HTTP to the daemon or as a message to the file server here. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/text.h"
#include "client/files/files.h"
#include "json/encode.h"

int files_daemon(struct files *f, struct err *err)
{
    if (!f->reached && daemon_open(&f->daemon, f->common.state, err) < 0)
        return -1;
    f->reached = true;
    return 0;
}

/* --- over HTTP --- */

/* Any bytes, each part by itself; also alone, as the value of a query. */
static void add_path(struct buf *b, const char *path)
{
    char part[FILES_PATH];

    while (*path == '/') {
        size_t n = strcspn(++path, "/");
        buf_str(b, "/");
        memcpy(part, path, n);
        part[n] = '\0';
        text_url(b, part);
        path += n;
    }
}

static void add_number(struct buf *b, const char *name, uint64_t value)
{
    buf_printf(b, "&%s=%llu", name, (unsigned long long)value);
}

static void add_page(struct buf *b, const struct files_message *m)
{
    buf_str(b, m->flags & FILES_BRIEF ? "list=1&brief=1" : "list=1");
    add_number(b, "depth", m->depth);
    add_number(b, "limit", m->limit);
    buf_str(b, m->cursor && *m->cursor ? "&cursor=" : "");
    text_url(b, m->cursor ? m->cursor : "");
}

/* "/v1/workspaces/WS/files/PATH" and its query, or where else such a call goes. */
static void add_target(struct buf *b, const struct client_path *place,
                       const struct files_message *m)
{
    bool by_query = m->op == FILES_WATCH || m->op == FILES_UNPACK;

    client_workspace_path(b, place->workspace,
                          m->op == FILES_WATCH    ? "/files-watch?path="
                          : m->op == FILES_UNPACK ? "/files-unpack?format=tar&path="
                                                  : "/files");
    add_path(b, place->path);
    if (!by_query)
        buf_str(b, "?");
    if (m->op == FILES_LIST) {
        add_page(b, m);
    } else if (m->op == FILES_TEXT) {
        buf_str(b, "format=text");
        add_number(b, "offset", m->offset);
        add_number(b, "limit", m->limit);
    } else if (m->op == FILES_STAT) {
        buf_str(b, m->flags & FILES_FOLLOW ? "stat=1&follow=1" : "stat=1");
    } else if (m->op == FILES_PACK) {
        buf_str(b, "archive=tar");
    } else if (m->op == FILES_WRITE && m->mode != FILES_MOST) {
        buf_printf(b, "mode=%04llo", (unsigned long long)m->mode);
    } else if (m->op == FILES_REMOVE || m->op == FILES_WATCH) {
        buf_str(b, by_query ? "&recursive=" : "recursive=");
        buf_str(b, m->flags & FILES_RECURSIVE ? "1" : "0");
    }
}

static void fill_two(json_t *body, const struct files_message *m)
{
    encode_bytes(body, "from", m->path, strlen(m->path));
    encode_bytes(body, "to", m->other, strlen(m->other));
    json_object_set_new(body, "replace", json_boolean(m->flags & FILES_REPLACE));
    json_object_set_new(body, "recursive", json_boolean(m->flags & FILES_RECURSIVE));
}

static void fill_mkdir(json_t *body, const struct files_message *m)
{
    char mode[TEXT_SHORT];

    encode_bytes(body, "path", m->path, strlen(m->path));
    if (m->mode == FILES_MOST)
        return;
    snprintf(mode, sizeof(mode), "%04llo", (unsigned long long)m->mode);
    json_object_set_new(body, "mode", json_string(mode));
}

static void fill_glob(json_t *body, const struct files_message *m)
{
    encode_bytes(body, "path", m->path, strlen(m->path));
    json_object_set_new(body, "pattern", json_string(m->pattern));
    json_object_set_new(body, "limit", json_integer((json_int_t)m->limit));
}

static void fill_grep(json_t *body, const struct files_message *m)
{
    json_t *globs = json_array();

    fill_glob(body, m);
    for (size_t i = 0; m->globs[i]; i++)
        json_array_append_new(globs, json_string(m->globs[i]));
    json_object_set_new(body, "globs", globs);
    json_object_set_new(body, "regex", json_boolean(m->flags & FILES_REGEX));
    json_object_set_new(body, "ignore_case", json_boolean(m->flags & FILES_IGNORE_CASE));
    json_object_set_new(body, "context", json_integer((json_int_t)m->context));
}

static void fill_edit(json_t *body, const struct files_message *m)
{
    encode_bytes(body, "path", m->path, strlen(m->path));
    json_object_set_new(body, "all", json_boolean(m->flags & FILES_ALL));
}

static const struct {
    enum files_op op;
    const char *route;
    void (*fill)(json_t *, const struct files_message *);
} actions[] = {
    {FILES_EDIT, "/files-edit", fill_edit}, {FILES_MOVE, "/files-move", fill_two},
    {FILES_COPY, "/files-copy", fill_two},  {FILES_MKDIR, "/files-mkdir", fill_mkdir},
    {FILES_GLOB, "/files-glob", fill_glob}, {FILES_GREP, "/files-grep", fill_grep},
};

static int ask_daemon(struct files *f, const struct client_path *place,
                      const struct files_message *m, const char *const *texts, json_t **ret,
                      struct err *err)
{
    struct buf path;
    size_t i = 0;

    if (files_daemon(f, err) < 0)
        return -1;
    f->daemon.if_match = m->if_match;
    while (i < sizeof(actions) / sizeof(actions[0]) && actions[i].op != m->op)
        i++;
    if (i == sizeof(actions) / sizeof(actions[0])) {
        add_target(&path, place, m);
        return client_do(&f->daemon, m->op == FILES_REMOVE ? "DELETE" : "GET", &path, NULL, ret,
                         err);
    }
    json_t *body = json_object();
    actions[i].fill(body, m);
    if (texts) {
        encode_bytes(body, "old", texts[0], strlen(texts[0]));
        encode_bytes(body, "new", texts[1], strlen(texts[1]));
    }
    client_workspace_path(&path, place->workspace, actions[i].route);
    return client_do(&f->daemon, "POST", &path, body, ret, err);
}

/* --- here --- */

/* A name without a workspace is often a workspace without a path. */
static int hint(struct err *err)
{
    const struct err plain = *err;

    if (plain.code == ERR_NOT_FOUND)
        err_set(err, plain.code, 0, "%.300s; in a workspace, write WS:/path", plain.msg);
    err->said = plain.said;
    return -1;
}

static int ask_here(struct files *f, const struct files_message *m, const char *const *texts,
                    json_t **ret, struct err *err)
{
    struct local_stream s;
    int r = local_start(f, m, &s, err);

    if (r == 0 && texts) {
        uint64_t length = strlen(texts[0]);
        /* One that listens no more has answered. */
        if (local_send(&s, (const char *)&length, sizeof(length)) == 0 &&
            local_send(&s, texts[0], strlen(texts[0])) == 0 &&
            local_send(&s, texts[1], strlen(texts[1])) == 0)
            (void)local_send_end(&s);
    }
    if (r == 0)
        r = local_json(&s, ret, err) < 0 ? hint(err) : 0;
    local_stop(&s);
    return r;
}

/* --- either --- */

int files_ask(struct files *f, const struct client_path *place, struct files_message *m,
              const char *const *texts, json_t **ret, struct err *err)
{
    static const char *const none[] = {NULL};

    m->path = place->path;
    m->globs = m->globs ? m->globs : none;
    return place->local ? ask_here(f, m, texts, ret, err)
                        : ask_daemon(f, place, m, texts, ret, err);
}

int files_look(struct files *f, const struct client_path *place, struct files_kind *ret,
               struct err *err)
{
    struct files_message m = {.op = FILES_STAT, .flags = FILES_FOLLOW, .to = FILES_MOST};
    json_t *entry = NULL;

    *ret = (struct files_kind){.mode = FILES_MOST};
    if (files_ask(f, place, &m, NULL, &entry, err) < 0)
        return err->said == SAID_FILE_NOT_FOUND ? 0 : -1;
    const char *type = client_text(entry, "type");
    const char *mode = client_text(entry, "mode");
    snprintf(ret->type, sizeof(ret->type), "%s", type ? type : "?");
    ret->mode = mode ? strtoul(mode, NULL, 8) & 0777 : FILES_MOST;
    ret->size = (uint64_t)json_integer_value(json_object_get(entry, "size"));
    json_decref(entry);
    return 0;
}

static int pull_here(struct files *f, const struct files_message *m, files_take *take,
                     void *context, struct err *err)
{
    struct local_stream s;
    char bytes[32768];
    ssize_t n = 0;
    int r = local_start(f, m, &s, err);

    if (r == 0)
        r = local_answer(&s, err) < 0 ? hint(err) : 0;
    while (r == 0 && (n = local_read(&s, bytes, sizeof(bytes))) > 0) {
        if (take(context, bytes, (size_t)n) != (size_t)n)
            r = err_set(err, ERR_IO, 0, "it was broken off");
    }
    if (r == 0 && n < 0)
        r = err_set(err, ERR_IO, 0, "it changed while it was read; try again");
    local_stop(&s);
    return r;
}

int files_pull(struct files *f, const struct client_path *place, struct files_message *m,
               files_take *take, void *context, struct err *err)
{
    static const char *const none[] = {NULL};
    struct call call;
    struct buf path;

    m->path = place->path;
    m->globs = none;
    if (place->local)
        return pull_here(f, m, take, context, err);
    if (files_daemon(f, err) < 0 || call_open(&call, &f->daemon, err) < 0)
        return -1;
    add_target(&path, place, m);
    call.take = take;
    call.context = context;
    call.accept = "*/*";
    int r = buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the request is too long")
                                : call_wait(&call, "GET", path.p, err);
    if (r < 0 && call.status / 100 == 2)
        err_set(err, ERR_IO, 0,
                "the download broke off: the file changed, or the daemon ended; try again");
    buf_clear(&path);
    call_close(&call);
    return r;
}

int files_push(struct files *f, const struct client_path *place, struct files_message *m,
               const struct files_source *from, json_t **ret, struct err *err)
{
    struct call call;
    struct buf path;

    if (files_daemon(f, err) < 0 || call_open(&call, &f->daemon, err) < 0)
        return -1;
    add_target(&path, place, m);
    f->daemon.if_match = m->if_match;
    call.give = from->give;
    call.give_context = from->context;
    call.type = m->op == FILES_UNPACK ? "application/x-tar" : "application/octet-stream";
    int r = buf_done(&path) < 0
                ? err_set(err, ERR_INVALID, 0, "the request is too long")
                : call_wait(&call, m->op == FILES_UNPACK ? "POST" : "PUT", path.p, err);
    if (r == 0)
        *ret = json_loadb(call.answer.p, call.answer.n, JSON_ALLOW_NUL, NULL);
    buf_clear(&path);
    call_close(&call);
    return r;
}
