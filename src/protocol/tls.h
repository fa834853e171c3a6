/* SPDX-License-Identifier: Apache-2.0 */
/* What carrel-tls says and is told. Over its socket (descriptor 3): a text from it, TLS_READY when
 * it has begun, else words for the log; to it one byte with two descriptors, the certificate and
 * its key. Over the door (descriptor 5), to the front: the address of a client, and one end of a
 * pair in which its bytes are plain. */
#pragma once

enum {
    TLS_SOCKET = 3,
    TLS_LISTENER = 4,
    TLS_DOOR = 5,
    TLS_ADDRESS = 16, /* IPv4 as ::ffff:a.b.c.d */
    TLS_WORDS = 480,
};

#define TLS_READY "ready"
#define TLS_BAD   "bad " /* the certificate was not taken: why */
