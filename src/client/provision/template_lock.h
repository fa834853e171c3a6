/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of a template: which versions, with which hashes, its packages were resolved to. Pure.
 *
 * Python: requirements as uv writes them, below three lines of comment that say what they are for.
 * Node: {"packages": those asked for, "lock": bun.lock}, plain JSON, without the registry's
 * address. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/provision/template_file.h"

enum {
    LOCK_MOST_BYTES = 8 * 1024 * 1024
};

enum lock_fit {
    LOCK_FITS,
    LOCK_OTHER_PYTHON,
    LOCK_OTHER_PACKAGES,
    LOCK_FOREIGN, /* not made by Carrel: it does not say what it is for */
    LOCK_FIT_COUNT_,
};

/* `python` is "3.11". */
void lock_python_head(struct buf *b, const struct template_packages *packages, const char *python);
enum lock_fit lock_python_fit(const struct template_packages *packages, const char *python,
                              const char *text);
/* "name==version" of every package in it. */
json_t *lock_python_list(const char *text);

/* Adds the text of a pyproject.toml that depends on nothing, with what was asked for as what it
 * depends on: `uv sync` in a workspace would remove that otherwise. Any other text is added as it
 * is. */
void lock_python_project(struct buf *b, const char *text, const struct template_packages *packages);

/* bun.lock as plain JSON. *ret is the caller's. */
int lock_read_bun(const char *bytes, size_t n, json_t **ret, struct err *err);
/* The file that is kept; `bun` is borrowed. */
json_t *lock_node_make(const struct template_packages *packages, json_t *bun);
/* Reads it. *ret_bun is the caller's. */
int lock_node_read(const char *bytes, size_t n, const struct template_packages *packages,
                   enum lock_fit *ret_fit, json_t **ret_bun, struct err *err);
/* "name@version" of every package. */
json_t *lock_node_list(const json_t *bun);
/* What package.json depends on, borrowed; NULL: it does not say. */
json_t *lock_node_dependencies(const json_t *bun);
/* `bun add` leaves them without their versions there; package.json has those. */
int lock_node_set_dependencies(json_t *bun, json_t *dependencies);
