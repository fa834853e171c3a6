/* SPDX-License-Identifier: Apache-2.0 */
/* The network by name of a run: its rules, checked, and carrel-egress, which serves the sockets
 * that pid 1 has made in the sandbox's network. When that process dies connections fail, and
 * nothing opens. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "protocol/egress.h"
#include "sandbox/identity.h"
#include "sandbox/run.h"

struct denials;

struct netnames {
    pid_t pid; /* of carrel-egress; 0: none */
    int pidfd;
    int socket;  /* to it, or -1 */
    bool stands; /* it has confined itself */
    bool served; /* it was handed the sockets */
    bool dropped;
    struct identity identity; /* as root: a uid of its own */
};

/* Checks the rules and writes into the setup which ports lead to names; without any the sandbox has
 * no network. Where TLS is to end in carrel-egress the run gets its authority. */
int netnames_check(struct run *run, struct err *err);

/* struct egress_order's places. */
void netnames_places(const struct setup *setup, char ret[EGRESS_PLACES + 1]);

void netnames_init(struct netnames *netnames);
/* Where carrel-egress is. */
const char *netnames_program(const struct carrel_spec *spec);
/* Starts it, where the run is to reach names. */
int netnames_start(struct netnames *netnames, const struct run *run, struct err *err);
/* Hands it the sockets of REPLY_NETWORK. */
int netnames_serve(struct netnames *netnames, const struct run *run, const int *fds, size_t count,
                   struct err *err);
/* What it has to say, without waiting; fails where it has ended before it could serve. */
int netnames_hear(struct netnames *netnames, struct denials *denials, struct err *err);
/* The sandbox has ended: waits for the last word about it, not for long. */
void netnames_end(struct netnames *netnames, struct denials *denials);
void netnames_clear(struct netnames *netnames);
