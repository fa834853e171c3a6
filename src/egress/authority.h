/* SPDX-License-Identifier: Apache-2.0 */
/* The authority of one sandbox: what its programs trust besides the host's authorities, for the
 * hosts alone whose requests are looked at. */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/err.h"

enum {
    AUTHORITY_KEY = 512, /* hex digits of a private key, with their end, at most */
};

struct authority;

/* Writes to standard output what a new sandbox needs: a line with its private key, for order
 * EGRESS_ADD, one with what Java trusts, in base64, if that is on standard input (keystore.h), and
 * the certificate that is shown inside. `names`: the hosts, and what is below them;
 * ends with NULL. */
int authority_make(const char *const *names, struct err *err);
/* Of the key, a text, that authority_make wrote. */
struct authority *authority_open(const char *text, struct err *err);
/* A certificate for that host and that key; the caller frees it. NULL: it failed. */
X509 *authority_issue(const struct authority *authority, const char *host, EVP_PKEY *key);
void authority_free(struct authority *authority);
