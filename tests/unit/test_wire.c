/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/wire: setup and command as bytes. Whatever is read back must be what was written, and
 * bytes that nobody wrote must be refused. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/wire.h"

enum {
    ROOM = 1 << 20,
    POINTERS = 64
};

static char room[ROOM];

/* Every field with a value of its own, so that two that were swapped would show. */
static void fill_setup(struct setup *s)
{
    memset(s, 0, sizeof(*s));
    s->flags = SETUP_UID_RANGE | SETUP_SCOPE_SIGNALS;
    s->namespaces = 0x7e020080;
    s->uid = 1000;
    s->gid = 1001;
    s->hostname = "carrel";
    s->frame_count = s->op_count = 3;
    s->ops[0] = (struct op){.kind = OP_BIND,
                            .flags = OP_RECURSIVE | OP_OWNED,
                            .attrs = 0x1122334455667788,
                            .source = "/srv/desk",
                            .target = "",
                            .mode = 0755,
                            .device = 1ULL << 63,
                            .inode = 12345,
                            .layer = "/srv/desk.plan",
                            .layer_device = 1ULL << 61,
                            .layer_inode = 1ULL << 62};
    s->ops[1] = (struct op){.kind = OP_TMPFS,
                            .flags = OP_TOP | OP_SHOWN | OP_PLAN,
                            .source = "",
                            .target = "tmp",
                            .bytes = 1ULL << 40,
                            .inodes = 77,
                            .mode = 01777,
                            .uid = 5,
                            .gid = 6};
    s->ops[2] = (struct op){.kind = OP_FILE, .source = "text\n", .target = "etc/passwd"};
    s->limit_mask = 1U << RLIMIT_CORE | 1U << RLIMIT_NOFILE;
    s->limits[RLIMIT_NOFILE].soft = 1024;
    s->limits[RLIMIT_NOFILE].hard = 65536;
    s->filter_length = 2;
    s->filter[0].code = 0x20;
    s->filter[0].jt = 3;
    s->filter[0].jf = 4;
    s->filter[0].k = 0xdeadbeef;
    s->filter[1].code = 6;
}

static const char *argv[] = {"sh", "-c", "echo \xff", NULL};
static const char *env[] = {"PATH=/bin", "EMPTY=", NULL};
static const struct command command = {.flags = COMMAND_TTY,
                                       .rows = 24,
                                       .columns = 80,
                                       .cwd = "/work",
                                       .argc = 3,
                                       .envc = 2,
                                       .argv = argv,
                                       .env = env};

static bool same_text(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

static bool same_op(const struct op *a, const struct op *b)
{
    return a->kind == b->kind && a->flags == b->flags && a->attrs == b->attrs &&
           same_text(a->source, b->source) && same_text(a->target, b->target) &&
           a->bytes == b->bytes && a->inodes == b->inodes && a->mode == b->mode &&
           a->uid == b->uid && a->gid == b->gid && a->device == b->device && a->inode == b->inode &&
           a->layer_device == b->layer_device && a->layer_inode == b->layer_inode &&
           strcmp(a->layer ? a->layer : "", b->layer ? b->layer : "") == 0;
}

/* Decodes from a block of exactly `n` bytes: one read too many is seen. */
static int decode_setup(struct setup *ret, const char *bytes, size_t n, char **ret_block)
{
    *ret_block = malloc(n ? n : 1);
    memcpy(*ret_block, bytes, n);
    memset(ret, 0, sizeof(*ret));
    return wire_decode_frame(ret, *ret_block, n);
}

static int decode_command(struct command *ret, const char **pointers, size_t count,
                          const char *bytes, size_t n, char **ret_block)
{
    *ret_block = malloc(n ? n : 1);
    memcpy(*ret_block, bytes, n);
    memset(ret, 0, sizeof(*ret));
    return wire_decode_command(ret, pointers, count, *ret_block, n);
}

/* --- there and back --- */

TEST(a_setup_comes_back_as_it_was_sent)
{
    static struct setup sent;
    static struct setup got;
    char *block;

    fill_setup(&sent);
    size_t n = wire_encode_frame(&sent, room, sizeof(room));
    CHECK(n > 0);
    CHECK(decode_setup(&got, room, n, &block) == 0);
    CHECK(got.flags == sent.flags && got.namespaces == sent.namespaces);
    CHECK(got.uid == sent.uid && got.gid == sent.gid);
    CHECK(same_text(got.hostname, sent.hostname));
    CHECK(got.op_count == sent.op_count);
    for (uint32_t i = 0; i < sent.op_count; i++)
        CHECK(same_op(&got.ops[i], &sent.ops[i]));
    CHECK(got.limit_mask == sent.limit_mask);
    CHECK(memcmp(got.limits, sent.limits, sizeof(sent.limits)) == 0);
    CHECK(got.filter_length == sent.filter_length);
    CHECK(memcmp(got.filter, sent.filter, sizeof(sent.filter)) == 0);
    free(block);
    return 0;
}

TEST(a_root_with_ports_that_are_none_is_refused)
{
    static const struct {
        uint32_t count;
        uint32_t last;
    } wrong[] = {{1, 0}, {1, 65536}, {SETUP_MAX_PORTS + 1, 80}};
    static struct setup sent;
    static struct setup got;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        fill_setup(&sent);
        sent.op_count = sent.frame_count;
        sent.port_count = wrong[i].count;
        sent.ports[0] = wrong[i].last;
        CHECK(wire_encode_root(&sent, room, sizeof(room)) == 0);
        uint32_t forged[] = {0, wrong[i].count, wrong[i].last};
        fill_setup(&got);
        CHECK(wire_decode_root(&got, (char *)forged, sizeof(forged)) == -EINVAL);
    }
    return 0;
}

TEST(a_root_is_added_to_its_frame)
{
    static struct setup sent;
    static struct setup got;

    fill_setup(&sent);
    sent.frame_count = 1;
    sent.port_count = 2;
    sent.ports[0] = 443;
    sent.ports[1] = 65535;
    size_t n = wire_encode_root(&sent, room, sizeof(room));
    CHECK(n > 0);
    fill_setup(&got);
    got.frame_count = got.op_count = 2;
    CHECK(wire_decode_root(&got, room, n) == 0);
    CHECK(got.op_count == 4 && got.frame_count == 2);
    CHECK(same_op(&got.ops[2], &sent.ops[1]) && same_op(&got.ops[3], &sent.ops[2]));
    CHECK(got.port_count == 2 && got.ports[0] == 443 && got.ports[1] == 65535);
    got.frame_count = SETUP_MAX_OPS - 1; /* no room for two more */
    CHECK(wire_decode_root(&got, room, n) == -EINVAL);
    CHECK(got.op_count == SETUP_MAX_OPS - 1);
    return 0;
}

TEST(a_command_comes_back_as_it_was_sent)
{
    const char *pointers[POINTERS];
    struct command got;
    char *block;

    size_t n = wire_encode_command(&command, room, sizeof(room));
    CHECK(n > 0);
    CHECK(decode_command(&got, pointers, POINTERS, room, n, &block) == 0);
    CHECK(got.flags == command.flags && got.rows == 24 && got.columns == 80);
    CHECK(same_text(got.cwd, "/work"));
    CHECK(got.argc == 3 && got.envc == 2);
    for (int i = 0; i < 3; i++)
        CHECK(same_text(got.argv[i], argv[i]));
    for (int i = 0; i < 2; i++)
        CHECK(same_text(got.env[i], env[i]));
    CHECK(!got.argv[3] && !got.env[2]);
    free(block);
    return 0;
}

TEST(the_largest_setup_fits_and_comes_back)
{
    static struct setup sent;
    static struct setup got;
    char *block;

    fill_setup(&sent);
    sent.frame_count = sent.op_count = SETUP_MAX_OPS;
    for (uint32_t i = 3; i < SETUP_MAX_OPS; i++)
        sent.ops[i] = sent.ops[i % 3];
    sent.filter_length = SETUP_MAX_FILTER;
    size_t n = wire_encode_frame(&sent, room, sizeof(room));
    CHECK(n > 0);
    CHECK(decode_setup(&got, room, n, &block) == 0);
    CHECK(same_op(&got.ops[SETUP_MAX_OPS - 1], &sent.ops[SETUP_MAX_OPS - 1]));
    free(block);
    return 0;
}

/* --- too little room, too few bytes --- */

TEST(nothing_is_encoded_into_too_little_room)
{
    static struct setup setup;

    fill_setup(&setup);
    size_t setup_size = wire_encode_frame(&setup, room, sizeof(room));
    size_t command_size = wire_encode_command(&command, room, sizeof(room));
    for (size_t n = 0; n < setup_size; n++) {
        char *exact = malloc(n ? n : 1);
        CHECK(wire_encode_frame(&setup, exact, n) == 0);
        CHECK(n >= command_size || wire_encode_command(&command, exact, n) == 0);
        free(exact);
    }
    return 0;
}

TEST(every_truncation_and_every_extra_byte_is_refused)
{
    static struct setup setup;
    const char *pointers[POINTERS];
    struct command got;
    char *block;

    fill_setup(&setup);
    size_t n = wire_encode_frame(&setup, room, sizeof(room) - 1);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        int r = decode_setup(&setup, room, cut, &block);
        free(block);
        CHECK(r == (cut == n ? 0 : -EINVAL));
    }
    n = wire_encode_command(&command, room, sizeof(room) - 1);
    for (size_t cut = 0; cut <= n + 1; cut++) {
        int r = decode_command(&got, pointers, POINTERS, room, cut, &block);
        free(block);
        CHECK(r == (cut == n ? 0 : -EINVAL));
    }
    return 0;
}

/* --- other bytes --- */

/* Every byte set to every value: refused, or else a different message with exactly these bytes. So
 * no byte is ignored, and no two messages mean the same. */
TEST(every_changed_byte_of_a_setup_is_refused_or_seen)
{
    static struct setup setup;
    static char again[4096];
    char *block;
    unsigned refused = 0;

    fill_setup(&setup);
    size_t n = wire_encode_frame(&setup, room, sizeof(room));
    CHECK(n < sizeof(again));
    for (size_t at = 0; at < n; at++) {
        char before = room[at];
        for (int value = 0; value < 256; value += at % 8 ? 17 : 1) {
            room[at] = (char)value;
            int r = decode_setup(&setup, room, n, &block);
            bool right = r == -EINVAL || (r == 0 && wire_encode_frame(&setup, again, n) == n &&
                                          memcmp(again, room, n) == 0);
            free(block);
            refused += r < 0;
            CHECK(right);
        }
        room[at] = before;
    }
    CHECK(refused > 1000);
    return 0;
}

TEST(every_changed_byte_of_a_command_is_refused_or_seen)
{
    const char *pointers[POINTERS];
    struct command got;
    char again[256];
    char *block;
    unsigned refused = 0;

    size_t n = wire_encode_command(&command, room, sizeof(room));
    CHECK(n < sizeof(again));
    for (size_t at = 0; at < n; at++) {
        char before = room[at];
        for (int value = 0; value < 256; value++) {
            room[at] = (char)value;
            int r = decode_command(&got, pointers, POINTERS, room, n, &block);
            bool right = r == -EINVAL || (r == 0 && wire_encode_command(&got, again, n) == n &&
                                          memcmp(again, room, n) == 0);
            free(block);
            refused += r < 0;
            CHECK(right);
        }
        room[at] = before;
    }
    CHECK(refused > 1000);
    return 0;
}

TEST(numbers_beyond_their_bounds_are_refused)
{
    static struct setup good;
    static struct setup bad;
    char *block;

    fill_setup(&good);
    for (int i = 0; i < 6; i++) {
        bad = good;
        if (i == 0)
            bad.flags |= SETUP_FLAGS_ALL_ + 1;
        if (i == 1)
            bad.ops[1].flags |= OP_FLAGS_ALL_ + 1;
        if (i == 2)
            bad.ops[1].kind = OP_KIND_COUNT_;
        if (i == 3)
            bad.limit_mask |= 1U << RLIM_NLIMITS;
        if (i == 4)
            bad.frame_count = SETUP_MAX_OPS + 1;
        if (i == 5)
            bad.filter_length = SETUP_MAX_FILTER + 1;
        CHECK(wire_encode_frame(&bad, room, sizeof(room)) == 0); /* nor does the writer write it */
    }
    /* A count that promises more than the message holds; the count is at a known place. */
    size_t n = wire_encode_frame(&good, room, sizeof(room));
    size_t at = 4 * 4 + 4 + strlen("carrel") + 1;
    uint32_t many = SETUP_MAX_OPS;
    CHECK(room[at] == 3);
    memcpy(room + at, &many, sizeof(many));
    int r = decode_setup(&bad, room, n, &block);
    free(block);
    CHECK(r == -EINVAL);
    return 0;
}

TEST(a_command_without_arguments_or_with_too_many_is_refused)
{
    struct command none = command;
    struct command many = command;

    none.argc = 0;
    CHECK(wire_encode_command(&none, room, sizeof(room)) == 0);
    many.argc = SETUP_MAX_ARGS + 1;
    CHECK(wire_encode_command(&many, room, sizeof(room)) == 0);
    many.argc = 3;
    many.envc = SETUP_MAX_ARGS + 1;
    CHECK(wire_encode_command(&many, room, sizeof(room)) == 0);
    return 0;
}

TEST(a_command_with_more_strings_than_the_reader_has_room_for_is_refused)
{
    struct command got;
    char *block;
    size_t n = wire_encode_command(&command, room, sizeof(room));

    for (size_t count = 0; count <= 7; count++) { /* 3 + 2 strings, 2 ends */
        const char **pointers = calloc(count + 1, sizeof(*pointers));
        int r = decode_command(&got, pointers, count, room, n, &block);
        free(pointers);
        free(block);
        CHECK(r == (count < 7 ? -EINVAL : 0));
    }
    return 0;
}

/* The kernel would see another string than the one that was checked. */
TEST(a_string_with_a_nul_inside_or_none_at_its_end_is_refused)
{
    const char *pointers[POINTERS];
    struct command got;
    char *block;
    size_t n = wire_encode_command(&command, room, sizeof(room));
    char *cwd = room + 3 * 4 + 4;

    CHECK(strcmp(cwd, "/work") == 0);
    cwd[2] = '\0';
    int inside = decode_command(&got, pointers, POINTERS, room, n, &block);
    free(block);
    cwd[2] = 'o';
    cwd[5] = 'x';
    int no_end = decode_command(&got, pointers, POINTERS, room, n, &block);
    free(block);
    cwd[5] = '\0';
    int whole = decode_command(&got, pointers, POINTERS, room, n, &block);
    free(block);
    CHECK(inside == -EINVAL);
    CHECK(no_end == -EINVAL);
    CHECK(whole == 0);
    return 0;
}

TEST(a_length_near_the_largest_number_is_refused)
{
    static const uint32_t lengths[] = {0xffffffff, 0xfffffffe, 0x80000000, 0x7fffffff};
    const char *pointers[POINTERS];
    struct command got;
    char *block;

    for (size_t i = 0; i < LENGTH(lengths); i++) {
        size_t n = wire_encode_command(&command, room, sizeof(room));
        memcpy(room + 3 * 4, &lengths[i], sizeof(lengths[i]));
        int r = decode_command(&got, pointers, POINTERS, room, n, &block);
        free(block);
        CHECK(r == -EINVAL);
    }
    return 0;
}
