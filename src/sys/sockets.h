/* SPDX-License-Identifier: Apache-2.0 */
/* What the sockets of a network namespace hold in their queues. The kernel charges some of it to no
 * memory cgroup: netlink's, and datagrams held back to be sent together. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Bytes queued in netlink and UDP sockets of the network namespace `pid` is in. A list too long to
 * be read counts as more than anything; 0 where nothing can be read. */
uint64_t sockets_queued(pid_t pid);
