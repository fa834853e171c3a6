/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of carrel-tls share.
 *
 *   main.c         options, the loop, the sockets it was started with
 *   certificate.c  a certificate and its key -> the context of new connections
 *   link.c         one client: its TLS on one side, plain bytes to the front on the other
 *   authority.c    --make: an authority of this machine's own, and a certificate by it
 *   confine.c      what it gives up before the first byte of a client */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/events.h"
#include "base/network.h"

struct link;

struct tls {
    struct events *events;
    struct watch talk;
    struct watch listener;
    struct timer pause;
    int door;
    SSL_CTX *context;         /* NULL: there is no certificate yet, and nobody is accepted */
    struct link *first_shake; /* handshakes, the oldest first */
    struct link *last_shake;
    size_t shakes;
    size_t shakes_of_one; /* at most, of one address */
    size_t count;
    size_t most;
    struct networks trusted; /* not counted by address */
};

/* certificate.c: a context for connections by TLS 1.2 and 1.3, for HTTP/1.1. The descriptors are
 * read from their beginning. NULL: *err says why not. */
SSL_CTX *certificate_load(int certificate, int key, struct err *err);

/* link.c: takes the connection, consumed. */
void link_begin(struct tls *tls, int *fd);

/* authority.c: makes what is missing of ca.pem, ca.key, cert.pem and key.pem in the working
 * directory for a domain and every name below it, and what is for another domain or will soon be
 * too old. */
int certificates_make(const char *domain, struct err *err);

int tls_confine(struct err *err);
