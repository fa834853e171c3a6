/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

#include "base/bytes.h"

static EVP_MD *sha256;

/* EVP_sha256() is looked up by name at every use. */
static void fetch(void)
{
    sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
}

int digest_bytes(const void *bytes, size_t n, unsigned char ret[DIGEST_BYTES])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;

    if (pthread_once(&once, fetch) != 0 || !sha256 ||
        EVP_Digest(bytes, n, digest, &size, sha256, NULL) != 1 || size != DIGEST_BYTES)
        return -EIO;
    memcpy(ret, digest, DIGEST_BYTES);
    return 0;
}

int digest_hex(const void *bytes, size_t n, char ret[DIGEST_HEX])
{
    unsigned char digest[DIGEST_BYTES];
    int r = digest_bytes(bytes, n, digest);

    if (r == 0)
        bytes_to_hex(digest, sizeof(digest), ret);
    return r;
}
