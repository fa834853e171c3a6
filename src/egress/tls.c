/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "egress/inspected.h"

enum {
    LEAF_MS = 24 * 60 * 60 * 1000, /* then another is made */
};

/* A certificate for one host. */
struct leaf {
    struct leaf *next;
    X509 *cert;
    uint64_t since_ms;
    char host[];
};

static const unsigned char http[] = "\x08http/1.1";

/* --- what both sides are told --- */

static int choose_http(SSL *ssl, const unsigned char **ret, unsigned char *ret_n,
                       const unsigned char *offered, unsigned n, void *context)
{
    unsigned char *found = NULL;

    (void)ssl;
    (void)context;
    if (SSL_select_next_proto(&found, ret_n, http, sizeof(http) - 1, offered, n) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *ret = found;
    return SSL_TLSEXT_ERR_OK;
}

/* The host that the connection was made for, by the letter but for its case. */
static int check_name(SSL *ssl, int *alert, void *context)
{
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    const char *host = SSL_get_app_data(ssl);

    (void)context;
    *alert = SSL_AD_UNRECOGNIZED_NAME;
    return name && strcasecmp(name, host) == 0 ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *make_context(const SSL_METHOD *method)
{
    SSL_CTX *c = SSL_CTX_new(method);

    if (!c || SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(c);
        return NULL;
    }
    (void)SSL_CTX_set_options(c,
                              SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    (void)SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_read_ahead(c, 0);
    return c;
}

static int make_inside(struct tls *t)
{
    t->inside = make_context(TLS_server_method());
    if (!t->inside)
        return -1;
    (void)SSL_CTX_set_num_tickets(t->inside, 0);
    SSL_CTX_set_alpn_select_cb(t->inside, choose_http, NULL);
    (void)SSL_CTX_set_tlsext_servername_callback(t->inside, check_name);
    t->key = EVP_EC_gen("P-256");
    return t->key ? 0 : -1;
}

/* Certificates of a file of the host's owner. */
static int add_authorities(X509_STORE *store, int fd, struct err *err)
{
    FILE *file = fdopen(fcntl(fd, F_DUPFD_CLOEXEC, 3), "re");
    size_t count = 0;
    X509 *cert;

    while (file && (cert = PEM_read_X509(file, NULL, NULL, NULL))) {
        count += X509_STORE_add_cert(store, cert) == 1;
        X509_free(cert);
    }
    if (file)
        (void)fclose(file);
    ERR_clear_error();
    return count ? 0
                 : err_set(err, ERR_INVALID, 0,
                           "the file of further authorities has no certificate: it must be PEM");
}

static int make_outside(struct tls *t, int extra, struct err *err)
{
    t->outside = make_context(TLS_client_method());
    if (!t->outside || SSL_CTX_set_alpn_protos(t->outside, http, sizeof(http) - 1) != 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "open TLS");
    /* The file alone: a directory would be read later, when that is not possible any more. */
    if (SSL_CTX_load_verify_file(t->outside, "/etc/ssl/certs/ca-certificates.crt") != 1 &&
        SSL_CTX_load_verify_file(t->outside, "/etc/pki/tls/certs/ca-bundle.crt") != 1)
        ERR_clear_error(); /* none: then nobody is trusted, but whom the owner adds */
    SSL_CTX_set_verify(t->outside, SSL_VERIFY_PEER, NULL);
    return extra < 0 ? 0 : add_authorities(SSL_CTX_get_cert_store(t->outside), extra, err);
}

int tls_open(struct tls **ret, int extra, struct err *err)
{
    struct tls *t = *ret = calloc(1, sizeof(*t));

    if (!t || OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1 || make_inside(t) < 0)
        return err_set(err, ERR_LIMIT, ENOMEM, "open TLS");
    return make_outside(t, extra, err);
}

/* --- certificates --- */

static void free_leaf(struct leaf *leaf)
{
    X509_free(leaf->cert);
    free(leaf);
}

void leaves_clear(struct box *box)
{
    while (box->leaves) {
        struct leaf *leaf = box->leaves;
        box->leaves = leaf->next;
        free_leaf(leaf);
    }
}

static struct leaf *make_leaf(struct egress *e, const struct box *box, const char *host)
{
    size_t n = strlen(host) + 1;
    struct leaf *leaf = malloc(sizeof(*leaf) + n);

    if (!leaf)
        return NULL;
    *leaf = (struct leaf){.cert = authority_issue(box->authority, host, e->tls->key),
                          .since_ms = now_ms()};
    memcpy(leaf->host, host, n);
    if (leaf->cert)
        return leaf;
    free(leaf);
    return NULL;
}

/* The one used last is in front. */
static struct leaf *find_leaf(struct egress *e, struct box *box, const char *host)
{
    struct leaf **at = &box->leaves;
    struct leaf *leaf;
    size_t n = 0;

    while ((leaf = *at) && strcmp(leaf->host, host) != 0 && ++n < LEAVES_MOST)
        at = &leaf->next;
    if (leaf) /* it, or one too many */
        *at = leaf->next;
    if (leaf && (strcmp(leaf->host, host) != 0 || now_ms() - leaf->since_ms > LEAF_MS)) {
        free_leaf(leaf);
        leaf = NULL;
    }
    if (!leaf)
        leaf = make_leaf(e, box, host);
    if (!leaf)
        return NULL;
    leaf->next = box->leaves;
    return box->leaves = leaf;
}

SSL *tls_inside(struct egress *e, struct box *box, const char *host, int fd)
{
    struct leaf *leaf = find_leaf(e, box, host);
    SSL *ssl = leaf ? SSL_new(e->tls->inside) : NULL;

    if (!ssl)
        return NULL;
    SSL_set_accept_state(ssl);
    if (SSL_set_app_data(ssl, (void *)(uintptr_t)host) == 1 && SSL_set_fd(ssl, fd) == 1 &&
        SSL_use_certificate(ssl, leaf->cert) == 1 && SSL_use_PrivateKey(ssl, e->tls->key) == 1)
        return ssl;
    SSL_free(ssl);
    return NULL;
}

SSL *tls_outside(struct egress *e, const char *host, int fd)
{
    SSL *ssl = SSL_new(e->tls->outside);

    if (!ssl)
        return NULL;
    SSL_set_connect_state(ssl);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    if (SSL_set_fd(ssl, fd) == 1 &&
        SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                 (void *)(uintptr_t)host) == 1 &&
        SSL_set1_host(ssl, host) == 1)
        return ssl;
    SSL_free(ssl);
    return NULL;
}

/* --- what went wrong --- */

const char *tls_why_inside(const SSL *ssl, const char **ret_fix)
{
    unsigned long error = ERR_peek_error();
    int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;

    (void)ssl;
    ERR_clear_error();
    *ret_fix = "";
    switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTPS_PROXY_REQUEST:
        return "what it sends is not TLS";
    case SSL_R_CALLBACK_FAILED:
    case SSL_R_CLIENTHELLO_TLSEXT:
        return "its hello names another server than the one connected to, or none";
    case SSL_R_NO_APPLICATION_PROTOCOL:
        *ret_fix = "have the program speak HTTP/1.1";
        return "it speaks no HTTP/1.1, which alone is looked at";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
        *ret_fix = "have it trust the file that SSL_CERT_FILE names: it has a list of its own";
        return "the program does not trust the sandbox's authority, which this rule needs";
    default:
        return "its TLS failed";
    }
}

const char *tls_why_outside(const SSL *ssl)
{
    long result = SSL_get_verify_result(ssl);

    ERR_clear_error();
    switch (result) {
    case X509_V_OK:
        return "TLS with the server failed";
    case X509_V_ERR_HOSTNAME_MISMATCH:
        return "the server's certificate is for another name";
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "the server's certificate is not valid now";
    default:
        return "the server's certificate is from nobody whom this host trusts";
    }
}
