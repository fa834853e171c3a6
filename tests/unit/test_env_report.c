/* SPDX-License-Identifier: Apache-2.0 */
/* What the script inside says. */
#include <jansson.h>
#include <string.h>

#include "front/workspaces/env_script.h"
#include "unit.h"

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
