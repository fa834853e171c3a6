/* SPDX-License-Identifier: Apache-2.0 */
/* What a key may do: its scopes by their names, and the workspaces that it was made for, which are
 * ids or patterns: '*' stands for any characters, '?' for one. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum {
    SCOPE_PATTERN = 64,       /* characters of a pattern */
    SCOPE_PATTERNS_MOST = 32, /* of a key */
};

/* The bit of that name; 0: there is no such scope. */
unsigned scope_by_name(const char *name);
/* The name of the bit that comes at place `i`, if `bits` has it, else NULL; false: there is no such
 * place. */
bool scope_at(size_t i, unsigned bits, const char **ret);
/* NULL when a key may have these together and be limited to workspaces like that; else why not. */
const char *scopes_refuse(unsigned bits, bool is_limited);
/* Whether a key with the scopes `maker` makes keys with these, and so takes them away again. */
bool scopes_may_make(unsigned maker, unsigned bits);
/* What a key lacks that has none of these, in words: "'owner' or 'agent'". */
const char *scopes_wanted(unsigned any, char *text, size_t size);

bool scope_pattern_is_valid(const char *pattern);
bool scope_pattern_matches(const char *pattern, const char *id);
/* Whether one of the patterns of a JSON list matches. None of them has a character that JSON
 * escapes. */
bool scope_list_has(const char *list, const char *id);
