/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Finds a program of Carrel's beside the running one or where it was installed: writes its path and
 * returns it, or returns NULL. */
const char *program_find(const char *part, char *path, size_t size);
/* The directory `name` of what Carrel brings as data, where it was installed or in its sources; in
 * any case a path, for messages. */
const char *program_share(const char *name, char *path, size_t size);
