/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as JSON writes them: UTF-8 as it is, the rest as base64. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;

/* The length of the UTF-8 character that begins here, and its number; 0: none does. */
size_t utf8_next(const void *bytes, size_t n, uint32_t *ret_code);
/* How many bytes at the end begin a character that is not whole. */
size_t utf8_cut(const void *bytes, size_t n);
/* UTF-8 by the letter, and without NUL. */
bool bytes_are_utf8(const void *bytes, size_t n);
/* A string with its quotes; the bytes are UTF-8. */
void bytes_add_json(struct buf *b, const void *bytes, size_t n);
/* Without quotes. */
void bytes_add_base64(struct buf *b, const void *bytes, size_t n);
/* Into `ret`, which has room for 3 bytes for every 4; how many they are, or -1 for anything that
 * bytes_add_base64 would not have written. */
ssize_t bytes_from_base64(const char *text, size_t n, void *ret);
/* ... and added; -1 also when there is no room, which buf_done tells. */
int bytes_add_decoded(struct buf *b, const char *text, size_t n);
/* 2 * n digits and a NUL. */
void bytes_to_hex(const void *bytes, size_t n, char *ret);
/* So many small hex digits, and nothing else. */
bool bytes_are_hex(const char *text, size_t digits);
/* True: `text` begins with 2 * n small hex digits, now in `ret`. */
bool bytes_from_hex(const char *text, size_t n, void *ret);
