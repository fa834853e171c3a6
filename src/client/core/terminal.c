/* SPDX-License-Identifier: Apache-2.0 */
#include "client/core/terminal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct termios before;
static bool is_raw;

void terminal_restore(void)
{
    if (is_raw)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    is_raw = false;
}

static int set_raw(void)
{
    struct termios raw = before;

    cfmakeraw(&raw);
    return tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0 ? -errno : 0;
}

int terminal_raw(void)
{
    static bool registered;

    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return -errno;
    if (!registered && atexit(terminal_restore) != 0)
        return -ENOMEM;
    registered = true;
    is_raw = true; /* from here on there is something to put back, if only in part */
    return set_raw();
}

void terminal_raw_again(void)
{
    if (is_raw)
        (void)set_raw();
}

void terminal_size(int *ret_columns, int *ret_rows)
{
    struct winsize size = {0};
    bool known = (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row) ||
                 (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row);

    *ret_columns = known ? size.ws_col : 80;
    *ret_rows = known ? size.ws_row : 24;
}
