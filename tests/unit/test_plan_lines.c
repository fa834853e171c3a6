/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of which two come from one, brought together. */
#include "plan/trees/lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static struct lines_text text(const char *words)
{
    return (struct lines_text){words, strlen(words)};
}

/* 1: clean, and it is this; 0: not clean; -1: another. */
static int merged(const char *base, const char *ours, const char *theirs, const char *want)
{
    scoped_buf struct buf b = {0};
    const struct lines_text three[] = {text(base), text(ours), text(theirs)};

    buf_init(&b, 1 << 20);
    int r = lines_merge(&b, &three[0], &three[1], &three[2]);
    if (r != 1)
        return r;
    return b.n == strlen(want) && (b.n == 0 || memcmp(b.p, want, b.n) == 0) ? 1 : -1;
}

TEST(what_one_side_has_changed_is_taken)
{
    CHECK(merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n", "A\nb\nC\n") == 1);
    CHECK(merged("a\nb\nc\n", "a\nb\nc\n", "b\nc\nd\n", "b\nc\nd\n") == 1);
    CHECK(merged("a\nb\nc\n", "x\na\nb\nc\n", "a\nb\nc\ny\n", "x\na\nb\nc\ny\n") == 1);
    CHECK(merged("a\nb\nc\nd\n", "a\nd\n", "a\nb\nc\nd\ne\n", "a\nd\ne\n") == 1);
    CHECK(merged("", "", "a\n", "a\n") == 1);
    CHECK(merged("a\n", "", "a\n", "") == 1);
    return 0;
}

TEST(what_both_have_changed_alike_is_taken_once)
{
    CHECK(merged("a\nb\nc\n", "a\nx\nc\n", "a\nx\nc\n", "a\nx\nc\n") == 1);
    CHECK(merged("a\nb\nc\nd\n", "a\nx\nc\nD\n", "A\nx\nc\nd\n", "A\nx\nc\nD\n") ==
          0); /* beside it */
    CHECK(merged("", "n\n", "n\n", "n\n") == 1);
    return 0;
}

TEST(the_same_or_neighbouring_lines_are_a_conflict)
{
    CHECK(merged("a\nb\nc\n", "a\nx\nc\n", "a\ny\nc\n", "") == 0);
    CHECK(merged("a\nb\nc\n", "x\nb\nc\n", "a\ny\nc\n", "") == 0);
    CHECK(merged("a\nb\nc\n", "a\nc\n", "a\ny\nc\n", "") == 0);
    CHECK(merged("a\n", "a\nx\n", "a\ny\n", "") == 0);
    CHECK(merged("", "x\n", "y\n", "") == 0);
    return 0;
}

TEST(a_last_line_without_its_end_is_another_line)
{
    CHECK(merged("a\nb\nc", "A\nb\nc", "a\nb\nc\n", "A\nb\nc\n") == 1);
    CHECK(merged("a\nb\nc\n", "a\nb\nc", "a\nb\nC\n", "") == 0);
    return 0;
}

TEST(what_is_no_text_is_told)
{
    const struct lines_text nul = {"a\0b", 3};
    const struct lines_text large = {NULL, (size_t)LINES_LARGEST + 1};

    CHECK(!lines_is_text(&nul) && !lines_is_text(&large));
    CHECK(lines_is_text(&(struct lines_text){NULL, 0}));
    return 0;
}

enum {
    MOST_LINES = 30,
    ROUNDS = 20000,
};

/* Of few different lines, so that most stand there several times. */
static void make_up(char *ret, unsigned *seed)
{
    int n = rand_r(seed) % MOST_LINES;

    *ret = '\0';
    for (int i = 0; i < n; i++)
        snprintf(ret + strlen(ret), 4, "%c\n", 'a' + rand_r(seed) % 5);
}

/* A few lines changed. */
static void change(char *ret, const char *from, unsigned *seed)
{
    *ret = '\0';
    for (const char *at = from; *at; at += 2) {
        int what = rand_r(seed) % 12;
        if (what == 0)
            continue;
        snprintf(ret + strlen(ret), 4, "%c\n", what == 1 ? 'a' + rand_r(seed) % 7 : *at);
        if (what == 2)
            snprintf(ret + strlen(ret), 4, "%c\n", 'a' + rand_r(seed) % 7);
    }
}

/* Which side is which makes no difference; what only one has changed is that one's text. */
TEST(random_texts)
{
    char base[8 * MOST_LINES];
    char ours[8 * MOST_LINES];
    char theirs[8 * MOST_LINES];
    unsigned seed = 1;
    int clean = 0;

    for (int i = 0; i < ROUNDS; i++) {
        scoped_buf struct buf b = {0};
        make_up(base, &seed);
        change(ours, base, &seed);
        change(theirs, base, &seed);
        CHECK(merged(base, ours, base, ours) == 1 && merged(base, base, theirs, theirs) == 1);
        CHECK(merged(base, ours, ours, ours) == 1);
        const struct lines_text three[] = {text(base), text(ours), text(theirs)};
        buf_init(&b, 1 << 20);
        int r = lines_merge(&b, &three[0], &three[1], &three[2]);
        CHECK(r >= 0);
        buf_add(&b, "", 1);
        CHECK(merged(base, theirs, ours, r ? b.p : "") == r);
        clean += r;
    }
    CHECK(clean > ROUNDS / 20 && clean < ROUNDS);
    return 0;
}

/* Nothing in common, and more lines than two may differ in: it ends, and is no merge. */
TEST(texts_too_far_apart_are_a_conflict)
{
    const size_t n = 20000;
    char *three[3];
    int r = -1;
    scoped_buf struct buf b = {0};

    for (int i = 0; i < 3; i++) {
        three[i] = malloc(16 * n);
        CHECK(three[i]);
        size_t at = 0;
        for (size_t k = 0; k < n; k++)
            at += (size_t)snprintf(three[i] + at, 16, "%d %zu\n", i, k);
    }
    const struct lines_text texts[] = {text(three[0]), text(three[1]), text(three[2])};
    buf_init(&b, 1 << 20);
    r = lines_merge(&b, &texts[0], &texts[1], &texts[2]);
    for (int i = 0; i < 3; i++)
        free(three[i]);
    CHECK(r == 0);
    return 0;
}
