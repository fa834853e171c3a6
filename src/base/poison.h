/* SPDX-License-Identifier: Apache-2.0 */
/* Included on every command line (-include): calls that have no safe use here. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Macros cannot be poisoned, and with _FORTIFY_SOURCE clang sees these two as such. */
#undef sprintf
#undef vsprintf
#pragma GCC poison strcpy strncpy strcat sprintf vsprintf strtok atoi atol system popen gets tmpnam
