/* SPDX-License-Identifier: Apache-2.0 */
/* carrel audit verify and key: the chain, and the signed heads it is held against. */
#include "client/audit/audit_verify.h"

#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "client/audit/audit_proof.h"

enum {
    LONGEST_LINE = 1 << 20,
    DER_PREFIX = 12,
    LOOKS = 5, /* at a record that goes on meanwhile */
    LOOK_PAUSE_MS = 200,
};

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
    scoped_buf struct buf rest;

    buf_init(&rest, 4096);
    proof_rest(p, r, &rest);
    if (buf_done(&rest) < 0)
        return CLI_FAILED;
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
    if (whole)
        json_object_set_new(object, "not_ruled_out", json_string(rest.p));
    if (p->trouble[0])
        json_object_set_new(object, "heads_problem", json_string(p->trouble));
    int status = client_print(object);
    return status ? status : !whole;
}

static void describe_anchor(struct buf *b, const struct proof *p, const struct audit_report *r,
                            bool whole)
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
    if (whole) {
        buf_str(b, "not ruled out: ");
        proof_rest(p, r, b);
        buf_str(b, "\n");
    }
    if (p->has_heads || p->hash)
        return;
    if (!*p->anchors.sink || strcmp(p->anchors.sink, "none") == 0)
        buf_str(b, "no sink: heads are in the state directory only\n");
    else
        buf_printf(b, "sink: heads are also sent elsewhere (%s)\n", p->anchors.sink);
}

static int tell(const struct proof *p, const struct audit_report *r, bool whole)
{
    scoped_buf struct buf b;
    char text[1024];

    buf_init(&b, 1 << 16);
    buf_printf(&b, "records  %ju\nhead     %s\n", (uintmax_t)r->records, r->head);
    describe_anchor(&b, p, r, whole);
    if (whole)
        buf_str(&b, "the chain is whole\n");
    int status = buf_done(&b) == 0 ? cli_put(b.p) : 0;
    if (p->trouble[0]) {
        snprintf(text, sizeof(text), "not verified, for its heads: %s", p->trouble);
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

static int look(const struct audit_options *o, struct daemon *daemon, struct proof *proof,
                struct audit_report *report, struct err *err)
{
    *proof = (struct proof){0};
    *report = (struct audit_report){0};
    if (proof_read(o, daemon, proof, err) < 0)
        return -1;
    struct audit_wanted wanted = {.hash = proof->hash, .anchors = &proof->anchors};
    int r = o->remote ? verify_remote(daemon, &wanted, report, err)
                      : verify_local(o, &wanted, report, err);
    proof_judge(proof, report);
    return r;
}

static int verify(const struct audit_options *o, struct daemon *daemon, struct err *err)
{
    static struct proof proof;
    struct audit_report report;
    int r;

    for (int i = 1; (r = look(o, daemon, &proof, &report, err)) == 0 && proof.is_behind; i++) {
        if (i == LOOKS)
            break;
        audit_anchors_clear(&proof.anchors);
        (void)poll(NULL, 0, LOOK_PAUSE_MS);
    }
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
        proof_read_keys(o, &daemon, proof, err) < 0)
        status = client_fail(err);
    else if (!proof->keys.count)
        status = cli_fail("there is no key yet; the daemon makes one at its first start");
    else
        status = print_key(o, &proof->keys);
    if (o->remote)
        daemon_close(&daemon);
    free(proof);
    return status;
}
