/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times how fast a command's output comes, to a reader that throws it away.
 *
 *   streambench COUNT LEAST pipe PROGRAM [ARG...]      its standard output is a pipe to here
 *   streambench COUNT LEAST http PORT KEY PATH BODY    the body of the answer, over a connection of
 * its own
 *
 * From just before the start until the end has been seen. Less than LEAST bytes is an error, and so
 * is an answer that was cut. What is read counts as it is on the wire, its framing included:
 *   stream BYTES WALL_NS
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"

enum {
    PIECE = 65536,
};

static char piece[PIECE + 1];

/* Until the end; `tail` gets the last bytes. Returns how many there were. */
static int64_t read_all(int fd, char tail[5])
{
    int64_t total = 0;

    for (;;) {
        ssize_t got = read(fd, piece, PIECE);
        if (got < 0)
            err(EXIT_OWN, "read");
        if (got == 0)
            return total;
        total += got;
        size_t keep = got < 5 ? 5 - (size_t)got : 0;
        memmove(tail, tail + 5 - keep, keep);
        memcpy(tail + keep, piece + got - (5 - keep), 5 - keep);
    }
}

static int64_t from_pipe(char **argv)
{
    posix_spawn_file_actions_t actions;
    char tail[5] = "";
    int end[2];
    int status;
    pid_t pid;

    if (pipe2(end, O_CLOEXEC) < 0)
        err(EXIT_OWN, "pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end[1], 1);
    errno = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
    if (errno)
        err(EXIT_OWN, "%s", argv[0]);
    close(end[1]);
    int64_t total = read_all(end[0], tail);
    close(end[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0)
        errx(EXIT_OWN, "'%s' failed", argv[0]);
    return total;
}

static int64_t from_http(char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)number(argv[0])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char tail[5] = "";

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        err(EXIT_OWN, "connect to port %s", argv[0]);
    if (dprintf(
            fd,
            "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
            "Connection: close\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
            argv[2], argv[1], strlen(argv[3]), argv[3]) < 0)
        err(EXIT_OWN, "send");
    ssize_t got = read(fd, piece, PIECE);
    piece[got > 0 ? got : 0] = '\0';
    if (strncmp(piece, "HTTP/1.1 200 ", 13) != 0)
        errx(EXIT_OWN, "%.300s", piece);
    int64_t total = got + read_all(fd, tail);
    if (memcmp(tail, "0\r\n\r\n", 5) != 0)
        errx(EXIT_OWN, "the answer was cut after %jd bytes", (intmax_t)total);
    close(fd);
    return total;
}

int main(int argc, char **argv)
{
    bool http = argc == 8 && strcmp(argv[3], "http") == 0;

    if (!http && (argc < 5 || strcmp(argv[3], "pipe") != 0))
        errx(EXIT_OWN,
             "usage: streambench COUNT LEAST pipe PROGRAM [ARG...] | http PORT KEY PATH BODY");
    long count = number(argv[1]);
    long least = number(argv[2]);
    for (long i = 0; i < count; i++) {
        int64_t begin = now();
        int64_t total = http ? from_http(argv + 4) : from_pipe(argv + 4);
        int64_t wall = now() - begin;
        if (total < least)
            errx(EXIT_OWN, "only %jd bytes came", (intmax_t)total);
        printf("stream %jd %jd\n", (intmax_t)total, (intmax_t)wall);
    }
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
