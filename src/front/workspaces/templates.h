/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of templates. The row says what is to be done, as that of a deleted workspace does:
 * one that is being frozen is finished or taken back, one that is retired goes when nobody uses it.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "front/core/front.h"

enum template_end {
    TEMPLATE_READY,      /* the workspace is no more, the row is a template's */
    TEMPLATE_TAKEN_BACK, /* the workspace stays, the row is gone */
    TEMPLATE_UNDECIDED,  /* the sweep tries again */
};

/* `failed` is NULL with TEMPLATE_READY. */
typedef void template_settled(void *context, enum template_end end, const struct err *failed);

/* Freezes the workspace of a row that says so. `only_finish`: if its tree has moved already. Its
 * workspace is under change meanwhile (front/workspaces/trash.h). */
void template_settle(struct front *front, const struct store_template *t, bool only_finish,
                     template_settled *then, void *context);

typedef void template_removed(void *context, const struct err *failed);

/* Files, then the row, of one whose state is "removing". */
void template_remove(struct front *front, const char *id, template_removed *then, void *context);

/* Goes on with what nobody else does. */
void templates_sweep(struct front *front);
