/* SPDX-License-Identifier: Apache-2.0 */
/* sys/message: framed messages with descriptors. The other end may send anything. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/message.h"

struct pair {
    int ours;
    int theirs;
};

static void pair_clear(struct pair *p)
{
    scope_close(&p->ours);
    scope_close(&p->theirs);
}

#define scoped_pair                                                                                \
    __attribute__((cleanup(pair_clear))) struct pair p = {-1, -1};                                 \
    CHECK(pair_open(&p) == 0)

static int pair_open(struct pair *p)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    p->ours = ends[0];
    p->theirs = ends[1];
    return fcntl(p->ours, F_SETFL, O_NONBLOCK);
}

static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* As the peer might: any head, any number of descriptors. */
static int send_raw(int socket, const void *bytes, size_t n, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * 253)];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, n};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd_count) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
    }
    return sendmsg(socket, &msg, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;
}

TEST(a_message_comes_back_as_it_was_sent)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    char text[6];
    int sent_fds[2] = {0, 1};

    CHECK(message_send(p.theirs, 7, "hello", 6, sent_fds, 2) == 0);
    CHECK(message_receive_head(p.ours, &head, fds) == 1);
    CHECK(head.kind == 7 && head.length == 6 && head.fd_count == 2);
    CHECK(message_read_exactly(p.ours, text, sizeof(text)) == 0);
    CHECK(strcmp(text, "hello") == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
        CHECK(close(fds[i]) == 0);
    }
    return 0;
}

TEST(messages_do_not_run_into_each_other)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    char byte;

    for (uint32_t i = 0; i < 10; i++)
        CHECK(message_send(p.theirs, i, "x", i % 2, NULL, 0) == 0);
    for (uint32_t i = 0; i < 10; i++) {
        CHECK(message_receive_head(p.ours, &head, fds) == 1);
        CHECK(head.kind == i && head.length == i % 2 && head.fd_count == 0);
        CHECK(message_read_exactly(p.ours, &byte, head.length) == 0);
    }
    return 0;
}

TEST(a_message_larger_than_the_socket_holds_arrives_whole)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    static char big[MESSAGE_MAX_BYTES];

    memset(big, 'x', sizeof(big));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) /* the peer: this end alone would fill up */
        _exit(message_send(p.theirs, 1, big, sizeof(big), NULL, 0) != 0);
    memset(big, 0, sizeof(big));
    CHECK(fcntl(p.ours, F_SETFL, 0) == 0);
    CHECK(message_receive_head(p.ours, &head, fds) == 1);
    CHECK(head.length == sizeof(big));
    CHECK(message_read_exactly(p.ours, big, sizeof(big)) == 0);
    CHECK(big[0] == 'x' && big[sizeof(big) - 1] == 'x' && !memchr(big, 0, sizeof(big)));
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return 0;
}

TEST(more_bytes_or_descriptors_than_allowed_are_not_sent)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS + 1] = {0};

    CHECK(message_send(p.theirs, 1, "", MESSAGE_MAX_BYTES + 1UL, NULL, 0) == -E2BIG);
    CHECK(message_send(p.theirs, 1, "", 0, fds, MESSAGE_MAX_FDS + 1) == -E2BIG);
    return 0;
}

TEST(a_peer_that_has_gone_is_an_end_not_a_signal)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;
    char byte;

    scope_close(&p.theirs);
    CHECK(message_receive_head(p.ours, &head, fds) == 0);
    CHECK(message_read_exactly(p.ours, &byte, 1) == -EPIPE);
    CHECK(message_send(p.ours, 1, "x", 1, NULL, 0) == -EPIPE);
    return 0;
}

TEST(a_peer_that_says_nothing_is_not_waited_for)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head = {1, 4, 0};
    char bytes[4];

    CHECK(message_receive_head(p.ours, &head, fds) == -EAGAIN);
    CHECK(send_raw(p.theirs, &head, sizeof(head), NULL, 0) == 0);
    CHECK(message_receive_head(p.ours, &head, fds) == 1);
    CHECK(send_raw(p.theirs, "ab", 2, NULL, 0) == 0);
    CHECK(message_read_exactly(p.ours, bytes, sizeof(bytes)) == -EAGAIN);
    return 0;
}

TEST(every_short_head_is_refused)
{
    for (size_t n = 1; n < sizeof(struct message_head); n++) {
        scoped_pair;
        int fds[MESSAGE_MAX_FDS];
        struct message_head head = {1, 0, 0};
        CHECK(send_raw(p.theirs, &head, n, NULL, 0) == 0);
        CHECK(message_receive_head(p.ours, &head, fds) == -EPROTO);
    }
    return 0;
}

/* Whatever is claimed, and whatever comes: a refusal keeps no descriptor open. */
TEST(a_head_that_lies_about_its_descriptors_is_refused_and_leaks_none)
{
    static const struct {
        uint32_t claimed;
        size_t sent;
    } cases[] = {{0, 1},     {1, 0},     {2, 1},     {1, 2},     {0xffffffff, 1}, {0, 200},
                 {201, 200}, {200, 201}, {201, 201}, {253, 253}, {200, 0},        {0x80000000u, 0}};

    int sent_fds[253] = {0};

    for (size_t i = 0; i < LENGTH(cases); i++) {
        scoped_pair;
        int fds[MESSAGE_MAX_FDS];
        struct message_head head = {1, 0, cases[i].claimed};
        int before = open_files();
        CHECK(send_raw(p.theirs, &head, sizeof(head), sent_fds, cases[i].sent) == 0);
        CHECK(message_receive_head(p.ours, &head, fds) == -EPROTO);
        CHECK(open_files() == before);
    }
    return 0;
}

TEST(as_many_descriptors_as_allowed_arrive)
{
    scoped_pair;
    int sent_fds[MESSAGE_MAX_FDS] = {0};
    int fds[MESSAGE_MAX_FDS];
    struct message_head head;

    CHECK(message_send(p.theirs, 1, NULL, 0, sent_fds, MESSAGE_MAX_FDS) == 0);
    CHECK(message_receive_head(p.ours, &head, fds) == 1);
    CHECK(head.fd_count == MESSAGE_MAX_FDS);
    for (int i = 0; i < MESSAGE_MAX_FDS; i++)
        CHECK(close(fds[i]) == 0);
    return 0;
}

TEST(a_length_beyond_the_bound_is_refused_and_leaks_none)
{
    static const uint32_t lengths[] = {MESSAGE_MAX_BYTES + 1, 0x7fffffff, 0x80000000, 0xffffffff};
    int sent_fd = 0;

    for (size_t i = 0; i < LENGTH(lengths); i++) {
        scoped_pair;
        int fds[MESSAGE_MAX_FDS];
        struct message_head head = {1, lengths[i], 1};
        int before = open_files();
        CHECK(send_raw(p.theirs, &head, sizeof(head), &sent_fd, 1) == 0);
        CHECK(message_receive_head(p.ours, &head, fds) == -EPROTO);
        CHECK(open_files() == before);
    }
    return 0;
}

TEST(descriptors_sent_with_the_body_are_dropped)
{
    scoped_pair;
    int fds[MESSAGE_MAX_FDS];
    struct message_head head = {1, 4, 0};
    char bytes[4];
    int sent_fd = 0;

    CHECK(send_raw(p.theirs, &head, sizeof(head), NULL, 0) == 0);
    CHECK(send_raw(p.theirs, "body", 4, &sent_fd, 1) == 0);
    CHECK(message_receive_head(p.ours, &head, fds) == 1);
    int before = open_files();
    CHECK(message_read_exactly(p.ours, bytes, sizeof(bytes)) == 0);
    CHECK(open_files() == before);
    return 0;
}
