/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of rules, and on the last line a name to decide about. A rule that is taken is written and
 * read again as the same; a name is read in one way; what is decided follows from the rules. */
#include "fuzz.h"

#include <netinet/in.h>
#include <string.h>

#include "policy/network_inner.h"

enum {
    RULES = 16
};

static void must_be_a_name(const char *name)
{
    char again[NETWORK_NAME];
    size_t n = strlen(name);

    MUST(n > 0 && n < NETWORK_NAME && name[n - 1] != '.' && name[0] != '.');
    MUST(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == n);
    MUST(network_name(name, n, again) && strcmp(name, again) == 0);
    /* Nothing that is an address for anybody. */
    const char *last = strrchr(name, '.') ? strrchr(name, '.') + 1 : name;
    MUST(strspn(last, "0123456789") != strlen(last));
}

static void must_be_a_rule(const struct network_rule *rule)
{
    struct network_rule again;
    char text[NETWORK_RULE];
    char second[NETWORK_RULE];
    struct err err;

    must_be_a_name(rule->name);
    MUST(!rule->wildcard || rule->deny || strchr(rule->name, '.'));
    MUST(network_parse_rule(network_rule_text(rule, text), &again, &err) == 0);
    MUST(strcmp(network_rule_text(&again, second), text) == 0);
    MUST(rule->deny || network_is_within(rule, rule, 1));
}

/* A path that servers read in two ways gets past no rule that names paths, whatever they are. */
static void try_requests(const struct network_rule *rules, size_t count, const char *name)
{
    static const struct {
        const char *path;
        bool ambiguous;
    } rows[] = {
        {"/", false},           {"/v1/a", false},     {"/v1/%61", false}, {"/v1/../a", true},
        {"/v1/%2e%2E/a", true}, {"/v1/..;x/a", true}, {"/v1//a", true},   {"/v1/a%2fb", true},
    };

    static const uint16_t ports[] = {80, 443, 8443};

    for (size_t i = 0; i < 3 * (sizeof(rows) / sizeof(rows[0])); i++) {
        const struct network_request asked = {
            .name = name, .port = ports[i % 3], .method = "GET", .path = rows[i / 3].path};
        const char *why = NULL;
        const struct network_rule *rule = network_decide_request(rules, count, &asked, &why);
        MUST(rule ? !rule->deny : why != NULL);
        MUST(!rule || !rule->paths || !rows[i / 3].ambiguous);
        const struct network_rule *of_name = network_decide(rules, count, name, ports[i % 3]);
        MUST(!rule || (of_name && !of_name->deny));
    }
}

static void try_decisions(const struct network_rule *rules, size_t count, const char *name)
{
    static const uint32_t asked[] = {0, 22, 80, 443, 65535, NETWORK_UDP | 22};
    uint32_t ports[2 * RULES];
    int n = network_ports(rules, count, ports, 2 * RULES);

    MUST(n >= 0);
    for (int i = 1; i < n; i++)
        MUST(ports[i - 1] < ports[i]);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const struct network_rule *rule = network_decide(rules, count, name, asked[i]);
        if (!rule || rule->deny)
            continue;
        MUST(n > 0);
        size_t tail = strlen(rule->name);
        size_t length = strlen(name);
        MUST(length >= tail && strcmp(name + length - tail, rule->name) == 0);
        MUST(rule->wildcard ? length > tail && name[length - tail - 1] == '.' : length == tail);
        for (size_t k = 0; k < count; k++)
            MUST(!rules[k].deny || asked[i] == 0 ||
                 network_decide(&rules[k], 1, name, asked[i]) == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct network_rule rules[RULES];
    char *text = malloc(size + 1);
    size_t count = 0;
    char name[NETWORK_NAME];
    struct err err;
    char *line = text;

    MUST(text);
    memcpy(text, data, size);
    text[size] = '\0';
    (void)network_place_of(data, size);
    for (char *end; (end = strchr(line, '\n')); line = end + 1) {
        *end = '\0';
        if (count < RULES && network_parse_rule(line, &rules[count], &err) == 0)
            must_be_a_rule(&rules[count++]);
        else
            MUST(count == RULES || err.msg[0]);
    }
    if (network_name(line, (size_t)(text + size - line), name)) {
        must_be_a_name(name);
        try_decisions(rules, count, name);
        try_requests(rules, count, name);
    }
    free(text);
    return 0;
}
