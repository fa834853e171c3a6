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
    CARREL_NET_ALLOW, /* as none, and what net_rules name is reached, by its name */
};

enum carrel_user {
    CARREL_USER_DEFAULT, /* user */
    CARREL_USER_USER,    /* uid 1000 inside */
    CARREL_USER_ROOT,    /* uid 0 inside: without capabilities all the same; over a system of the
                            workspace's own (spec.base) with those that installing software takes */
};

struct carrel_mount {
    const char *source; /* on the host */
    const char *target; /* absolute, inside; NULL: the same path */
    bool writable;
    const char *layer; /* a directory (0700): what is changed goes to its upper/, and source stays
                          as it is; not writable: both are shown. NULL: source itself */
    int ready; /* a detached mount that is put there as it is, of which `source` is but a name: who
                  serves it may never answer, so nothing is asked of it. -1: it is only explained;
                  0: none */
};

#define CARREL_MAX_LAYERS 8 /* of one run */

#define CARREL_DEFAULT_TMP_BYTES (512UL << 20)

/* Bounds on the whole tree of processes; 0: no bound. One that this host cannot keep is an error,
 * never ignored. */
struct carrel_limits {
    uint64_t memory_bytes; /* with everything on /tmp, /.cache and /dev/shm; no swap */
    uint64_t pids;         /* processes and threads at a time */
    uint64_t cpu_milli;    /* thousandths of a cpu: 1500 is one and a half */
    uint64_t io_bytes;     /* a second, read and written each, on the workspace's device */
    uint64_t disk_bytes;   /* that the run may add to its tree */
    uint64_t disk_files;   /* likewise */
    bool disk_image;       /* the workspace lives in a file system image of disk_bytes */
};

#define CARREL_MAX_PORTS 8

struct carrel_spec {
    const char *workspace; /* becomes /; NULL: the current directory appears at `at` */
    bool create;           /* make the workspace if it is missing */
    const char *at;        /* default "/work" */
    enum carrel_level level;
    enum carrel_net net;
    /* With CARREL_NET_ALLOW: "HOST[:PORT]", "*.HOST", "!HOST" to deny (carrel-policy(5)), and the
     * rest; ends with NULL. None: nothing is reached. */
    const char *const *net_rules;
    const char *const *net_private; /* "HOST[:PORT]" whose address may be a private one; or NULL */
    /* "NAME=FILE" of the secrets that rules name; ends with NULL; or NULL */
    const char *const *net_secrets;
    const char *net_trust;       /* a PEM file of authorities of servers, besides the host's */
    const char *nameservers;     /* "ADDRESS:PORT,..." that are asked; NULL: the host's */
    uint64_t net_connections;    /* most at a time; 0: 256 */
    uint64_t net_bytes_per_hour; /* both ways together; 0: no bound */
    enum carrel_user user;
    const struct carrel_mount *mounts;
    size_t mount_count;
    const char *const *env; /* "NAME=value", over the defaults; ends with NULL */
    const char *cwd;        /* inside; default / or `at` */
    char *const *argv;
    uint64_t timeout_ms;   /* 0: none */
    uint64_t tmp_bytes;    /* size of each of /tmp, /.cache and /dev/shm; 0: 512 MiB */
    uint64_t output_bytes; /* bound on stdout and stderr together; 0: none (captured: 16 MiB) */
    struct carrel_limits limits;
    struct carrel_pool *pool; /* take a prepared sandbox from it where one fits; NULL: make one */
    bool capture;             /* keep the output in the result instead of passing it on */
    bool tty;                 /* a terminal of its own */
    bool exits;       /* the caller exits right after: the kernel's taking down of namespaces
                         is not waited for, where nothing depends on it */
    int signal_fd;    /* a signalfd whose signals are forwarded; 0: none */
    int stdin_fd;     /* 0 is the caller's stdin, -1 is /dev/null */
    const char *plan; /* a directory (0700, on the workspace's file system, out of it): what is
                         changed goes to its upper/, and the workspace stays as it is */
    bool plan_stays;  /* it is no plan's, but where all changes of a workspace are kept: one run
                         follows another at once, before the kernel has tidied up after that */
    const char *base; /* a base (`carrel base build`): its /usr, /etc, /var, /opt, /home and /root
                           are shown in the place of the host's. NULL: the host's /usr */
    const char *base_layer;  /* with base: a directory (0700) that keeps what is changed of it */
    const char *base_over;   /* with base: such a directory of another, whose changes are seen, too,
                                and stay as they are; or NULL */
    bool no_sudo;            /* with base: commands of the user's cannot ask for root's */
    const char *init_path;   /* where carrel-init is; NULL: where it was installed. carrel-sudo is
                                beside it */
    const char *egress_path; /* likewise carrel-egress, which CARREL_NET_ALLOW needs */
    uint16_t own_ports[CARREL_MAX_PORTS]; /* of this host, out of reach also with its network:
                                             Carrel's; until the first 0; none: 7070 */
};

enum carrel_reason {
    CARREL_ENDED_EXIT,
    CARREL_ENDED_SIGNAL,
    CARREL_ENDED_TIMEOUT,
    CARREL_ENDED_OUTPUT,
    CARREL_ENDED_OOM,
    CARREL_ENDED_PIDS,
    CARREL_ENDED_DISK,
};

#define CARREL_UNKNOWN UINT64_MAX

/* Of the whole tree of processes. */
struct carrel_usage {
    double cpu_user_ms;
    double cpu_system_ms;
    uint64_t peak_rss_bytes;    /* of the largest process */
    uint64_t peak_memory_bytes; /* of all together; CARREL_UNKNOWN without a memory limit */
    uint64_t processes;         /* most at a time; CARREL_UNKNOWN without a pids limit */
    uint64_t written_bytes;     /* handed to the disk */
    uint64_t added_bytes;       /* to the tree; CARREL_UNKNOWN without a disk limit */
    uint64_t overshoot_bytes;   /* how far added_bytes went beyond the limit before the end */
};

enum carrel_source {
    CARREL_SOURCE_KERNEL,   /* the kernel said so */
    CARREL_SOURCE_INFERRED, /* read off the command's error output */
};

/* Something the sandbox did not allow. */
struct carrel_denial {
    char what[200]; /* "connect 203.0.113.5:443" */
    char rule[96];  /* "network none" */
    char fix[256];  /* what to do if it should be allowed */
    enum carrel_source source;
    unsigned count; /* how often */
};

#define CARREL_MAX_DENIALS 32

struct carrel_result {
    int exit_code; /* as a shell reports it: 128+n signal n; 120 memory, 121 processes, 122 output,
                      123 disk, 124 timeout: a limit was reached and everything was ended */
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
    struct carrel_denial *denials; /* carrel_result_clear frees it */
    size_t denial_count;
    unsigned denials_dropped; /* beyond CARREL_MAX_DENIALS kinds */
    const char *disk_method; /* how the disk limit was kept: "quota", "image", "polling"; or NULL */
    bool plan_privileged; /* marks in the plan's upper/ are trusted.overlay.*, not user.overlay.* */
    char note[376];       /* why the command could not be executed (126, 127); "" otherwise */
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

/* Sandboxes prepared ahead: processes, namespaces, cgroups and mounts, all but the workspace and
 * the command. A background thread keeps `size` of them, and lets them go after idle_ms without a
 * run.
 */
struct carrel_pool_options {
    struct carrel_spec like; /* level, net, user, sizes and limits; what fits it is taken */
    unsigned size;
    uint64_t idle_ms; /* 0: 60 s */
};

struct carrel_pool_stats {
    unsigned ready;
    uint64_t taken;  /* runs that found one ready */
    uint64_t missed; /* ... and those that did not */
    double cpu_ms;   /* all that preparing and clearing away has cost, outside of any run */
};

int carrel_pool_open(const struct carrel_pool_options *options, struct carrel_pool **ret,
                     struct carrel_error *error);
void carrel_pool_stats(struct carrel_pool *pool, struct carrel_pool_stats *ret);
/* No run may be using it. */
void carrel_pool_close(struct carrel_pool *pool);

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
