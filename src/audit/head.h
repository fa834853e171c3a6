/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads: what shows that a chain was cut off, or hashed anew from a change on.
 *
 *   {"head":1,"seq":42,"hash":"<64 hex>","time":"2026-01-02T03:04:05.678901Z","sink":"file",
 *    "key":"<16 hex>","sig":"<128 hex>"}
 *
 * `hash` is that of record `seq`; `sink` says where heads are sent besides the state directory. The
 * signature is Ed25519 over "carrel audit head\n" and the line up to and without `,"sig"`. `key` is
 * the beginning of the SHA-256 of the public key, which is written as "ed25519:<64 hex>". */
#pragma once

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "audit/line.h"
#include "base/err.h"

enum {
    AUDIT_KEY_BYTES = 32,
    AUDIT_KEY_ID = 17,
    AUDIT_KEY_TEXT = 8 + 64 + 1,
    AUDIT_SIGNATURE = 129,
    AUDIT_SINK = 12,
    AUDIT_HEAD = 384, /* longest line, and NUL */
    AUDIT_KEYS = 64,  /* most keys of one record: each is there because one was lost */
};

struct audit_head {
    uint64_t seq;
    char hash[AUDIT_HEX];
    char time[AUDIT_TIME];
    char sink[AUDIT_SINK]; /* "none", "file", "url", "file+url" */
    char key[AUDIT_KEY_ID];
    char signature[AUDIT_SIGNATURE];
};

struct audit_key {
    unsigned char bytes[AUDIT_KEY_BYTES];
    char id[AUDIT_KEY_ID];
};

struct audit_keys {
    struct audit_key items[AUDIT_KEYS];
    size_t count;
};

/* True for exactly what audit_head_encode writes. */
bool audit_head_parse(const char *line, size_t n, struct audit_head *ret);
/* Without a newline. */
void audit_head_encode(const struct audit_head *head, char ret[AUDIT_HEAD]);
/* Sets key and signature. -1: this OpenSSL cannot. */
int audit_head_sign(struct audit_head *head, EVP_PKEY *pair);
bool audit_head_is_signed_by(const struct audit_head *head, const struct audit_key *key);

/* "ed25519:<64 hex>", with or without a newline. */
bool audit_key_parse(const char *text, struct audit_key *ret);
void audit_key_text(const struct audit_key *key, char ret[AUDIT_KEY_TEXT]);
int audit_key_of(EVP_PKEY *pair, struct audit_key *ret);
/* One key a line. */
int audit_keys_parse(const char *text, struct audit_keys *ret, struct err *err);

/* What is needed of a head once its signature was found good. */
struct audit_anchor {
    uint64_t seq;
    unsigned char hash[32];
    char time[AUDIT_TIME];
};

/* Heads to hold a record against, by sequence number. */
struct audit_anchors {
    struct audit_anchor *items;
    size_t count;
    size_t room;
    char sink[AUDIT_SINK]; /* of the newest */
    char key[AUDIT_KEY_ID];
    uint64_t newest;   /* the largest number among those that were added last; 0: none */
    const char *where; /* a word for messages: the file or address they are from */
};

/* Adds the heads of a text, one a line; each must be signed by one of the keys. In a file of the
 * sink's own (`is_own`) they are in order, and an end without a newline is no head (a writer was
 * killed). */
int audit_anchors_add(struct audit_anchors *anchors, const char *text, size_t n,
                      const struct audit_keys *keys, bool is_own, struct err *err);
void audit_anchors_sort(struct audit_anchors *anchors);
void audit_anchors_clear(struct audit_anchors *anchors);
bool audit_anchor_is(const struct audit_anchor *anchor, const char hash[AUDIT_HEX]);

/* --- heads_file.c: a file of heads, in their order, of any size --- */

/* Where reading begins that wants the heads from `seq` on: at a line, not far before them. */
off_t audit_heads_seek(int fd, uint64_t seq);
bool audit_heads_find(int dir, const char *path, uint64_t seq, struct audit_head *ret);
/* 1: *ret is the last one, whole lines end at *ret_whole; 0: there is none; or -errno, -EBADMSG
 * when the last line is no head. */
int audit_heads_last(int fd, struct audit_head *ret, off_t *ret_whole);

/* A whole file of heads or keys, at most some hundred MiB of it, into *ret, which is begun here. 1:
 * there is none. */
int audit_read_file(int dir, const char *path, struct buf *ret, struct err *err);
