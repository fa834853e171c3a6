/* SPDX-License-Identifier: Apache-2.0 */
/* The setup: what will be done to make one sandbox, as inert data. It is built by the engine from
 * options and host facts (rootfs.c, confinement.c), printed by --explain, sent to pid 1 as bytes
 * (wire.c), and only there carried out. No descriptors, no pointers into live state.
 *
 * It has two parts. The frame is all that does not depend on whose tree it will be: /usr, /etc,
 * /proc, /dev and the temporary file systems, built beside the root; a pool has it made ahead. The
 * root is the tenant's tree; the frame's parts are moved onto it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

enum op_kind {
    OP_BIND,   /* host path `source` appears at `target` */
    OP_TMPFS,  /* a fresh, bounded file system at `target` */
    OP_PROC,   /* this pid namespace's /proc */
    OP_DEVPTS, /* terminals of its own */
    OP_DIR,    /* directory `target` */
    OP_FILE,   /* file `target` holding `source`; before it what the host's file `layer` has */
    OP_LINK,   /* symlink `target` holding `source` */
    OP_SHOW,   /* what was prepared as `source` appears at `target` */
    OP_MASK,   /* nothing to see at `target` */
    OP_LOCK,   /* `target` bound over itself, read-only */
    OP_MOVE,   /* what the frame has at `source` goes to `target` */
    OP_LAYER,  /* as OP_BIND, but what is changed there goes to `layer` */
    OP_PART,   /* `source` of the prepared files, such as a part of the system, appears at `target`:
                  its owner may have put links anywhere, so nothing is followed */
    OP_KIND_COUNT_,
};

enum op_flags {
    OP_RECURSIVE = 1 << 0, /* mounts below the source come along */
    OP_OWNED = 1 << 1,     /* files of the source's owner belong to the user inside */
    OP_IN_ROOT = 1 << 2,   /* OP_DIR, OP_FILE: in the root itself, not in the prepared files */
    OP_TOP = 1 << 3,       /* a name in a tree the tenant writes: cross no mount to reach it */
    OP_HIDES = 1 << 4,     /* OP_MOVE: the engine is sent what is covered, REPLY_HIDDEN */
    OP_SHOWN = 1 << 5,     /* OP_LAYER: what was changed before is seen, and nothing is changed */
    OP_PLAN = 1 << 6,      /* OP_LAYER: a plan's; nobody else may have it mounted */
    OP_OF_HOST =
        1 << 7, /* OP_BIND: a path of the host's own, that no tenant writes; no tree comes */
    OP_SYSTEM = 1 << 8,  /* OP_LAYER: the whole system, put among the prepared files */
    OP_STAYS = 1 << 9,   /* OP_PLAN: a fork's, which the next run has at once */
    OP_TRUST = 1 << 10,  /* OP_FILE: instead of the host's file that of the system, SETUP_TRUST, if
                            it has one; OP_PART: on that file, if it is there */
    OP_BASE64 = 1 << 11, /* OP_FILE: `source` is its bytes in base64 */
    OP_READY = 1 << 12,  /* OP_BIND: a mount that somebody else serves: nobody asks it anything, and
                             its ids are as they are */
    OP_FLAGS_ALL_ = (1 << 13) - 1,
};

struct op {
    enum op_kind kind;
    uint32_t flags;
    uint64_t attrs; /* MOUNT_RDONLY and the like */
    const char *source;
    const char *target; /* relative to the new root (or to the prepared files); "" is the root */
    uint64_t bytes;
    uint64_t inodes;
    uint32_t mode;
    uint32_t uid;
    uint32_t gid;
    uint64_t device; /* OP_BIND: who the source must be when pid 1 opens it itself */
    uint64_t inode;
    const char *layer;     /* OP_LAYER: the host's directory with upper/ and work/ */
    uint64_t layer_device; /* ... and who that must be */
    uint64_t layer_inode;
    const char *over; /* OP_LAYER: the host's directory that is seen over the source, below the
                         layer; "": none */
    uint64_t over_device;
    uint64_t over_inode;
};

/* Whether a mount tree of the host's, or one made of it, goes with the operation. */
static inline bool op_has_tree(const struct op *op)
{
    return (op->kind == OP_BIND && !(op->flags & OP_OF_HOST)) || op->kind == OP_LAYER;
}

/* Among the prepared files: a system of the workspace's own, and the authorities it trusts. */
#define SETUP_SYSTEM_PLACE "system"
#define SETUP_TRUST        "etc/ssl/certs/ca-certificates.crt"

enum {
    SETUP_MAX_OPS = 512,
    SETUP_MAX_FILTER = 1024,
    SETUP_MAX_ARGS = 65536,
    SETUP_MAX_PORTS = 32,
    SETUP_UDP = 1 << 16, /* in a port of these: it is of UDP */
};

enum setup_flags {
    SETUP_UID_RANGE = 1 << 0,     /* a range of uids is mapped: build as inner root, then drop */
    SETUP_TREES_PASSED = 1 << 1,  /* bind sources come as descriptors, in the order of the ops */
    SETUP_SCOPE_SOCKETS = 1 << 2, /* Landlock: no abstract socket from outside */
    SETUP_SCOPE_SIGNALS = 1 << 3, /* Landlock: no signal to outside */
    SETUP_DIR_LEVEL = 1 << 4,     /* level dir: none of the above, environment and tree kill only */
    SETUP_NOTIFY = 1 << 5,        /* the filter has a listener: send it to the engine */
    SETUP_SAY_READY = 1 << 6,     /* say so when the frame stands: it was made ahead, for a pool */
    SETUP_GUARD = 1 << 7,         /* connections are made by the engine: not without a listener, and
                                     with SCOPE_SOCKETS Landlock refuses those of TCP inside */
    SETUP_SYSTEM = 1 << 8,   /* a system of the workspace's own: commands may be root's, and pid 1
                                keeps what it takes to start them */
    SETUP_REDIRECT = 1 << 9, /* the engine makes connections to names at ports from 1024 on, and
                                leads them to `ports`: not without a listener */
    SETUP_SUDO = 1 << 10,    /* with a system: commands may ask for root's, at SUDO_SOCKET */
    SETUP_FLAGS_ALL_ = (1 << 11) - 1,
};

struct setup {
    uint32_t flags;
    uint32_t namespaces; /* CLONE_NEW* */
    uint32_t uid;        /* inside */
    uint32_t gid;
    const char *hostname;
    uint32_t frame_count; /* so many of the operations come first and make the frame */
    uint32_t op_count;
    uint32_t port_count; /* of the root: ports that lead to names; 0: no network by name */
    uint32_t ports[SETUP_MAX_PORTS];
    uint32_t
        named_ports[SETUP_MAX_PORTS]; /* what rules and programs call them; the engine's alone */
    uint32_t limit_mask;              /* bit n: limits[n] is set */

    struct {
        uint64_t soft;
        uint64_t hard;
    } limits[RLIM_NLIMITS];

    uint32_t filter_length;

    struct {
        uint16_t code;
        uint8_t jt;
        uint8_t jf;
        uint32_t k;
    } filter[SETUP_MAX_FILTER]; /* struct sock_filter, spelt out: it crosses a socket */

    struct op ops[SETUP_MAX_OPS];
};

/* Inside a system of the workspace's own: the program that asks for a command of root's, and where
 * it asks. */
#define SUDO_PROGRAM "run/carrel/sudo"
#define SUDO_SOCKET  "run/carrel/ask"

enum command_flags {
    COMMAND_TTY = 1 << 0,       /* make a terminal inside and send its master back */
    COMMAND_CHECK_CWD = 1 << 1, /* its directory must be one below the root */
    COMMAND_ROOT = 1 << 2,      /* as root inside, with the capabilities of SETUP_SYSTEM */
    COMMAND_FLAGS_ALL_ = (1 << 3) - 1,
};

/* One command to start in a sandbox. argv and env end with NULL. */
struct command {
    uint32_t flags;
    uint32_t rows;
    uint32_t columns;
    const char *cwd;
    uint32_t argc;
    uint32_t envc;
    const char **argv;
    const char **env;
};
