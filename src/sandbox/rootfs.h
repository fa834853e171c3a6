/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The name in the root that Carrel provides itself and that a path inside ("a/b") lies
 * in; or NULL. Nothing is mounted there. */
const char *rootfs_reserved(const char *path);
