/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/events.h"

enum {
    HELPER_FDS = 2,
    HELPER_MESSAGE = 8192,
};

struct broker;

struct helper {
    struct broker *broker;
    const char *name;
    int program; /* open on it */
    uid_t uid;
    gid_t gid;
    /* Its arguments, in `arena`, and what it finds behind its socket, as descriptors 4 and on:
     * `fds`, consumed, their number in extra_count. NULL: *err says why not. */
    char *const *(*prepare)(struct helper *helper, struct arena *arena, int fds[HELPER_FDS],
                            struct err *err);
    /* A message from it. */
    void (*heard)(struct helper *helper, const char *bytes, size_t n);

    size_t extra_count;
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
    struct watch watch;
    struct watch talk;
    struct timer timer; /* when to start it again */
    uint64_t since_ms;
    uint64_t pause_ms;
    bool may_end;
};

/* One that does not run; its program, its user and what it does are the caller's to say. */
struct helper helper_make(struct broker *broker, const char *name);
int helper_start(struct helper *helper, struct err *err);
/* The same; a start that fails is logged, and tried again. */
void helper_begin(struct helper *helper);
/* False: there is none, or it does not listen. */
bool helper_send(const struct helper *helper, const void *bytes, size_t n);
/* What it has said by now, without waiting for the loop. */
void helper_hear(struct helper *helper);
/* Tells it by the signal `how` (0: by its socket alone), waits, and kills it after a while. */
void helper_stop(struct helper *helper, int how, uint64_t patience_ms);
