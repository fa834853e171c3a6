/* SPDX-License-Identifier: Apache-2.0 */
/* What a keeper, or pid 1, makes of the engine's messages. The input is a list of deeds of an
 * engine, carried out over a real socket pair: any bytes, or whole messages of any kind, with and
 * without descriptors. Nothing is started or killed here; whatever is said, no descriptor may be
 * left, the answers are whole, and only the command's own group is signalled. */
#include "fuzz.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t commands; /* started so far; each has the number of its turn */

static jmp_buf left; /* where a process would end */
static _Noreturn void fuzz_exit(int status);
static int fuzz_kill(pid_t pid, int number);
static pid_t fuzz_waitpid(pid_t pid, int *status, int options);
static pid_t fuzz_wait4(pid_t pid, int *status, int options, struct rusage *usage);
#define _exit   fuzz_exit
#define kill    fuzz_kill
#define waitpid fuzz_waitpid
#define wait4   fuzz_wait4
#include "../../src/init/keeper.c"
#include "../../src/init/talk.c"
#undef _exit
#undef kill
#undef waitpid
#undef wait4

void sudo_serve(int asker, int engine)
{
    (void)engine;
    (void)close(asker);
}

void sudo_ended(int pid)
{
    (void)pid;
}

enum deed {
    SEND_BYTES,
    SEND_BYTES_AND_FILE,
    SEND_MESSAGE, /* a true head; kind, bytes and number of files are the input's */
    SEND_COMMAND, /* a well-formed command, with flags and files of the input's */
    END_COMMAND,
    DEEDS,
};

struct input {
    const uint8_t *at;
    size_t left;
};

static _Noreturn void fuzz_exit(int status)
{
    (void)status;
    longjmp(left, 1);
}

/* The kernel would close these with the process. */
static void clear_process(int first)
{
    for (int fd = first; fd < 128; fd++)
        (void)close(fd);
}

static int fuzz_kill(pid_t pid, int number)
{
    (void)number;
    MUST(pid < -1000);
    return 0;
}

static pid_t fuzz_waitpid(pid_t pid, int *status, int options)
{
    (void)pid;
    (void)status;
    (void)options;
    return -1; /* there is nobody */
}

/* Nobody has ended. */
static pid_t fuzz_wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    (void)pid;
    (void)status;
    (void)options;
    (void)usage;
    return 0;
}

int command_start(const struct command *command, const int fds[3], int *ret_pid, int *ret_status,
                  struct err *err)
{
    MUST(command->argc > 0 && command->argv[0] && !command->argv[command->argc]);
    for (int i = 0; i < 3; i++)
        MUST(fcntl(fds[i], F_GETFD) >= 0);
    if (command->argv[0][0] == '?') {
        *ret_status = STATUS_NOT_FOUND;
        return err_set(err, ERR_NOT_FOUND, ENOENT, "run '%.64s'", command->argv[0]);
    }
    *ret_pid = 1001 + commands++;
    return 0;
}

int command_open_terminal(const struct command *command, int *ret_master, int *ret_slave,
                          struct err *err)
{
    if (command->rows == 0)
        return err_set(err, ERR_LIMIT, ENOSPC, "open a terminal");
    *ret_master = open("/dev/null", O_RDWR | O_CLOEXEC);
    *ret_slave = open("/dev/null", O_RDWR | O_CLOEXEC);
    MUST(*ret_master >= 0 && *ret_slave >= 0);
    return 0;
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

/* Below what was inherited: what is opened from now on is above all of it. */
static void fill_gaps(int file)
{
    int highest = file;
    int fd;

    for (fd = file; fd < 128; fd++)
        highest = fcntl(fd, F_GETFD) >= 0 ? fd : highest;
    while ((fd = dup(file)) >= 0 && fd < highest)
        ;
    (void)close(fd);
}

static void send_bytes(int socket, const void *bytes, size_t n, int fd)
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

static void send_message(struct input *in, int socket, int file)
{
    const int files[4] = {file, file, file, file};
    uint8_t bytes[255];
    uint8_t kind = take_byte(in);
    uint8_t n = take_byte(in);

    take(in, bytes, n);
    (void)!message_send(socket, kind % (MESSAGE_KILL + 2), bytes, n, files, kind >> 6);
}

static void send_command(struct input *in, int socket, int file)
{
    const int files[4] = {file, file, file, file};
    uint8_t flags = take_byte(in);
    char name[2] = {flags & 4 ? '?' : 'a', '\0'};
    const char *argv[] = {name, NULL};
    const char *env[] = {"A=b", NULL};
    struct command command = {.flags = flags & 1 ? COMMAND_TTY : 0,
                              .rows = flags & 2 ? 24 : 0,
                              .columns = 80,
                              .argc = 1,
                              .envc = 1,
                              .argv = argv,
                              .env = env};
    char bytes[512];
    size_t n = wire_encode_command(&command, bytes, sizeof(bytes));

    MUST(n > 0);
    (void)!message_send(socket, MESSAGE_COMMAND, bytes, n, files, flags & 1 ? 0 : flags >> 6);
}

static void act(struct keeper *k, struct input *in, int socket, int file)
{
    uint8_t deed = take_byte(in);
    uint8_t bytes[255];

    switch ((enum deed)(deed % DEEDS)) {
    case SEND_BYTES:
    case SEND_BYTES_AND_FILE:
        deed = (uint8_t)(deed % DEEDS);
        uint8_t n = take_byte(in);
        take(in, bytes, n);
        if (n)
            send_bytes(socket, bytes, n, deed == SEND_BYTES ? -1 : file);
        break;
    case SEND_MESSAGE:
        send_message(in, socket, file);
        break;
    case SEND_COMMAND:
        send_command(in, socket, file);
        break;
    case END_COMMAND:
    case DEEDS:
        k->command = 0;
        k->busy = false;
    }
}

static void hear(int socket)
{
    struct message_head head;
    int fds[MESSAGE_MAX_FDS];
    struct reply reply;

    while (message_receive_head(socket, &head, fds) > 0) {
        MUST(head.length == sizeof(reply) && head.fd_count <= 1);
        MUST(message_read_exactly(socket, &reply, sizeof(reply)) == 0);
        MUST(reply.kind == head.kind && (head.fd_count == 1) == (reply.kind == REPLY_TERMINAL));
        MUST(reply.kind != REPLY_LISTENER && reply.kind != REPLY_READY);
        if (head.fd_count)
            (void)close(fds[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static struct keeper k;
    static struct input in; /* not changed back by longjmp */
    static bool has_left;
    int pair[2];

    if (file < 0) {
        file = open("/dev/null", O_RDWR | O_CLOEXEC);
        fill_gaps(file);
    }
    int first = dup(file); /* the lowest number that is free: all are below it */
    MUST(first > 0 && close(first) == 0);
    int before = open_files();
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    in = (struct input){data, size};
    k = (struct keeper){.socket = pair[0]};
    has_left = setjmp(left) != 0;
    if (!has_left) {
        while (in.left > 0) {
            act(&k, &in, pair[1], file);
            struct pollfd ready = {.fd = k.socket, .events = POLLIN};
            while (poll(&ready, 1, 0) > 0)
                serve_message(&k); /* or it leaves */
            hear(pair[1]);
        }
    }
    hear(pair[1]);
    (void)close(pair[0]);
    (void)close(pair[1]);
    if (has_left)
        clear_process(first);
    MUST(open_files() == before);
    return 0;
}
