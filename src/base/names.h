/* SPDX-License-Identifier: Apache-2.0 */
/* Names at the top of every sandbox that Carrel mounts on: the host's, and its own; and those under
 * which an environment is made and waits for its place (front/workspaces/env.sh). In one
 * place, for those who make them and those who keep others from them. */
#pragma once

#include <stddef.h>

#define CARREL_SYSTEM_NAMES "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"
#define CARREL_OWN_NAMES    "etc", "proc", "dev", "tmp", ".cache"
/* ... where it also shows a system of the workspace's own (sandbox/system.h): what that adds. */
#define CARREL_LAYER_NAMES "var", "opt", "home", "root", "run"
/* Where a file server keeps what is not whole yet, below what covers it inside, and how that is
 * called (files/core/paths.h). One that is killed leaves it there. */
#define CARREL_HIDDEN       ".cache"
#define CARREL_UNFINISHED   ".carrel-"
#define CARREL_STAGED       ".venv.carrel-next"
#define CARREL_STAGED_NAMES CARREL_STAGED, ".venv.carrel-new", ".venv.carrel-old"

enum name_kind {
    NAME_FREE,
    NAME_SYSTEM, /* one of CARREL_SYSTEM_NAMES */
    NAME_CARREL, /* ... CARREL_OWN_NAMES */
    NAME_STAGED, /* ... CARREL_STAGED_NAMES */
};

/* Of the first name of a path from the root of a workspace, without a slash before it. */
enum name_kind name_kind(const char *path);
/* Of a name of that length. */
enum name_kind name_kind_n(const char *name, size_t n);
