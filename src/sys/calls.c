/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/calls.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#endif

static void add(struct calls *c, struct sock_filter instruction)
{
    if (c->n < CALLS_ROOM)
        c->code[c->n] = instruction;
    c->n++;
}

static void answer(struct calls *c, uint32_t what)
{
    add(c, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static void load(struct calls *c, size_t offset)
{
    add(c, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* So many instructions are passed over when it is, and when it is not. */
static void jump_if(struct calls *c, uint16_t test, uint32_t value, uint8_t is, uint8_t is_not)
{
    add(c, (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | test | BPF_K), value, is, is_not));
}

/* Blocks below begin with the number of the call loaded, and end for this call in an answer. */

void calls_begin(struct calls *c)
{
    c->n = 0;
    load(c, offsetof(struct seccomp_data, arch));
    jump_if(c, BPF_JEQ, OUR_ARCH, 1, 0);
    answer(c, SECCOMP_RET_KILL_PROCESS);
    load(c, offsetof(struct seccomp_data, nr));
}

void calls_allow(struct calls *c, const int *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        jump_if(c, BPF_JEQ, (uint32_t)numbers[i], 0, 1);
        answer(c, SECCOMP_RET_ALLOW);
    }
}

static size_t offset_of(unsigned argument)
{
    return offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t);
}

void calls_allow_without(struct calls *c, int number, unsigned argument, uint32_t bits)
{
    jump_if(c, BPF_JEQ, (uint32_t)number, 0, 4);
    load(c, offset_of(argument));
    jump_if(c, BPF_JSET, bits, 1, 0);
    answer(c, SECCOMP_RET_ALLOW);
    answer(c, SECCOMP_RET_ERRNO | EPERM);
}

void calls_allow_with(struct calls *c, int number, unsigned argument, uint32_t bits)
{
    jump_if(c, BPF_JEQ, (uint32_t)number, 0, 4);
    load(c, offset_of(argument));
    jump_if(c, BPF_JSET, bits, 0, 1);
    answer(c, SECCOMP_RET_ALLOW);
    answer(c, SECCOMP_RET_ERRNO | EPERM);
}

void calls_allow_values(struct calls *c, int number, unsigned argument, const uint32_t *values,
                        size_t count)
{
    if (count > CALLS_VALUES) {
        c->n = CALLS_ROOM + 1;
        return;
    }
    jump_if(c, BPF_JEQ, (uint32_t)number, 0, (uint8_t)(2 * count + 2));
    load(c, offset_of(argument));
    for (size_t i = 0; i < count; i++) {
        jump_if(c, BPF_JEQ, values[i], 0, 1);
        answer(c, SECCOMP_RET_ALLOW);
    }
    answer(c, SECCOMP_RET_ERRNO | EPERM);
}

void calls_allow_sending(struct calls *calls)
{
    calls_allow_without(calls, SYS_sendto, 3, MSG_FASTOPEN);
    calls_allow_without(calls, SYS_sendmsg, 2, MSG_FASTOPEN);
}

void calls_allow_data(struct calls *calls)
{
    calls_allow_without(calls, SYS_mmap, 2, PROT_EXEC);
    calls_allow_without(calls, SYS_mprotect, 2, PROT_EXEC);
}

void calls_refuse(struct calls *c, int number, int error)
{
    jump_if(c, BPF_JEQ, (uint32_t)number, 0, 1);
    answer(c, SECCOMP_RET_ERRNO | (uint32_t)error);
}

int calls_enter(struct calls *c)
{
    struct sock_fprog program = {.filter = c->code};

    answer(c, SECCOMP_RET_ERRNO | EPERM);
    if (c->n > CALLS_ROOM)
        return -E2BIG;
    program.len = (unsigned short)c->n;
    long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    return r < 0 ? -errno : r > 0 ? -EBUSY : 0; /* >0: a thread that has another filter */
}
