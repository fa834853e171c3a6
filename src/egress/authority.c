/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/authority.h"
#include "egress/keystore.h"

#include <errno.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"

enum {
    DAY = 24 * 60 * 60,
    AUTHORITY_DAYS = 397, /* no sandbox lives for so long */
    LEAF_DAYS = 8,
    SERIAL = 16,
    SHOWN = 8, /* bytes of the key's hash that its name has */
    CONSTRAINTS = 96 << 10,
};

struct authority {
    EVP_PKEY *key;
    X509 *issuer; /* with the name and the key that the certificate inside has; never sent */
};

static int add(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX c;

    X509V3_set_ctx(&c, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &c, nid, value);
    int r = extension && X509_add_ext(cert, extension, -1) == 1 ? 0 : -1;
    X509_EXTENSION_free(extension);
    return r;
}

static int set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL];
    BIGNUM *number = NULL;

    if (RAND_bytes(bytes, sizeof(bytes)) == 1) {
        bytes[0] = (unsigned char)((bytes[0] & 0x7fU) | 0x40U);
        number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    }
    int r = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) ? 0 : -1;
    BN_free(number);
    return r;
}

static int set_times(X509 *cert, long days)
{
    return X509_gmtime_adj(X509_getm_notBefore(cert), -DAY) &&
                   X509_gmtime_adj(X509_getm_notAfter(cert), days * DAY)
               ? 0
               : -1;
}

static int add_name(X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)text, -1, -1,
                                      0) == 1
               ? 0
               : -1;
}

/* Of two authorities no two have the same. */
static int set_own_name(X509 *cert, EVP_PKEY *key)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[64] = "Carrel sandbox ";
    unsigned char *der = NULL;
    int n = i2d_PUBKEY(key, &der);
    bool good = n > 0 && EVP_Digest(der, (size_t)n, digest, NULL, EVP_sha256(), NULL) == 1;

    OPENSSL_free(der);
    if (!good)
        return -1;
    bytes_to_hex(digest, SHOWN, text + strlen(text));
    return add_name(X509_get_subject_name(cert), text) < 0 ||
                   X509_set_issuer_name(cert, X509_get_subject_name(cert)) != 1
               ? -1
               : 0;
}

/* Names that are given, and no address whatever. */
static int add_constraints(X509 *cert, const char *const *names)
{
    scoped_buf struct buf b;

    buf_init(&b, CONSTRAINTS);
    buf_str(&b, "critical");
    for (size_t i = 0; names[i]; i++)
        buf_printf(&b, ",permitted;DNS:%s", names[i]);
    buf_str(&b, ",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0");
    return buf_done(&b) < 0 ? -1 : add(cert, cert, NID_name_constraints, b.p);
}

/* `names`: NULL for one that is never shown. */
static X509 *make_issuer(EVP_PKEY *key, const char *const *names)
{
    X509 *cert = X509_new();

    if (cert && X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) == 0 &&
        set_times(cert, AUTHORITY_DAYS) == 0 && set_own_name(cert, key) == 0 &&
        X509_set_pubkey(cert, key) == 1 &&
        add(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") == 0 &&
        add(cert, cert, NID_key_usage, "critical,keyCertSign") == 0 &&
        add(cert, cert, NID_subject_key_identifier, "hash") == 0 &&
        (!names || add_constraints(cert, names) == 0) && X509_sign(cert, key, EVP_sha256()) > 0)
        return cert;
    X509_free(cert);
    return NULL;
}

static int print_key(EVP_PKEY *key)
{
    unsigned char *der = NULL;
    char hex[AUTHORITY_KEY];
    int n = i2d_PrivateKey(key, &der);
    bool good = n > 0 && 2 * (size_t)n < sizeof(hex);

    if (good) {
        bytes_to_hex(der, (size_t)n, hex);
        good = printf("%s\n", hex) > 0;
    }
    if (n > 0)
        OPENSSL_clear_free(der, (size_t)n);
    OPENSSL_cleanse(hex, sizeof(hex));
    return good ? 0 : -1;
}

static int print_store(X509 *cert)
{
    scoped_buf struct buf store;
    scoped_buf struct buf line;

    buf_init(&store, 2UL * KEYSTORE_BYTES);
    buf_init(&line, 4UL * KEYSTORE_BYTES);
    if (keystore_add(&store, STDIN_FILENO, cert) < 0)
        return -1;
    bytes_add_base64(&line, store.p, store.n);
    buf_str(&line, "\n");
    return buf_done(&line) == 0 && fwrite(line.p, line.n, 1, stdout) == 1 ? 0 : -1;
}

int authority_make(const char *const *names, struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = key ? make_issuer(key, names) : NULL;
    bool good = cert && print_key(key) == 0 && print_store(cert) == 0 &&
                PEM_write_X509(stdout, cert) == 1 && fflush(stdout) == 0;

    X509_free(cert);
    EVP_PKEY_free(key);
    return good ? 0 : err_set(err, ERR_KERNEL, 0, "make the authority of a sandbox");
}

struct authority *authority_open(const char *text, struct err *err)
{
    unsigned char der[AUTHORITY_KEY / 2];
    const unsigned char *at = der;
    size_t n = strlen(text) / 2;
    struct authority *a = calloc(1, sizeof(*a));

    if (a && n <= sizeof(der) && bytes_are_hex(text, 2 * n) && bytes_from_hex(text, n, der))
        a->key = d2i_PrivateKey(EVP_PKEY_EC, NULL, &at, (long)n);
    OPENSSL_cleanse(der, sizeof(der));
    if (a && a->key)
        a->issuer = make_issuer(a->key, NULL);
    if (a && a->issuer)
        return a;
    authority_free(a);
    err_set(err, ERR_INVALID, 0, "the authority of a sandbox is none");
    return NULL;
}

X509 *authority_issue(const struct authority *a, const char *host, EVP_PKEY *key)
{
    X509 *cert = X509_new();
    char names[320];

    snprintf(names, sizeof(names), "DNS:%s", host);
    if (cert && X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) == 0 &&
        set_times(cert, LEAF_DAYS) == 0 &&
        X509_set_issuer_name(cert, X509_get_subject_name(a->issuer)) == 1 &&
        add_name(X509_get_subject_name(cert), "Carrel") == 0 && X509_set_pubkey(cert, key) == 1 &&
        add(cert, a->issuer, NID_basic_constraints, "critical,CA:FALSE") == 0 &&
        add(cert, a->issuer, NID_key_usage, "critical,digitalSignature") == 0 &&
        add(cert, a->issuer, NID_ext_key_usage, "serverAuth") == 0 &&
        add(cert, a->issuer, NID_subject_alt_name, names) == 0 &&
        add(cert, a->issuer, NID_subject_key_identifier, "hash") == 0 &&
        add(cert, a->issuer, NID_authority_key_identifier, "keyid:always") == 0 &&
        X509_sign(cert, a->key, EVP_sha256()) > 0)
        return cert;
    X509_free(cert);
    return NULL;
}

void authority_free(struct authority *a)
{
    if (!a)
        return;
    X509_free(a->issuer);
    EVP_PKEY_free(a->key);
    free(a);
}
