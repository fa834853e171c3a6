/* SPDX-License-Identifier: Apache-2.0 */
#include "audit/head.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/fd.h"

#define DOMAIN "carrel audit head\n" /* no other text that is signed can be taken for a head */

#define MOST_ANCHORS (4UL << 20)
#define LARGEST_FILE (1UL << 30)

enum {
    SIGNATURE_BYTES = 64
};

/* --- one head --- */

/* Up to where the signature begins: what is signed. */
static int encode_body(const struct audit_head *h, char *ret, size_t size)
{
    return snprintf(ret, size,
                    "{\"head\":1,\"seq\":%ju,\"hash\":\"%s\",\"time\":\"%s\",\"sink\":\"%s\","
                    "\"key\":\"%s\"",
                    (uintmax_t)h->seq, h->hash, h->time, h->sink, h->key);
}

void audit_head_encode(const struct audit_head *head, char ret[AUDIT_HEAD])
{
    int n = encode_body(head, ret, AUDIT_HEAD);

    snprintf(ret + n, AUDIT_HEAD - (size_t)n, ",\"sig\":\"%s\"}", head->signature);
}

/* Copies up to the next quote. */
static const char *take_quoted(const char *p, const char *name, char *to, size_t size)
{
    size_t n = strlen(name);

    if (!p || strncmp(p, name, n) != 0)
        return NULL;
    p += n;
    n = strcspn(p, "\"");
    if (n >= size || p[n] != '"')
        return NULL;
    memcpy(to, p, n);
    to[n] = '\0';
    return p + n + 1;
}

static bool is_time(const char *text)
{
    static const char shape[] = "0000-00-00T00:00:00.000000Z";

    for (size_t i = 0; i < sizeof(shape); i++)
        if (shape[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
            return false;
    return true;
}

static bool is_sink(const char *text)
{
    static const char *const known[] = {"none", "file", "url", "file+url"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(text, known[i]) == 0)
            return true;
    return false;
}

bool audit_head_parse(const char *line, size_t n, struct audit_head *ret)
{
    char text[AUDIT_HEAD];
    char again[AUDIT_HEAD];
    char *end;

    if (n >= sizeof(text) || memchr(line, '\0', n))
        return false;
    memcpy(text, line, n);
    text[n] = '\0';
    *ret = (struct audit_head){0};
    if (strncmp(text, "{\"head\":1,\"seq\":", 16) != 0)
        return false;
    errno = 0;
    ret->seq = strtoull(text + 16, &end, 10);
    if (errno || ret->seq == 0)
        return false;
    const char *p = take_quoted(end, ",\"hash\":\"", ret->hash, sizeof(ret->hash));
    p = take_quoted(p, ",\"time\":\"", ret->time, sizeof(ret->time));
    p = take_quoted(p, ",\"sink\":\"", ret->sink, sizeof(ret->sink));
    p = take_quoted(p, ",\"key\":\"", ret->key, sizeof(ret->key));
    p = take_quoted(p, ",\"sig\":\"", ret->signature, sizeof(ret->signature));
    if (!p || !bytes_are_hex(ret->hash, AUDIT_HEX - 1) || !is_time(ret->time) ||
        !is_sink(ret->sink) || !bytes_are_hex(ret->key, AUDIT_KEY_ID - 1) ||
        !bytes_are_hex(ret->signature, AUDIT_SIGNATURE - 1))
        return false;
    /* There is one way to write each. */
    audit_head_encode(ret, again);
    return strlen(again) == n && memcmp(again, text, n) == 0;
}

static size_t message_of(const struct audit_head *head, char *ret, size_t size)
{
    memcpy(ret, DOMAIN, sizeof(DOMAIN) - 1);
    return sizeof(DOMAIN) - 1 +
           (size_t)encode_body(head, ret + sizeof(DOMAIN) - 1, size - sizeof(DOMAIN) + 1);
}

int audit_head_sign(struct audit_head *head, EVP_PKEY *pair)
{
    unsigned char signature[SIGNATURE_BYTES];
    char message[AUDIT_HEAD + sizeof(DOMAIN)];
    size_t size = sizeof(signature);
    struct audit_key key;

    if (audit_key_of(pair, &key) < 0)
        return -1;
    memcpy(head->key, key.id, sizeof(key.id));
    size_t n = message_of(head, message, sizeof(message));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestSignInit(context, NULL, NULL, NULL, pair) == 1 &&
                EVP_DigestSign(context, signature, &size, (const unsigned char *)message, n) == 1 &&
                size == sizeof(signature);
    EVP_MD_CTX_free(context);
    if (!good)
        return -1;
    bytes_to_hex(signature, sizeof(signature), head->signature);
    return 0;
}

bool audit_head_is_signed_by(const struct audit_head *head, const struct audit_key *key)
{
    unsigned char signature[SIGNATURE_BYTES];
    char message[AUDIT_HEAD + sizeof(DOMAIN)];

    if (strcmp(head->key, key->id) != 0 ||
        !bytes_from_hex(head->signature, SIGNATURE_BYTES, signature))
        return false;
    size_t n = message_of(head, message, sizeof(message));
    EVP_PKEY *public =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key->bytes, sizeof(key->bytes));
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = public && context && EVP_DigestVerifyInit(context, NULL, NULL, NULL, public) == 1 &&
                EVP_DigestVerify(context, signature, sizeof(signature),
                                 (const unsigned char *)message, n) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(public);
    return good;
}

/* --- keys --- */

static int set_id(struct audit_key *key)
{
    char hash[AUDIT_HEX];

    if (audit_hash((const char *)key->bytes, sizeof(key->bytes), hash) < 0)
        return -1;
    memcpy(key->id, hash, AUDIT_KEY_ID - 1);
    key->id[AUDIT_KEY_ID - 1] = '\0';
    return 0;
}

int audit_key_of(EVP_PKEY *pair, struct audit_key *ret)
{
    size_t n = sizeof(ret->bytes);

    if (EVP_PKEY_get_raw_public_key(pair, ret->bytes, &n) != 1 || n != sizeof(ret->bytes))
        return -1;
    return set_id(ret);
}

bool audit_key_parse(const char *text, struct audit_key *ret)
{
    size_t n = strcspn(text, "\r\n");

    return n == AUDIT_KEY_TEXT - 1 && strncmp(text, "ed25519:", 8) == 0 &&
           strspn(text + n, "\r\n") == strlen(text + n) &&
           bytes_from_hex(text + 8, AUDIT_KEY_BYTES, ret->bytes) && set_id(ret) == 0;
}

void audit_key_text(const struct audit_key *key, char ret[AUDIT_KEY_TEXT])
{
    snprintf(ret, AUDIT_KEY_TEXT, "ed25519:");
    bytes_to_hex(key->bytes, sizeof(key->bytes), ret + 8);
}

int audit_keys_parse(const char *text, struct audit_keys *ret, struct err *err)
{
    char line[AUDIT_KEY_TEXT];

    ret->count = 0;
    while (*text) {
        size_t n = strcspn(text, "\n");
        if (n >= sizeof(line) || ret->count == AUDIT_KEYS)
            return err_set(err, ERR_INVALID, 0,
                           "that is not a list of public keys, 'ed25519:' and "
                           "64 digits of hex on each line");
        memcpy(line, text, n);
        line[n] = '\0';
        if (n && !audit_key_parse(line, &ret->items[ret->count++]))
            return err_set(err, ERR_INVALID, 0,
                           "'%.80s' is not a public key: 'ed25519:' and 64 "
                           "digits of hex",
                           line);
        text += n + (text[n] == '\n');
    }
    return 0;
}

/* --- heads to hold a record against --- */

bool audit_anchor_is(const struct audit_anchor *anchor, const char hash[AUDIT_HEX])
{
    char text[AUDIT_HEX];

    bytes_to_hex(anchor->hash, sizeof(anchor->hash), text);
    return memcmp(text, hash, AUDIT_HEX) == 0;
}

static int add_anchor(struct audit_anchors *a, const struct audit_head *head)
{
    if (a->count == a->room) {
        size_t room = a->room ? a->room * 2 : 64;
        struct audit_anchor *items =
            room > MOST_ANCHORS ? NULL : realloc(a->items, room * sizeof(*items));
        if (!items)
            return -1;
        a->items = items;
        a->room = room;
    }
    struct audit_anchor *one = &a->items[a->count++];
    *one = (struct audit_anchor){.seq = head->seq};
    (void)bytes_from_hex(head->hash, sizeof(one->hash), one->hash); /* was looked at */
    memcpy(one->time, head->time, sizeof(one->time));
    return 0;
}

static bool is_signed_by_any(const struct audit_head *head, const struct audit_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++)
        if (audit_head_is_signed_by(head, &keys->items[i]))
            return true;
    return false;
}

int audit_anchors_add(struct audit_anchors *anchors, const char *text, size_t n,
                      const struct audit_keys *keys, bool is_own, struct err *err)
{
    const char *end = text + n;
    struct audit_head head;

    anchors->newest = 0;
    for (unsigned number = 1; text < end; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t length = newline ? (size_t)(newline - text) : (size_t)(end - text);
        if (!newline && is_own)
            return 0;
        if (!audit_head_parse(text, length, &head))
            return err_set(err, ERR_CONFLICT, 0, "line %u of the heads is not a signed head",
                           number);
        if (!is_signed_by_any(&head, keys))
            return err_set(err, ERR_CONFLICT, 0,
                           "line %u of the heads: the signature is not that of %s", number,
                           keys->count == 1 ? "the key" : "any of the keys");
        if (is_own && head.seq < anchors->newest)
            return err_set(err, ERR_CONFLICT, 0,
                           "line %u of the heads: they go backwards, from record %ju to %ju",
                           number, (uintmax_t)anchors->newest, (uintmax_t)head.seq);
        if (add_anchor(anchors, &head) < 0)
            return err_set(err, ERR_LIMIT, ENOMEM, "read the heads");
        if (head.seq >= anchors->newest) {
            anchors->newest = head.seq;
            memcpy(anchors->sink, head.sink, sizeof(head.sink));
            memcpy(anchors->key, head.key, sizeof(head.key));
        }
        text += length + 1;
    }
    return 0;
}

static int by_seq(const void *a, const void *b)
{
    const struct audit_anchor *one = a;
    const struct audit_anchor *other = b;

    return one->seq < other->seq ? -1 : one->seq > other->seq;
}

void audit_anchors_sort(struct audit_anchors *anchors)
{
    if (anchors->count)
        qsort(anchors->items, anchors->count, sizeof(*anchors->items), by_seq);
}

void audit_anchors_clear(struct audit_anchors *anchors)
{
    free(anchors->items);
    *anchors = (struct audit_anchors){0};
}

int audit_read_file(int dir, const char *path, struct buf *ret, struct err *err)
{
    char bytes[16384];
    ssize_t n;

    buf_init(ret, LARGEST_FILE);
    scoped_fd int fd = openat(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0)
        return err_set(err, ERR_IO, errno, "open '%s'", path);
    while ((n = read(fd, bytes, sizeof(bytes))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            buf_clear(ret);
            return err_set(err, ERR_IO, errno, "read '%s'", path);
        }
        buf_add(ret, bytes, (size_t)n);
    }
    if (buf_done(ret) < 0) {
        buf_clear(ret);
        return err_set(err, ERR_LIMIT, 0, "'%s' is larger than any file of heads", path);
    }
    return 0;
}
