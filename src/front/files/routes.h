/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/workspaces/{ws}/files/PATH and its sisters. */
#pragma once

#include "front/core/router.h"

extern const struct route file_routes[];

void file_get(struct call *call);
void file_put(struct call *call);
void file_delete(struct call *call);
void file_action(struct call *call);
void file_upload(struct call *call);
void file_unpack(struct call *call);
void file_watch(struct call *call);
