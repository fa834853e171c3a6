/* SPDX-License-Identifier: Apache-2.0 */
/* carrel env: the parts of the verb. */
#pragma once

/* carrel env setup: argv[0] is "setup". */
int env_setup(char **argv);
