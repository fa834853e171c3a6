/* SPDX-License-Identifier: Apache-2.0 */
/* Workspaces that live in a file system image, whose size is the limit on their disk. */
#pragma once

#include "base/err.h"

struct run;

/* A detached mount of the image of the run's workspace: `<workspace>.carrel-img`, beside it, made
 * at first use (then run->image_made is set). As root only. *ret_tree is the caller's; the loop
 * device and the lock on the image go with the last user of the mount. */
int disk_image_open(struct run *run, int *ret_tree, struct err *err);
/* An error when the files of this workspace are in an image. */
int disk_image_refuse(const char *workspace, struct err *err);
/* Takes back the image this run made, while nothing is in it. */
void disk_image_unmake(const struct run *run);
