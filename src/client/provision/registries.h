/* SPDX-License-Identifier: Apache-2.0 */
/* Where packages come from when nobody has said so: where pip and npm of this host would look. */
#pragma once

#include <stddef.h>

/* The address in `room`, or NULL: the host has no such client, or it names none. */
const char *registries_of_pip(char *room, size_t size);
const char *registries_of_npm(char *room, size_t size);
