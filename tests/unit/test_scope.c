/* SPDX-License-Identifier: Apache-2.0 */
/* What a key may do: scopes by name, those that go together, patterns of workspaces. */
#include "front/core/scope.h"

#include <string.h>

#include "front/store/store.h"
#include "unit.h"

TEST(a_scope_has_one_name)
{
    const char *name;
    size_t i = 0;
    unsigned all = 0;

    for (; scope_at(i, ~0U, &name); i++) {
        CHECK(name && scope_by_name(name) && !(all & scope_by_name(name)));
        all |= scope_by_name(name);
    }
    CHECK(i == 6 && all == (SCOPE_ADMIN | SCOPE_USER | SCOPE_APPROVE | SCOPE_OWNER | SCOPE_AGENT |
                            SCOPE_READ));
    CHECK(scope_at(0, 0, &name) && !name);
    CHECK(!scope_by_name("") && !scope_by_name("Admin") && !scope_by_name(NULL));
    return 0;
}

TEST(an_agent_is_nothing_else_and_only_some_keys_are_for_some_workspaces)
{
    for (unsigned bits = 1; bits < 1 << 6; bits++) {
        bool agent = bits & SCOPE_AGENT;
        bool whole = bits & (SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER);
        CHECK((scopes_refuse(bits, true) == NULL) == (agent ? bits == SCOPE_AGENT : !whole));
        CHECK((scopes_refuse(bits, false) == NULL) == !agent);
    }
    return 0;
}

TEST(who_makes_which)
{
    const unsigned lesser[] = {SCOPE_AGENT, SCOPE_APPROVE, SCOPE_READ, SCOPE_APPROVE | SCOPE_READ};
    const unsigned greater[] = {SCOPE_OWNER, SCOPE_USER, SCOPE_ADMIN, SCOPE_READ | SCOPE_USER};
    const unsigned nobody = SCOPE_USER | SCOPE_AGENT | SCOPE_APPROVE | SCOPE_READ;

    for (size_t i = 0; i < LENGTH(lesser); i++)
        CHECK(scopes_may_make(SCOPE_ADMIN, lesser[i]) && scopes_may_make(SCOPE_OWNER, lesser[i]) &&
              !scopes_may_make(nobody, lesser[i]));
    for (size_t i = 0; i < LENGTH(greater); i++)
        CHECK(scopes_may_make(SCOPE_ADMIN, greater[i]) &&
              !scopes_may_make(SCOPE_OWNER | nobody, greater[i]));
    return 0;
}

TEST(what_is_lacking_is_named)
{
    static const struct {
        unsigned any;
        const char *words;
    } cases[] = {
        {SCOPE_ADMIN, "'admin'"},
        {SCOPE_ADMIN | SCOPE_OWNER, "'owner'"},
        {SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER | SCOPE_AGENT, "'owner' or 'agent'"},
        {~0U, "'owner', 'agent', 'approve' or 'read'"},
    };

    char text[96];

    for (size_t i = 0; i < LENGTH(cases); i++)
        CHECK_FOR(cases[i].words,
                  strcmp(scopes_wanted(cases[i].any, text, sizeof(text)), cases[i].words) == 0);
    return 0;
}

TEST(a_pattern_has_the_characters_of_an_id_and_two_more)
{
    static const char *const good[] = {"a", "thread-*", "*", "?", "*-x", "A.b_c-9", "a**b"};
    static const char *const bad[] = {"",    ".a",  "-a",   "_a",  "a/b", "a b", "[a]",  "a\"b",
                                      "a\\", "a\n", "\xc3", "a,b", "{a}", "%",   "a\x01"};
    char n[SCOPE_PATTERN + 2];

    for (size_t i = 0; i < LENGTH(good); i++)
        CHECK_FOR(good[i], scope_pattern_is_valid(good[i]));
    for (size_t i = 0; i < LENGTH(bad); i++)
        CHECK_FOR(bad[i], !scope_pattern_is_valid(bad[i]));
    memset(n, 'a', sizeof(n));
    n[SCOPE_PATTERN + 1] = '\0';
    CHECK(!scope_pattern_is_valid(n) && scope_pattern_is_valid(n + 1));
    return 0;
}

/* As slow as can be, and as simple. */
static bool plainly(const char *p, const char *id)
{
    if (*p == '*')
        return plainly(p + 1, id) || (*id && plainly(p, id + 1));
    if (!*p || !*id)
        return !*p && !*id;
    return (*p == '?' || *p == *id) && plainly(p + 1, id + 1);
}

TEST(every_short_pattern_matches_what_it_should)
{
    static const char letters[] = "ab*?";
    char pattern[6];
    char id[6];

    for (unsigned p = 0; p < 1 << 10; p++) {
        for (size_t i = 0; i < 5; i++)
            pattern[i] = letters[p >> (2 * i) & 3];
        pattern[5] = '\0';
        for (unsigned t = 0; t < 1 << 5; t++) {
            for (size_t i = 0; i < 5; i++)
                id[i] = letters[t >> i & 1];
            id[5] = '\0';
            for (size_t cut = 0; cut <= 5; cut++)
                CHECK_FOR(pattern + cut, scope_pattern_matches(pattern + cut, id + t % 3) ==
                                             plainly(pattern + cut, id + t % 3));
        }
    }
    return 0;
}

TEST(a_list_is_of_whole_ids_and_an_empty_one_of_none)
{
    static const char list[] = "[\"desk\",\"thread-*\",\"x?\"]";
    static const char *const in[] = {"desk", "thread-", "thread-1", "thread-1.2_3", "x1"};
    static const char *const out[] = {"des",      "desk1", "adesk", "thread",
                                      "Thread-1", "x",     "x12",   ""};

    for (size_t i = 0; i < LENGTH(in); i++)
        CHECK_FOR(in[i], scope_list_has(list, in[i]));
    for (size_t i = 0; i < LENGTH(out); i++)
        CHECK_FOR(out[i], !scope_list_has(list, out[i]));
    CHECK(!scope_list_has("", "a") && !scope_list_has(NULL, "a") && !scope_list_has("[]", "a"));
    CHECK(!scope_list_has("[\"a", "a"));
    return 0;
}
