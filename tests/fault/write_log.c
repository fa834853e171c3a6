/* SPDX-License-Identifier: Apache-2.0 */
/* A file whose writes are remembered in their order: the disk of a machine that loses its power.
 *
 *   write_log IMAGE LOG FOLDER
 *
 * mounts a file system on FOLDER (as root; it ends when that is unmounted) with one file in it,
 * "image", which is IMAGE. Each write to it is also put into LOG as a record of three numbers (1,
 * offset, length) and the bytes, each fsync as (2, 0, 0). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOP = FUSE_ROOT_ID,
    IMAGE,
    MOST = 128 << 10,
};

static int image_fd;
static int log_fd;
static int fuse_fd;

static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

static void answer(const struct fuse_in_header *in, int error, const void *bytes, size_t n)
{
    static char message[sizeof(struct fuse_out_header) + MOST];
    struct fuse_out_header *out = (struct fuse_out_header *)message;

    *out = (struct fuse_out_header){
        .len = (uint32_t)(sizeof(*out) + n), .error = -error, .unique = in->unique};
    memcpy(message + sizeof(*out), bytes, n);
    /* ENOENT: the one who asked was interrupted and has gone. */
    must(write(fuse_fd, message, out->len) == (ssize_t)out->len || errno == ENOENT, "answer");
}

static void describe(uint64_t node, struct fuse_attr *attr)
{
    struct stat st;

    must(fstat(image_fd, &st) == 0, "look at the image");
    *attr = (struct fuse_attr){.ino = node, .nlink = 1, .blksize = 4096};
    attr->mode = node == IMAGE ? S_IFREG | 0600 : S_IFDIR | 0700;
    if (node == IMAGE) {
        attr->size = (uint64_t)st.st_size;
        attr->blocks = attr->size / 512;
    }
}

static void note(uint64_t kind, uint64_t offset, uint64_t length, const void *bytes)
{
    uint64_t head[3] = {kind, offset, length};

    must(write(log_fd, head, sizeof(head)) == sizeof(head), "log");
    must(write(log_fd, bytes, length) == (ssize_t)length, "log");
}

static void do_read(const struct fuse_in_header *in, const struct fuse_read_in *arg)
{
    static char bytes[MOST];
    size_t size = arg->size < MOST ? arg->size : MOST;
    ssize_t n = pread(image_fd, bytes, size, (off_t)arg->offset);

    must(n >= 0, "read the image");
    answer(in, 0, bytes, (size_t)n);
}

static void do_write(const struct fuse_in_header *in, const struct fuse_write_in *arg)
{
    const char *bytes = (const char *)(arg + 1);
    struct fuse_write_out out = {.size = arg->size};

    must(pwrite(image_fd, bytes, arg->size, (off_t)arg->offset) == (ssize_t)arg->size, "write");
    note(1, arg->offset, arg->size, bytes);
    answer(in, 0, &out, sizeof(out));
}

static void serve(const struct fuse_in_header *in, const void *arg)
{
    static const char empty[1];
    struct fuse_attr_out attr = {0};
    struct fuse_entry_out entry = {.nodeid = IMAGE};
    struct fuse_open_out opened = {0};
    struct fuse_statfs_out fs = {.st = {.bsize = 4096, .namelen = 255}};

    switch (in->opcode) {
    case FUSE_LOOKUP:
        describe(IMAGE, &entry.attr);
        if (strcmp(arg, "image") != 0)
            answer(in, ENOENT, empty, 0);
        else
            answer(in, 0, &entry, sizeof(entry));
        return;
    case FUSE_GETATTR:
    case FUSE_SETATTR: /* times, which nobody asks for */
        describe(in->nodeid, &attr.attr);
        answer(in, 0, &attr, sizeof(attr));
        return;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        answer(in, 0, &opened, sizeof(opened));
        return;
    case FUSE_READ:
        do_read(in, arg);
        return;
    case FUSE_WRITE:
        do_write(in, arg);
        return;
    case FUSE_FSYNC:
        note(2, 0, 0, empty);
        answer(in, 0, empty, 0);
        return;
    case FUSE_STATFS:
        answer(in, 0, &fs, sizeof(fs));
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        return;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
        answer(in, 0, empty, 0);
        return;
    default:
        answer(in, ENOSYS, empty, 0);
    }
}

static void start(const struct fuse_in_header *in, const struct fuse_init_in *arg)
{
    struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = arg->max_readahead,
                                .flags = FUSE_BIG_WRITES & arg->flags,
                                .max_background = 16,
                                .max_write = MOST,
                                .time_gran = 1};

    answer(in, 0, &out, sizeof(out));
}

int main(int argc, char **argv)
{
    static char message[MOST + 65536];
    char options[128];

    must(argc == 4, "usage");
    image_fd = open(argv[1], O_RDWR | O_CLOEXEC);
    log_fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuse_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    must(image_fd >= 0 && log_fd >= 0 && fuse_fd >= 0, "open");
    snprintf(options, sizeof(options), "fd=%d,rootmode=40700,user_id=0,group_id=0", fuse_fd);
    must(mount("write_log", argv[3], "fuse", MS_NOSUID | MS_NODEV, options) == 0, "mount");
    /* What is mounted from the image must not go away with us: that would wait for our answers. */
    must(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
             umount2(argv[3], MNT_DETACH) == 0,
         "leave the mounts");
    for (;;) {
        ssize_t n = read(fuse_fd, message, sizeof(message));
        if (n < 0 && errno == ENODEV)
            return 0; /* unmounted */
        if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
            continue;
        must(n > 0, "read");
        const struct fuse_in_header *in = (const struct fuse_in_header *)message;
        if (in->opcode == FUSE_INIT)
            start(in, (const void *)(in + 1));
        else
            serve(in, in + 1);
    }
}
