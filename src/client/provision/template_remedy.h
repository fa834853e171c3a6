/* SPDX-License-Identifier: Apache-2.0 */
/* What to do when installing packages failed, from what the tools have said. Pure. */
#pragma once

/* One sentence, or NULL when nothing is known. `exit_code` is the tool's. */
const char *template_remedy(const char *output, int exit_code);
