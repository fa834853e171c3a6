/* SPDX-License-Identifier: Apache-2.0 */
#include "front/core/scope.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "front/store/store.h"

static const struct {
    const char *name;
    unsigned bit;
} scopes[] = {
    {"admin", SCOPE_ADMIN}, {"owner", SCOPE_OWNER},     {"user", SCOPE_USER},
    {"agent", SCOPE_AGENT}, {"approve", SCOPE_APPROVE}, {"read", SCOPE_READ},
};

enum {
    SCOPES = sizeof(scopes) / sizeof(scopes[0])
};

unsigned scope_by_name(const char *name)
{
    for (size_t i = 0; name && i < SCOPES; i++)
        if (strcmp(name, scopes[i].name) == 0)
            return scopes[i].bit;
    return 0;
}

bool scope_at(size_t i, unsigned bits, const char **ret)
{
    if (i >= SCOPES)
        return false;
    *ret = bits & scopes[i].bit ? scopes[i].name : NULL;
    return true;
}

const char *scopes_refuse(unsigned bits, bool is_limited)
{
    const unsigned whole = SCOPE_ADMIN | SCOPE_OWNER | SCOPE_USER;

    if ((bits & SCOPE_AGENT) && bits != SCOPE_AGENT)
        return "an agent's key has no other scope; make one key for the agent and another for the "
               "person";
    if ((bits & SCOPE_AGENT) && !is_limited)
        return "say which workspaces the agent's key is for: \"workspaces\", ids or patterns such "
               "as \"thread-*\"";
    if (is_limited && (bits & whole))
        return "only keys with the scopes 'agent', 'approve' and 'read' can be limited to some "
               "workspaces";
    return NULL;
}

bool scopes_may_make(unsigned maker, unsigned bits)
{
    const unsigned owners = SCOPE_AGENT | SCOPE_APPROVE | SCOPE_READ;

    return (maker & SCOPE_ADMIN) || ((maker & SCOPE_OWNER) && !(bits & ~owners));
}

const char *scopes_wanted(unsigned any, char *text, size_t size)
{
    size_t left = 0;
    size_t n = 0;

    /* Of a route for several the administrator is not who is missing, nor the old name of owner. */
    if (any & ~(unsigned)SCOPE_ADMIN)
        any &= ~(unsigned)(SCOPE_ADMIN | SCOPE_USER);
    for (size_t i = 0; i < SCOPES; i++)
        left += (any & scopes[i].bit) != 0;
    *text = '\0';
    for (size_t i = 0; i < SCOPES && n < size; i++) {
        if (any & scopes[i].bit)
            n += (size_t)snprintf(text + n, size - n, "%s'%s'",
                                  n == 0      ? ""
                                  : left == 1 ? " or "
                                              : ", ",
                                  scopes[i].name);
        left -= (any & scopes[i].bit) != 0;
    }
    return text;
}

bool scope_pattern_is_valid(const char *pattern)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-*?";
    size_t n = strlen(pattern);

    /* No id begins with these. */
    return n > 0 && n <= SCOPE_PATTERN && !strchr("._-", pattern[0]) &&
           strspn(pattern, letters) == n;
}

/* `pattern` ends after `n` characters. A '*' that has matched too little takes one more, and only
 * the last one: what stood before it matched as early as it could. */
static bool matches(const char *pattern, size_t n, const char *id)
{
    const char *from = NULL; /* what the last '*' has not taken yet */
    size_t star = 0;
    size_t at = 0;

    while (*id) {
        if (at < n && pattern[at] == '*') {
            star = at++;
            from = id;
        } else if (at < n && (pattern[at] == '?' || pattern[at] == *id)) {
            at++;
            id++;
        } else if (from) {
            at = star + 1;
            id = ++from;
        } else {
            return false;
        }
    }
    while (at < n && pattern[at] == '*')
        at++;
    return at == n;
}

bool scope_pattern_matches(const char *pattern, const char *id)
{
    return matches(pattern, strlen(pattern), id);
}

bool scope_list_has(const char *list, const char *id)
{
    const char *begin = list ? strchr(list, '"') : NULL;

    while (begin) {
        const char *end = strchr(begin + 1, '"');
        if (!end)
            return false;
        if (matches(begin + 1, (size_t)(end - begin) - 1, id))
            return true;
        begin = strchr(end + 1, '"');
    }
    return false;
}
