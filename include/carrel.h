/* SPDX-License-Identifier: Apache-2.0 */
/* libcarrel: run a command with a directory as its whole world.
 *
 *     struct carrel_spec spec = {.workspace = "/srv/desk", .argv = argv, .capture = true};
 *     struct carrel_result result;
 *     struct carrel_error error;
 *     if (carrel_run(&spec, &result, &error) < 0)
 *         fprintf(stderr, "%s\n", error.message);
 *
 * A zeroed field means the default, which is always the confined one. Calls block until everything
 * the command started is gone. Several threads may call at once. The caller should ignore SIGPIPE.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum carrel_level {
    CARREL_LEVEL_AUTO, /* the strongest level that works here; never dir */
    CARREL_LEVEL_DIR,  /* a directory and an environment; isolates nothing */
    CARREL_LEVEL_NS,   /* namespaces, no capabilities, system call filter */
};

enum carrel_net {
    CARREL_NET_DEFAULT, /* none (level dir: host, it has nothing else) */
    CARREL_NET_NONE,    /* loopback of its own */
    CARREL_NET_HOST,
};

enum carrel_user {
    CARREL_USER_DEFAULT, /* user */
    CARREL_USER_USER,    /* uid 1000 inside */
    CARREL_USER_ROOT,    /* uid 0 inside, without capabilities all the same */
};

struct carrel_mount {
    const char *source; /* on the host */
    const char *target; /* absolute, inside; NULL: the same path */
    bool writable;
};

#define CARREL_DEFAULT_TMP_BYTES (512UL << 20)

struct carrel_spec {
    const char *workspace; /* becomes /; NULL: the current directory appears at `at` */
    bool create;           /* make the workspace if it is missing */
    const char *at;        /* default "/work" */
    enum carrel_level level;
    enum carrel_net net;
    enum carrel_user user;
    const struct carrel_mount *mounts;
    size_t mount_count;
    const char *const *env; /* "NAME=value", over the defaults; ends with NULL */
    const char *cwd;        /* inside; default / or `at` */
    char *const *argv;
    uint64_t timeout_ms;   /* 0: none */
    uint64_t tmp_bytes;    /* size of each of /tmp, /.cache and /dev/shm; 0: 512 MiB */
    uint64_t output_bytes; /* bound on stdout and stderr together; 0: none (captured: 16 MiB) */
    bool capture;          /* keep the output in the result instead of passing it on */
    bool tty;              /* a terminal of its own */
    int signal_fd;         /* a signalfd whose signals are forwarded; 0: none */
    int stdin_fd;          /* 0 is the caller's stdin, -1 is /dev/null */
    const char *init_path; /* where carrel-init is; NULL: where it was installed */
};

enum carrel_reason {
    CARREL_ENDED_EXIT,
    CARREL_ENDED_SIGNAL,
    CARREL_ENDED_TIMEOUT,
    CARREL_ENDED_OUTPUT,
    CARREL_ENDED_OOM,
};

struct carrel_usage {
    double cpu_user_ms; /* of the whole tree */
    double cpu_system_ms;
    uint64_t peak_rss_bytes; /* of its largest process */
};

struct carrel_result {
    int exit_code; /* as a shell reports it: 124 timeout, 122 output bound, 128+n signal n */
    int signal;    /* 0: none */
    enum carrel_reason reason;
    bool truncated;
    enum carrel_level level;
    double duration_ms;
    struct carrel_usage usage;
    char *out; /* captured; carrel_result_clear frees it */
    size_t out_size;
    char *err;
    size_t err_size;
    char note[376]; /* why the command could not be executed (126, 127); "" otherwise */
};

enum carrel_error_code {
    CARREL_ERROR_NONE,
    CARREL_ERROR_INVALID,
    CARREL_ERROR_DENIED,
    CARREL_ERROR_LIMIT,
    CARREL_ERROR_NOT_FOUND,
    CARREL_ERROR_CONFLICT,
    CARREL_ERROR_KERNEL,
    CARREL_ERROR_IO,
};

struct carrel_error {
    enum carrel_error_code code;
    int os_errno;
    char message[512]; /* one sentence, with what to do about it */
};

enum carrel_format {
    CARREL_TEXT,
    CARREL_JSON,
};

/* 0 when the command ran (or could not be found inside), -1 when Carrel failed: nothing is left. */
int carrel_run(const struct carrel_spec *spec, struct carrel_result *ret,
               struct carrel_error *error);
void carrel_result_clear(struct carrel_result *result);

/* What carrel_run would do, in full; does nothing. *ret_text is the caller's to free. */
int carrel_explain(const struct carrel_spec *spec, enum carrel_format format, char **ret_text,
                   struct carrel_error *error);
/* What this host offers and which levels work; *ret_text is the caller's to free. Returns 0 when
 * level ns works here, 1 when it does not, -1 on error. */
int carrel_doctor(enum carrel_format format, const char *init_path, char **ret_text,
                  struct carrel_error *error);

/* For root in a chroot, where the kernel refuses user namespaces: gives the calling process a mount
 * namespace whose root is that chroot. 0 or -1 with errno set. */
int carrel_leave_chroot(void);
