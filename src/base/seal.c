/* SPDX-License-Identifier: Apache-2.0 */
#include "base/seal.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"

enum {
    VERSION = 1,
    TAG = 16,
    NONCE = 12,
    HEAD = 1 + SEAL_KEY, /* version, and the sender's half of a pair made for this text */
};

_Static_assert((int)SEAL_MORE == HEAD + TAG, "what a sealed text has besides");

static const char purpose[] = "carrel secret 1";

static int public_of(EVP_PKEY *key, unsigned char ret[SEAL_KEY])
{
    size_t n = SEAL_KEY;

    return key && EVP_PKEY_get_raw_public_key(key, ret, &n) == 1 && n == SEAL_KEY ? 0 : -EIO;
}

int seal_public(const unsigned char secret[SEAL_KEY], unsigned char ret[SEAL_KEY])
{
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret, SEAL_KEY);
    int r = public_of(key, ret);

    EVP_PKEY_free(key);
    return r;
}

int seal_prepare(void)
{
    static const unsigned char secret[SEAL_KEY] = {1};
    unsigned char public[SEAL_KEY];
    struct buf sealed;

    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return -EIO;
    buf_init(&sealed, SEAL_HEX);
    int r = seal_public(secret, public);
    if (r == 0)
        r = seal(public, "", "", 0, &sealed);
    buf_clear(&sealed);
    return r;
}

/* What both sides can work out, and nobody else. */
static int agree(EVP_PKEY *own, EVP_PKEY *other, unsigned char ret[SEAL_KEY])
{
    EVP_PKEY_CTX *c = own && other ? EVP_PKEY_CTX_new(own, NULL) : NULL;
    size_t n = SEAL_KEY;
    bool good = c && EVP_PKEY_derive_init(c) == 1 && EVP_PKEY_derive_set_peer(c, other) == 1 &&
                EVP_PKEY_derive(c, ret, &n) == 1 && n == SEAL_KEY;

    EVP_PKEY_CTX_free(c);
    return good ? 0 : -EIO;
}

/* Bound to both halves, so that a key stands for one pair and one text. */
static int expand(unsigned char shared[SEAL_KEY], const unsigned char from[SEAL_KEY],
                  const unsigned char to[SEAL_KEY], unsigned char ret[SEAL_KEY])
{
    unsigned char salt[2 * SEAL_KEY];
    char digest[] = "SHA256";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *c = kdf ? EVP_KDF_CTX_new(kdf) : NULL;

    memcpy(salt, from, SEAL_KEY);
    memcpy(salt + SEAL_KEY, to, SEAL_KEY);
    const OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, shared, SEAL_KEY),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof(salt)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)purpose,
                                          sizeof(purpose) - 1),
        OSSL_PARAM_construct_end()};
    bool good = c && EVP_KDF_derive(c, ret, SEAL_KEY, params) == 1;
    EVP_KDF_CTX_free(c);
    EVP_KDF_free(kdf);
    return good ? 0 : -EIO;
}

/* The key of one text is used once, so that its nonce may be known. The tag is behind what is
 * encrypted. */
static int run_cipher(bool encrypt, const unsigned char key[SEAL_KEY], const char *about,
                      const unsigned char *in, size_t n, unsigned char *out)
{
    unsigned char *tag = encrypt ? out + n : (unsigned char *)(uintptr_t)(in + n);
    static const unsigned char nonce[NONCE] = {0};
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    int some = 0;
    bool good =
        c && EVP_CipherInit_ex(c, EVP_aes_256_gcm(), NULL, key, nonce, (int)encrypt) == 1 &&
        EVP_CipherUpdate(c, NULL, &some, (const unsigned char *)about, (int)strlen(about)) == 1 &&
        EVP_CipherUpdate(c, out, &some, in, (int)n) == 1 && (size_t)some == n;

    if (good && !encrypt)
        good = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1;
    good = good && EVP_CipherFinal_ex(c, out + n, &some) == 1;
    if (good && encrypt)
        good = EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, tag) == 1;
    EVP_CIPHER_CTX_free(c);
    return good ? 0 : -EIO;
}

/* `own` is the half of whoever asks, `from` and `to` are the known halves. */
static int key_of(EVP_PKEY *own, EVP_PKEY *other, const unsigned char *from,
                  const unsigned char *to, unsigned char ret[SEAL_KEY])
{
    unsigned char shared[SEAL_KEY];
    int r = agree(own, other, shared);

    if (r == 0)
        r = expand(shared, from, to, ret);
    OPENSSL_cleanse(shared, sizeof(shared));
    return r;
}

int seal(const unsigned char public[SEAL_KEY], const char *about, const char *text, size_t n,
         struct buf *ret)
{
    unsigned char bytes[SEAL_MOST + SEAL_MORE] = {VERSION};
    unsigned char key[SEAL_KEY];

    if (n > SEAL_MOST)
        return -E2BIG;
    EVP_PKEY *own = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, public, SEAL_KEY);
    int r = public_of(own, bytes + 1);
    if (r == 0)
        r = key_of(own, other, bytes + 1, public, key);
    if (r == 0)
        r = run_cipher(true, key, about, (const unsigned char *)text, n, bytes + HEAD);
    EVP_PKEY_free(own);
    EVP_PKEY_free(other);
    OPENSSL_cleanse(key, sizeof(key));
    char *at = r == 0 ? buf_room(ret, 2 * (n + SEAL_MORE)) : NULL;
    if (!at)
        return -EIO;
    bytes_to_hex(bytes, n + SEAL_MORE, at);
    ret->n += 2 * (n + SEAL_MORE);
    return 0;
}

ssize_t seal_open(const unsigned char secret[SEAL_KEY], const char *about, const char *sealed,
                  char *ret)
{
    unsigned char bytes[SEAL_MOST + SEAL_MORE];
    unsigned char own_public[SEAL_KEY];
    unsigned char key[SEAL_KEY];
    size_t n = strlen(sealed) / 2;

    if (n < SEAL_MORE || n > sizeof(bytes) || !bytes_are_hex(sealed, 2 * n) || sealed[2 * n] ||
        !bytes_from_hex(sealed, n, bytes) || bytes[0] != VERSION)
        return -EBADMSG;
    n -= SEAL_MORE;
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, secret, SEAL_KEY);
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, bytes + 1, SEAL_KEY);
    int r = public_of(own, own_public);
    if (r == 0)
        r = key_of(own, other, bytes + 1, own_public, key);
    if (r == 0)
        r = run_cipher(false, key, about, bytes + HEAD, n, (unsigned char *)ret);
    EVP_PKEY_free(own);
    EVP_PKEY_free(other);
    OPENSSL_cleanse(key, sizeof(key));
    if (r < 0) {
        OPENSSL_cleanse(ret, n);
        return -EBADMSG;
    }
    ret[n] = '\0';
    return (ssize_t)n;
}
