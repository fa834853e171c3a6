/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a run while it runs: who keeps which, whether one was reached, and what to say. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "carrel.h"
#include "sandbox/limits/disk.h"
#include "sandbox/view.h"

/* Refuses limits that do not go together, or with the level. */
int limits_check(const struct carrel_spec *spec, enum carrel_level level, struct err *err);
/* The size of each of /tmp, /.cache and /dev/shm: together at most half of the memory, which they
 * are counted in and which no out-of-memory kill frees. */
uint64_t limits_tmp_bytes(const struct carrel_spec *spec);
/* What programs inside shall take for the machine's memory. */
uint64_t limits_memory_shown(const struct carrel_spec *spec, uint64_t host_bytes);

/* The exit status where a limit has ended the command; 0: that of the signal. */
int limits_status(enum carrel_reason reason);
/* How many processes the kernel has killed for lack of memory since boot. */
uint64_t limits_oom_kills(void);

/* What to say of a full image; `text` has room for that many bytes and is returned. */
enum {
    LIMITS_IMAGE_TEXT = 192
};

const char *limits_image_rule(const struct carrel_limits *limits, char *text);
const char *limits_image_fix(const struct carrel_limits *limits, char *text);

/* Told of each limit that was met, in words: what was tried, the rule, how to have more. */
typedef void limits_met(void *context, const char *what, const char *rule, const char *fix,
                        enum carrel_source source);

struct limit_watch {
    struct run_view run;
    limits_met *met;
    void *context;
    struct disk_watch disk;
    pid_t pid;           /* pid 1 of the sandbox */
    uint64_t alert_ms;   /* until then often */
    uint64_t look_ms;    /* when to look at the processes; 0: never */
    unsigned looks;      /* in a row that found the limit on processes reached */
    uint64_t system_ms;  /* time in the kernel at the last look; without a cgroup */
    uint64_t most_tasks; /* seen; without a cgroup */
    bool out_of_memory;
};

/* Nothing is watched yet, but limits_watch_end can say what was met. */
void limits_watch_init(struct limit_watch *w, struct run_view run, limits_met *met, void *context);
/* Before the command is started. */
int limits_watch_begin(struct limit_watch *w, struct run_view run, pid_t pid, struct err *err);
/* In how many ms to check; -1: never. */
int limits_watch_due_ms(const struct limit_watch *w);
/* To poll for input, and then to check; or -1. */
int limits_watch_fd(const struct limit_watch *w);
/* Looks at what is due. True: a limit was reached, *ret says which, and everything is to be ended.
 */
bool limits_watch_check(struct limit_watch *w, bool memory_event, enum carrel_reason *ret);
/* When all processes have gone: the last denials and the usage. True when memory ran out. */
bool limits_watch_end(struct limit_watch *w, struct carrel_result *ret);
void limits_watch_clear(struct limit_watch *w);
