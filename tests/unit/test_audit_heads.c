/* SPDX-License-Identifier: Apache-2.0 */
/* Signed heads, checkpoints, and what an answer to _bulk says. */
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/export/bulk.h"
#include "audit/export/ecs.h"
#include "audit/export/target.h"
#include "audit/head.h"
#include "audit/retain.h"

static const char a_time[] = "2026-01-02T03:04:05.678901Z";

static EVP_PKEY *make_pair(void)
{
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_id(EVP_PKEY_ED25519, NULL);
    EVP_PKEY *pair = NULL;

    (void)(EVP_PKEY_keygen_init(context) == 1 && EVP_PKEY_keygen(context, &pair) == 1);
    EVP_PKEY_CTX_free(context);
    return pair;
}

static struct audit_head make_head(uint64_t seq, char digit)
{
    struct audit_head head = {.seq = seq};

    memset(head.hash, digit, AUDIT_HEX - 1);
    memcpy(head.time, a_time, sizeof(a_time));
    memcpy(head.sink, "file+url", 9);
    return head;
}

TEST(a_head_is_read_as_it_was_written_and_no_other_way)
{
    EVP_PKEY *pair = make_pair();
    struct audit_head head = make_head(18446744073709551615U, 'a');
    struct audit_head again;
    char line[AUDIT_HEAD];
    char other[AUDIT_HEAD + 16];

    CHECK(pair && audit_head_sign(&head, pair) == 0);
    audit_head_encode(&head, line);
    CHECK(strlen(line) + 1 < AUDIT_HEAD);
    CHECK(audit_head_parse(line, strlen(line), &again) && again.seq == head.seq);
    CHECK(strcmp(again.signature, head.signature) == 0 && strcmp(again.sink, "file+url") == 0);
    for (size_t i = 0; i < strlen(line); i++) { /* shorter, with a byte more, with another */
        CHECK(!audit_head_parse(line, i, &again));
        snprintf(other, sizeof(other), "%.*s %s", (int)i, line, line + i);
        CHECK(!audit_head_parse(other, strlen(other), &again));
        memcpy(other, line, sizeof(line));
        other[i] = '\0';
        CHECK(!audit_head_parse(other, strlen(line), &again));
    }
    EVP_PKEY_free(pair);
    return 0;
}

TEST(a_signature_is_of_every_byte_and_of_one_key)
{
    EVP_PKEY *pair = make_pair();
    EVP_PKEY *another = make_pair();
    struct audit_head head = make_head(42, 'b');
    struct audit_key key;
    struct audit_key wrong;
    char text[AUDIT_KEY_TEXT];
    struct audit_key parsed;

    CHECK(audit_head_sign(&head, pair) == 0);
    CHECK(audit_key_of(pair, &key) == 0 && audit_key_of(another, &wrong) == 0);
    CHECK(audit_head_is_signed_by(&head, &key) && !audit_head_is_signed_by(&head, &wrong));
    memcpy(wrong.id, key.id, sizeof(key.id)); /* the id alone is no proof */
    CHECK(!audit_head_is_signed_by(&head, &wrong));
    struct audit_head changed[] = {head, head, head, head, head};
    changed[0].seq++;
    changed[1].hash[5] = 'c';
    changed[2].time[3] = '7';
    memcpy(changed[3].sink, "none", 5);
    changed[4].signature[0] = changed[4].signature[0] == '0' ? '1' : '0';
    for (size_t i = 0; i < LENGTH(changed); i++)
        CHECK(!audit_head_is_signed_by(&changed[i], &key));
    audit_key_text(&key, text);
    CHECK(audit_key_parse(text, &parsed) && strcmp(parsed.id, key.id) == 0);
    text[20] = 'g';
    CHECK(!audit_key_parse(text, &parsed) && !audit_key_parse("", &parsed));
    EVP_PKEY_free(pair);
    EVP_PKEY_free(another);
    return 0;
}

TEST(a_list_of_heads_must_be_signed_to_its_last_whole_line)
{
    EVP_PKEY *pair = make_pair();
    struct audit_keys keys = {.count = 1};
    struct audit_anchors anchors = {0};
    struct audit_head heads[] = {make_head(9, '1'), make_head(3, '2')};
    char text[3 * AUDIT_HEAD] = "";
    char hash[AUDIT_HEX] = {0};
    struct err err;
    size_t n = 0;

    CHECK(audit_key_of(pair, &keys.items[0]) == 0);
    for (size_t i = 0; i < LENGTH(heads); i++) {
        CHECK(audit_head_sign(&heads[i], pair) == 0);
        audit_head_encode(&heads[i], text + n);
        n = strlen(text);
        text[n++] = '\n';
    }
    CHECK(audit_anchors_add(&anchors, text, n, &keys, false, &err) == 0 && anchors.count == 2);
    audit_anchors_sort(&anchors);
    memset(hash, '2', AUDIT_HEX - 1);
    CHECK(anchors.items[0].seq == 3 && audit_anchor_is(&anchors.items[0], hash));
    CHECK(!audit_anchor_is(&anchors.items[1], hash) && strcmp(anchors.sink, "file+url") == 0);
    audit_anchors_clear(&anchors);
    CHECK(audit_anchors_add(&anchors, text, n - 9, &keys, true, &err) == 0 && anchors.count == 1);
    audit_anchors_clear(&anchors);
    CHECK(audit_anchors_add(&anchors, text, n - 9, &keys, false, &err) < 0);
    CHECK(strstr(err.msg, "line 2"));
    audit_anchors_clear(&anchors);
    keys.items[0].bytes[0] ^= 1;
    CHECK(audit_anchors_add(&anchors, text, n, &keys, true, &err) < 0 && err.code == ERR_CONFLICT);
    audit_anchors_clear(&anchors);
    EVP_PKEY_free(pair);
    return 0;
}

static void make_line(struct buf *b, const struct audit_record *record)
{
    struct audit_chain chain;

    buf_clear(b);
    buf_init(b, AUDIT_LINE);
    audit_chain_init(&chain);
    audit_encode(b, &chain, a_time, record);
    (void)buf_done(b);
}

TEST(only_the_brokers_own_record_is_a_checkpoint)
{
    struct audit_drop drop = {.checkpoint = {.through = 77}, .segments = 2, .bytes = 9000};
    struct audit_checkpoint found;
    struct buf details;
    struct buf line = {0};
    char by_front[400];

    memset(drop.checkpoint.hash, 'd', AUDIT_HEX - 1);
    buf_init(&details, 4096);
    audit_checkpoint_encode(&details, &drop, 3, "{\"head\":1}");
    CHECK(buf_done(&details) == 0);
    struct audit_record record = {"broker", "", "", AUDIT_RETENTION, "ok", details.p};
    make_line(&line, &record);
    CHECK(audit_checkpoint_parse(line.p, line.n, &found) && found.through == 77);
    CHECK(strcmp(found.hash, drop.checkpoint.hash) == 0);
    struct audit_record others[] = {record, record, record, record, record, record};
    others[0].actor = "key:k";
    others[1].operation = "audit.repair";
    others[2].result = "no";
    others[3].workspace = "w";
    others[4].details = "{\"through\":77}";
    snprintf(by_front, sizeof(by_front), "{\"x\":1,%s", details.p + 1);
    others[5].details = by_front;
    for (size_t i = 0; i < LENGTH(others); i++) {
        make_line(&line, &others[i]);
        CHECK(!audit_checkpoint_parse(line.p, line.n, &found));
    }
    buf_clear(&line);
    buf_clear(&details);
    return 0;
}

TEST(times_are_read_in_several_forms)
{
    static const struct {
        const char *text;
        const char *time; /* NULL: refused */
    } rows[] = {
        {"2026-01-02", "2026-01-02T00:00:00.000000Z"},
        {"2026-01-02T03:04", "2026-01-02T03:04:00.000000Z"},
        {"2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z"},
        {"2026-01-02T03:04:05.5Z", "2026-01-02T03:04:05.500000Z"},
        {"2026-01-02T03:04:05.678901Z", a_time},
        {"2026-01-02T03:04:05.678901", a_time},
        {"", NULL},
        {"2026-1-2", NULL},
        {"2026-01-02Z", NULL},
        {"2026-01-02 03:04", NULL},
        {"2026-01-02T03:04:05.Z", NULL},
        {"2026-01-02T03:04:05.6789012Z", NULL},
        {"2026-01-02T03:04:05+01:00", NULL},
    };

    char time[AUDIT_TIME];

    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool good = audit_time_parse(rows[i].text, time);
        CHECK_FOR(rows[i].text, good == (rows[i].time != NULL));
        CHECK_FOR(rows[i].text, !good || strcmp(time, rows[i].time) == 0);
    }
    return 0;
}

TEST(an_answer_is_believed_whole_or_not_at_all)
{
    struct bulk_item one = {.id = "1-a"};
    struct bulk_item two = {.id = "2-b"};
    struct bulk_item *items[] = {&one, &two};
#define ANSWER(a, b)     "{\"took\":1,\"errors\":true,\"items\":[" a "," b "]}"
#define ITEM(id, status) "{\"create\":{\"_id\":\"" id "\",\"status\":" status "}}"

    static const struct {
        const char *text;
        bool good;
        enum bulk_verdict first;
        enum bulk_verdict second;
    } rows[] = {
        {ANSWER(ITEM("1-a", "201"), ITEM("2-b", "409")), true, BULK_DONE, BULK_DONE},
        {ANSWER(ITEM("1-a", "429"), ITEM("2-b", "400")), true, BULK_RETRY, BULK_DEAD},
        {ANSWER(ITEM("1-a", "503"), ITEM("2-b", "403")), true, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("1-a", "500"), ITEM("2-b", "404")), true, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("1-a", "201"), ITEM("1-a", "201")), false, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("2-b", "201"), ITEM("1-a", "201")), false, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("1-a", "201"), ITEM("2-b", "\"201\"")), false, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("1-a", "201"), "{\"index\":{}}"), false, BULK_RETRY, BULK_RETRY},
        {ANSWER(ITEM("1-a", "201"), "null"), false, BULK_RETRY, BULK_RETRY},
        {"{\"took\":1,\"errors\":false,\"items\":[]}", false, BULK_RETRY, BULK_RETRY},
        {"{\"errors\":false}", false, BULK_RETRY, BULK_RETRY},
        {"[]", false, BULK_RETRY, BULK_RETRY},
        {"", false, BULK_RETRY, BULK_RETRY},
        {"<html>", false, BULK_RETRY, BULK_RETRY},
    };

    for (size_t i = 0; i < LENGTH(rows); i++) {
        CHECK_FOR(rows[i].text,
                  bulk_judge(rows[i].text, strlen(rows[i].text), items, 2) == rows[i].good);
        CHECK_FOR(rows[i].text, one.verdict == rows[i].first && two.verdict == rows[i].second);
    }
    static const char own[] = "{\"error\":{\"type\":\"x\"},\"status\":400}";
    CHECK(bulk_is_own_error(own, strlen(own), 400) && !bulk_is_own_error(own, strlen(own), 413));
    CHECK(!bulk_is_own_error("<html>", 6, 400) && !bulk_is_own_error("", 0, 400));
    return 0;
}

TEST(targets_are_read_or_refused)
{
    static const struct {
        const char *text;
        int kind; /* -1: refused */
        const char *host;
        uint16_t port;
    } rows[] = {
        {"https://es.example:9200", TARGET_BULK, "es.example", 9200},
        {"https://es.example/es/", TARGET_BULK, "es.example", 443},
        {"http://[::1]:9200", TARGET_BULK, "::1", 9200},
        {"http://127.0.0.1", TARGET_BULK, "127.0.0.1", 80},
        {"file:/var/log/a", TARGET_FILE, "", 0},
        {"syslog:", TARGET_SYSLOG_UNIX, "", 0},
        {"syslog+unix:/run/log", TARGET_SYSLOG_UNIX, "", 0},
        {"syslog+udp://h", TARGET_SYSLOG_UDP, "h", 514},
        {"syslog+tcp://h:6514", TARGET_SYSLOG_TCP, "h", 6514},
        {"https://", -1, "", 0},
        {"https://:9200", -1, "", 0},
        {"https://h:", -1, "", 0},
        {"https://h:0", -1, "", 0},
        {"https://h:65536", -1, "", 0},
        {"https://h:12x", -1, "", 0},
        {"https://[::1", -1, "", 0},
        {"https://[]", -1, "", 0},
        {"https://[::1]x", -1, "", 0},
        {"https://u:p@h", -1, "", 0},
        {"https://h/?q=1", -1, "", 0},
        {"https://h /", -1, "", 0},
        {"syslog+udp://h/x", -1, "", 0},
        {"file:x", -1, "", 0},
        {"file:", -1, "", 0},
        {"ftp://h", -1, "", 0},
        {"", -1, "", 0},
    };
    struct target t;
    struct err err;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        int r = target_parse(rows[i].text, &t, &err);
        CHECK_FOR(rows[i].text, (r < 0) == (rows[i].kind < 0));
        CHECK_FOR(rows[i].text, r < 0 || ((int)t.kind == rows[i].kind && t.port == rows[i].port &&
                                          strcmp(t.host, rows[i].host) == 0));
    }
    return 0;
}

TEST(a_record_becomes_a_document_with_an_id_of_its_own)
{
    struct audit_record record = {
        "key:k1",   "desk", "r1",
        "exec.end", "exit", "{\"exec\":\"x1\",\"exit_code\":0,\"duration_ms\":1.5}"};
    struct ecs_facts facts;
    struct ecs_facts again;
    struct buf line = {0};
    struct buf doc;

    buf_init(&doc, 1 << 20);
    make_line(&line, &record);
    CHECK(ecs_encode(line.p, line.n, "host", true, &doc, &facts) == 0 && buf_done(&doc) == 0);
    CHECK(facts.seq == 1 && strncmp(facts.id, "1-", 2) == 0 && strlen(facts.id) == 66);
    CHECK(!facts.failed && strstr(doc.p, "\"outcome\":\"success\""));
    CHECK(strstr(doc.p, "\"duration\":1500000") && strstr(doc.p, "\"exit_code\":0"));
    CHECK(strstr(doc.p, "\"thread\":\"desk\"") && !memchr(doc.p, '\n', doc.n));
    CHECK(ecs_encode(line.p, line.n, "host", true, &doc, &again) == 0);
    CHECK(strcmp(facts.id, again.id) == 0);
    CHECK(ecs_encode("{}", 2, "host", true, &doc, &facts) < 0);
    record.details = "{\"exit_code\":3}";
    make_line(&line, &record);
    CHECK(ecs_encode(line.p, line.n, "host", false, &doc, &facts) == 0 && facts.failed);
    CHECK(strcmp(facts.id, again.id) != 0);
    buf_clear(&line);
    buf_clear(&doc);
    return 0;
}

TEST(an_outcome_is_told_as_it_was)
{
    static const struct {
        const char *operation;
        const char *result;
        const char *outcome;
    } rows[] = {
        {"key.create", "ok", "success"},          {"file.write", "asked", "unknown"},
        {"file.write", "failed: 404", "failure"}, {"plan.step", "apply", "success"},
        {"plan.step", "undo", "success"},         {"plan.apply", "asked", "unknown"},
        {"plan.apply", "queued", "unknown"},      {"plan.apply", "done", "success"},
        {"plan.apply", "failed", "failure"},      {"plan.apply", "killed", "failure"},
        {"plan.apply", "cancelled", "failure"},   {"plan.undo", "done", "success"},
        {"plan.recover", "done", "success"},      {"plan.verify", "clean", "success"},
        {"plan.verify", "review", "success"},     {"plan.verify", "refused", "failure"},
        {"plan.finding", "review", "success"},    {"plan.finding", "refuse", "failure"},
        {"plan.expire", "rejected", "success"},   {"plan.approve", "refused", "failure"},
        {"sandbox.start", "plan", "success"},     {"exec.end", "exit", "success"},
        {"exec.end", "timeout", "failure"},       {"exec.start", "not started", "failure"},
        {"front.end", "signal 9", "failure"},     {"denial", "denied", "failure"},
    };
    struct ecs_facts facts;
    struct buf line = {0};
    struct buf doc;

    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct audit_record record = {"key:k", "desk", "", rows[i].operation, rows[i].result, ""};
        char wanted[64];
        buf_init(&doc, 1 << 20);
        make_line(&line, &record);
        snprintf(wanted, sizeof(wanted), "\"outcome\":\"%s\"", rows[i].outcome);
        CHECK_FOR(rows[i].operation, ecs_encode(line.p, line.n, "host", false, &doc, &facts) == 0);
        CHECK_FOR(rows[i].operation, buf_done(&doc) == 0 && strstr(doc.p, wanted));
        CHECK_FOR(rows[i].operation, facts.failed == (strcmp(rows[i].outcome, "failure") == 0));
        buf_clear(&doc);
    }
    struct audit_record step = {
        "broker", "desk", "", "plan.step", "apply", "{\"plan\":\"p\",\"step\":{\"path\":\"a/b\"}}"};
    buf_init(&doc, 1 << 20);
    make_line(&line, &step);
    CHECK(ecs_encode(line.p, line.n, "host", false, &doc, &facts) == 0 && buf_done(&doc) == 0);
    CHECK(strstr(doc.p, "\"file\":{\"path\":\"a/b\"}"));
    buf_clear(&doc);
    buf_clear(&line);
    return 0;
}
