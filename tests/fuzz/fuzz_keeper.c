/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine makes of a sandbox that stays: of the words of its first process and of its
 * keepers, none of which is believed. The input is a list of their deeds, carried out over the real
 * sockets of a session without a sandbox. Whatever they say, each command is told to have started
 * and ended once at most, in that order, and no descriptor is left. */
#include "fuzz.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sandbox/session/internal.h"

enum {
    KEEPERS = 3,
    COMMANDS = 3
};

enum deed {
    SAY_BYTES, /* anybody: any bytes */
    SAY_BYTES_WITH_FILE,
    SAY_REPLY, /* a whole reply: kind, status and the rest are the input's */
    SAY_REPLY_WITH_FILE,
    SAY_REPLY_WITH_TERMINAL,
    SAY_READY, /* a keeper's first word */
    ASK,       /* the owner wants a command */
    KILL,      /* ... and another ended */
    HANG_UP,
    DEEDS,
};

struct input {
    const uint8_t *at;
    size_t left;
};

struct told {
    struct exec *exec;
    bool started;
    bool ended;
    bool gone;
};

static struct scene {
    struct session session;
    struct run run;
    struct carrel_spec spec;
    int first;            /* pid 1's end */
    int keepers[KEEPERS]; /* the keepers' ends, as pid 1 was sent them; -1: none */
    struct told told[COMMANDS];
    size_t asked;
    int files[2]; /* any, and a terminal */
} s;

static void on_started(void *owner, struct exec *exec, int fds[3])
{
    struct told *told = owner;

    MUST(told->exec == exec && !told->started && !told->ended && !told->gone);
    told->started = true;
    for (int i = 0; i < 3; i++)
        scope_close(&fds[i]);
}

static void on_ended(void *owner, struct exec *exec, const struct carrel_result *result)
{
    struct told *told = owner;

    MUST(told->exec == exec && !told->ended && !told->gone);
    MUST(result->exit_code >= 0 && result->exit_code <= 255);
    MUST(result->signal >= 0 && result->signal < 128);
    MUST(memchr(result->note, '\0', sizeof(result->note)));
    told->ended = true;
}

static void on_gone(void *owner, struct exec *exec)
{
    struct told *told = owner;

    MUST(told->exec == exec && told->ended && !told->gone);
    told->gone = true;
}

static void on_over(void *owner, const struct err *why)
{
    (void)owner;
    (void)why;
    abort(); /* there is no process whose end could be seen */
}

static void take(struct input *in, void *to, size_t n)
{
    size_t got = n < in->left ? n : in->left;

    memset(to, 0, n);
    memcpy(to, in->at, got);
    in->at += got;
    in->left -= got;
}

static uint8_t take_byte(struct input *in)
{
    uint8_t byte;

    take(in, &byte, 1);
    return byte;
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 128; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* --- those inside --- */

/* What the engine has sent to pid 1: sockets for keepers. */
static void take_sockets(void)
{
    struct message_head head;
    int fds[MESSAGE_MAX_FDS];

    while (s.first >= 0 && message_receive_head(s.first, &head, fds) > 0) {
        MUST(head.kind == MESSAGE_KEEPER && head.fd_count == 1 && head.length == 0);
        int at = 0;
        while (at < KEEPERS && s.keepers[at] >= 0)
            at++;
        if (at < KEEPERS)
            s.keepers[at] = fds[0];
        else
            (void)close(fds[0]);
    }
}

static void say(int socket, const void *bytes, size_t n, int fd)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, n};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control.room);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(int));
    }
    (void)!sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_bytes(struct input *in, int socket, int fd)
{
    uint8_t bytes[255];
    uint8_t n = take_byte(in);

    take(in, bytes, n);
    if (n)
        say(socket, bytes, n, fd);
}

static void say_reply(struct input *in, int socket, int fd)
{
    struct reply reply = {0};
    uint8_t n = take_byte(in);

    take(in, &reply, n);
    reply.kind %= REPLY_EMPTY + 2;
    reply.empty = n & 1;
    (void)!message_send(socket, reply.kind, &reply, sizeof(reply), &fd, fd >= 0 ? 1 : 0);
}

/* --- the owner --- */

/* As exec_start does, but for what needs a sandbox. */
static void ask(uint8_t choice)
{
    if (s.asked == COMMANDS)
        return;
    struct told *told = &s.told[s.asked++];
    struct exec *exec = calloc(1, sizeof(*exec));
    MUST(exec);
    *exec = (struct exec){.session = &s.session,
                          .owner = told,
                          .tty = choice & 1,
                          .memory = {.kind = SOURCE_MEMORY, .fd = -1, .of = exec},
                          .message = calloc(1, 64),
                          .message_size = 64,
                          .command_fds = {-1, -1, -1},
                          .fds = {-1, -1, -1},
                          .began_us = exec_now_us()};
    for (int i = 0; !exec->tty && i < 3; i++) {
        exec->fds[i] = fcntl(s.files[0], F_DUPFD_CLOEXEC, 3);
        exec->command_fds[i] = fcntl(s.files[0], F_DUPFD_CLOEXEC, 3);
    }
    told->exec = exec;
    exec->next = s.session.execs;
    s.session.execs = exec;
    s.session.exec_count++;
    keepers_dispatch(&s.session);
}

static void act(struct input *in)
{
    uint8_t who = take_byte(in);
    enum deed deed = (enum deed)(who / 4 % DEEDS);
    int *end = who % 4 == 0 ? &s.first : &s.keepers[who % 4 - 1];
    struct reply ready = {.kind = REPLY_READY};
    struct told *told = &s.told[who % COMMANDS];

    if (deed == ASK) {
        ask(who / 64);
    } else if (deed == KILL) {
        if (told->exec && !told->gone)
            exec_kill(told->exec, CARREL_ENDED_TIMEOUT);
    } else if (*end < 0) {
        return;
    } else if (deed == HANG_UP) {
        scope_close(end);
    } else if (deed == SAY_READY) {
        (void)!message_send(*end, REPLY_READY, &ready, sizeof(ready), NULL, 0);
    } else if (deed == SAY_BYTES || deed == SAY_BYTES_WITH_FILE) {
        say_bytes(in, *end, deed == SAY_BYTES ? -1 : s.files[0]);
    } else {
        say_reply(in, *end,
                  deed == SAY_REPLY             ? -1
                  : deed == SAY_REPLY_WITH_FILE ? s.files[0]
                                                : s.files[1]);
    }
}

/* --- the scene --- */

static void nothing(void *unused)
{
    (void)unused;
}

static void open_scene(uint8_t choice)
{
    static const struct session_calls calls = {
        .started = on_started, .ended = on_ended, .gone = on_gone, .over = on_over};
    struct err err;
    int pair[2];

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    memset(&s.session, 0, sizeof(s.session));
    memset(&s.told, 0, sizeof(s.told));
    s.asked = 0;
    s.first = pair[1];
    for (int i = 0; i < KEEPERS; i++)
        s.keepers[i] = -1;
    s.run = (struct run){.spec = &s.spec, .level = CARREL_LEVEL_NS};
    s.run.setup.flags = 0; /* a listener would be listened to */
    cgroup_init(&s.run.cgroup);
    s.session.run = &s.run;
    s.session.calls = calls;
    s.session.quiet = true;
    s.session.state = choice & 1 ? SESSION_STARTING : SESSION_LIVE;
    MUST(groups_open(&s.session.home, &s.run.cgroup, -1, &err) == 0);
    s.session.home.known = true; /* and there is none: nobody is moved anywhere */
    s.session.live.socket = pair[0];
    s.session.live.pid = 1 << 30; /* nobody's */
    s.session.live.pidfd = -1;
    s.session.epoll = epoll_create1(EPOLL_CLOEXEC);
    s.session.tell = -1;
    s.session.first_process = (struct source){.kind = SOURCE_FIRST_PROCESS, .fd = -1};
    s.session.end = s.session.denial = s.session.limit = s.session.groups =
        (struct source){.kind = SOURCE_GROUPS, .fd = -1};
    denials_init(&s.session.denials, run_view_of(&s.run));
    MUST(source_set(&s.session, &s.session.first_process, pair[0], EPOLLIN));
    keepers_dispatch(&s.session);
}

static void close_scene(void)
{
    while (s.session.keepers)
        keeper_lose(s.session.keepers);
    s.session.state = SESSION_ENDING;
    while (s.session.execs) {
        s.session.execs->killed = true;
        exec_finish(s.session.execs);
    }
    for (struct keeper *k = s.session.lost; k; k = k->next)
        k->exec = NULL;
    s.session.state = SESSION_LIVE;
    session_serve(&s.session); /* frees them */
    for (size_t i = 0; i < s.asked; i++)
        MUST(s.told[i].ended && s.told[i].gone);
    scope_close(&s.session.live.socket);
    scope_close(&s.session.epoll);
    scope_close(&s.first);
    for (int i = 0; i < KEEPERS; i++)
        scope_close(&s.keepers[i]);
    denials_clear(&s.session.denials);
    groups_close(&s.session.home, nothing, NULL); /* and waits for its thread */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    if (size > 4096)
        return 0;
    if (!s.files[0]) {
        s.files[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
        s.files[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        MUST(s.files[0] > 0 && s.files[1] > 0);
    }
    /* Counted anew each time: the fuzzer starts its symbolizer, and keeps pipes to it, whenever it
     * first has a function to name. */
    int before = open_files();
    open_scene(take_byte(&in));
    while (in.left > 0 && s.session.state < SESSION_ENDING) {
        take_sockets();
        act(&in);
        session_serve(&s.session);
    }
    close_scene();
    for (int i = 0; i < 2000 && open_files() != before; i++)
        (void)poll(NULL, 0, 1); /* of other threads */
    MUST(open_files() == before);
    return 0;
}
