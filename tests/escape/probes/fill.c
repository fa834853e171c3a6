/* SPDX-License-Identifier: Apache-2.0
 *
 * Ways to take a disk from everybody else. Each takes only as much as its argument allows (in MiB
 * or in thousands of names), so that it can be set on a host without harm, holds it for so many
 * seconds as its second one says, and prints "took all" when nobody stopped it.
 */
#include "probe.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum {
    FILE_MIB = 4
};

static char block[1 << 20];
static long amount;
static unsigned hold = 2;

static int new_file(int number, int flags)
{
    char name[32];

    snprintf(name, sizeof(name), "f%d", number);
    int fd = open(name, O_RDWR | O_CREAT | flags, 0644);
    if (fd < 0)
        unclear("make a file");
    return fd;
}

static void write_mib(int fd, long mib)
{
    for (long i = 0; i < mib; i++) {
        if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
            unclear("write");
    }
}

static void by_write(char **args)
{
    (void)args;
    for (long taken = 0; taken < amount; taken += FILE_MIB) {
        int fd = new_file((int)taken, 0);
        write_mib(fd, FILE_MIB);
        close(fd);
    }
}

/* Refused, it does what programs do then. */
static void by_fallocate(char **args)
{
    (void)args;
    for (long taken = 0; taken < amount; taken += FILE_MIB) {
        int fd = new_file((int)taken, 0);
        if (fallocate(fd, 0, 0, (off_t)FILE_MIB << 20) < 0)
            write_mib(fd, FILE_MIB);
        close(fd);
    }
}

static void by_empty_files(char **args)
{
    (void)args;
    for (long i = 0; i < amount * 1000; i++)
        close(new_file((int)i, 0));
}

static void by_deep_directories(char **args)
{
    (void)args;
    for (long i = 0; i < amount * 1000; i++) {
        if (mkdir("d", 0755) < 0 || chdir("d") < 0)
            unclear("make a directory");
    }
}

/* A file has at most 65000 names on some systems. */
static void by_hard_links(char **args)
{
    char name[32];

    (void)args;
    for (long i = 0; i < amount * 1000; i++) {
        if (i % 30000 == 0)
            close(new_file((int)(i / 30000), 0));
        char from[32];
        snprintf(from, sizeof(from), "f%ld", i / 30000);
        snprintf(name, sizeof(name), "l%ld", i);
        if (link(from, name) < 0)
            unclear("link");
    }
}

/* Each its own value: the same one would be stored once. */
static void by_attributes(char **args)
{
    char value[3900];

    (void)args;
    memset(value, 'x', sizeof(value));
    for (long i = 0; i < amount * 256; i++) { /* 4 KiB each */
        int fd = new_file((int)i, 0);
        memcpy(value, &i, sizeof(i));
        if (fsetxattr(fd, "user.fill", value, sizeof(value), 0) < 0)
            unclear("set an attribute");
        close(fd);
    }
}

/* In files that have no name any more, held open. */
static void by_deleted_files(char **args)
{
    (void)args;
    for (long taken = 0; taken < amount; taken += FILE_MIB) {
        int fd = new_file(0, 0);
        unlink("f0");
        write_mib(fd, FILE_MIB);
    }
}

/* ... held by nobody but a mapping. */
static void by_mapped_files(char **args)
{
    (void)args;
    for (long taken = 0; taken < amount; taken += FILE_MIB) {
        int fd = new_file(0, 0);
        unlink("f0");
        if (ftruncate(fd, (off_t)FILE_MIB << 20) < 0)
            unclear("truncate");
        void *at = mmap(NULL, FILE_MIB << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            unclear("map");
        memset(at, 1, FILE_MIB << 20);
        close(fd);
    }
}

static void *map_and_tell(void *args)
{
    by_mapped_files(args);
    sleep(hold);
    puts("took all");
    exit(0);
}

/* ... of a process whose first thread has ended: through it nothing is to be seen. */
static void by_orphaned_threads(char **args)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, map_and_tell, args) != 0)
        unclear("start a thread");
    pthread_exit(NULL);
}

/* ... held by a socket they are on their way through. */
static void by_sent_files(char **args)
{
    int ends[2];

    (void)args;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0)
        unclear("socketpair");
    for (long taken = 0; taken < amount; taken += FILE_MIB) {
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec byte = {block, 1};
        struct msghdr message = {.msg_iov = &byte,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof(control)};
        int fd = new_file(0, 0);
        unlink("f0");
        control.head = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
        if (taken < 10 * FILE_MIB && sendmsg(ends[0], &message, 0) < 0)
            unclear("send a file");
        write_mib(fd, FILE_MIB);
        if (taken < 10 * FILE_MIB) /* the queue has its bounds */
            close(fd);
    }
}

/* Where the caller's own uid may not look. */
static void by_shut_directories(char **args)
{
    (void)args;
    if (mkdir("shut", 0700) < 0 || chdir("shut") < 0 || chmod(".", 0300) < 0)
        unclear("shut a directory");
    by_write(args);
}

int main(int argc, char **argv)
{
    static const struct attack attacks[] = {
        {"write", by_write},
        {"fallocate", by_fallocate},
        {"empty-files", by_empty_files},
        {"deep-directories", by_deep_directories},
        {"hard-links", by_hard_links},
        {"attributes", by_attributes},
        {"deleted-files", by_deleted_files},
        {"mapped-files", by_mapped_files},
        {"orphaned-threads", by_orphaned_threads},
        {"sent-files", by_sent_files},
        {"shut-directories", by_shut_directories},
        {NULL, NULL},
    };

    if (argc > 2)
        amount = strtol(argv[2], NULL, 10);
    if (argc > 3)
        hold = (unsigned)strtoul(argv[3], NULL, 10);
    memset(block, 1, sizeof(block));
    int result = run_attack(attacks, argc, argv);
    sleep(hold); /* what was taken is held */
    puts("took all");
    return result;
}
