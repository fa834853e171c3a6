/* SPDX-License-Identifier: Apache-2.0 */
/* http_parse_head in two steps, so that a head can be moved between them; and what characters are.
 */
#pragma once

#include "http/server.h"

/* >0: the length of the head with its empty line; 0: not whole yet; <0: -(HTTP status). */
ssize_t http_head_end(const char *bytes, size_t n, const char **ret_why);
/* Takes the n bytes of a whole head. 0, or -(HTTP status). */
int http_head_read(char *bytes, size_t n, struct http_request *ret, const char **ret_why);
bool http_is_token(unsigned char c);
/* -1: none. */
int http_hex_digit(char c);
