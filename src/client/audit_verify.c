/* SPDX-License-Identifier: Apache-2.0 */
/* carrel audit verify and key: the chain, and the signed heads it is held against. */
#include "client/audit_verify.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit/head.h"
#include "cli/cli.h"

enum {
    LONGEST_LINE = 1 << 20,
    DER_PREFIX = 12,
};

/* What a record is held against, and where that is from. */
struct proof {
    struct audit_keys keys;
    struct audit_anchors anchors;
    const char *hash;
    bool has_key;      /* it was given, not read beside the record */
    bool has_heads;    /* likewise */
    char trouble[400]; /* what is wrong with the heads themselves; "" : nothing */
};

/* --- heads and keys, from wherever they are --- */

static size_t take_bytes(char *bytes, size_t one, size_t n, void *context)
{
    struct buf *b = context;

    buf_add(b, bytes, one * n);
    return b->failed ? 0 : one * n;
}

static bool is_url(const char *text)
{
    return strncmp(text, "https://", 8) == 0 || strncmp(text, "http://", 7) == 0;
}

/* Somebody else's server: nothing of ours is sent to it. */
static int fetch(const char *url, struct buf *ret, struct err *err)
{
    char why[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();

    buf_init(ret, CALL_MOST_ANSWER);
    if (!curl)
        return err_set(err, ERR_LIMIT, ENOMEM, "open libcurl");
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 20L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 300L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, ret);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (code == CURLE_OK && buf_done(ret) == 0)
        return 0;
    buf_clear(ret);
    return err_set(err, ERR_IO, 0, "get '%.200s': %s", url, *why ? why : curl_easy_strerror(code));
}

/* From the state directory, or from the daemon. 1: there are none. */
static int read_own(const struct audit_options *o, struct daemon *daemon, const char *name,
                    struct buf *ret, struct err *err)
{
    char dir[WHERE_PATH];
    char path[WHERE_PATH + 32];
    struct call call;

    if (!o->remote) {
        if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
            return -1;
        snprintf(path, sizeof(path), "%s/heads/%s", dir, name);
        return audit_read_file(AT_FDCWD, path, ret, err);
    }
    snprintf(path, sizeof(path), "/v1/audit/%s", strcmp(name, "keys") == 0 ? "keys" : "heads");
    buf_init(ret, CALL_MOST_ANSWER);
    if (call_open(&call, daemon, err) < 0)
        return -1;
    call.accept = "*/*";
    int r = call_wait(&call, "GET", path, err);
    if (r == 0)
        buf_add(ret, call.answer.p, call.answer.n);
    call_close(&call);
    if (r == 0 && buf_done(ret) < 0)
        r = err_set(err, ERR_LIMIT, ENOMEM, "read what the daemon answers");
    return r < 0 ? -1 : ret->n == 0;
}

static int read_keys(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                     struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, 1 << 16);
    proof->has_key = o->key;
    if (o->key && strncmp(o->key, "ed25519:", 8) == 0)
        return audit_keys_parse(o->key, &proof->keys, err);
    int r = o->key ? audit_read_file(AT_FDCWD, o->key, &text, err)
                   : read_own(o, daemon, "keys", &text, err);
    if (r > 0 && o->key)
        return err_set(err, ERR_NOT_FOUND, 0, "there is no file '%s' with a key", o->key);
    if (r != 0)
        return r < 0 ? -1 : 0;
    return audit_keys_parse(text.p, &proof->keys, err);
}

static void note_trouble(struct proof *proof, const char *where, const struct err *err)
{
    if (!proof->trouble[0])
        snprintf(proof->trouble, sizeof(proof->trouble), "%.128s: %.250s", where, err->msg);
}

/* Heads that are not signed are trouble, and told with the rest; what cannot be read is an error.
 */
static int add_heads(struct proof *proof, const char *where, const struct buf *text, bool own,
                     struct err *err)
{
    if (!text->n)
        return 0;
    if (audit_anchors_add(&proof->anchors, text->p, text->n, &proof->keys, own, err) == 0)
        return 0;
    if (err->code != ERR_CONFLICT)
        return -1;
    note_trouble(proof, where, err);
    return 0;
}

static bool is_hash(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

static int read_given(const struct audit_options *o, struct proof *proof, struct err *err)
{
    scoped_buf struct buf text;

    buf_init(&text, 1);
    if (!o->head)
        return 0;
    if (is_hash(o->head)) {
        proof->hash = o->head;
        return 0;
    }
    proof->has_heads = true;
    int r = is_url(o->head) ? fetch(o->head, &text, err)
                            : audit_read_file(AT_FDCWD, o->head, &text, err);
    if (r > 0)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "'%.200s' is no file with heads, no address, and not the hash of a record",
                       o->head);
    return r < 0 ? -1 : add_heads(proof, o->head, &text, false, err);
}

static int read_proof(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                      struct err *err)
{
    scoped_buf struct buf own;

    buf_init(&own, 1);
    if (read_keys(o, daemon, proof, err) < 0 || read_given(o, proof, err) < 0)
        return -1;
    if (read_own(o, daemon, "heads.jsonl", &own, err) < 0 ||
        add_heads(proof, "heads/heads.jsonl", &own, true, err) < 0)
        return -1;
    audit_anchors_sort(&proof->anchors);
    return 0;
}

/* --- the record --- */

struct incoming {
    struct audit_stream *stream;
    struct buf line;
    struct err err;
    bool failed;
};

static size_t take_piece(void *context, const char *bytes, size_t n)
{
    struct incoming *in = context;

    for (size_t at = 0; at < n && !in->failed;) {
        const char *newline = memchr(bytes + at, '\n', n - at);
        size_t part = newline ? (size_t)(newline - (bytes + at)) : n - at;
        buf_add(&in->line, bytes + at, part);
        at += part + 1;
        if (!newline && !in->line.failed)
            break;
        in->failed = in->line.failed || audit_stream_line(in->stream, in->line.p ? in->line.p : "",
                                                          in->line.n, &in->err) < 0;
        in->line.n = 0;
    }
    return n;
}

static int verify_remote(struct daemon *daemon, const struct audit_wanted *wanted,
                         struct audit_report *ret, struct err *err)
{
    struct incoming in = {.err = {.code = ERR_NONE}};
    struct call call;

    if (audit_stream_open(&in.stream, wanted, err) < 0)
        return -1;
    buf_init(&in.line, LONGEST_LINE);
    int r = call_open(&call, daemon, err);
    if (r == 0) {
        call.accept = "application/x-ndjson";
        call.take = take_piece;
        call.context = &in;
        r = call_wait(&call, "GET", "/v1/audit/raw", err);
        call_close(&call);
    }
    if (r == 0 && in.failed)
        r = err_set(err, ERR_IO, 0, "the daemon's lines cannot be read");
    buf_clear(&in.line);
    audit_stream_close(in.stream, ret);
    return r;
}

static int verify_local(const struct audit_options *o, const struct audit_wanted *wanted,
                        struct audit_report *ret, struct err *err)
{
    char dir[WHERE_PATH];
    char place[WHERE_PATH + 8];

    if (where_state(o->common.state, dir, sizeof(dir), err) < 0)
        return -1;
    snprintf(place, sizeof(place), "%s/audit", dir);
    return audit_verify_with(place, wanted, ret, err);
}

/* --- what is told --- */

static int tell_json(const struct proof *p, const struct audit_report *r, bool whole)
{
    json_t *object = json_pack(
        "{s:b,s:I,s:I,s:I,s:s,s:I,s:I,s:s?,s:s?,s:s?,s:b,s:b}", "whole", (int)whole, "records",
        (json_int_t)r->records, "first_seq", (json_int_t)r->first_seq, "last_seq",
        (json_int_t)r->last_seq, "head", r->head, "anchored_seq", (json_int_t)r->anchored_seq,
        "unanchored", (json_int_t)(r->last_seq - r->anchored_seq), "anchored_time",
        r->anchored_seq ? r->anchored_time : NULL, "key", *p->anchors.key ? p->anchors.key : NULL,
        "sink", *p->anchors.sink ? p->anchors.sink : NULL, "key_given", (int)p->has_key,
        "heads_given", (int)p->has_heads);

    if (r->problem[0])
        json_object_set_new(object, "problem",
                            json_pack("{s:s,s:s,s:I,s:I}", "what", r->problem, "file", r->file,
                                      "line", (json_int_t)r->line, "torn_bytes",
                                      (json_int_t)r->torn));
    if (p->trouble[0])
        json_object_set_new(object, "heads_problem", json_string(p->trouble));
    int status = client_print(object);
    return status ? status : !whole;
}

static void describe_anchor(struct buf *b, const struct proof *p, const struct audit_report *r)
{
    uint64_t tail = r->last_seq - r->anchored_seq;

    if (r->first_seq > 1)
        buf_printf(
            b, "begins   with record %ju: what was before was put away, and that is on record\n",
            (uintmax_t)r->first_seq);
    if (r->anchored_seq)
        buf_printf(b, "anchor   record %ju, signed %s by key %s%s\n", (uintmax_t)r->anchored_seq,
                   r->anchored_time, p->anchors.key,
                   p->has_key ? "" : " (the state directory's own: --key to be sure)");
    if (r->anchored_seq && tail)
        buf_printf(b, "tail unanchored: %ju record%s after head %ju\n", (uintmax_t)tail,
                   tail == 1 ? "" : "s", (uintmax_t)r->anchored_seq);
    if (!r->anchored_seq && r->last_seq)
        buf_printf(b, "tail unanchored: %ju records, and no signed head\n", (uintmax_t)r->records);
    if (p->has_heads || p->hash)
        return;
    if (!*p->anchors.sink || strcmp(p->anchors.sink, "none") == 0)
        buf_str(b, "no sink: heads are in the state directory only; who can put back or rewrite "
                   "all of that is not seen\n");
    else
        buf_printf(b,
                   "sink: heads are also sent elsewhere (%s); give them with --head to see a "
                   "state directory put back as a whole\n",
                   p->anchors.sink);
}

static int tell(const struct proof *p, const struct audit_report *r, bool whole)
{
    scoped_buf struct buf b;
    char text[1024];

    buf_init(&b, 1 << 16);
    buf_printf(&b, "records  %ju\nhead     %s\n", (uintmax_t)r->records, r->head);
    describe_anchor(&b, p, r);
    if (whole)
        buf_str(&b, "the chain is whole\n");
    int status = buf_done(&b) == 0 ? cli_put(b.p) : 0;
    if (p->trouble[0]) {
        snprintf(text, sizeof(text), "the heads are not as they were signed: %s", p->trouble);
        cli_say(text);
    }
    if (r->problem[0]) {
        snprintf(text, sizeof(text), "%s: %s, line %ju: %s",
                 r->torn ? "the chain is whole but for its end" : "the chain is broken", r->file,
                 (uintmax_t)r->line, r->problem);
        cli_say(text);
    }
    return status ? status : !whole;
}

static int verify(const struct audit_options *o, struct daemon *daemon, struct err *err)
{
    static struct proof proof;
    struct audit_report report = {0};

    if (read_proof(o, daemon, &proof, err) < 0)
        return client_fail(err);
    struct audit_wanted wanted = {.hash = proof.hash, .anchors = &proof.anchors};
    int r = o->remote ? verify_remote(daemon, &wanted, &report, err)
                      : verify_local(o, &wanted, &report, err);
    bool whole = !report.problem[0] && !proof.trouble[0];
    int status = r < 0            ? client_fail(err)
                 : o->common.json ? tell_json(&proof, &report, whole)
                                  : tell(&proof, &report, whole);
    audit_anchors_clear(&proof.anchors);
    return status;
}

int audit_verify_verb(const struct audit_options *o, struct err *err)
{
    struct daemon daemon = {0};

    if (!o->remote)
        return verify(o, NULL, err);
    if (daemon_open(&daemon, o->common.state, err) < 0)
        return client_fail(err);
    int status = verify(o, &daemon, err);
    daemon_close(&daemon);
    return status;
}

/* --- the public key --- */

/* As openssl reads it. */
static void put_pem(struct buf *b, const struct audit_key *key)
{
    static const unsigned char prefix[DER_PREFIX] = {0x30, 0x2a, 0x30, 0x05, 0x06, 0x03,
                                                     0x2b, 0x65, 0x70, 0x03, 0x21, 0x00};
    unsigned char der[DER_PREFIX + AUDIT_KEY_BYTES];
    unsigned char text[64 + 1];

    memcpy(der, prefix, sizeof(prefix));
    memcpy(der + DER_PREFIX, key->bytes, AUDIT_KEY_BYTES);
    (void)EVP_EncodeBlock(text, der, sizeof(der));
    buf_printf(b, "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n", (char *)text);
}

static int print_key(const struct audit_options *o, const struct audit_keys *keys)
{
    scoped_buf struct buf b;
    const struct audit_key *key = &keys->items[keys->count - 1]; /* the one in use */
    char text[AUDIT_KEY_TEXT];

    audit_key_text(key, text);
    if (o->common.json)
        return client_print(json_pack("{s:s,s:s,s:I}", "key", text, "id", key->id, "keys",
                                      (json_int_t)keys->count));
    buf_init(&b, 4096);
    if (o->pem)
        put_pem(&b, key);
    else
        buf_printf(&b, "%s\n", text);
    return buf_done(&b) == 0 ? cli_put(b.p) : CLI_FAILED;
}

int audit_key_verb(const struct audit_options *o, struct err *err)
{
    struct daemon daemon = {0};
    struct proof *proof = calloc(1, sizeof(*proof));
    int status = CLI_FAILED;

    if (!proof)
        return cli_fail("out of memory");
    if ((o->remote && daemon_open(&daemon, o->common.state, err) < 0) ||
        read_keys(o, &daemon, proof, err) < 0)
        status = client_fail(err);
    else if (!proof->keys.count)
        status = cli_fail("there is no key yet: it is made when the daemon first starts");
    else
        status = print_key(o, &proof->keys);
    if (o->remote)
        daemon_close(&daemon);
    free(proof);
    return status;
}
