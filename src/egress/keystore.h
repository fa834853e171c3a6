/* SPDX-License-Identifier: Apache-2.0 */
/* What Java trusts: a store of its own kind (JKS), which lists certificates and ends with a digest
 * of them and of a password that everybody knows. */
#pragma once

#include <openssl/x509.h>

#include "base/buf.h"

enum {
    KEYSTORE_BYTES = 512 << 10, /* the longest that is taken */
};

/* The store that `fd` has, and that certificate besides; adds nothing where it has none. 0 or -1.
 */
int keystore_add(struct buf *b, int fd, X509 *cert);
