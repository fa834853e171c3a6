/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox trusts besides the host's authorities, where rules have TLS end in carrel-egress:
 * an authority of its own, made by that program. The key stays with who runs the sandbox, so that a
 * carrel-egress that dies can be followed by another; inside are the certificate, and variables
 * that name the file it is in. */
#pragma once

#include "base/err.h"
#include "policy/network.h"
#include "sandbox/run.h"

#define AUTHORITY_DIR        "etc/carrel"
#define AUTHORITY_SYSTEM_DIR "run/carrel-ca" /* where /etc is the workspace's own system's */
#define AUTHORITY_FILE       "ca.crt"        /* the certificate alone */
#define AUTHORITY_JAVA       "cacerts"       /* likewise, as Java has it */
#define AUTHORITY_BUNDLE     "ca-bundle.crt" /* ... behind those of the host, or of that system */

/* run->authority_key and _cert, where a rule needs them. */
int authority_get(struct run *run, const struct network_rule *rules, size_t count, struct err *err);
/* The host's file of authorities; NULL: it has none. */
const char *authority_of_host(void);
/* What Java on this host trusts. */
const char *authority_java_of_host(void);
/* Variables for programs inside: "NAME=value", which ends with NULL; in the arena. */
const char *const *authority_env(const struct run *run, struct arena *arena);
