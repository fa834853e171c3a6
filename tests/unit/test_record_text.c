/* SPDX-License-Identifier: Apache-2.0 */
/* front/record_text: what is too long for a record is left out by itself, not with the rest.
 * front/util: ids and hashes. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "front/core/front.h"
#include "front/core/record_text.h"

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

/* --- util --- */

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

TEST(ids_use_each_random_byte_once_and_all_digits)
{
    static char ids[500][28];
    bool seen[26][128] = {{false}};

    for (size_t i = 0; i < LENGTH(ids); i++) {
        make_id('x', ids[i]);
        CHECK(ids[i][0] == 'x' && strlen(ids[i]) == 27);
        CHECK(strspn(ids[i] + 1, "abcdefghijklmnopqrstuvwxyz234567") == 26);
        for (size_t k = 0; k < 26; k++)
            seen[k][(unsigned char)ids[i][1 + k]] = true;
    }
    qsort(ids, LENGTH(ids), sizeof(ids[0]), by_text);
    for (size_t i = 1; i < LENGTH(ids); i++)
        CHECK(memcmp(ids[i - 1], ids[i], 9) != 0); /* two alike in 40 bits: one in ten million */
    for (size_t k = 0; k < 26; k++) {
        size_t n = 0;
        for (size_t c = 0; c < 128; c++)
            n += seen[k][c];
        CHECK(n == 32);
    }
    return 0;
}

TEST(hashes_are_those_of_the_standard)
{
    char hash[FRONT_HASH];

    for (int i = 0; i < 2; i++) {
        hash_hex("abc", 3, hash);
        CHECK(!strcmp(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
        hash_hex("", 0, hash);
        CHECK(!strcmp(hash, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    }
    return 0;
}
