/* SPDX-License-Identifier: Apache-2.0 */
/* sys/fds: descriptors that come with a message, from somebody who may send anything. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/fds.h"

enum {
    MANY = 200
};

static size_t open_now(void)
{
    DIR *dir = opendir("/proc/self/fd");
    size_t n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        (void)closedir(dir);
    return n;
}

/* So many copies of one descriptor with one byte; `credentials`: and these beside them. */
static int send_fds(int socket, size_t n, bool credentials)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(MANY * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control = {0};
    struct iovec part = {"x", 1};
    struct msghdr msg = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
    const struct ucred own = {getpid(), getuid(), getgid()};
    char *at = control.room;
    int fds[MANY];

    for (size_t i = 0; i < n; i++)
        fds[i] = STDIN_FILENO;
    if (n > 0) {
        struct cmsghdr head = {.cmsg_len = CMSG_LEN(n * sizeof(int)),
                               .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_RIGHTS};
        memcpy(at, &head, sizeof(head));
        memcpy(at + CMSG_LEN(0), fds, n * sizeof(int));
        at += CMSG_SPACE(n * sizeof(int));
    }
    if (credentials) {
        struct cmsghdr head = {.cmsg_len = CMSG_LEN(sizeof(own)),
                               .cmsg_level = SOL_SOCKET,
                               .cmsg_type = SCM_CREDENTIALS};
        memcpy(at, &head, sizeof(head));
        memcpy(at + CMSG_LEN(0), &own, sizeof(own));
        at += CMSG_SPACE(sizeof(own));
    }
    msg.msg_controllen = (size_t)(at - control.room);
    return sendmsg(socket, &msg, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

TEST(no_more_descriptors_stay_open_than_are_wanted)
{
    static const struct {
        const char *name;
        int type;
        size_t sent;
        size_t room;
        ssize_t n;
        size_t count;
    } cases[] = {
        {"none is wanted, none comes", SOCK_SEQPACKET, 0, 0, 1, 0},
        {"one may come and does not", SOCK_SEQPACKET, 0, 1, 1, 0},
        {"one", SOCK_SEQPACKET, 1, 1, 1, 1},
        {"one of a stream", SOCK_STREAM, 1, 1, 1, 1},
        {"fewer than there is room for", SOCK_SEQPACKET, 3, 5, 1, 3},
        {"one where none is wanted", SOCK_SEQPACKET, 1, 0, -EPROTO, 0},
        {"two, whose room one has when it is rounded up", SOCK_SEQPACKET, 2, 1, -EPROTO, 0},
        {"two of a stream", SOCK_STREAM, 2, 1, -EPROTO, 0},
        {"many", SOCK_SEQPACKET, MANY, 1, -EPROTO, 0},
        {"many that are wanted", SOCK_SEQPACKET, MANY, MANY, 1, MANY},
    };

    for (size_t i = 0; i < LENGTH(cases); i++) {
        int ends[2];
        int fds[MANY];
        char byte = 0;
        size_t count = cases[i].room;
        CHECK(socketpair(AF_UNIX, cases[i].type | SOCK_CLOEXEC, 0, ends) == 0);
        scoped_fd int ours = ends[0];
        scoped_fd int theirs = ends[1];
        size_t before = open_now();
        CHECK_FOR(cases[i].name, send_fds(theirs, cases[i].sent, false) == 0);
        ssize_t n = fds_receive(ours, &byte, 1, fds, &count, 0);
        CHECK_FOR(cases[i].name, n == cases[i].n && count == cases[i].count);
        CHECK_FOR(cases[i].name, open_now() == before + count);
        for (size_t j = 0; j < count; j++) {
            CHECK_FOR(cases[i].name, fcntl(fds[j], F_GETFD) == FD_CLOEXEC);
            scope_close(&fds[j]);
        }
    }
    return 0;
}

TEST(what_is_no_descriptor_is_refused_with_all_that_came)
{
    const int on = 1;
    int ends[2];
    char byte;
    int fd = -1;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    scoped_fd int ours = ends[0];
    scoped_fd int theirs = ends[1];
    CHECK(setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
    size_t before = open_now();
    for (size_t sent = 0; sent <= 1; sent++) {
        size_t count = 1;
        CHECK(send_fds(theirs, sent, true) == 0);
        CHECK(fds_receive(ours, &byte, 1, &fd, &count, 0) == -EPROTO && count == 0);
        CHECK(fd == -1 && open_now() == before);
    }
    return 0;
}

TEST(nothing_yet_is_not_the_end)
{
    int ends[2];
    char byte;
    int fd = -1;
    size_t count = 1;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    scoped_fd int ours = ends[0];
    scoped_fd int theirs = ends[1];
    CHECK(fds_receive(ours, &byte, 1, &fd, &count, MSG_DONTWAIT) == -EAGAIN && count == 0);
    scope_close(&theirs);
    count = 1;
    CHECK(fds_receive(ours, &byte, 1, &fd, &count, 0) == 0 && count == 0 && fd == -1);
    return 0;
}

TEST(descriptors_go_with_the_bytes_and_stay_the_senders)
{
    static const struct {
        const char *name;
        size_t count;
        ssize_t n;
    } cases[] = {{"none", 0, 5}, {"one", 1, 5}, {"many", MANY, 5}, {"too many", 254, -E2BIG}};

    for (size_t i = 0; i < LENGTH(cases); i++) {
        int ends[2];
        int fds[254];
        char bytes[8] = "";
        size_t count = MANY;
        const struct iovec parts[2] = {{"he", 2}, {"llo", 3}};

        for (size_t j = 0; j < LENGTH(fds); j++)
            fds[j] = STDIN_FILENO;
        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        scoped_fd int ours = ends[0];
        scoped_fd int theirs = ends[1];
        size_t before = open_now();
        CHECK_FOR(cases[i].name,
                  fds_send(theirs, parts, 2, fds, cases[i].count, MSG_DONTWAIT) == cases[i].n);
        CHECK(open_now() == before && fcntl(STDIN_FILENO, F_GETFD) >= 0);
        if (cases[i].n < 0)
            continue;
        CHECK_FOR(cases[i].name, fds_receive(ours, bytes, sizeof(bytes), fds, &count, 0) == 5);
        CHECK_FOR(cases[i].name, count == cases[i].count && strcmp(bytes, "hello") == 0);
        while (count > 0)
            scope_close(&fds[--count]);
        scope_close(&ours);
        CHECK(fds_send(theirs, parts, 2, NULL, 0, 0) == -EPIPE); /* and no signal */
    }
    return 0;
}

TEST(who_sent_it_is_the_kernels_word)
{
    const int on = 1;
    size_t before = open_now();

    for (int passes = 0; passes < 2; passes++) {
        for (size_t n = 0; n < 2; n++) {
            int ends[2];
            char byte = 0;
            pid_t pid = -1;
            CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
            scoped_fd int ours = ends[0];
            scoped_fd int theirs = ends[1];
            CHECK(!passes || setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
            CHECK(send_fds(theirs, n, false) == 0);
            ssize_t got = fds_receive_pid(ours, &byte, 1, &pid);
            if (passes && n == 0)
                CHECK(got == 1 && byte == 'x' && pid == getpid());
            else
                CHECK(got == -EPROTO);
            scope_close(&theirs);
            CHECK(fds_receive_pid(ours, &byte, 1, &pid) == 0);
        }
        CHECK(open_now() == before);
    }
    return 0;
}
