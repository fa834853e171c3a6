/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "tls/tls.h"

enum {
    LONGEST_FILE = 256 << 10,
};

/* --- files --- */

/* How many bytes, or -errno; read by place, as a descriptor that was passed shares its own. */
static ssize_t read_whole(int fd, char *bytes, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t got = pread(fd, bytes + n, size - n, (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            return (ssize_t)n;
        n += (size_t)got;
    }
    return -EFBIG;
}

static BIO *open_text(int fd, char *bytes, const char *what, struct err *err)
{
    ssize_t n = read_whole(fd, bytes, LONGEST_FILE);

    if (n < 0)
        err_set(err, ERR_IO, (int)-n, "read the %s", what);
    BIO *bio = n < 0 ? NULL : BIO_new_mem_buf(bytes, (int)n);
    if (n >= 0 && !bio)
        err_set(err, ERR_LIMIT, ENOMEM, "read the %s", what);
    return bio;
}

/* A key that is encrypted is one that we cannot read. */
static int no_password(char *buf, int size, int rwflag, void *u)
{
    (void)buf;
    (void)size;
    (void)rwflag;
    (void)u;
    return -1;
}

static const char *last_error(void)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return reason ? reason : "OpenSSL gives no reason";
}

/* --- the context --- */

static int use_certificates(SSL_CTX *context, BIO *bio, struct err *err)
{
    X509 *own = PEM_read_bio_X509(bio, NULL, no_password, NULL);

    if (!own || SSL_CTX_use_certificate(context, own) != 1) {
        X509_free(own);
        return err_set(err, ERR_INVALID, 0, "the file of the certificate has no certificate: %s",
                       last_error());
    }
    if (X509_cmp_current_time(X509_get0_notAfter(own)) < 0)
        log_warning("certificate_expired", "message",
                    "clients will refuse it; put a new one in its place", NULL);
    X509_free(own);
    for (X509 *next; (next = PEM_read_bio_X509(bio, NULL, no_password, NULL));) {
        if (SSL_CTX_add0_chain_cert(context, next) != 1) {
            X509_free(next);
            return err_set(err, ERR_INVALID, 0, "a certificate of the chain: %s", last_error());
        }
    }
    ERR_clear_error(); /* that there was no more */
    return 0;
}

static int use_key(SSL_CTX *context, BIO *bio, struct err *err)
{
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);

    if (!key)
        return err_set(err, ERR_INVALID, 0,
                       "the file of the key has no private key without a password: %s",
                       last_error());
    int r = SSL_CTX_use_PrivateKey(context, key);
    EVP_PKEY_free(key);
    if (r != 1 || SSL_CTX_check_private_key(context) != 1)
        return err_set(err, ERR_INVALID, 0, "the key is not that of the certificate: %s",
                       last_error());
    return 0;
}

/* A client that knows protocols by name, but not this one, hears so. */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_n,
                           const unsigned char *offered, unsigned n, void *arg)
{
    static const char http[] = "http/1.1";

    (void)ssl;
    (void)arg;
    for (unsigned i = 0; i < n; i += 1U + offered[i]) {
        if (offered[i] == sizeof(http) - 1 && i + 1 + offered[i] <= n &&
            memcmp(offered + i + 1, http, sizeof(http) - 1) == 0) {
            *ret = offered + i + 1;
            *ret_n = sizeof(http) - 1;
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static SSL_CTX *make_context(struct err *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        SSL_CTX_free(context);
        err_set(err, ERR_KERNEL, 0, "this host's OpenSSL makes no TLS 1.2: %s", last_error());
        return NULL;
    }
    (void)SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE |
                                           SSL_OP_PRIORITIZE_CHACHA);
    (void)SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                        SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                        SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return context;
}

SSL_CTX *certificate_load(int certificate, int key, struct err *err)
{
    static char bytes[LONGEST_FILE];
    SSL_CTX *context = make_context(err);
    BIO *bio = context ? open_text(certificate, bytes, "certificate", err) : NULL;
    int r = bio ? use_certificates(context, bio, err) : -1;

    BIO_free(bio);
    bio = r == 0 ? open_text(key, bytes, "key", err) : NULL;
    r = bio ? use_key(context, bio, err) : -1;
    BIO_free(bio);
    explicit_bzero(bytes, sizeof(bytes));
    ERR_clear_error();
    if (r == 0)
        return context;
    SSL_CTX_free(context);
    return NULL;
}
