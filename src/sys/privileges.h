/* SPDX-License-Identifier: Apache-2.0 */
/* How each process of the daemon begins to confine itself. */
#pragma once

/* no_new_privs, which Landlock and a list of calls need; and no other process of the same user
 * looks into its memory, nor is a core dump of it written. For good. 0 or -errno. */
int privileges_give_up(void);
