/* SPDX-License-Identifier: Apache-2.0 */
/* Connections whose TLS ends here. tls.c has what OpenSSL is told, secrets.c what requests get,
 * inspected.c one connection: two sides of TLS, with inner.h between.
 *
 *   inside:   hello, its name looked at --> our certificate for that name --> requests
 *   outside:  dialled --> the server's certificate checked --> requests as written anew
 *   what fails at the server is told inside as an answer, and then both end */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/events.h"
#include "egress/inner.h"
#include "egress/relay.h"

struct authority;
struct box;
struct connection;
struct egress;
struct egress_order;
struct end;
struct inspected;
struct leaf;
struct secret;

enum {
    INSPECTED_MOST = 128, /* connections of one sandbox */
    INSPECTED_ALL = 1024,
    LEAVES_MOST = 64, /* certificates of one sandbox that are kept */
    SECRETS_MOST = 8192,
};

/* --- tls.c --- */

struct tls {
    SSL_CTX *inside;
    SSL_CTX *outside;
    EVP_PKEY *key; /* of all leaves */
};

/* Reads the host's authorities, and `extra` (a descriptor, or -1) besides: before it is confined.
 */
int tls_open(struct tls **ret, int extra, struct err *err);
/* NULL: there is no memory. `host` is borrowed. */
SSL *tls_inside(struct egress *egress, struct box *box, const char *host, int fd);
SSL *tls_outside(struct egress *egress, const char *host, int fd);
/* Why the handshake has failed, and what to do; errors of OpenSSL's are taken from its queue. */
const char *tls_why_inside(const SSL *ssl, const char **ret_fix);
const char *tls_why_outside(const SSL *ssl);
void leaves_clear(struct box *box);

/* --- secrets.c --- */

/* The key that values are sealed for, from a descriptor, which is consumed; -1: they come as they
 * are. */
int secrets_open(struct egress *egress, int fd, struct err *err);
int secrets_hear(struct egress *egress, const struct egress_order *order, struct err *err);
/* inner_value, of a struct box. */
const char *secrets_value(void *context, const char *name, bool before);

/* --- inspected.c --- */

/* Once it is dialled. NULL: there is no memory. */
struct inspected *inspected_begin(struct connection *c);
enum relay inspected_step(struct connection *c);
uint32_t inspected_wants(const struct connection *c, const struct end *end);
/* When it has waited for too long, by what it waits for; 0: it may wait. */
uint64_t inspected_due(struct connection *c);
/* ... and then: false: it may have come to its end in order. */
bool inspected_late(struct connection *c, const char **ret_why);
void inspected_end(struct connection *c);
