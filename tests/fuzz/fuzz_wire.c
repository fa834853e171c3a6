/* SPDX-License-Identifier: Apache-2.0 */
/* The messages that pid 1 reads: the first byte chooses frame, command or root, the rest is the
 * message.
 * What is accepted must, written again, give the same bytes: nothing is ignored or read twice. */
#include "fuzz.h"

#include <string.h>

#include "sandbox/wire.h"

enum {
    POINTERS = 1024
};

static struct setup setup;

#ifdef PLANTED_BUG
/* Deliberately wrong: for some sizes of a terminal one too large. tests/fuzz/planted must find it.
 */
static void plant(const struct command *c)
{
    static const char *volatile names[8];

    (void)names[c->rows % 9];
}
#else
#define plant(c) ((void)0)
#endif

static void try_frame(char *bytes, size_t n)
{
    memset(&setup, 0, sizeof(setup));
    if (wire_decode_frame(&setup, bytes, n) < 0)
        return;
    char *again = malloc(n);
    MUST(wire_encode_frame(&setup, again, n) == n && memcmp(again, bytes, n) == 0);
    free(again);
}

/* After a frame of any size. */
static void try_root(char *bytes, size_t n, uint32_t frame_count)
{
    memset(&setup, 0, sizeof(setup));
    setup.frame_count = setup.op_count = frame_count;
    if (wire_decode_root(&setup, bytes, n) < 0) {
        MUST(setup.op_count >= frame_count && setup.op_count <= SETUP_MAX_OPS);
        return;
    }
    char *again = malloc(n);
    MUST(wire_encode_root(&setup, again, n) == n && memcmp(again, bytes, n) == 0);
    free(again);
}

static void try_command(char *bytes, size_t n)
{
    static const char *pointers[POINTERS];
    struct command command = {0};

    if (wire_decode_command(&command, pointers, POINTERS, bytes, n) < 0)
        return;
    plant(&command);
    MUST(!command.argv[command.argc] && !command.env[command.envc]);
    char *again = malloc(n);
    MUST(wire_encode_command(&command, again, n) == n && memcmp(again, bytes, n) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    char *exact = malloc(size - 1); /* the message is read in place: not one byte beyond it */
    memcpy(exact, data + 1, size - 1);
    if (data[0] & 1)
        try_command(exact, size - 1);
    else if (data[0] & 2)
        try_root(exact, size - 1, data[0]);
    else
        try_frame(exact, size - 1);
    free(exact);
    return 0;
}
