/* SPDX-License-Identifier: Apache-2.0 */
/* A file server of our own, with no more rights than ours, for paths here. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/programs.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/files/files.h"
#include "sys/fds.h"

enum {
    SERVER_SOCKET = 3, /* where it listens */
    END_TRIES = 1000,
    END_PAUSE_US = 2000,
};

extern char **environ;

static int start_server(struct files *f, struct err *err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    char path[4096];
    char *argv[] = {path, (char[]){"--here"}, NULL};
    int pair[2];

    if (!program_find("carrel-files", path, sizeof(path)))
        return err_set(err, ERR_NOT_FOUND, 0,
                       "carrel-files, a part of Carrel, is missing; reinstall Carrel");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_IO, errno, "a socket cannot be made");
    scoped_fd int ours = pair[0];
    scoped_fd int theirs = pair[1];
    /* Not where it goes to: that would stay close-on-exec. */
    scoped_fd int moved = fcntl(theirs, F_DUPFD_CLOEXEC, SERVER_SOCKET + 1);
    if (moved < 0 || posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawnattr_init(&attr) != 0)
        return err_set(err, ERR_LIMIT, errno, "carrel-files cannot be started");
    /* In a group of its own: Ctrl-C ends us, and it then clears up what is not whole. */
    int r = posix_spawn_file_actions_adddup2(&actions, moved, SERVER_SOCKET);
    if (r == 0)
        r = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    if (r == 0)
        r = posix_spawn(&f->pid, path, &actions, &attr, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attr);
    if (r != 0) {
        f->pid = 0;
        return err_set(err, ERR_IO, r, "carrel-files cannot be started");
    }
    f->socket = take_fd(&ours);
    return 0;
}

/* It ends by itself, once it has cleared up; one that hangs in a file is not waited for. */
void local_end(struct files *f)
{
    scope_close(&f->socket);
    for (int i = 0; f->pid > 0 && i < END_TRIES; i++) {
        if (waitpid(f->pid, NULL, WNOHANG) != 0)
            f->pid = 0;
        else
            (void)usleep(END_PAUSE_US);
    }
    if (f->pid > 0) {
        (void)kill(f->pid, SIGKILL);
        (void)waitpid(f->pid, NULL, 0);
    }
    f->pid = 0;
}

static int send_message(int socket, struct buf *packed, int stream)
{
    const struct iovec part = {packed->p, packed->n};
    ssize_t sent = fds_send(socket, &part, 1, &stream, 1, 0);

    return sent < 0 ? (int)sent : 0;
}

int local_start(struct files *f, const struct files_message *m, struct local_stream *ret,
                struct err *err)
{
    scoped_buf struct buf packed;
    int pair[2];

    *ret = (struct local_stream){.fd = -1};
    buf_init(&packed, FILES_MESSAGE);
    files_pack(&packed, m);
    if (buf_done(&packed) < 0)
        return err_set(err, ERR_INVALID, 0, "the request is too long");
    if (f->socket < 0 && start_server(f, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_set(err, ERR_IO, errno, "a socket cannot be made");
    scoped_fd int theirs = pair[1];
    ret->fd = pair[0];
    int r = send_message(f->socket, &packed, theirs);
    if (r < 0)
        return err_set(err, ERR_IO, -r, "carrel-files does not answer");
    return 0;
}

static int send_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return -1;
        at += sent;
        n -= (size_t)sent;
    }
    return 0;
}

int local_send(struct local_stream *s, const char *bytes, size_t n)
{
    while (n > 0) {
        uint32_t length = n < FILES_PIECE ? (uint32_t)n : FILES_PIECE;
        if (send_all(s->fd, &length, sizeof(length)) < 0 || send_all(s->fd, bytes, length) < 0)
            return -1;
        bytes += length;
        n -= length;
    }
    return 0;
}

int local_send_end(struct local_stream *s)
{
    uint32_t length = 0;

    return send_all(s->fd, &length, sizeof(length));
}

static ssize_t receive(int fd, void *bytes, size_t size)
{
    ssize_t n;

    do {
        n = recv(fd, bytes, size, 0);
    } while (n < 0 && errno == EINTR);
    return n;
}

static int receive_exactly(int fd, void *bytes, size_t n)
{
    char *at = bytes;

    while (n > 0) {
        ssize_t got = receive(fd, at, n);
        if (got <= 0)
            return -1;
        at += got;
        n -= (size_t)got;
    }
    return 0;
}

ssize_t local_read(struct local_stream *s, char *bytes, size_t size)
{
    uint32_t length = 0;

    if (s->left == 0 && s->pieces && !s->ended) {
        if (receive_exactly(s->fd, &length, sizeof(length)) < 0 || length > FILES_PIECE)
            return -1;
        s->left = length;
        s->ended = length == 0;
    }
    if (s->left == 0)
        return 0;
    ssize_t n = receive(s->fd, bytes, s->left < size ? (size_t)s->left : size);
    if (n <= 0)
        return -1;
    s->left -= (uint64_t)n;
    return n;
}

static int read_all(struct local_stream *s, struct buf *ret, struct err *err)
{
    char bytes[16384];
    ssize_t n;

    while ((n = local_read(s, bytes, sizeof(bytes))) > 0)
        buf_add(ret, bytes, (size_t)n);
    if (n < 0 || buf_done(ret) < 0)
        return err_set(err, ERR_IO, 0, "the answer of carrel-files is incomplete");
    return 0;
}

static int explain(struct local_stream *s, struct err *err)
{
    scoped_buf struct buf answer;

    buf_init(&answer, 65536);
    if (read_all(s, &answer, err) < 0)
        return -1;
    return http_explain((long)s->head.status, answer.p, answer.n, err);
}

int local_answer(struct local_stream *s, struct err *err)
{
    if (receive_exactly(s->fd, &s->head, sizeof(s->head)) < 0)
        return err_set(err, ERR_IO, 0, "carrel-files has ended without an answer");
    s->pieces = s->head.size == FILES_MOST;
    s->left = s->pieces ? 0 : s->head.size;
    return s->head.status < 300 ? 0 : explain(s, err);
}

int local_json(struct local_stream *s, json_t **ret, struct err *err)
{
    scoped_buf struct buf answer;
    json_error_t where;

    buf_init(&answer, CALL_MOST_ANSWER);
    if (local_answer(s, err) < 0 || read_all(s, &answer, err) < 0)
        return -1;
    json_t *value =
        answer.n == 0 ? json_null() : json_loadb(answer.p, answer.n, JSON_ALLOW_NUL, &where);
    if (!value)
        return err_set(err, ERR_IO, 0, "the answer of carrel-files is not JSON: %s", where.text);
    if (ret)
        *ret = value;
    else
        json_decref(value);
    return 0;
}

void local_stop(struct local_stream *s)
{
    scope_close(&s->fd);
}
