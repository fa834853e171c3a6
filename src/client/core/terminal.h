/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal of the person in front: raw while a command has it, and always given back. */
#pragma once

#include <stdbool.h>

/* Standard input becomes raw; it is put back at exit at the latest. 0 or -errno. */
int terminal_raw(void);
void terminal_restore(void);
/* After a stop somebody else may have set it. */
void terminal_raw_again(void);
/* 80 by 24 where the kernel has no size. */
void terminal_size(int *ret_columns, int *ret_rows);
