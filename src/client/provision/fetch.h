/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads from a registry, one at a time; every way in which they fail is said in words. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/provision/packages.h"

struct fetch {
    const char *ca;      /* file with certificate authorities; NULL: the system's */
    const char *option;  /* "--index", "--registry": names the remedy */
    long patience_s;     /* a server that sends nothing for so long is given up */
    bool shows_progress; /* on standard error */
};

/* A page, as far as `ret` has room. `place` gets the address it came from in the end, of
 * PACKAGE_URL bytes. */
int fetch_page(const struct fetch *f, const char *url, const char *accept, struct buf *ret,
               char *place, struct err *err);
/* The package's bytes to `fd`, checked against its hash. Its address is read beside `page`, and
 * gets the credentials of that if they are of one host. */
int fetch_package(const struct fetch *f, const char *page, const struct package *package, int fd,
                  struct err *err);

/* The address without credentials and query, for people; `ret` has room for FETCH_SHOWN bytes. */
enum {
    FETCH_SHOWN = 128
};

const char *fetch_shown(const char *url, char *ret);
