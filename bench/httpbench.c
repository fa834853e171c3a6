/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times one request after the other over one keep-alive connection, by several clients at once; or
 * bare starts in the same way.
 *
 *   httpbench CLIENTS COUNT GAP_US SEED http PORT KEY FIRST SPREAD PATH BODY [BEFORE]
 *   httpbench CLIENTS COUNT GAP_US SEED spawn PROGRAM
 *
 * Each client is a process and does it COUNT times. PATH may have a method and a space before it,
 * else it is POST. '@' in PATH, BODY and BEFORE becomes
 * one of SPREAD numbers from FIRST on, the next one from request to request; with
 * as many clients as numbers each client keeps to its own. BEFORE is a path that is posted to
 * before each request, outside the measured time. GAP_US as for spawnbench. A status other than 2xx
 * ends it.
 *
 * Results go to stdout, only when all is over, as lines of numbers:
 *   start CLIENT INDEX WALL_NS WALL_NS 0 STATUS     (as spawnbench prints them)
 *   all WALL_NS                                     until the last client was through
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pace.h"

enum {
    MAX_CLIENTS = 64,
    MAX_REQUEST = 1 << 18,
    MAX_ANSWER = 1 << 20,
};

struct call {
    int64_t wall;
    int status;
};

struct bench {
    long clients, count, gap_us;
    uint64_t random;
    long port, first, spread;
    const char *key, *path, *body, *before;
    char *program; /* instead of all these */
    struct call *calls;
};

static int connect_to(long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        err(EXIT_OWN, "connect to port %ld", port);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

/* Puts the number in the place of each '@'. */
static void fill(char *to, size_t size, const char *from, long number)
{
    size_t n = 0;

    for (; *from; from++) {
        int added = *from == '@' ? snprintf(to + n, size - n, "%ld", number)
                                 : snprintf(to + n, size - n, "%c", *from);
        if (added < 0 || (size_t)added >= size - n)
            errx(EXIT_OWN, "the request is too long");
        n += (size_t)added;
    }
    to[n] = '\0';
}

/* Returns its length. */
static size_t make_request(const struct bench *b, const char *path, const char *body, long number,
                           char *request)
{
    static char own_path[4096], own_body[MAX_REQUEST];

    fill(own_path, sizeof(own_path), path, number);
    fill(own_body, sizeof(own_body), body, number);
    int n = snprintf(request, MAX_REQUEST,
                     "%s%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     *own_path == '/' ? "POST " : "", own_path, b->key, strlen(own_body), own_body);
    if (n < 0 || n >= MAX_REQUEST)
        errx(EXIT_OWN, "the request is too long");
    return (size_t)n;
}

/* Reads one answer with a Content-Length; its body is looked at for the exit code, 0 if it has
 * none. */
static int read_answer(int fd)
{
    static char text[MAX_ANSWER];
    size_t n = 0;

    for (;;) {
        ssize_t got = recv(fd, text + n, sizeof(text) - 1 - n, 0);
        if (got <= 0)
            errx(EXIT_OWN, "the answer ended after %zu bytes", n);
        n += (size_t)got;
        text[n] = '\0';
        const char *body = strstr(text, "\r\n\r\n");
        const char *length = strstr(text, "Content-Length: ");
        if (body && length && n >= (size_t)(body + 4 - text) + strtoul(length + 16, NULL, 10))
            break;
    }
    if (strncmp(text, "HTTP/1.1 2", 10) != 0)
        errx(EXIT_OWN, "%.300s", text);
    const char *code = strstr(text, "\"exit_code\":");
    return code ? (int)strtol(code + 12, NULL, 10) : 0;
}

static struct call request_once(int fd, const char *request, size_t n)
{
    int64_t begin = now();

    if (send(fd, request, n, MSG_NOSIGNAL) != (ssize_t)n)
        err(EXIT_OWN, "send");
    int status = read_answer(fd);
    return (struct call){.wall = now() - begin, .status = status};
}

/* As spawnbench does it. */
static struct call spawn_once(char *program, const posix_spawn_file_actions_t *stdio)
{
    char *argv[] = {program, NULL};
    int64_t begin = now();
    int status;
    pid_t pid;

    errno = posix_spawn(&pid, program, stdio, NULL, argv, environ);
    if (errno || waitpid(pid, &status, 0) != pid)
        err(EXIT_OWN, "%s", program);
    return (struct call){.wall = now() - begin,
                         .status = WIFEXITED(status) ? WEXITSTATUS(status) : 128};
}

static void prepare_stdio(posix_spawn_file_actions_t *stdio)
{
    posix_spawn_file_actions_init(stdio);
    for (int fd = 0; fd < 3; fd++) {
        int end[2]; /* both stay open: the children see neither end of file nor SIGPIPE */
        if (pipe2(end, O_CLOEXEC) < 0)
            err(EXIT_OWN, "pipe");
        posix_spawn_file_actions_adddup2(stdio, end[fd != 0], fd);
    }
}

/* One client; begins when the other end of `gate` is closed. */
static void run_client(const struct bench *b, long client, int gate)
{
    static char request[MAX_REQUEST];
    posix_spawn_file_actions_t stdio;
    uint64_t random = b->random + 2 * (uint64_t)client;
    int fd = b->program ? -1 : connect_to(b->port);
    char scrap;

    prepare_stdio(&stdio);
    if (read(gate, &scrap, 1) < 0)
        err(EXIT_OWN, "wait for the beginning");
    int64_t due = now();
    for (long i = 0; i < b->count; i++) {
        struct call *call = &b->calls[client * b->count + i];
        size_t n = 0;
        if (!b->program) {
            long number = b->first + (client + i * b->clients) % b->spread;
            if (b->before)
                request_once(fd, request, make_request(b, b->before, "{}", number, request));
            n = make_request(b, b->path, b->body, number, request);
        }
        if (b->gap_us) {
            due += next_gap(&random, b->gap_us);
            sleep_until(due);
        }
        *call = b->program ? spawn_once(b->program, &stdio) : request_once(fd, request, n);
    }
}

/* How long it took, or -1 when a client, which has said why, failed. */
static int64_t run_clients(const struct bench *b)
{
    int gate[2];
    bool failed = false;
    int status;

    if (pipe2(gate, O_CLOEXEC) < 0)
        err(EXIT_OWN, "pipe");
    for (long client = 0; client < b->clients; client++) {
        pid_t pid = fork();
        if (pid < 0)
            err(EXIT_OWN, "fork");
        if (pid == 0) {
            close(gate[1]);
            run_client(b, client, gate[0]);
            _exit(0);
        }
    }
    sleep_until(now() + 20000000); /* all of them are at the gate */
    int64_t begin = now();
    close(gate[1]);
    while (wait(&status) > 0)
        failed = failed || status != 0;
    return failed ? -1 : now() - begin;
}

static void parse(struct bench *b, int argc, char **argv)
{
    bool http = argc >= 12 && argc <= 13 && strcmp(argv[5], "http") == 0;

    if (!http && (argc != 7 || strcmp(argv[5], "spawn") != 0))
        errx(EXIT_OWN, "usage: httpbench CLIENTS COUNT GAP_US SEED "
                       "http PORT KEY FIRST SPREAD PATH BODY [BEFORE] | spawn PROGRAM");
    b->clients = number(argv[1]);
    b->count = number(argv[2]);
    b->gap_us = number(argv[3]);
    b->random = seed_of(argv[4]);
    if (b->clients < 1 || b->clients > MAX_CLIENTS || b->count < 1)
        errx(EXIT_OWN, "1 to %d clients, and each does something", MAX_CLIENTS);
    if (!http) {
        b->program = argv[6];
        return;
    }
    b->port = number(argv[6]);
    b->key = argv[7];
    b->first = number(argv[8]);
    b->spread = number(argv[9]);
    b->path = argv[10];
    b->body = argv[11];
    b->before = argv[12]; /* or the end of argv */
    if (b->spread < 1)
        errx(EXIT_OWN, "SPREAD is at least 1");
}

int main(int argc, char **argv)
{
    struct bench b = {.spread = 1, .key = "", .path = "", .body = ""};

    parse(&b, argc, argv);
    size_t size = (size_t)(b.clients * b.count) * sizeof(*b.calls);
    b.calls =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (b.calls == MAP_FAILED)
        err(EXIT_OWN, "memory for the results");
    int64_t wall = run_clients(&b);
    if (wall < 0)
        return EXIT_OWN;
    for (long i = 0; i < b.clients * b.count; i++) {
        intmax_t took = b.calls[i].wall;
        printf("start %ld %ld %jd %jd 0 %d\n", i / b.count, i % b.count, took, took,
               b.calls[i].status);
    }
    printf("all %jd\n", (intmax_t)wall);
    return fflush(stdout) == 0 ? 0 : EXIT_OWN;
}
