/* SPDX-License-Identifier: Apache-2.0 */
/* An object store: a path in it, and what rclone is told to reach it. A text of lines KEY = VALUE,
 * of which one is "@path"; written by the front, kept by the broker, read by carrel-mover. What
 * would have rclone run a program, read a file of this host or stand on another remote is refused:
 * who may talk to the daemon is not who owns the host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    STORE_TEXT = 65536, /* longest text */
    STORE_KEYS = 64,
    STORE_PATH = 512,
    STORE_FACTS = 4, /* texts of one store in a list: name, type, path, endpoint */
};

struct store_key_value {
    const char *key;
    const char *value;
};

/* Points into the text. */
struct store_conf {
    const char *path; /* "bucket/dir", without / at either end */
    const char *type; /* rclone's: "s3", "google cloud storage", "sftp", ... */
    struct store_key_value keys[STORE_KEYS];
    size_t count; /* the type among them, "@path" not */
};

/* Takes the text apart, which it changes. Errors name keys, never values: those may be secret. */
int store_conf_parse(char *text, struct store_conf *ret, struct err *err);
/* A value by its key, or "". */
const char *store_conf_value(const struct store_conf *conf, const char *key);
/* Adds a line; what cannot be one fails the buffer's user when it is parsed. */
void store_conf_add(struct buf *b, const char *key, const char *value);
/* The port that the endpoint of the store is at; 0: nobody can tell. */
unsigned store_conf_port(const struct store_conf *conf);
