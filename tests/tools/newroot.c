/* SPDX-License-Identifier: Apache-2.0 */
/* newroot COMMAND [ARG...]: runs a command in a mount namespace whose root is the caller's chroot,
 * so that the tests can make user namespaces in there as an ordinary user too. */
#include <carrel.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc < 2 || carrel_leave_chroot() < 0) {
        perror("newroot");
        return 125;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
