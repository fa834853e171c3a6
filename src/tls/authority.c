/* SPDX-License-Identifier: Apache-2.0 */
/* carrel-tls --make: an authority that can speak for one domain and this host alone (name
 * constraints: who trusts it trusts it for nothing else), and a certificate by it. The authority's
 * key stays, so that a certificate that grows old is followed by another without a new authority to
 * trust; who takes it has no more than who takes the certificate's own key. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "tls/tls.h"

enum {
    DAY_S = 24 * 3600,
    AUTHORITY_DAYS = 3650,
    CERTIFICATE_DAYS = 820, /* some systems take none that is good for more than 825 */
    RENEW_DAYS = 60,
    BEFORE_S = 3600, /* clocks of others may be late */
    LONGEST_DOMAIN = 200,
};

struct made {
    X509 *certificate;
    EVP_PKEY *key;
};

static void clear(struct made *m)
{
    X509_free(m->certificate);
    EVP_PKEY_free(m->key);
    *m = (struct made){NULL, NULL};
}

static int openssl_failed(struct err *err, const char *what)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    return err_set(err, ERR_KERNEL, 0, "%s: %s", what, reason ? reason : "OpenSSL gives no reason");
}

/* Small letters, digits and '-', in labels, and at least two of them. */
static int check_domain(const char *domain, struct err *err)
{
    size_t n = strlen(domain);
    bool good = n > 0 && n <= LONGEST_DOMAIN && strchr(domain, '.') &&
                strspn(domain, "abcdefghijklmnopqrstuvwxyz0123456789.-") == n;

    for (const char *label = domain; good && label; label = strchr(label, '.')) {
        label += *label == '.';
        size_t long_ = strcspn(label, ".");
        good = long_ > 0 && long_ <= 63 && label[0] != '-' && label[long_ - 1] != '-';
    }
    if (!good)
        return err_set(err, ERR_INVALID, 0,
                       "'%.100s' is not a domain that a certificate can be for: small letters, "
                       "digits and '-', with a dot in it, like carrel.internal",
                       domain);
    return 0;
}

/* --- files --- */

static BIO *open_bio(const char *name)
{
    int fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? NULL : BIO_new_fd(fd, BIO_CLOSE);
}

/* What is there of it; either may be NULL. */
static struct made read_both(const char *certificate, const char *key)
{
    struct made m = {NULL, NULL};
    BIO *bio = open_bio(certificate);

    m.certificate = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    bio = open_bio(key);
    m.key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    ERR_clear_error();
    return m;
}

/* Whole or not at all: under another name first. The second certificate may be NULL. */
static int write_file(const char *name, mode_t mode, const EVP_PKEY *key, X509 *const *certificates,
                      struct err *err)
{
    char other[64];

    snprintf(other, sizeof(other), "%s.new", name);
    ignore(unlink(other) == 0); /* of a start that was interrupted */
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    BIO *bio = fd < 0 ? NULL : BIO_new_fd(fd, BIO_NOCLOSE);
    bool good = bio && fchmod(fd, mode) == 0;

    if (good && key)
        good = PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1;
    for (; good && certificates && *certificates; certificates++)
        good = PEM_write_bio_X509(bio, *certificates) == 1;
    good = good && fsync(fd) == 0;
    int saved = errno;
    BIO_free(bio);
    scope_close(&fd);
    if (!good || rename(other, name) < 0)
        return err_set(err, ERR_IO, good ? errno : saved, "write '%s'", name);
    return 0;
}

/* --- certificates --- */

static int add_extension(X509 *to, X509 *by, int kind, const char *text)
{
    X509V3_CTX context;

    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, by, to, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, kind, text);
    int r = extension ? X509_add_ext(to, extension, -1) : 0;
    X509_EXTENSION_free(extension);
    return r == 1 ? 0 : -1;
}

static int set_names(X509 *certificate, const char *common, const X509 *by)
{
    X509_NAME *name = X509_get_subject_name(certificate);

    if (X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"Carrel", -1, -1,
                                   0) != 1 ||
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common, -1, -1,
                                   0) != 1)
        return -1;
    return X509_set_issuer_name(certificate, by ? X509_get_subject_name(by) : name) == 1 ? 0 : -1;
}

static int set_serial(X509 *certificate)
{
    unsigned char bytes[16];
    BIGNUM *number = NULL;

    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return -1;
    bytes[0] &= 0x7f;
    number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return good ? 0 : -1;
}

struct extension {
    int kind;
    const char *text;
};

struct plan {
    const char *common;
    long days;
    const struct made *by;              /* NULL: by itself */
    const struct extension *extensions; /* ends with one of no kind */
};

static int make(const struct plan *plan, struct made *ret, struct err *err)
{
    ret->key = EVP_EC_gen("P-256");
    ret->certificate = X509_new();
    X509 *c = ret->certificate;
    X509 *by = plan->by ? plan->by->certificate : c;
    if (!ret->key || !c || X509_set_version(c, X509_VERSION_3) != 1 || set_serial(c) < 0 ||
        set_names(c, plan->common, plan->by ? by : NULL) < 0 ||
        !X509_gmtime_adj(X509_getm_notBefore(c), -BEFORE_S) ||
        !X509_gmtime_adj(X509_getm_notAfter(c), plan->days * DAY_S) ||
        X509_set_pubkey(c, ret->key) != 1)
        return openssl_failed(err, "make a certificate");
    for (size_t i = 0; plan->extensions[i].kind != NID_undef; i++) {
        if (add_extension(c, by, plan->extensions[i].kind, plan->extensions[i].text) < 0)
            return openssl_failed(err, plan->extensions[i].text);
    }
    if (X509_sign(c, plan->by ? plan->by->key : ret->key, EVP_sha256()) == 0)
        return openssl_failed(err, "sign a certificate");
    return 0;
}

static int make_authority(const char *domain, struct made *ret, struct err *err)
{
    char common[64];
    char names[LONGEST_DOMAIN + 200];
    const struct plan plan = {
        .common = common,
        .days = AUTHORITY_DAYS,
        .extensions =
            (const struct extension[]){{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                       {NID_key_usage, "critical,keyCertSign,cRLSign"},
                                       {NID_subject_key_identifier, "hash"},
                                       {NID_name_constraints, names},
                                       {NID_undef, NULL}},
    };

    snprintf(common, sizeof(common), "Carrel, %.50s", domain);
    snprintf(names, sizeof(names),
             "critical,permitted;DNS:%s,permitted;DNS:localhost,"
             "permitted;IP:127.0.0.0/255.0.0.0,"
             "permitted;IP:0:0:0:0:0:0:0:1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
             domain);
    if (make(&plan, ret, err) < 0)
        return -1;
    X509 *const certificates[] = {ret->certificate, NULL};
    if (write_file("ca.key", 0600, ret->key, NULL, err) < 0)
        return -1;
    return write_file("ca.pem", 0644, NULL, certificates, err);
}

static int make_certificate(const char *domain, const struct made *by, struct err *err)
{
    char names[2 * LONGEST_DOMAIN + 100];
    struct made made = {NULL, NULL};
    const struct plan plan = {
        .common = "carrel serve",
        .days = CERTIFICATE_DAYS,
        .by = by,
        .extensions = (const struct extension[]){{NID_basic_constraints, "critical,CA:FALSE"},
                                                 {NID_key_usage, "critical,digitalSignature"},
                                                 {NID_ext_key_usage, "serverAuth"},
                                                 {NID_subject_key_identifier, "hash"},
                                                 {NID_authority_key_identifier, "keyid:always"},
                                                 {NID_subject_alt_name, names},
                                                 {NID_undef, NULL}},
    };

    snprintf(names, sizeof(names), "DNS:%s,DNS:*.%s,DNS:localhost,IP:127.0.0.1,IP:::1", domain,
             domain);
    int r = make(&plan, &made, err);
    if (r == 0)
        r = write_file("key.pem", 0600, made.key, NULL, err);
    X509 *const chain[] = {made.certificate, by->certificate, NULL};
    if (r == 0)
        r = write_file("cert.pem", 0644, NULL, chain, err);
    clear(&made);
    return r;
}

/* --- what is there already --- */

static bool lasts(const X509 *certificate, long days)
{
    time_t then = time(NULL) + days * DAY_S;

    return X509_cmp_time(X509_get0_notAfter(certificate), &then) > 0;
}

/* Every name below the domain, by what the certificate says it is for. */
static bool is_for(X509 *certificate, const char *domain)
{
    char name[LONGEST_DOMAIN + 4];

    snprintf(name, sizeof(name), "x.%s", domain);
    return X509_check_host(certificate, name, 0, 0, NULL) == 1;
}

static bool is_authority_for(const struct made *m, const char *domain)
{
    char common[64];
    char found[64] = "";

    if (!m->certificate || !m->key || X509_check_private_key(m->certificate, m->key) != 1 ||
        !lasts(m->certificate, RENEW_DAYS))
        return false;
    snprintf(common, sizeof(common), "Carrel, %.50s", domain);
    (void)X509_NAME_get_text_by_NID(X509_get_subject_name(m->certificate), NID_commonName, found,
                                    sizeof(found));
    return strcmp(found, common) == 0;
}

static bool is_good(const struct made *m, const struct made *by, const char *domain)
{
    return m->certificate && m->key && X509_check_private_key(m->certificate, m->key) == 1 &&
           is_for(m->certificate, domain) && lasts(m->certificate, RENEW_DAYS) &&
           X509_verify(m->certificate, X509_get0_pubkey(by->certificate)) == 1;
}

int certificates_make(const char *domain, struct err *err)
{
    if (check_domain(domain, err) < 0)
        return -1;
    struct made authority = read_both("ca.pem", "ca.key");
    int r = 0;

    if (!is_authority_for(&authority, domain)) {
        clear(&authority);
        r = make_authority(domain, &authority, err);
    }
    struct made own = read_both("cert.pem", "key.pem");
    if (r == 0 && !is_good(&own, &authority, domain))
        r = make_certificate(domain, &authority, err);
    clear(&own);
    clear(&authority);
    return r;
}
