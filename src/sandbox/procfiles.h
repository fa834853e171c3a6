/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of the machine inside: what the sandbox may use, nothing of the host. */
#pragma once

#include "base/buf.h"
#include "sandbox/host.h"

char *procfile_cpuinfo(struct arena *arena, const struct host *host);
char *procfile_meminfo(struct arena *arena, const struct host *host);
char *procfile_stat(struct arena *arena, const struct host *host);
/* A fresh random id, as the kernel writes boot_id. */
char *procfile_random_id(struct arena *arena);
