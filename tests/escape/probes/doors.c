/* SPDX-License-Identifier: Apache-2.0
 *
 * Attacks through the kernel's side doors: io_uring (it does what the filter forbids), bpf, perf,
 * userfaultfd, another kernel, modules.
 */
#include "probe.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <sys/mman.h>

#define UFFD_USER_MODE_ONLY 1

/* Proves that an open() by way of the ring is possible; without the ring there is nothing to prove.
 */
static void open_by_ring(int ring, const struct io_uring_params *p, const char *path)
{
    size_t sq_size = p->sq_off.array + p->sq_entries * sizeof(unsigned);
    size_t cq_size = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
    char *sq = mmap(NULL, sq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq =
        mmap(NULL, cq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, (off_t)IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = mmap(NULL, p->sq_entries * sizeof(*sqe), PROT_READ | PROT_WRITE,
                                    MAP_SHARED, ring, (off_t)IORING_OFF_SQES);

    if (sq == MAP_FAILED || cq == MAP_FAILED || sqe == MAP_FAILED)
        unclear("mmap of the ring");
    memset(sqe, 0, sizeof(*sqe));
    sqe->opcode = IORING_OP_OPENAT;
    sqe->fd = AT_FDCWD;
    sqe->addr = (unsigned long)path;
    sqe->open_flags = O_RDONLY;
    ((unsigned *)(void *)(sq + p->sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(void *)(sq + p->sq_off.tail), 1, __ATOMIC_RELEASE);
    long done = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(void *)(cq + p->cq_off.cqes);
    if (done == 1 && cqe->res >= 0)
        escaped("a file was opened through the ring");
}

static void io_uring(char **args)
{
    struct io_uring_params params = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &params);

    (void)args;
    refused("io_uring_setup", ring, ENOSYS);
    if (ring >= 0)
        open_by_ring(ring, &params, "/");
    refused("io_uring_enter", syscall(SYS_io_uring_enter, -1, 1, 0, 0, NULL, 0), ENOSYS);
    refused("io_uring_register", syscall(SYS_io_uring_register, -1, 0, NULL, 0), ENOSYS);
}

static void kernel(char **args)
{
    union bpf_attr map = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    struct perf_event_attr event = {
        .type = PERF_TYPE_SOFTWARE, .size = sizeof(event), .exclude_kernel = 1, .exclude_hv = 1};

    (void)args;
    refused_either("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof(map)), EPERM, ENOSYS);
    refused_either("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0), EPERM,
                   ENOSYS);
    refused_either("userfaultfd", syscall(SYS_userfaultfd, UFFD_USER_MODE_ONLY), EPERM, ENOSYS);
    refused_either("kexec_load", syscall(SYS_kexec_load, 0, 0, NULL, 0), EPERM, ENOSYS);
    refused_either("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, "", 0), EPERM,
                   ENOSYS);
    refused_either("init_module", syscall(SYS_init_module, "", 0, ""), EPERM, ENOSYS);
    refused_either("finit_module", syscall(SYS_finit_module, -1, "", 0), EPERM, ENOSYS);
    refused_either("delete_module", syscall(SYS_delete_module, "none", O_NONBLOCK), EPERM, ENOSYS);
}

static const struct attack attacks[] = {
    {"io-uring", io_uring},
    {"kernel", kernel},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return run_attack(attacks, argc, argv);
}
