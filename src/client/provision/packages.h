/* SPDX-License-Identifier: Apache-2.0 */
/* What an index of packages says, and which of them suits this host. Pure: a page in, a choice out;
 * the page is anybody's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct platform {
    const char *machine; /* as uname says: "x86_64", "aarch64" */
    bool musl;
    unsigned glibc; /* the 36 of 2.36; of no meaning with musl */
    bool avx2;
};

enum {
    PACKAGE_URL = 2048,
    PACKAGE_NAME = 256,
    PACKAGE_VERSION = 48,
    PACKAGE_HASH = 2 * 64 + 1,
};

struct package {
    char file[PACKAGE_NAME];
    char version[PACKAGE_VERSION];
    char url[PACKAGE_URL];   /* as the page has it: may be relative to the page */
    char hash[PACKAGE_HASH]; /* in hex */
    const char *algorithm;   /* "sha256", "sha512" */
};

struct wheel_wish {
    const char *project;
    const char *version; /* NULL: the newest */
    const struct platform *host;
};

/* A page of a Python index, in HTML or JSON: the wheel of that project that runs on that host. */
int packages_wheel(const char *page, size_t n, const struct wheel_wish *wish, struct package *ret,
                   struct err *err);
/* A document of npm's registry: what it calls the latest, or `version`. */
int packages_npm(const char *page, size_t n, const char *version, struct package *ret,
                 struct err *err);
/* The package that has bun for this host; NULL: there is none. */
const char *packages_bun(const struct platform *host);
