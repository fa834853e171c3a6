/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/network_inner.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    METHOD = 24, /* longest, with its end */
};

#define PLACEHOLDER "carrel-secret-"

/* --- texts --- */

const char *network_inner(const struct network_rule *rule, uint16_t at)
{
    return rule->inner + at;
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

bool network_is_secret(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n >= NETWORK_SECRET || !is_lower(name[0]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_lower(name[i]) && !is_digit(name[i]) && name[i] != '-' && name[i] != '_')
            return false;
    }
    return true;
}

bool network_is_value(const char *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bool is_blank = value[i] == ' ' && i > 0 && i + 1 < n;
        if ((value[i] <= ' ' || value[i] > '~') && !is_blank)
            return false;
    }
    return n >= NETWORK_VALUE_LEAST && n <= NETWORK_VALUE_MOST;
}

void network_placeholder(const char *name, char *ret, size_t size)
{
    snprintf(ret, size, PLACEHOLDER "%s", name);
}

/* Fields that say what a request is, and how far it goes: not for a value. */
static bool is_header(const char *name)
{
    static const char *const ours[] = {"host",
                                       "content-length",
                                       "transfer-encoding",
                                       "connection",
                                       "accept-encoding",
                                       "expect",
                                       "upgrade",
                                       "te",
                                       "trailer"};
    size_t n = strlen(name);

    if (n == 0 || n >= NETWORK_SECRET)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_lower(name[i]) && !is_upper(name[i]) && !is_digit(name[i]) && name[i] != '-' &&
            name[i] != '_')
            return false;
    }
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        if (strcasecmp(name, ours[i]) == 0)
            return false;
    }
    return true;
}

static bool is_variable(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n >= NETWORK_SECRET || is_digit(name[0]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!is_lower(name[i]) && !is_upper(name[i]) && !is_digit(name[i]) && name[i] != '_')
            return false;
    }
    return true;
}

/* --- lists --- */

/* Calls for each text between commas; false: one of them, or an empty one, was not right. */
static bool each(const char *list, bool (*is)(const char *text, size_t n))
{
    for (;;) {
        size_t n = strcspn(list, ",");
        if (n == 0 || !is(list, n))
            return false;
        if (!list[n])
            return true;
        list += n + 1;
    }
}

static bool is_method(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!is_upper(text[i]) && text[i] != '-' && text[i] != '_')
            return false;
    }
    return n < METHOD && !(n == 5 && memcmp(text, "TRACE", 5) == 0) &&
           !(n == 7 && memcmp(text, "CONNECT", 7) == 0);
}

/* Whether a segment is "." or "..", or would be one for a server that cuts off parameters. */
static bool is_dots(const char *segment, size_t n)
{
    size_t end = 0;

    while (end < n && segment[end] != ';')
        end++;
    return (end == 1 && segment[0] == '.') || (end == 2 && segment[0] == '.' && segment[1] == '.');
}

static bool is_pattern(const char *text, size_t n)
{
    if (text[0] != '/')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        size_t segment = i + 1;
        if (c <= ' ' || c > '~' || strchr("%?#\\", c))
            return false;
        if (c == '*' && i + 1 < n && (text[i - 1] != '/' || text[i + 1] != '/'))
            return false;
        if (c != '/')
            continue;
        size_t end = segment;
        while (end < n && text[end] != '/')
            end++;
        if ((end == segment && end < n) || is_dots(text + segment, end - segment))
            return false;
    }
    return true;
}

/* --- words --- */

static int keep(struct network_rule *rule, uint16_t *at, const char *text, size_t n)
{
    if (rule->inner_n == 0)
        rule->inner_n = 1; /* "" */
    if (rule->inner_n + n + 1 > sizeof(rule->inner))
        return -1;
    *at = rule->inner_n;
    memcpy(rule->inner + rule->inner_n, text, n);
    rule->inner_n = (uint16_t)(rule->inner_n + n + 1);
    rule->inner[rule->inner_n - 1] = '\0';
    return 0;
}

static bool are_methods(const char *text)
{
    return each(text, is_method);
}

static bool are_paths(const char *text)
{
    return each(text, is_pattern);
}

static const struct {
    const char *name;
    size_t at;
    bool (*is)(const char *text);
    const char *expected;
} options[] = {
    {"methods=", offsetof(struct network_rule, methods), are_methods,
     "methods as HTTP has them, with commas between, as GET,HEAD; TRACE and CONNECT are never let "
     "through"},
    {"paths=", offsetof(struct network_rule, paths), are_paths,
     "paths with commas between, as /v1/models,/v1/chat/*: each begins with /, has no //, no . or "
     "..  and nothing that is encoded, and * is its end, or stands alone between two /"},
    {"secret=", offsetof(struct network_rule, secret), network_is_secret,
     "the name of a secret: small letters, digits, - and _, a letter first, at most 63"},
    {"header=", offsetof(struct network_rule, header), is_header,
     "the name of a header that can hold a key, such as Authorization or X-Api-Key"},
    {"env=", offsetof(struct network_rule, env), is_variable,
     "the name of a variable, such as EXAMPLE_KEY"},
};

static uint16_t *field(struct network_rule *rule, size_t i)
{
    return (uint16_t *)(void *)((char *)rule + options[i].at);
}

static int parse_value(size_t i, const char *value, size_t n, struct network_rule *rule,
                       struct err *err)
{
    char text[NETWORK_RULE];

    if (*field(rule, i))
        return err_set(err, ERR_INVALID, 0, "'%s' is there twice", options[i].name);
    snprintf(text, sizeof(text), "%.*s", (int)n, value);
    if (n >= sizeof(text) || !options[i].is(text))
        return err_set(err, ERR_INVALID, 0, "'%s%.64s': write %s", options[i].name, text,
                       options[i].expected);
    if (keep(rule, field(rule, i), text, n) < 0)
        return err_set(err, ERR_INVALID, 0, "a rule has at most %d characters", NETWORK_RULE - 1);
    rule->inspect = true;
    return 1;
}

int network_parse_inner(const char *word, size_t n, struct network_rule *rule, struct err *err)
{
    static const char inspect[] = "tls=inspect";

    if (n == sizeof(inspect) - 1 && memcmp(word, inspect, n) == 0) {
        rule->inspect = true;
        return 1;
    }
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        size_t name = strlen(options[i].name);
        if (n >= name && memcmp(word, options[i].name, name) == 0)
            return parse_value(i, word + name, n - name, rule, err);
    }
    return 0;
}

/* "example-key" is EXAMPLE_KEY. */
static void variable_of(const char *secret, char ret[NETWORK_SECRET])
{
    size_t n = 0;

    for (; secret[n] && n + 1 < NETWORK_SECRET; n++)
        ret[n] = secret[n] == '-'      ? '_'
                 : is_lower(secret[n]) ? (char)(secret[n] - 'a' + 'A')
                                       : secret[n];
    ret[n] = '\0';
}

int network_complete_inner(struct network_rule *rule, struct err *err)
{
    static const char header[] = "Authorization";
    char variable[NETWORK_SECRET];

    if (!rule->secret && (rule->header || rule->env))
        return err_set(err, ERR_INVALID, 0,
                       "header= and env= say where a secret goes: secret=NAME is missing");
    if (!rule->secret)
        return 0;
    if (rule->wildcard)
        return err_set(err, ERR_INVALID, 0,
                       "a secret goes to one host: write its whole name instead of '*.%.64s'",
                       rule->name);
    variable_of(network_inner(rule, rule->secret), variable);
    if ((!rule->header && keep(rule, &rule->header, header, sizeof(header) - 1) < 0) ||
        (!rule->env && keep(rule, &rule->env, variable, strlen(variable)) < 0))
        return err_set(err, ERR_INVALID, 0, "a rule has at most %d characters", NETWORK_RULE - 1);
    return 0;
}

static bool is_default(const struct network_rule *rule, size_t i)
{
    const char *value = network_inner(rule, *field((struct network_rule *)(uintptr_t)rule, i));
    char variable[NETWORK_SECRET];

    if (options[i].at == offsetof(struct network_rule, header))
        return strcmp(value, "Authorization") == 0;
    if (options[i].at != offsetof(struct network_rule, env))
        return false;
    variable_of(network_inner(rule, rule->secret), variable);
    return strcmp(value, variable) == 0;
}

const char *network_inner_text(const struct network_rule *rule, char *ret)
{
    size_t n = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        uint16_t at = *field((struct network_rule *)(uintptr_t)rule, i);
        if (at && !is_default(rule, i) && n < NETWORK_RULE)
            n += (size_t)snprintf(ret + n, NETWORK_RULE - n, " %s%s", options[i].name,
                                  network_inner(rule, at));
    }
    if (rule->inspect && n == 0)
        snprintf(ret, NETWORK_RULE, " tls=inspect");
    return ret;
}

/* --- requests --- */

static bool has_method(const char *list, const char *method)
{
    size_t n = strlen(method);

    while (*list) {
        size_t some = strcspn(list, ",");
        if (some == n && memcmp(list, method, n) == 0)
            return true;
        list += some + (list[some] == ',');
    }
    return false;
}

static int hex(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What *p begins with, decoded; *p is at its last byte then. NULL, or why not. */
static const char *read_byte(const char **p, char *ret)
{
    *ret = **p;
    if (*ret == '\\')
        return "its path can be read in two ways: it has a '\\'";
    if (*ret != '%')
        return NULL;
    int high = hex((*p)[1]);
    int low = high < 0 ? -1 : hex((*p)[2]);
    unsigned char decoded = (unsigned char)(low < 0 ? 0 : high << 4 | low);
    if (decoded <= ' ' || decoded == 0x7f || strchr("/\\%;?#", decoded))
        return "its path can be read in two ways: it has an encoded '/', '\\', '%' or the like";
    *ret = (char)decoded;
    *p += 2;
    return NULL;
}

/* A segment that has ended. */
static const char *check_segment(const char *segment, size_t n, bool is_last)
{
    if (n == 0 && !is_last)
        return "its path can be read in two ways: it has '//'";
    return is_dots(segment, n) ? "its path can be read in two ways: it has '.' or '..'" : NULL;
}

/* The path as a server reads it, if all read it in the same way: what need not be encoded is
 * decoded. NULL, or why not. */
static const char *read_path(const char *path, char ret[NETWORK_PATH])
{
    size_t n = 0;
    size_t segment = 1;
    const char *why = NULL;

    for (const char *p = path; *p && !why; p++) {
        if (n + 1 == NETWORK_PATH)
            return "its path is longer than paths can be compared";
        why = read_byte(&p, &ret[n]);
        bool ends = !why && ret[n] == '/' && n > 0;
        if (ends)
            why = check_segment(ret + segment, n - segment, false);
        n++;
        segment = ends ? n : segment;
    }
    ret[n] = '\0';
    if (why || n == 0)
        return why ? why : "its path is malformed";
    return check_segment(ret + segment, n - segment, true);
}

static bool matches(const char *pattern, size_t n, const char *path)
{
    size_t i = 0;

    for (; i < n; i++) {
        if (pattern[i] != '*') {
            if (*path++ != pattern[i])
                return false;
        } else if (i + 1 == n) {
            return true;
        } else {
            size_t segment = strcspn(path, "/");
            if (segment == 0)
                return false;
            path += segment;
        }
    }
    return *path == '\0';
}

static bool has_path(const char *list, const char *path)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        if (matches(list, n, path))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

const struct network_rule *network_decide_request(const struct network_rule *rules, size_t count,
                                                  const struct network_request *asked,
                                                  const char **ret_why)
{
    const struct network_rule *rule;
    char read[NETWORK_PATH] = "";
    const char *ambiguous = read_path(asked->path, read);
    size_t at = 0;

    *ret_why = "no rule allows it";
    while ((rule = network_next(rules, count, asked->name, asked->port, &at))) {
        if (rule->methods && !has_method(network_inner(rule, rule->methods), asked->method)) {
            *ret_why = "no rule allows this method";
            continue;
        }
        if (!rule->paths)
            return rule;
        if (ambiguous)
            *ret_why = ambiguous;
        else if (has_path(network_inner(rule, rule->paths), read))
            return rule;
        else
            *ret_why = "no rule allows this path";
    }
    return NULL;
}

/* --- within --- */

static bool has_all_methods(const struct network_rule *wider, const struct network_rule *rule)
{
    const char *list = network_inner(rule, rule->methods);
    char method[METHOD];

    if (!wider->methods)
        return true;
    if (!*list)
        return false;
    while (*list) {
        size_t n = strcspn(list, ",");
        snprintf(method, sizeof(method), "%.*s", (int)n, list);
        if (!has_method(network_inner(wider, wider->methods), method))
            return false;
        list += n + (list[n] == ',');
    }
    return true;
}

/* Whether all that the one pattern matches is matched by a pattern of the list: the same one, or
 * one that is the beginning of it and a '*'. */
static bool has_pattern(const char *list, const char *pattern, size_t size)
{
    while (*list) {
        size_t n = strcspn(list, ",");
        bool open = list[n - 1] == '*' && !memchr(list, '*', n - 1);
        if ((n == size && memcmp(list, pattern, n) == 0) ||
            (open && n - 1 <= size && memcmp(list, pattern, n - 1) == 0))
            return true;
        list += n + (list[n] == ',');
    }
    return false;
}

static bool has_all_paths(const struct network_rule *wider, const struct network_rule *rule)
{
    const char *list = network_inner(rule, rule->paths);

    if (!wider->paths)
        return true;
    if (!*list)
        return false;
    while (*list) {
        size_t n = strcspn(list, ",");
        if (!has_pattern(network_inner(wider, wider->paths), list, n))
            return false;
        list += n + (list[n] == ',');
    }
    return true;
}

bool network_inner_is_within(const struct network_rule *rule, const struct network_rule *wider)
{
    if (!wider->inspect)
        return true;
    if (!rule->inspect || !has_all_methods(wider, rule) || !has_all_paths(wider, rule))
        return false;
    return !wider->secret ||
           (rule->secret &&
            strcmp(network_inner(rule, rule->secret), network_inner(wider, wider->secret)) == 0 &&
            strcasecmp(network_inner(rule, rule->header), network_inner(wider, wider->header)) ==
                0);
}
