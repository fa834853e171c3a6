/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of a sandbox with the host's network. The filter stops every connect(2); the engine
 * copies its address once, judges the copy (outbound.h) and connects, to the copy, a duplicate of
 * the caller's socket: whatever the caller changes meanwhile, memory or descriptors, is not looked
 * at again. The socket is the same one, so that its owner, its group and its flags are the
 * caller's. Connections over Unix sockets and netlink go on inside, where their permissions are;
 * that the number of such a socket cannot be given to one of TCP in the meantime is Landlock's part
 * (SETUP_GUARD), and without Landlock they are refused.
 *
 * With the network by name it is the same for names at ports from 1024 on (SETUP_REDIRECT): the
 * connection goes to the port at which Carrel's socket is, so that programs inside can listen at
 * those that names have. Nothing depends on it but that. */
#pragma once

#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "carrel.h"
#include "sandbox/denial/outbound.h"

struct run_view;
struct pending_connection;

enum {
    CONNECTOR_MAX = 128, /* blocking connections under way at a time; beyond: EAGAIN */
    CONNECTOR_LOOK_MS = 100,
};

struct connector {
    pthread_mutex_t lock;               /* of `busy` */
    int busy;                           /* the socket that connect(2) is called for now, or -1 */
    struct pending_connection *pending; /* CONNECTOR_MAX of them; NULL until there is one */
    size_t count;
    uint64_t looked_ms; /* when callers were last seen to be there */
};

enum {
    CONNECTOR_GO_ON = 1, /* let the call go on inside */
    CONNECTOR_WAIT = 2,  /* the answer comes later, from connector_serve */
};

/* What to answer to a connect(2): one of the two above, or 0, or -errno. Never blocks for long.
 * *ret_why and `address` say why it was refused. */
int connector_take(struct connector *c, const struct run_view *run, int listener,
                   const struct seccomp_notif *ask, enum outbound *ret_why,
                   struct sockaddr_storage *ret_address);
/* To wait for: fills c->count entries. */
void connector_fill(const struct connector *c, struct pollfd *fds);
/* After that; with as many entries as then. `answer` sends one, 0 or -errno, and gives 0, or -errno
 * when it could not be. */
int connector_serve(struct connector *c, int listener, const struct pollfd *fds,
                    int (*answer)(int listener, uint64_t id, int result));

void connector_init(struct connector *c);
/* By another thread, when the sandbox has gone: ends a connect(2) that was made to block after all,
 * by flags of the socket that were changed under it. */
void connector_interrupt(struct connector *c);
void connector_clear(struct connector *c);

/* Whether this host lets the engine do so. */
bool host_can_guard(void);
