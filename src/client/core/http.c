/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/answers.h"
#include "client/core/text.h"

enum {
    CONNECT_MS = 10000,
    MOST_FDS = 8
};

int daemon_open(struct daemon *daemon, const char *state, struct err *err)
{
    *daemon = (struct daemon){0};
    if (where_daemon(state, &daemon->where, err) < 0)
        return -1;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(daemon->multi = curl_multi_init()))
        return err_set(err, ERR_LIMIT, 0, "libcurl cannot be started");
    return 0;
}

void daemon_close(struct daemon *daemon)
{
    if (daemon->multi)
        curl_multi_cleanup(daemon->multi);
    daemon->multi = NULL;
}

static size_t take_body(char *bytes, size_t one, size_t n, void *context)
{
    struct call *call = context;

    (void)one; /* libcurl says: always 1 */
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->status);
    if (call->take && call->status >= 200 && call->status < 300)
        return call->take(call->context, bytes, n);
    buf_add(&call->answer, bytes, n);
    return call->answer.failed ? 0 : n;
}

static size_t take_header(char *bytes, size_t one, size_t n, void *context)
{
    static const char name[] = "x-request-id: ";
    struct call *call = context;
    size_t skip = sizeof(name) - 1;
    size_t end = n;

    (void)one;
    if (call->head)
        call->head(call->context, bytes, n);
    if (n > skip && strncasecmp(bytes, name, skip) == 0) {
        while (end > skip && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
            end--;
        snprintf(call->request_id, sizeof(call->request_id), "%.*s", (int)(end - skip),
                 bytes + skip);
    }
    return n;
}

/* There is no way back in what was sent on purpose: a body of which a part may have arrived is
 * never sent twice. */
static size_t give_body(char *bytes, size_t one, size_t size, void *context)
{
    struct call *call = context;
    size_t n = call->body_n - call->body_at;

    size *= one;
    if (call->body_fd >= 0 || call->give) {
        ssize_t got = call->give ? call->give(call->give_context, bytes, size)
                                 : read(call->body_fd, bytes, size);
        return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
    }
    n = n < size ? n : size;
    if (n > 0)
        memcpy(bytes, call->body + call->body_at, n);
    call->body_at += n;
    return n;
}

static void set_up(struct call *call)
{
    const struct where *where = &call->daemon->where;
    CURL *easy = call->easy;

    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
    curl_easy_setopt(easy, CURLOPT_READDATA, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L); /* "..", if somebody calls a workspace that */
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L); /* a stream may be silent for long */
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 30L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 10L);
    if (where->socket[0])
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, where->socket);
    if (where->ca)
        curl_easy_setopt(easy, CURLOPT_CAINFO, where->ca);
    if (strncmp(where->url, "https:", 6) != 0)
        curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* the key would go to it in the clear */
}

int call_open(struct call *call, struct daemon *daemon, struct err *err)
{
    *call = (struct call){.daemon = daemon, .body_fd = -1};
    buf_init(&call->answer, CALL_MOST_ANSWER);
    call->easy = curl_easy_init();
    if (!call->easy)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    set_up(call);
    return 0;
}

/* Ends it before its time, without a result. */
static void call_stop(struct call *call)
{
    if (call->busy)
        curl_multi_remove_handle(call->daemon->multi, call->easy);
    call->busy = false;
}

void call_close(struct call *call)
{
    if (!call->easy)
        return;
    call_stop(call);
    curl_easy_cleanup(call->easy);
    call->easy = NULL;
    curl_slist_free_all(call->headers);
    call->headers = NULL;
    buf_clear(&call->answer);
}

static int add_header(struct call *call, const char *name, const char *value)
{
    struct buf line;

    buf_init(&line, 8192);
    buf_printf(&line, "%s: %s", name, value);
    struct curl_slist *longer =
        buf_done(&line) == 0 ? curl_slist_append(call->headers, line.p) : NULL;
    buf_clear(&line);
    call->headers = longer ? longer : call->headers;
    return longer ? 0 : -1;
}

static int set_headers(struct call *call, bool has_body)
{
    const struct where *where = &call->daemon->where;
    char bearer[4096];
    int r = 0;

    curl_slist_free_all(call->headers);
    call->headers = curl_slist_append(NULL, "Expect:"); /* answered at once anyway */
    r |= call->headers ? 0 : -1;
    r |= add_header(call, "Accept", call->accept ? call->accept : "application/json");
    r |= add_header(call, "User-Agent", "carrel");
    if (where->key) {
        snprintf(bearer, sizeof(bearer), "Bearer %s", where->key);
        r |= add_header(call, "Authorization", bearer);
    }
    if (call->daemon->if_match && *call->daemon->if_match)
        r |= add_header(call, "If-Match", call->daemon->if_match);
    for (size_t i = 0; i < sizeof(call->lines) / sizeof(call->lines[0]) && call->lines[i]; i++) {
        struct curl_slist *longer = curl_slist_append(call->headers, call->lines[i]);
        r |= longer ? 0 : -1;
        call->headers = longer ? longer : call->headers;
    }
    if (has_body)
        r |= add_header(call, "Content-Type", call->type ? call->type : "application/json");
    curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
    return r;
}

int call_start(struct call *call, const char *method, const char *path, struct err *err)
{
    bool streams = call->body_fd >= 0 || call->give;
    bool has_body =
        call->body || streams || strcmp(method, "POST") == 0 || strcmp(method, "PATCH") == 0;
    curl_off_t length = streams ? (curl_off_t)-1 : (curl_off_t)call->body_n;
    struct buf url;

    call->body_at = 0;
    call->status = 0;
    call->os_errno = 0;
    call->answer.n = 0;
    call->error[0] = '\0';
    call->request_id[0] = '\0';
    if (set_headers(call, has_body) < 0)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    buf_init(&url, 65536);
    buf_printf(&url, "%s%s", call->daemon->where.url, path);
    int whole = buf_done(&url);
    if (whole == 0)
        curl_easy_setopt(call->easy, CURLOPT_URL, url.p);
    buf_clear(&url);
    if (whole < 0)
        return err_set(err, ERR_INVALID, 0, "the request is too long");
    curl_easy_setopt(call->easy, has_body ? CURLOPT_POST : CURLOPT_HTTPGET, 1L);
    curl_easy_setopt(call->easy, CURLOPT_CUSTOMREQUEST, method);
    if (has_body)
        curl_easy_setopt(call->easy, CURLOPT_POSTFIELDSIZE_LARGE, length);
    if (curl_multi_add_handle(call->daemon->multi, call->easy) != CURLM_OK)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    call->busy = true;
    return 0;
}

void call_resume(struct call *call)
{
    if (call->busy)
        curl_easy_pause(call->easy, CURLPAUSE_CONT);
}

static void note_ends(struct daemon *daemon)
{
    CURLMsg *message;
    int left;

    while ((message = curl_multi_info_read(daemon->multi, &left))) {
        struct call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        call->result = message->data.result; /* the message goes with the handle */
        curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &call->status);
        curl_easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &call->os_errno);
        call_stop(call);
    }
}

int daemon_turn(struct daemon *daemon, struct pollfd *fds, size_t count, int timeout_ms,
                struct err *err)
{
    struct curl_waitfd wait[MOST_FDS];
    int running;

    if (count > MOST_FDS)
        return err_set(err, ERR_LIMIT, 0, "too many descriptors to wait for");
    for (size_t i = 0; i < count; i++) {
        short events = fds[i].events;
        wait[i] = (struct curl_waitfd){.fd = fds[i].fd};
        wait[i].events = (short)((events & POLLIN ? CURL_WAIT_POLLIN : 0) |
                                 (events & POLLOUT ? CURL_WAIT_POLLOUT : 0));
    }
    if (curl_multi_poll(daemon->multi, wait, (unsigned)count, timeout_ms, NULL) != CURLM_OK)
        return err_set(err, ERR_IO, 0, "libcurl failed");
    /* libcurl says nothing of hang-ups: ask again. */
    if (count > 0 && poll(fds, (nfds_t)count, 0) < 0 && errno != EINTR)
        return err_set(err, ERR_IO, errno, "poll");
    if (curl_multi_perform(daemon->multi, &running) != CURLM_OK)
        return err_set(err, ERR_IO, 0, "libcurl failed");
    note_ends(daemon);
    return 0;
}

bool call_was_not_sent(const struct call *call)
{
    return call->result == CURLE_COULDNT_CONNECT || call->result == CURLE_COULDNT_RESOLVE_HOST;
}

static int explain_transport(const struct call *call, struct err *err)
{
    const struct where *where = &call->daemon->where;
    const char *why = call->error[0] ? call->error : curl_easy_strerror(call->result);

    if (call->answer.failed)
        return err_set(err, ERR_LIMIT, 0, "the daemon's answer is too long");
    if (!call_was_not_sent(call))
        return err_set(err, ERR_IO, 0, "the connection to the daemon broke: %s", why);
    if (!where->socket[0])
        return err_set(err, ERR_NOT_FOUND, 0,
                       "no daemon answers at %.120s (%.120s); check CARREL_URL", where->url, why);
    if (access(where->socket, F_OK) == 0 && access(where->socket, W_OK) < 0)
        return err_set(
            err, ERR_DENIED, 0,
            "this user may not use the daemon's socket %s; set CARREL_URL and CARREL_KEY instead",
            where->socket);
    return err_set(err, ERR_NOT_FOUND, 0, "no daemon listens at %s; start one with: carrel serve",
                   where->socket);
}

int http_explain(long status, const char *bytes, size_t n, struct err *err)
{
    json_t *answer = n ? json_loadb(bytes, n, 0, NULL) : NULL;
    const char *code = "";
    const char *message = "";
    const char *path = "";
    const char *reason = "";
    enum err_code kind = status == 404   ? ERR_NOT_FOUND
                         : status == 409 ? ERR_CONFLICT
                         : status < 500  ? ERR_INVALID
                                         : ERR_IO;

    (void)json_unpack(answer, "{s:{s?s,s?s,s?{s?s,s?s}}}", "error", "code", &code, "message",
                      &message, "details", "path", &path, "reason", &reason);
    if (status == 401)
        err_set(err, ERR_DENIED, 0, "%s; set CARREL_KEY to a key of this daemon",
                *message ? message : "the daemon requires a key");
    else if (*message)
        err_set(err, kind, 0, "%.120s%s%.200s%s%.40s%s", path, *path ? ": " : "", message,
                *code ? " (" : "", code, *code ? ")" : "");
    else
        err_set(err, kind, 0, "the daemon answered with status %ld", status);
    err->said = err_said_of(reason);
    if (err->said == SAID_NOTHING)
        err->said = err_said_of(code);
    json_decref(answer);
    return -1;
}

static int explain_status(const struct call *call, struct err *err)
{
    (void)http_explain(call->status, call->answer.p, call->answer.n, err);
    if (call->status == 500 && call->request_id[0]) {
        struct err plain = *err;
        err_set(err, plain.code, 0, "%.280s; request %s in its log", plain.msg, call->request_id);
        err->said = plain.said;
    }
    return -1;
}

int call_check(const struct call *call, struct err *err)
{
    if (call->status < 200 || call->status >= 300) {
        if (call->status == 0 || call->result != CURLE_OK)
            return explain_transport(call, err);
        return explain_status(call, err);
    }
    return call->result == CURLE_OK ? 0 : explain_transport(call, err);
}

int call_wait(struct call *call, const char *method, const char *path, struct err *err)
{
    if (call_start(call, method, path, err) < 0)
        return -1;
    while (call->busy) {
        if (daemon_turn(call->daemon, NULL, 0, 1000, err) < 0)
            return -1;
    }
    return call_check(call, err);
}
