/* SPDX-License-Identifier: Apache-2.0 */
/* The basic operations of the file server without the server, in a directory of their own. */
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "files/core/call.h"
#include "files/core/paths.h"
#include "unit.h"

/* A program need not use all of it. Not inline: sanitized, that compiles half as fast. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

enum {
    GIVEN = 1 << 20
};

static char top[64];
static int hidden = -1;

static const char *at(const char *name)
{
    static char paths[8][FILES_PATH];
    static unsigned next;
    char *path = paths[next++ % 8];

    (void)snprintf(path, FILES_PATH, "%s%s%s", top, *name ? "/" : "", name);
    return path;
}

/* --- calling --- */

struct answer {
    struct files_head head;
    char *body; /* with a NUL */
    size_t n;
    bool cut;
};

static struct answer got;
static struct stat replaced; /* what the call held on to */

struct job {
    struct files_call call;
    files_operation *operation;
};

static void *work(void *context)
{
    struct job *job = context;

    job->operation(&job->call);
    (void)close(job->call.stream);
    replaced = (struct stat){0};
    if (job->call.replaced >= 0) {
        (void)fstat(job->call.replaced, &replaced);
        (void)close(job->call.replaced);
    }
    return NULL;
}

static bool read_all(int fd, void *bytes, size_t n)
{
    for (size_t at_ = 0; at_ < n;) {
        ssize_t r = read(fd, (char *)bytes + at_, n - at_);
        if (r <= 0)
            return false;
        at_ += (size_t)r;
    }
    return true;
}

static void send_body(int fd, const char *body, size_t n, bool whole)
{
    uint32_t end = 0;

    while (n > 0) {
        uint32_t piece = n < 50000 ? (uint32_t)n : 50000;
        if (send(fd, &piece, sizeof(piece), MSG_NOSIGNAL) < 0 ||
            send(fd, body, piece, MSG_NOSIGNAL) < 0)
            return;
        body += piece;
        n -= piece;
    }
    if (whole)
        ignore(send(fd, &end, sizeof(end), MSG_NOSIGNAL));
    (void)shutdown(fd, SHUT_WR);
}

static void read_answer(int fd)
{
    free(got.body);
    got = (struct answer){0};
    got.cut = !read_all(fd, &got.head, sizeof(got.head));
    got.body = calloc(1, 1);
    for (uint64_t left = got.head.size; !got.cut;) {
        static char bytes[65536];
        uint32_t piece = left < sizeof(bytes) ? (uint32_t)left : sizeof(bytes);
        if (got.head.size == FILES_MOST)
            got.cut = !read_all(fd, &piece, sizeof(piece));
        if (piece == 0 || got.cut)
            break;
        got.cut = !read_all(fd, bytes, piece);
        if (got.cut)
            break;
        got.body = realloc(got.body, got.n + piece + 1);
        memcpy(got.body + got.n, bytes, piece);
        got.n += piece;
        got.body[got.n] = '\0';
        left -= piece;
    }
}

static unsigned call_with(files_operation *operation, struct files_message m, const char *body,
                          size_t n, bool whole)
{
    static const char *const none[] = {NULL};
    int pair[2];
    pthread_t thread;

    m.globs = none;
    m.other = m.other ? m.other : "";
    m.cursor = m.cursor ? m.cursor : "";
    m.pattern = "";
    m.if_match = m.if_match ? m.if_match : "";
    m.if_none_match = m.if_none_match ? m.if_none_match : "";
    m.mode = m.mode & GIVEN ? m.mode & ~(uint64_t)GIVEN : FILES_MOST;
    if (m.to == 0 && m.from != FILES_MOST)
        m.to = FILES_MOST;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 0;
    struct job job = {{.m = &m, .stream = pair[1], .hidden = hidden, .replaced = -1}, operation};
    if (pthread_create(&thread, NULL, work, &job) != 0)
        return 0;
    send_body(pair[0], body, n, whole);
    read_answer(pair[0]);
    (void)close(pair[0]);
    (void)pthread_join(thread, NULL);
    return got.head.status;
}

static unsigned call(files_operation *operation, struct files_message m)
{
    return call_with(operation, m, "", 0, true);
}

/* --- checking --- */

static bool says(const char *part)
{
    return got.body && strstr(got.body, part);
}

static bool is_error(unsigned status, const char *code)
{
    char words[64];

    (void)snprintf(words, sizeof(words), "\"code\":\"%s\"", code);
    if (got.head.status == status && says(words))
        return true;
    printf("    got %u %s\n", got.head.status, got.body);
    return false;
}

#define MSG(...) ((struct files_message){__VA_ARGS__})
#define AS(mode) ((mode) | GIVEN) /* a mode that is not the usual */
#define PUT(name_, text)                                                                           \
    call_with(files_write, MSG(.path = at(name_), .flags = FILES_PARENTS), text, strlen(text), true)

static bool holds(const char *name, const char *text)
{
    char bytes[4096];
    scoped_fd int fd = open(at(name), O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

    return n == (ssize_t)strlen(text) && memcmp(bytes, text, (size_t)n) == 0;
}

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    while (d && readdir(d))
        n++;
    if (d)
        (void)closedir(d);
    return n - 2;
}

static void make(const char *name, const char *text, mode_t mode)
{
    scoped_fd int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    if (write(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
        perror("make");
}

/* Also at the end, whichever test was the last one. */
__attribute__((destructor)) static void clean(void)
{
    scoped_fd int above = open("/var/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (*top)
        ignore(files_remove_tree(above, strrchr(top, '/') + 1));
    top[0] = '\0';
}

/* A directory for this test; also a hidden one, or none. */
static void fresh(bool with_hidden)
{
    clean();
    (void)snprintf(top, sizeof(top), "/var/tmp/test_files_XXXXXX");
    if (!mkdtemp(top))
        abort();
    scope_close(&hidden);
    if (!with_hidden)
        return;
    (void)mkdir(at(".hidden"), 0700);
    hidden = open(at(".hidden"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static bool no_litter(int expected)
{
    int n = entries(top) - (hidden >= 0);

    if (n != expected || (hidden >= 0 && entries(at(".hidden")) != 0))
        printf("    %d entries, %d hidden\n", n, hidden >= 0 ? entries(at(".hidden")) : 0);
    return n == expected && (hidden < 0 || entries(at(".hidden")) == 0);
}

static mode_t mode_of(const char *name)
{
    struct stat st = {0};

    (void)lstat(at(name), &st);
    return st.st_mode;
}

#pragma GCC diagnostic pop
