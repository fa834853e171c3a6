/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine makes of pid 1's replies, whose word is never taken for anything. The input is a
 * list of deeds of a hostile pid 1, carried out over a real socket pair; after each the engine
 * reads as it does while it watches. At the end nothing may be leaked, and the result must be a
 * sane one. */
#include "fuzz.h"

#define supervise supervise_fuzzed /* the functions under test are private to that file */
#include "../../src/sandbox/supervise.c"
#undef supervise

enum deed {
    SEND_BYTES,          /* any */
    SEND_BYTES_AND_FILE, /* any, with a descriptor */
    SEND_REPLY,          /* a whole reply: kind, status and error are the input's */
    SEND_REPLY_AND_FILE,
    SEND_TERMINAL, /* the same with a real terminal */
    END_OUTPUT,    /* the terminal's last user has gone */
    DEEDS,
};

struct input {
    const uint8_t *at;
    size_t left;
};

static void take(struct input *in, void *to, size_t n)
{
    size_t got = n < in->left ? n : in->left;

    memset(to, 0, n);
    memcpy(to, in->at, got);
    in->at += got;
    in->left -= got;
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void send_all(int socket, const void *bytes, size_t n, int fd)
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
    (void)!sendmsg(socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT); /* the engine may have hung up */
}

static void send_reply(struct input *in, int socket, int fd)
{
    struct reply reply = {0};
    uint8_t n;

    take(in, &n, 1);
    take(in, &reply, n);
    reply.kind %= REPLY_EXITED + 2;
    (void)message_send(socket, 1, &reply, sizeof(reply), &fd, fd >= 0 ? 1 : 0);
}

static void send_bytes(struct input *in, int socket, int fd)
{
    uint8_t bytes[255];
    uint8_t n;

    take(in, &n, 1);
    take(in, bytes, n);
    if (n)
        send_all(socket, bytes, n, fd);
}

static void act(struct watch *w, struct input *in, int socket, const int files[2])
{
    uint8_t deed;

    take(in, &deed, 1);
    switch (deed % DEEDS) {
    case SEND_BYTES:
        send_bytes(in, socket, -1);
        break;
    case SEND_BYTES_AND_FILE:
        send_bytes(in, socket, files[0]);
        break;
    case SEND_REPLY:
        send_reply(in, socket, -1);
        break;
    case SEND_REPLY_AND_FILE:
        send_reply(in, socket, files[0]);
        break;
    case SEND_TERMINAL:
        send_reply(in, socket, files[1]);
        break;
    default:
        if (stream_wants_read(&w->streams.of[OUT]))
            stream_read(&w->streams.of[OUT], NULL, true);
    }
}

static void check_conclusion(struct watch *w)
{
    struct carrel_result result = {0};
    struct err err = {0};

    if (!w->failed && !w->exited && !w->killed && !w->started)
        return; /* not a word: told from the process itself, which there is none of here */
    if (conclude(w, &result, &err) < 0) {
        MUST(err.code > ERR_NONE && err.code < ERR_CODE_COUNT_);
        MUST(memchr(err.msg, '\0', sizeof(err.msg)) != NULL);
    } else {
        MUST(result.exit_code >= 0 && result.exit_code <= 255);
        MUST(result.signal >= 0 && result.signal < 128);
        MUST(memchr(result.note, '\0', sizeof(result.note)) != NULL);
    }
    carrel_result_clear(&result);
}

static void serve(struct watch *w, struct input *in, const int files[2])
{
    int pair[2];

    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    w->live.socket = pair[0];
    while (in->left > 0) {
        act(w, in, pair[1], files);
        struct pollfd engine = {.fd = w->live.socket, .events = POLLIN};
        if (poll(&engine, 1, 0) > 0)
            take_reply(w);
    }
    (void)close(pair[1]);
    while (w->live.socket >= 0)
        take_reply(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct run run = {.level = CARREL_LEVEL_NS};
    static struct watch w;
    static int files[2];
    struct input in = {data, size};
    struct live live;
    struct carrel_spec spec = {.stdin_fd = -1, .capture = true};
    uint8_t first;

    if (!files[0]) {
        files[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
        files[1] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
        MUST(files[0] > 0 && files[1] > 0);
    }
    take(&in, &first, 1);
    spec.tty = first & 1;
    run.spec = &spec;
    run.setup.flags = first & 2 ? SETUP_NOTIFY : 0;
    cgroup_init(&run.cgroup);
    memset(&w, 0, sizeof(w));
    live_init(&live);
    watch_init(&w, &run, &live);
    w.streams.spec = &spec; /* as command_streams_open leaves it */
    int before = open_files();
    serve(&w, &in, files);
    check_conclusion(&w);
    watch_clear(&w);
    MUST(open_files() == before);
    return 0;
}
