/* SPDX-License-Identifier: Apache-2.0 */
/* Which of an index's packages suits a host, and what the script inside says. */
#include <jansson.h>
#include <string.h>

#include "client/provision/packages.h"
#include "front/workspaces/env_script.h"
#include "unit.h"

#define HASH "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static const struct platform debian = {"x86_64", false, 36, true};
static const struct platform alpine = {"x86_64", true, 0, true};
static const struct platform arm = {"aarch64", false, 36, false};
static const struct platform old = {"x86_64", false, 12, false};

static const struct wheel_wish any = {"uv", NULL, &debian};

static const char page[] =
    "<html><body><h1>Links</h1>\n"
    "<a "
    "href=\"https://x/uv-1.9.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl#sha256=" HASH
    "\">a</a>\n"
    "<A class='x' HREF='f/uv-1.10.0-py3-none-manylinux_2_17_x86_64.whl#sha256=" HASH "'>b</A>\n"
    "<a href=f/uv-1.10.0-py3-none-musllinux_1_1_x86_64.whl?a=1&amp;b=2#sha256=" HASH ">c</a>\n"
    "<a href=\"f/uv-1.10.0-py3-none-manylinux_2_28_aarch64.whl#sha256=" HASH "\">d</a>\n"
    "<a href=\"f/uv-2.0.0-py3-none-win_amd64.whl#sha256=" HASH "\">e</a>\n"
    "<a href=\"f/uv-1.11.0-py3-none-manylinux_2_17_x86_64.whl#sha256=" HASH "\" data-yanked>f</a>\n"
    "<a href=\"f/uv-1.12.0rc1-py3-none-manylinux_2_17_x86_64.whl#sha256=" HASH "\">g</a>\n"
    "<a href=\"f/uvx-9.0-py3-none-any.whl#sha256=" HASH "\">h</a>\n"
    "<a href=\"f/uv-3.0.tar.gz#sha256=" HASH "\">i</a> <a";

static bool finds(const struct platform *host, const char *version, const char *expected,
                  const char *url)
{
    struct package found;
    struct err err = {0};

    if (packages_wheel(page, sizeof(page) - 1, &(struct wheel_wish){"uv", version, host}, &found,
                       &err) < 0)
        return expected == NULL;
    return expected && strcmp(found.version, expected) == 0 && strstr(found.url, url) &&
           strcmp(found.hash, HASH) == 0 && strcmp(found.algorithm, "sha256") == 0;
}

TEST(the_newest_release_for_the_host_is_chosen)
{
    CHECK(finds(&debian, NULL, "1.10.0", "manylinux_2_17_x86_64"));
    CHECK(finds(&alpine, NULL, "1.10.0", "musllinux_1_1_x86_64.whl?a=1&b=2"));
    CHECK(finds(&arm, NULL, "1.10.0", "manylinux_2_28_aarch64"));
    CHECK(finds(&old, NULL, "1.10.0", "musllinux")); /* static: runs there, too */
    CHECK(finds(&debian, "1.9.0", "1.9.0", "https://x/"));
    CHECK(finds(&debian, "1.12.0rc1", "1.12.0rc1", "rc1"));
    CHECK(finds(&debian, "2.0.0", NULL, ""));
    CHECK(finds(&arm, "1.9.0", NULL, ""));
    return 0;
}

TEST(without_a_hash_there_is_no_choice)
{
    static const char *const pages[] = {
        "<a href=\"uv-1.0-py3-none-any.whl\">",
        "<a href=\"uv-1.0-py3-none-any.whl#md5=00\">",
        "<a href=\"uv-1.0-py3-none-any.whl#sha256=00\">",
        "{\"files\":[{\"filename\":\"uv-1.0-py3-none-any.whl\",\"url\":\"x\"}]}",
    };
    struct package found;
    struct err err = {0};

    for (size_t i = 0; i < LENGTH(pages); i++) {
        CHECK_FOR(pages[i], packages_wheel(pages[i], strlen(pages[i]), &any, &found, &err) < 0);
        CHECK_FOR(pages[i], strstr(err.msg, "no sha256"));
    }
    return 0;
}

TEST(names_that_would_lead_elsewhere_on_disk_are_passed_over)
{
    static const char evil[] =
        "{\"files\":[{\"filename\":\"uv-1.0-../../x-py3-none-any.whl\",\"url\":"
        "\"x\",\"hashes\":{\"sha256\":\"" HASH "\"}},"
        "{\"filename\":\"uv-2.0-py3-none-any.whl\\n\",\"url\":\"x\"}]}";
    struct package found;
    struct err err = {0};

    CHECK(packages_wheel(evil, sizeof(evil) - 1, &any, &found, &err) < 0);
    return 0;
}

TEST(npm_documents_give_what_they_call_the_latest)
{
    static const char document[] = "{\"dist-tags\":{\"latest\":\"1.2.3\"},\"versions\":{\"1.2.3\":{"
                                   "\"dist\":{\"tarball\":\"https://r/"
                                   "bun-1.2.3.tgz\",\"integrity\":\"sha1-x "
                                   "sha512-"
                                   "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
                                   "AAAAAAAAAAAAAAAAAAAAAAA==\"}},"
                                   "\"1.0.0\":{\"dist\":{\"tarball\":\"x\",\"shasum\":\"00\"}}}}";
    struct package found;
    struct err err = {0};

    CHECK(packages_npm(document, sizeof(document) - 1, NULL, &found, &err) == 0);
    CHECK(strcmp(found.version, "1.2.3") == 0 && strcmp(found.file, "bun-1.2.3.tgz") == 0);
    CHECK(strlen(found.hash) == 128 && strspn(found.hash, "0") == 128);
    CHECK(packages_npm(document, sizeof(document) - 1, "1.0.0", &found, &err) < 0);
    CHECK(strstr(err.msg, "no sha512"));
    CHECK(packages_npm(document, sizeof(document) - 1, "7", &found, &err) < 0);
    CHECK(packages_npm("[]", 2, NULL, &found, &err) < 0 &&
          packages_npm("", 0, NULL, &found, &err) < 0);
    return 0;
}

TEST(bun_is_chosen_by_processor_and_c_library)
{
    static const struct platform plain_musl = {"x86_64", true, 0, false};
    static const struct platform arm_musl = {"aarch64", true, 0, false};
    static const struct platform riscv = {"riscv64", false, 36, false};

    CHECK(strcmp(packages_bun(&debian), "@oven/bun-linux-x64") == 0);
    CHECK(strcmp(packages_bun(&old), "@oven/bun-linux-x64-baseline") == 0);
    CHECK(strcmp(packages_bun(&alpine), "@oven/bun-linux-x64-musl") == 0);
    CHECK(strcmp(packages_bun(&plain_musl), "@oven/bun-linux-x64-musl-baseline") == 0);
    CHECK(strcmp(packages_bun(&arm), "@oven/bun-linux-aarch64") == 0);
    CHECK(strcmp(packages_bun(&arm_musl), "@oven/bun-linux-aarch64-musl") == 0);
    CHECK(packages_bun(&riscv) == NULL);
    return 0;
}

TEST(the_words_of_the_script_become_a_report)
{
    static const char said[] = "tools\tuv 0.9.9 (a day)\t1.2.3\t\t\n"
                               "python\tnew\t3.11.2\t/usr/bin/python3.11\t25.0\n"
                               "node\tthere\t1.2.3\t\t\n"
                               "have\tcpython-3.11.2-linux-x86_64-gnu\t/usr/bin/python3.11\t\t\n"
                               "nonsense\tx\ty\n"
                               "why\tbecause\nof this";
    json_t *report = env_report(said, sizeof(said) - 1);
    const char *uv = NULL;
    const char *version = NULL;
    const char *why = NULL;
    const char *have = NULL;
    json_t *node = NULL;
    int created = 0;

    CHECK(json_unpack(report, "{s:{s:s}, s:{s:s, s:b}, s:{s:o}, s:[{s:s}], s:s}", "tools", "uv",
                      &uv, "python", "version", &version, "created", &created, "node", "node",
                      &node, "interpreters", "version", &have, "why", &why) == 0);
    CHECK(strcmp(uv, "0.9.9") == 0 && strcmp(version, "3.11.2") == 0 && created);
    CHECK(json_is_null(node) && strcmp(have, "3.11.2") == 0 &&
          strcmp(why, "because\nof this") == 0);
    json_decref(report);
    return 0;
}

TEST(of_long_words_the_end_is_kept_from_the_start_of_a_character_on)
{
    char said[10000];
    static const char end[] = "the reason";

    for (size_t shift = 0; shift < 2; shift++) {
        memcpy(said, "why\t", 4);
        for (size_t i = 4; i + 1 < sizeof(said); i += 2)
            memcpy(said + i, "\xc3\xa9", 2);
        memcpy(said + sizeof(said) - sizeof(end) + 1, end, sizeof(end) - 1);
        json_t *report = env_report(said, sizeof(said) - shift);
        const char *why = json_string_value(json_object_get(report, "why"));
        CHECK(why && strlen(why) <= 4096 && strlen(why) > 4000);
        CHECK(strstr(why, "the reaso") && (why[0] & 0xff) == 0xc3);
        json_decref(report);
    }
    return 0;
}
