/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/args.h"

#include <string.h>

#include "base/near.h"
#include "cli/cli.h"

static const struct args_rule *find(const struct args_rule *rules, const char *word, size_t n)
{
    for (; rules && rules->name; rules++) {
        if (strlen(rules->name) == n && strncmp(rules->name, word, n) == 0)
            return rules;
    }
    return NULL;
}

static int keep(const struct args_rule *rule, const char *value, struct err *err)
{
    struct args_list *list = rule->to;

    if (rule->kind == ARGS_TEXT) {
        *(const char **)rule->to = value;
        return 0;
    }
    if (list->count == ARGS_LIST)
        return err_set(err, ERR_LIMIT, 0, "more than %d times %s", ARGS_LIST, rule->name);
    list->items[list->count++] = value;
    return 0;
}

static size_t count_of(const struct args_rule *rules)
{
    size_t count = 0;

    while (rules && rules[count].name)
        count++;
    return count;
}

static int unknown(const char *word, size_t n, const struct args_rule *rules,
                   const struct args_common *common, struct err *err)
{
    char hint[NEAR_HINT];

    return err_set(err, ERR_INVALID, 0, "unknown option '%.80s'; see 'carrel %s --help'%s", word,
                   common->verb,
                   near_hint(hint, word, n, rules, count_of(rules), sizeof(rules[0])));
}

/* Takes the option at argv[0]; returns how many words it was, or -1. */
static int take(char **argv, const struct args_rule *rules, struct args_common *common,
                struct err *err)
{
    const struct args_rule everywhere[] = {
        {"--json", NULL, NULL, ARGS_FLAG, &common->json},
        {"--help", NULL, NULL, ARGS_FLAG, &common->help},
        {"-h", NULL, NULL, ARGS_FLAG, &common->help},
        {"--state", NULL, NULL, ARGS_TEXT, &common->state},
        {0},
    };
    const char *word = argv[0];
    const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    const struct args_rule *rule = find(rules, word, n);

    if (!rule)
        rule = find(everywhere, word, n);
    if (!rule)
        return unknown(word, n, rules, common, err);
    if (rule->kind == ARGS_FLAG) {
        if (equals)
            return err_set(err, ERR_INVALID, 0, "%s takes no value", rule->name);
        *(bool *)rule->to = true;
        return 1;
    }
    if (!equals && !argv[1])
        return err_set(err, ERR_INVALID, 0, "a value is missing after '%s'; see 'carrel %s --help'",
                       rule->name, common->verb);
    if (keep(rule, equals ? equals + 1 : argv[1], err) < 0)
        return -1;
    return equals ? 1 : 2;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] != '\0' && strcmp(word, "--") != 0;
}

int args_options(char **argv, int *at, const struct args_rule *rules, struct args_common *common,
                 struct err *err)
{
    while (argv[*at] && is_option(argv[*at])) {
        int words = take(argv + *at, rules, common, err);
        if (words < 0)
            return -1;
        *at += words;
    }
    return 0;
}

int args_all(char **argv, const struct args_rule *rules, struct args_common *common,
             const char **words, size_t most, struct err *err)
{
    size_t count = 0;
    bool only_words = false;
    int at = 0;

    for (;;) {
        if (!only_words && args_options(argv, &at, rules, common, err) < 0)
            return -1;
        if (!argv[at])
            break;
        if (!only_words && strcmp(argv[at], "--") == 0) {
            only_words = true;
            at++;
            continue;
        }
        if (count == most)
            return err_set(err, ERR_INVALID, 0,
                           "unexpected argument '%.80s'; see 'carrel %s --help'", argv[at],
                           common->verb);
        words[count++] = argv[at++];
    }
    words[count] = NULL;
    return 0;
}

int args_help(const char *text, const struct args_rule *rules)
{
    static const struct option_text common[] = {
        {"--json", NULL, "print one JSON object"},
        {"--state", "DIR", "talk to the daemon of this state directory"},
        {0},
    };

    return cli_put_help(text, rules, count_of(rules), sizeof(*rules), common);
}
