/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "protocol/settings.h"

TEST(defaults_are_what_the_manual_says)
{
    struct settings s;

    settings_init(&s);
    CHECK(strcmp(s.listen, "127.0.0.1:7070") == 0);
    CHECK(strcmp(s.bucket, "main") == 0);
    CHECK(s.owner_uid == -1);
    CHECK(s.idle_ms == 600000);
    CHECK(s.trash_ms == 7ULL * 24 * 3600 * 1000);
    CHECK(s.retention_ms == 3600000);
    CHECK(s.spool_bytes == 64ULL << 20);
    CHECK(s.max_sandboxes == 256 && s.max_execs == 2000);
    CHECK(s.max_memory == 0 && s.max_pids == 0 && s.queue == 0);
    CHECK(s.owner_sandboxes == 0 && s.owner_execs == 0 && s.owner_workspaces == 0);
    CHECK(s.owner_memory == 0 && s.owner_pids == 0 && s.owner_output == 0 && s.max_output == 0);
    CHECK(s.owner_chores == 16);
    CHECK(s.max_connections == 8192 && s.owner_connections == 1024 && s.owner_streams == 512);
    CHECK(s.address_connections == 256 && s.trusted_proxies[0] == '\0');
    CHECK(s.disk_floor == 1ULL << 30);
    CHECK(s.pool == 4);
    CHECK(!s.allow_net_host && !s.insecure_listen);
    CHECK(s.mount_roots[0] == '\0' && s.user[0] == '\0');
    CHECK(s.audit_segment_bytes == 64ULL << 20 && s.audit_segment_age_ms == 86400000);
    CHECK(s.audit_keep_ms == 0 && s.audit_keep_bytes == 0 && s.audit_heads_ms == 60000);
    CHECK(s.export[0] == '\0' && s.audit_sink_file[0] == '\0' && !s.export_gzip);
    CHECK(strcmp(s.export_index, "logs-carrel.audit-default") == 0);
    CHECK(!settings_is_given(&s, "state") && !settings_is_given(&s, "listen"));
    return 0;
}

TEST(the_socket_is_in_the_state_unless_given)
{
    struct settings s;
    struct err err;

    settings_init(&s);
    CHECK(settings_set(&s, "state", "/srv/carrel", &err) == 0);
    CHECK(settings_complete(&s, &err) == 0);
    CHECK(strcmp(s.socket, "/srv/carrel/carrel.sock") == 0);
    settings_init(&s);
    CHECK(settings_complete(&s, &err) < 0); /* where, nobody has said */
    CHECK(settings_set(&s, "state", "/srv/carrel", &err) == 0);
    CHECK(settings_set(&s, "socket", "", &err) == 0);
    CHECK(settings_complete(&s, &err) == 0);
    CHECK(s.socket[0] == '\0');
    settings_init(&s);
    CHECK(settings_set(&s, "state",
                       "/srv/a/very/long/name/that/leaves/no/room/for/a/socket/because/such/names/"
                       "have/room/for/a/hundred/bytes/only",
                       &err) == 0);
    CHECK(settings_complete(&s, &err) < 0 && strstr(err.msg, "--socket"));
    return 0;
}

TEST(yes_and_no_are_said_in_four_ways)
{
    static const char *const words[][2] = {
        {"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
    struct settings s;
    struct err err;

    settings_init(&s);
    for (size_t i = 0; i < 2 * LENGTH(words); i++) {
        const char *word = words[i / 2][(i + 1) % 2];
        CHECK_FOR(word, settings_set(&s, "allow_net_host", word, &err) == 0);
        CHECK_FOR(word, s.allow_net_host == (i % 2 == 0));
    }
    return 0;
}

TEST(a_file_has_comments_spaces_and_all_kinds)
{
    struct settings s;
    struct err err;
    char text[] =
        "# Carrel\n\n  idle = 30s \nspool=1M\r\n\towner_uid = 1000\nallow_net_host = yes\n"
        "mount_roots = /srv/a:/srv/b\nlisten =\ntrash = 2d\nmax_execs = 0\nbucket = b.1";

    settings_init(&s);
    CHECK(settings_parse(&s, text, "f", &err) == 0);
    CHECK(s.idle_ms == 30000 && s.spool_bytes == 1 << 20 && s.owner_uid == 1000);
    CHECK(s.allow_net_host && strcmp(s.mount_roots, "/srv/a:/srv/b") == 0);
    CHECK(s.listen[0] == '\0' && settings_is_given(&s, "listen"));
    CHECK(!settings_is_given(&s, "socket"));
    CHECK(s.trash_ms == 2ULL * 24 * 3600 * 1000 && s.max_execs == 0);
    CHECK(strcmp(s.bucket, "b.1") == 0);
    return 0;
}

TEST(a_bad_line_is_named)
{
    static const struct {
        const char *text;
        const char *says;
    } rows[] = {
        {"idle = 1s\nidel = 1s\n", "line 2 of 'f': unknown setting 'idel'; did you mean 'idle'?"},
        {"\n\nidle\n", "line 3 of 'f': 'idle' is not of the form"},
        {"idle = 10", "line 1 of 'f': 'idle' is '10', but must be a time"},
        {"idle = 1s\nidle = 2s", "'idle' is set twice"},
        {"max_execs = -1", "a whole number"},
        {"max_execs = 1 # some", "a whole number"},
        {"spool = 1X", "a size"},
        {"trash = d", "a time"},
        {"trash = 100001d", "a time"},
        {"trash = 1.5d", "a time"},
        {"allow_net_host = TRUE", "yes or no"},
        {"allow_net_host = maybe", "yes or no"},
        {"allow_net_host =", "yes or no"},
        {"bucket = ../x", "letters"},
        {"bucket =", "letters"},
        {"bucket = .x", "letters"},
        {"owner_uid = 4294967295", "a user's number"},
        {"owner_uid = root", "a user's number"},
        {"user = a\x01"
         "b",
         "control character"},
        {"= 1", "unknown setting ''"},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct settings s;
        struct err err;
        char text[256];
        settings_init(&s);
        snprintf(text, sizeof(text), "%s", rows[i].text);
        CHECK_FOR(rows[i].text, settings_parse(&s, text, "f", &err) < 0);
        CHECK_FOR(err.msg, strstr(err.msg, rows[i].says));
    }
    return 0;
}

TEST(the_command_line_wins_over_the_file)
{
    struct settings s;
    struct err err;
    char text[] = "idle = 30s\npool = 9";
    char bad[] = "idle = never";

    settings_init(&s);
    CHECK(settings_set_pair(&s, "idle=5s", &err) == 0);
    CHECK(settings_parse(&s, text, "f", &err) == 0);
    CHECK(s.idle_ms == 5000 && s.pool == 9);
    CHECK(settings_parse(&s, bad, "f", &err) < 0);
    return 0;
}

TEST(a_text_that_does_not_fit_is_refused)
{
    struct settings s;
    struct err err;
    char longest[sizeof(s.listen) + 1];

    settings_init(&s);
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    CHECK(settings_set(&s, "listen", longest, &err) < 0);
    longest[sizeof(longest) - 2] = '\0';
    CHECK(settings_set(&s, "listen", longest, &err) == 0);
    CHECK(settings_set_pair(&s, "listen", &err) < 0);
    CHECK(settings_set_pair(&s, "=x", &err) < 0);
    return 0;
}

TEST(what_is_encoded_is_decoded)
{
    struct settings s;
    struct settings again;
    struct err err;
    struct arena arena;

    arena_init(&arena, 1 << 16);
    settings_init(&s);
    CHECK(settings_set(&s, "state", "/srv/with = sign", &err) == 0);
    CHECK(settings_set(&s, "owner_uid", "0", &err) == 0);
    CHECK(settings_set(&s, "idle", "0", &err) == 0);
    CHECK(settings_set(&s, "trash", "3d", &err) == 0);
    CHECK(settings_set(&s, "max_memory", "3G", &err) == 0);
    CHECK(settings_set(&s, "insecure_listen", "yes", &err) == 0);
    CHECK(settings_complete(&s, &err) == 0);
    const char **list = settings_encode(&s, &arena);
    CHECK(list);
    CHECK(settings_decode(&again, (char *const *)list, &err) == 0);
    s.given = again.given;
    CHECK(memcmp(&s, &again, sizeof(s)) == 0);
    arena_clear(&arena);
    arena_init(&arena, 100);
    CHECK(!settings_encode(&s, &arena));
    arena_clear(&arena);
    return 0;
}

TEST(ports_are_off_by_key_or_by_token)
{
    static const char *const good[] = {"off", "key", "token"};
    static const char *const bad[] = {"", "no", "tokens", "toolong!"};
    struct settings s;
    struct err err;

    settings_init(&s);
    CHECK(settings_set(&s, "state", "/srv/x", &err) == 0 && strcmp(s.ports, "token") == 0);
    for (size_t i = 0; i < LENGTH(good); i++)
        CHECK_FOR(good[i], settings_set(&s, "ports", good[i], &err) == 0 &&
                               settings_complete(&s, &err) == 0);
    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i],
                  settings_set(&s, "ports", bad[i], &err) < 0 || settings_complete(&s, &err) < 0);
    return 0;
}

TEST(a_file_that_is_none_is_refused)
{
    struct settings s;
    struct err err;

    settings_init(&s);
    CHECK(settings_read_file(&s, "/nonexistent/carrel.conf", &err) < 0);
    CHECK(err.code == ERR_NOT_FOUND);
    CHECK(settings_read_file(&s, "/dev/zero", &err) < 0 && err.code == ERR_INVALID);
    CHECK(settings_read_file(&s, "/", &err) < 0 && err.code == ERR_IO);
    CHECK(settings_read_file(&s, "/dev/null", &err) == 0);
    return 0;
}

TEST(connections_are_always_counted)
{
    static const char *const counts[] = {"max_connections", "owner_connections", "owner_streams",
                                         "address_connections"};
    struct settings s;
    struct err err;

    for (size_t i = 0; i < LENGTH(counts); i++) {
        settings_init(&s);
        CHECK(settings_set(&s, "state", "/x", &err) == 0);
        CHECK(settings_set(&s, counts[i], "0", &err) == 0);
        CHECK_FOR(counts[i], settings_complete(&s, &err) < 0 && strstr(err.msg, counts[i]));
        CHECK_FOR(counts[i],
                  settings_set(&s, counts[i], "1", &err) == 0 && settings_complete(&s, &err) == 0);
        CHECK_FOR(counts[i], settings_set(&s, counts[i], "-1", &err) < 0);
    }
    CHECK(settings_set(&s, "trusted_proxies", "10.0.0.0/8, proxy.example", &err) == 0);
    CHECK(settings_complete(&s, &err) < 0 && strstr(err.msg, "'proxy.example'"));
    CHECK(settings_set(&s, "trusted_proxies", "10.0.0.0/8, ::1", &err) == 0);
    CHECK(settings_complete(&s, &err) == 0);
    return 0;
}
