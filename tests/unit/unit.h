/* SPDX-License-Identifier: Apache-2.0 */
/* Unit tests. A test is a sentence, its checks are in order, and the first that fails ends it:
 *
 *     TEST(arena_refuses_past_its_max)
 *     {
 *         CHECK(arena_alloc(&a, 9) == NULL);
 *         return 0;
 *     }
 *
 * A program includes this header once; it runs its tests in order and prints each name. */
#pragma once

#include <stdio.h>
#include <unistd.h>

struct unit_test {
    const char *name;
    int (*run)(void);
    struct unit_test *next;
};

static struct unit_test *unit_first;
static struct unit_test **unit_last = &unit_first;

static inline void unit_add(struct unit_test *test)
{
    *unit_last = test;
    unit_last = &test->next;
}

#define TEST(sentence)                                                                             \
    static int sentence(void);                                                                     \
    static struct unit_test unit_##sentence = {#sentence, sentence, NULL};                         \
    __attribute__((constructor)) static void unit_add_##sentence(void)                             \
    {                                                                                              \
        unit_add(&unit_##sentence);                                                                \
    }                                                                                              \
    static int sentence(void)

/* For tables: `which` names the row. */
#define CHECK_FOR(which, condition)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("    %s:%d: not so: %s  [%s]\n", __FILE__, __LINE__, #condition, which);        \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("    %s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                     \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

int main(void)
{
    int passed = 0;
    int failed = 0;

    (void)alarm(300);                       /* a test that never ends has failed */
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what was printed is seen even after a crash */
    for (struct unit_test *test = unit_first; test; test = test->next) {
        int result = test->run();
        printf("%s  %s\n", result ? "FAIL" : "pass", test->name);
        *(result ? &failed : &passed) += 1;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
