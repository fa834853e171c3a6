/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between front and broker: the first byte chooses the kind, the rest is the body.
 * What is accepted must, written again, give the same bytes: nothing is ignored or read twice. */
#include "fuzz.h"

#include <string.h>

#include "protocol/broker.h"

enum {
    MOST = 8 << 20
};

static void must_be(struct buf *b, const char *bytes, size_t n)
{
    MUST(buf_done(b) == 0 && b->n == n && memcmp(b->p, bytes, n) == 0);
}

static void try_exec(char *bytes, size_t n, struct arena *arena, struct buf *b)
{
    struct exec_message m;
    uint64_t tag;

    if (!protocol_unpack_exec(bytes, n, arena, &tag, &m))
        return;
    MUST(protocol_id_is_valid(m.workspace) && protocol_id_is_valid(m.bucket));
    MUST(!strchr(m.workspace, '/') && !strchr(m.bucket, '/') && m.workspace[0] != '.');
    MUST(m.argv[0] && m.spec.level <= CARREL_LEVEL_NS && m.spec.net <= CARREL_NET_ALLOW);
    for (const char *const *three = m.spec.shared; *three; three += 3) {
        bool is_tree = protocol_id_is_valid(three[0]);
        MUST(is_tree || (strncmp(three[0], "skills/", 7) == 0 &&
                         protocol_id_is_valid(three[0] + 7) && strcmp(three[2], "ro") == 0));
        MUST(!is_tree || three[0] == protocol_shown(&m.spec)); /* there is one at most */
    }
    protocol_pack_exec(b, tag, &m);
    must_be(b, bytes, n);
}

static void try_ended(char *bytes, size_t n, struct arena *arena, struct buf *b)
{
    struct ended_message m;

    if (!protocol_unpack_ended(bytes, n, arena, &m))
        return;
    MUST(m.result.denial_count <= CARREL_MAX_DENIALS && m.result.reason <= CARREL_ENDED_DISK);
    protocol_pack_ended(b, &m);
    protocol_pack_ended_flags(b, m.flags, m.unrecorded);
    must_be(b, bytes, n);
}

/* Outside of its strings, an object closes with its last byte only. */
static void try_record(char *bytes, size_t n, struct buf *b)
{
    struct record_message m;
    uint64_t tag;

    if (!protocol_unpack_record(bytes, n, &tag, &m))
        return;
    size_t length = strlen(m.details);
    MUST(length == 0 || (m.details[0] == '{' && m.details[length - 1] == '}'));
    MUST(!strchr(m.details, '\n'));
    protocol_pack_record(b, tag, &m);
    must_be(b, bytes, n);
}

static void try_secret(char *bytes, size_t n, struct buf *b)
{
    const char *owner;
    const char *name;
    const char *value;
    uint64_t tag;

    if (!protocol_unpack_secret(bytes, n, &tag, &owner, &name, &value))
        return;
    protocol_pack_secret(b, tag, owner, name, value);
    must_be(b, bytes, n);
}

static void try_rest(char *bytes, size_t n, bool error, struct buf *b)
{
    struct plain_message m;
    struct err err;
    uint64_t tag;

    if (error && protocol_unpack_error(bytes, n, &tag, &err)) {
        protocol_pack_error(b, tag, &err);
        must_be(b, bytes, n);
    } else if (!error && protocol_unpack_plain(bytes, n, &tag, &m)) {
        protocol_pack_plain(b, tag, &m);
        must_be(b, bytes, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct buf b;

    if (size < 2)
        return 0;
    char *exact = malloc(size - 1); /* the message is read in place: not one byte beyond it */
    memcpy(exact, data + 1, size - 1);
    arena_init(&arena, MOST);
    buf_init(&b, MOST);
    if (data[0] % 6 == 0)
        try_exec(exact, size - 1, &arena, &b);
    else if (data[0] % 6 == 1)
        try_ended(exact, size - 1, &arena, &b);
    else if (data[0] % 6 == 2)
        try_record(exact, size - 1, &b);
    else if (data[0] % 6 == 5)
        try_secret(exact, size - 1, &b);
    else
        try_rest(exact, size - 1, data[0] % 6 == 3, &b);
    buf_clear(&b);
    arena_clear(&arena);
    free(exact);
    return 0;
}
