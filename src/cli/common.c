/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fd.h"
#include "cli/cli.h"

enum {
    SAY_WAIT_MS = 1000
};

/* The length of the UTF-8 character at `c`, or 0 when there is none or it is a control character.
 */
static size_t printable(const unsigned char *c)
{
    uint32_t code = 0;
    size_t n = utf8_next(c, strnlen((const char *)c, 4), &code);

    return code < 0x20 || (code >= 0x7f && code < 0xa0) ? 0 : n;
}

/* Whoever does not read it must not keep us: it is dropped then. */
static void put_briefly(const char *bytes, size_t n)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&out, 1, SAY_WAIT_MS) == 1)
        ignore(write(STDERR_FILENO, bytes, n) > 0);
}

/* One line, whatever names it holds: a newline or an escape sequence in a file name must not pass
 * for something Carrel said. */
static void say(const char *before, const char *message, const char *after)
{
    const unsigned char *c = (const unsigned char *)message;
    char line[2560];
    int used = snprintf(line, sizeof(line), "%scarrel: ", before);

    while (*c && used < (int)sizeof(line) - 16) {
        size_t n = printable(c);
        if (n)
            memcpy(line + used, c, n);
        else
            snprintf(line + used, 5, "\\x%02x", *c);
        used += n ? (int)n : 4;
        c += n ? n : 1;
    }
    used += snprintf(line + used, sizeof(line) - (size_t)used, "%s\n", after);
    put_briefly(line, (size_t)used);
}

void cli_end_line(void)
{
    if (isatty(STDERR_FILENO))
        put_briefly("\n", 1);
}

void cli_say(const char *message)
{
    say("", message, "");
}

void cli_say_dim(const char *message)
{
    const char *term = getenv("TERM");         /* one thread here; NOLINT(concurrency-mt-unsafe) */
    const char *no_color = getenv("NO_COLOR"); /* NOLINT(concurrency-mt-unsafe) */
    bool plain = no_color || !term || !*term || strcmp(term, "dumb") == 0;

    say(plain ? "" : "\033[2m", message, plain ? "" : "\033[0m");
}

int cli_put(const char *text)
{
    size_t left = strlen(text);
    char message[96];

    while (left > 0) {
        ssize_t n = write(STDOUT_FILENO, text, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            struct err err;
            err_set(&err, ERR_IO, errno, "standard output cannot be written");
            return cli_fail(err_text(&err, message, sizeof(message)));
        }
        text += n;
        left -= (size_t)n;
    }
    return 0;
}

int cli_fail(const char *message)
{
    cli_say(message);
    return CLI_FAILED;
}
