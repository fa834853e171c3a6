/* SPDX-License-Identifier: Apache-2.0 */
/* Setup and command as bytes, and what pid 1 answers. Shared by the engine and pid 1; one function
 * walks each structure in both directions, so that writer and reader cannot disagree. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sandbox/setup.h"

enum message_kind {
    MESSAGE_FRAME = 1, /* all of the setup but the root's operations; + its mount trees, where the
                          engine opened them, and as root the uid lease */
    MESSAGE_ROOT,      /* the root's operations and ports; + the mount trees of the operations */
    MESSAGE_COMMAND,   /* + stdin, stdout, stderr (none with a terminal) */
    MESSAGE_SIGNAL,    /* uint32: forwarded to the command's process group */
    MESSAGE_KEEPER,    /* + a socket: start a keeper that serves commands on it, one at a time */
    MESSAGE_KILL,      /* to a keeper: end all that its command has started */
    MESSAGE_AHEAD,     /* to a keeper that is yet to be made: MESSAGE_COMMAND, + a permit, last: an
                          eventfd. Who reads it first decides: the keeper starts the command, or the
                          engine has taken it back */
    MESSAGE_SUDO,      /* to a keeper: + a connection of one of its command's, who asks on it for a
                          command of root's: MESSAGE_COMMAND, then MESSAGE_SIGNAL as often as he
                          likes. He hears REPLY_TERMINAL, and REPLY_EXITED or REPLY_FAILED */
};

enum reply_kind {
    REPLY_FAILED = 1, /* error says why; status is 125, or a shell's 126 or 127 */
    REPLY_TERMINAL,   /* + the master of the terminal made inside */
    REPLY_STARTED,
    REPLY_EXITED,   /* status as wait(2) gives it */
    REPLY_LISTENER, /* + the listener of the system call filter */
    REPLY_READY, /* the frame stands, and waits for its root; of a keeper: it waits for a command */
    REPLY_EMPTY, /* of a keeper: nothing its command has started is left */
    REPLY_HIDDEN,  /* + a directory of the root that is covered from now on */
    REPLY_NETWORK, /* + its name server's sockets, UDP and TCP, then one listening at each port */
    REPLY_SUDO,    /* of pid 1: + a connection of somebody inside, for the keeper of his command */
    REPLY_ROOT,    /* a command of root's is about to start: error.msg says which */
};

/* Exit statuses with a meaning of their own. */
enum {
    STATUS_MEMORY_LIMIT = 120,
    STATUS_PIDS_LIMIT = 121,
    STATUS_OUTPUT_LIMIT = 122,
    STATUS_DISK_LIMIT = 123,
    STATUS_TIMEOUT = 124,
    STATUS_CARREL_FAILED = 125,
    STATUS_NOT_EXECUTABLE = 126,
    STATUS_NOT_FOUND = 127,
    STATUS_SIGNAL_BASE = 128,
};

struct reply {
    uint32_t kind;
    int32_t status;
    struct err error;
    /* With REPLY_EXITED: what those who ended have used; of a keeper, since the command began, and
     * of pid 1, itself included. */
    uint64_t cpu_user_us;
    uint64_t cpu_system_us;
    uint64_t peak_rss_bytes;
    uint64_t written_bytes;
    uint64_t empty;    /* 1, with REPLY_EXITED: that was all, as if REPLY_EMPTY followed */
    uint64_t refusals; /* of pid 1, with REPLY_EXITED: for want of a network (sys/refusals.h) */
};

/* All return the bytes used, or 0 when they do not fit. */
size_t wire_encode_frame(const struct setup *setup, char *bytes, size_t size);
size_t wire_encode_root(const struct setup *setup, char *bytes, size_t size);
size_t wire_encode_command(const struct command *command, char *bytes, size_t size);
/* All return 0, or -EINVAL for bytes that are not a whole, sane message. The result points into
 * `bytes`. The root's operations are added to those of the frame. `pointers` gives room for argv
 * and env. */
int wire_decode_frame(struct setup *ret, char *bytes, size_t size);
int wire_decode_root(struct setup *setup, char *bytes, size_t size);
int wire_decode_command(struct command *ret, const char **pointers, size_t pointer_count,
                        char *bytes, size_t size);
