/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/keystore.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAGIC = 0xfeedfeed,
    VERSION = 2,
    HEAD = 12, /* magic, version, how many */
    DIGEST = 20,
    TRUSTED = 2, /* the kind of an entry: a certificate, and no key */
    MOST_ENTRIES = 10000,
};

/* "changeit", as two bytes a letter, and what Java puts behind every password. */
static const char salt[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";

static uint32_t get_u32(const char *p)
{
    const unsigned char *c = (const unsigned char *)p;

    return (uint32_t)c[0] << 24 | (uint32_t)c[1] << 16 | (uint32_t)c[2] << 8 | c[3];
}

static void add_number(struct buf *b, uint64_t value, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--)
        buf_add(b, &(char){(char)(value >> (8 * i))}, 1);
}

static void add_text(struct buf *b, const char *text)
{
    add_number(b, strlen(text), 2);
    buf_str(b, text);
}

static int read_all(int fd, struct buf *ret)
{
    char piece[4096];
    ssize_t n;

    while ((n = read(fd, piece, sizeof(piece))) != 0) {
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            buf_add(ret, piece, (size_t)n);
    }
    return buf_done(ret);
}

static int add_entry(struct buf *b, X509 *cert)
{
    unsigned char *der = NULL;
    int n = i2d_X509(cert, &der);

    if (n <= 0)
        return -1;
    add_number(b, TRUSTED, 4);
    add_text(b, "carrel");
    add_number(b, (uint64_t)time(NULL) * 1000, 8);
    add_text(b, "X.509");
    add_number(b, (uint64_t)n, 4);
    buf_add(b, der, (size_t)n);
    OPENSSL_free(der);
    return 0;
}

static int add_digest(struct buf *b)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha1(), NULL) == 1 &&
                EVP_DigestUpdate(context, salt, sizeof(salt) - 1) == 1 &&
                EVP_DigestUpdate(context, b->p, b->n) == 1 &&
                EVP_DigestFinal_ex(context, digest, NULL) == 1;

    EVP_MD_CTX_free(context);
    if (good)
        buf_add(b, digest, DIGEST);
    return good ? 0 : -1;
}

int keystore_add(struct buf *b, int fd, X509 *cert)
{
    scoped_buf struct buf old;

    buf_init(&old, KEYSTORE_BYTES);
    if (read_all(fd, &old) < 0 || old.n < HEAD + DIGEST || get_u32(old.p) != MAGIC ||
        get_u32(old.p + 4) != VERSION || get_u32(old.p + 8) > MOST_ENTRIES)
        return 0;
    buf_add(b, old.p, 8);
    add_number(b, get_u32(old.p + 8) + 1, 4);
    buf_add(b, old.p + HEAD, old.n - HEAD - DIGEST);
    return add_entry(b, cert) < 0 || buf_done(b) < 0 || add_digest(b) < 0 ? -1 : buf_done(b);
}
