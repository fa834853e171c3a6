/* SPDX-License-Identifier: Apache-2.0 */
/* Which requests are E2B's clients', and whose: by the key of their API, or, for what is inside a
 * sandbox, by the headers or the name of the host that say which one, and its token. */
#pragma once

#include "front/core/router.h"

/* Sets call->route. */
bool e2b_takes(struct call *call);
/* Who asks, and which sandbox. False: answered. */
bool e2b_admit(struct call *call);
