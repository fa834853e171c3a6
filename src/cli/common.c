/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* One line, whatever names it holds: a newline or an escape sequence in a file name must not pass
 * for something Carrel said. */
void cli_say(const char *message)
{
    fputs("carrel: ", stderr);
    for (const unsigned char *c = (const unsigned char *)message; *c; c++) {
        bool c1 = *c == 0xc2 && c[1] >= 0x80 && c[1] <= 0x9f; /* control characters too */
        if (*c < 0x20 || *c == 0x7f || c1)
            fprintf(stderr, "\\x%02x", *c);
        else
            fputc(*c, stderr);
        if (c1)
            fprintf(stderr, "\\x%02x", *++c);
    }
    fputc('\n', stderr);
}

int cli_fail(const char *message)
{
    cli_say(message);
    return CLI_FAILED;
}

const char *cli_find(const char *part, char *path, size_t size)
{
    static const char *const places[] = {"", "../libexec/carrel/"};
    ssize_t n = readlink("/proc/self/exe", path, size - 128);

    if (n <= 0)
        return NULL;
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    for (size_t i = 0; slash && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(slash + 1, size - (size_t)(slash + 1 - path), "%s%s", places[i], part);
        if (access(path, X_OK) == 0)
            return path;
    }
    return NULL;
}
