/* SPDX-License-Identifier: Apache-2.0 */
/* A tree to search in, and one call of the file server with its answer as JSON. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/buf.h"
#include "files/core/call.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

/* --- trees --- */

static char top[64];

static const char *in(const char *path)
{
    static char whole[8][4096];
    static unsigned next;
    char *at = whole[next++ % 8];

    (void)snprintf(at, sizeof(whole[0]), "%s%s%s", top, *path ? "/" : "", path);
    return at;
}

static void put(const char *path, const char *text)
{
    int fd = open(in(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        abort();
    (void)close(fd);
}

static void make(const char *path)
{
    if (mkdir(in(path), 0755) < 0 && errno != EEXIST)
        abort();
}

static int shell(const char *command)
{
    pid_t pid = fork();
    int status = -1;

    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, &status, 0);
    return status;
}

static void clear_scene(void)
{
    char command[128];

    (void)snprintf(command, sizeof(command), "rm -rf %s", top);
    (void)shell(command);
}

static void set_scene(void)
{
    (void)snprintf(top, sizeof(top), "/tmp/files-search-XXXXXX");
    if (!mkdtemp(top))
        abort();
}

static char *repeat(const char *text, size_t times, const char *end)
{
    size_t n = strlen(text);
    char *all = malloc(n * times + strlen(end) + 1);

    for (size_t i = 0; i < times; i++)
        memcpy(all + n * i, text, n);
    memcpy(all + n * times, end, strlen(end) + 1);
    return all;
}

/* --- calls --- */

static const char *const no_globs[] = {NULL};

struct answered {
    struct files_head head;
    json_t *json; /* the body; of NDJSON a list of its lines */
};

struct reader {
    int fd;
    struct buf b;
};

static void *read_all(void *argument)
{
    struct reader *r = argument;
    char bytes[65536];
    ssize_t n;

    while ((n = read(r->fd, bytes, sizeof(bytes))) > 0)
        buf_add(&r->b, bytes, (size_t)n);
    return NULL;
}

static json_t *lines_of(const char *at, size_t n)
{
    json_t *all = json_array();

    while (n > 0) {
        const char *end = memchr(at, '\n', n);
        size_t length = end ? (size_t)(end - at) : n;
        json_t *line = json_loadb(at, length, JSON_ALLOW_NUL, NULL);
        if (!line)
            abort();
        (void)json_array_append_new(all, line);
        at += length + (end != NULL);
        n -= length + (end != NULL);
    }
    return all;
}

/* Takes the pieces of an answer together, in place. */
static size_t join_pieces(char *bytes, size_t n)
{
    size_t to = 0;

    for (size_t at = 0; at + 4 <= n;) {
        uint32_t piece;
        memcpy(&piece, bytes + at, 4);
        memmove(bytes + to, bytes + at + 4, piece);
        to += piece;
        at += 4 + piece;
    }
    return to;
}

static struct answered ask(files_operation *operation, const struct files_message *m)
{
    struct answered a = {0};
    struct reader r = {0};
    pthread_t thread;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    (void)shutdown(pair[1], SHUT_WR);
    r.fd = pair[1];
    buf_init(&r.b, 256 << 20);
    if (pthread_create(&thread, NULL, read_all, &r) != 0)
        abort();
    struct files_call call = {.m = m, .stream = pair[0], .hidden = -1};
    operation(&call);
    (void)close(pair[0]);
    (void)pthread_join(thread, NULL);
    (void)close(pair[1]);
    if (r.b.n >= sizeof(a.head)) {
        char *body = r.b.p + sizeof(a.head);
        size_t n = r.b.n - sizeof(a.head);
        memcpy(&a.head, r.b.p, sizeof(a.head));
        if (a.head.size == FILES_MOST)
            n = join_pieces(body, n);
        a.json = a.head.type == FILES_TYPE_NDJSON ? lines_of(body, n)
                                                  : json_loadb(body, n, JSON_ALLOW_NUL, NULL);
    }
    buf_clear(&r.b);
    return a;
}

static struct files_message message(const char *path, const char *pattern)
{
    return (struct files_message){.path = path,
                                  .other = "",
                                  .pattern = pattern,
                                  .globs = no_globs,
                                  .cursor = "",
                                  .if_match = "",
                                  .if_none_match = "",
                                  .limit = 10000,
                                  .mode = FILES_MOST};
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static const char *code_of(const struct answered *a)
{
    return text_of(json_object_get(a->json, "error"), "code");
}

#pragma GCC diagnostic pop
