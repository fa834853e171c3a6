/* SPDX-License-Identifier: Apache-2.0 */
/* http_parse_head in two steps, so that a head can be moved between them; and what characters are.
 */
#pragma once

#include "http/server.h"

/* >0: the length of the head with its empty line; 0: not whole yet; <0: -(HTTP status). */
ssize_t http_head_end(const char *bytes, size_t n, const char **ret_why);
/* Takes the n bytes of a whole head. 0, or -(HTTP status). */
int http_head_read(char *bytes, size_t n, struct http_request *ret, const char **ret_why);
/* Splits "Name: value" in place: the name in lower case, the value without blanks around it. 0, or
 * -(HTTP status). */
int http_read_field(char *line, size_t n, struct http_header *ret, const char **ret_why);
/* Digits only, and not too many. 0, or -(HTTP status). */
int http_read_length(const char *value, uint64_t *ret, const char **ret_why);
const char *http_method_name(enum http_method method); /* not of HTTP_OTHER */
bool http_is_token(unsigned char c);
/* -1: none. */
int http_hex_digit(char c);
