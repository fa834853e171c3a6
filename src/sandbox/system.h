/* SPDX-License-Identifier: Apache-2.0 */
/* A system of the workspace's own: a base, made once and shared by all that stand on it, with a
 * layer over it (overlay.h) that keeps what this workspace has changed.
 *
 *   /usr /etc /var /opt /home /root   parts of the two, read-write    /bin /lib …   parts of /usr
 *   /run                              empty, for as long as the sandbox lives
 *
 * Their files have many owners. On disk these are ids of one range that nothing else has, the same
 * for all bases and layers (as root IDENTITY_SYSTEM_FIRST, otherwise the caller's subuids), and
 * inside they are 0 to 65535. Commands are the user's, as ever, or root's: root inside has the
 * capabilities that installing software takes, over ids of that range alone. */
#pragma once

#include "base/err.h"

struct run;

/* Whether the spec can be had here; before anything is made. */
int system_check(struct run *run, struct err *err);
/* The operations that build it, beside the root; `resolver`: what /etc/resolv.conf says. */
int system_write_frame(struct run *run, const char *resolver, struct err *err);
/* Its names at the top of the root that CARREL_OWN_NAMES lacks; ends with what is not 0. */
int system_each_name(struct run *run, int (*each)(struct run *, const char *name));
