/* SPDX-License-Identifier: Apache-2.0
 *
 * Attack on shared memory, semaphores and queues of the host, by their well-known names. "make" and
 * "remove" are the host's side.
 */
#include "probe.h"

#include <fcntl.h>
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static key_t key;
static char name[64];

static void names(char **args)
{
    key = (key_t)strtol(args[0], NULL, 10);
    snprintf(name, sizeof(name), "/carrel-ipc-%s", args[0]);
}

static void make(char **args)
{
    names(args);
    if (shmget(key, 4096, IPC_CREAT | 0666) < 0 || semget(key, 1, IPC_CREAT | 0666) < 0 ||
        msgget(key, IPC_CREAT | 0666) < 0)
        unclear("make SysV objects");
    if (mq_open(name, O_CREAT | O_RDWR, 0666, NULL) < 0 ||
        shm_open(name, O_CREAT | O_RDWR, 0666) < 0)
        unclear("make POSIX objects");
}

static void take_away(char **args)
{
    names(args);
    shmctl(shmget(key, 0, 0), IPC_RMID, NULL);
    semctl(semget(key, 0, 0), 0, IPC_RMID);
    msgctl(msgget(key, 0), IPC_RMID, NULL);
    mq_unlink(name);
    shm_unlink(name);
}

static void find(char **args)
{
    names(args);
    failed("shmget", shmget(key, 0, 0));
    failed("semget", semget(key, 0, 0));
    failed("msgget", msgget(key, 0));
    failed("mq_open", mq_open(name, O_RDONLY));
    failed("shm_open", shm_open(name, O_RDONLY, 0));
}

static const struct attack attacks[] = {
    {"make", make},
    {"remove", take_away},
    {"find", find},
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    if (argc < 3)
        unclear("usage: ipc ATTACK KEY");
    return run_attack(attacks, argc, argv);
}
