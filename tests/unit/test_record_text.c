/* SPDX-License-Identifier: Apache-2.0 */
/* front/record_text: what is too long for a record is left out by itself, not with the rest. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "front/record_text.h"

static json_t *numbers(size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)i));
    return list;
}

static json_t *parsed_text(json_t *details, size_t most)
{
    char *text = record_text(details, most);
    json_t *object = text && strlen(text) <= most ? json_loads(text, 0, NULL) : NULL;

    free(text);
    return object;
}

TEST(what_fits_is_as_it_was)
{
    char *text = record_text(json_pack("{s:s, s:[i,i]}", "plan", "p1", "operations", 1, 2), 4096);

    CHECK(text && strcmp(text, "{\"plan\":\"p1\",\"operations\":[1,2]}") == 0);
    free(text);
    CHECK(record_text(NULL, 4096) == NULL);
    return 0;
}

TEST(only_the_list_is_left_out_and_its_count_and_hash_are_kept)
{
    json_t *o = parsed_text(json_pack("{s:s, s:s, s:o}", "plan", "p1", "comment", "looks good",
                                      "operations", numbers(20000)),
                            65280);
    json_t *list = json_object_get(o, "operations");

    CHECK(o && strcmp(json_string_value(json_object_get(o, "plan")), "p1") == 0);
    CHECK(strcmp(json_string_value(json_object_get(o, "comment")), "looks good") == 0);
    CHECK(json_integer_value(json_object_get(list, "count")) == 20000);
    CHECK(strlen(json_string_value(json_object_get(list, "sha256"))) == 64);
    json_decref(o);
    return 0;
}

TEST(what_is_deep_is_left_out_where_it_is)
{
    json_t *o = parsed_text(json_pack("{s:s, s:{s:b, s:o}}", "hash", "abc", "what", "force", 1,
                                      "paths", numbers(20000)),
                            65280);
    json_t *what = json_object_get(o, "what");

    CHECK(json_is_true(json_object_get(what, "force")));
    CHECK(json_integer_value(json_object_get(json_object_get(what, "paths"), "count")) == 20000);
    json_decref(o);
    return 0;
}

TEST(several_long_ones_go_until_it_fits)
{
    json_t *o = parsed_text(json_pack("{s:s, s:o, s:o, s:o}", "hash", "abc", "a", numbers(5000),
                                      "b", numbers(9000), "c", numbers(9000)),
                            30000);

    CHECK(strcmp(json_string_value(json_object_get(o, "hash")), "abc") == 0);
    CHECK(json_is_array(json_object_get(o, "a")));
    CHECK(json_is_object(json_object_get(o, "b")) && json_is_object(json_object_get(o, "c")));
    json_decref(o);
    return 0;
}

TEST(what_cannot_be_cut_says_so)
{
    json_t *many = json_object();
    char key[16];

    for (int i = 0; i < 10000; i++) {
        snprintf(key, sizeof(key), "k%d", i);
        json_object_set_new(many, key, json_integer(i));
    }
    json_t *o = parsed_text(many, 4096);
    CHECK(json_object_get(o, "omitted") != NULL);
    json_decref(o);
    return 0;
}
