/* SPDX-License-Identifier: Apache-2.0 */
/* Names at the top of every sandbox that Carrel mounts on: the host's, and its own. In one place,
 * for those who make them and those who keep others from them. */
#pragma once

#define CARREL_SYSTEM_NAMES "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"
#define CARREL_OWN_NAMES    "etc", "proc", "dev", "tmp", ".cache"
