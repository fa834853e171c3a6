/* SPDX-License-Identifier: Apache-2.0 */
/* front/asleep: which calls on files need not wake their workspace, by their names. */
#include "unit.h"

#include "front/files/asleep.h"
#include "protocol/broker.h"
#include "protocol/files.h"

static const char *const mounts[] = {"/srv/data",    "/data/in", "ro", "/srv/more",
                                     "//slashes/in", "ro",       NULL};

static const char *const shared[] = {"skills/system",
                                     "/.solven/skills/system",
                                     "ro",
                                     "skills/u1",
                                     "/skills/here",
                                     "ro",
                                     "w2",
                                     "/.ticket",
                                     "rw",
                                     NULL};

static const struct spec_message plain = {
    .shared = shared, .template = "", .base = "", .mounts = mounts};

static bool may(enum files_op op, const char *path, const struct spec_message *spec)
{
    const struct exec_message wake = {.plan = "", .spec = *spec};

    return asleep_may_answer(&(struct files_message){.op = op, .path = path}, &wake);
}

TEST(names_tell_what_lies_in_the_tree_itself)
{
    static const struct {
        const char *path;
        bool in_tree;
    } rows[] = {
        {"/a", true},
        {"/home/a/b", true},
        {"/usr2", true},
        {"/us", true},
        {"/var/lib/x", true},
        {"/.bashrc", true},
        {"/.venv/pyvenv.cfg", true},
        {"/node_modules/x", true},
        {"/a/usr/bin", true},
        {"/", false},
        {"/usr", false},
        {"/usr/bin/env", false},
        {"/etc/passwd", false},
        {"/tmp/x", false},
        {"/proc/self", false},
        {"/.cache/uv", false},
        {"/opt/carrel/bin", false},
        {"/.venv.carrel-next/x", false},
        {"/.solven", false},
        {"/.solven/skills/user/a", false},
        {"/.ticket/a", false},
        {"/skills/elsewhere", false},
        {"/data", false}, /* something is mounted in it, which a list would show */
        {"/data/in/a", false},
        {"/data2/in/a", true},
        {"/slashes/in", false},
    };

    for (size_t i = 0; i < LENGTH(rows); i++)
        CHECK_FOR(rows[i].path, may(FILES_READ, rows[i].path, &plain) == rows[i].in_tree);
    return 0;
}

TEST(only_what_reads_one_thing_may_be_answered)
{
    for (int op = 1; op < FILES_OP_COUNT_; op++) {
        bool reads = op == FILES_READ || op == FILES_TEXT || op == FILES_STAT || op == FILES_LIST;
        CHECK(may((enum files_op)op, "/a/b", &plain) == reads);
    }
    return 0;
}

TEST(a_system_of_its_own_is_not_in_the_tree)
{
    static const char *const parts[] = {"/var/x", "/home/a", "/root", "/opt/a/b", "/run"};
    struct spec_message other = plain;

    other.base = "debian-12";
    CHECK(may(FILES_READ, "/a", &other));
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        CHECK(!may(FILES_READ, parts[i], &other));
    return 0;
}

TEST(templates_and_images_are_not_in_the_tree)
{
    struct spec_message other = plain;

    other.template = "t";
    CHECK(!may(FILES_READ, "/.venv/pyvenv.cfg", &other));
    CHECK(!may(FILES_LIST, "/node_modules", &other));
    CHECK(may(FILES_READ, "/a", &other));
    other.limits.disk_image = true;
    CHECK(!may(FILES_READ, "/a", &other));
    return 0;
}
