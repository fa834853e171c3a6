/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's settings: from a file of `key = value` lines, then from the command line, and handed
 * on to the front as "key=value" arguments. Plain memory, nothing to free. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    SETTINGS_MAX_KEYS = 128,
};

struct settings {
    char state[1024];           /* DIR, absolute once the broker has opened it */
    char listen[128];           /* "127.0.0.1:7070", "[::1]:7070"; "" : no TCP */
    char socket[108];           /* path of the Unix socket; "" : none */
    char tls_listen[128];       /* as listen, for HTTPS */
    char tls_certificate[1024]; /* a file: it and its chain */
    char tls_key[1024];         /* a file */
    bool tls_self_signed;       /* or both of our own, in DIR/tls */
    char domain[256];           /* whose names lead here */
    char user[64];              /* as root: whom the front runs as; "" : nobody else's uid */
    int64_t owner_uid;          /* of new trees; -1: the owner of DIR, or the front's uid */
    char bucket[65];            /* where workspaces are made */
    uint64_t idle_ms;           /* after which a sandbox is ended; 0: never */
    uint64_t files_wait_ms;     /* how long a call on files waits for its sandbox */
    uint64_t trash_ms;          /* after which a deleted workspace is purged; 0: at once */
    uint64_t retention_ms;      /* of ended commands and their output */
    uint64_t spool_bytes;       /* most output kept of one command */
    uint64_t max_sandboxes;     /* of the host; 0 in all of these: not counted */
    uint64_t max_execs;
    uint64_t max_memory; /* sums of what the policies of live sandboxes allow */
    uint64_t max_pids;
    uint64_t max_output;      /* most output kept, of all commands */
    uint64_t disk_floor;      /* bytes free below which nothing is started, and no output kept */
    uint64_t owner_sandboxes; /* of one owner */
    uint64_t owner_execs;
    uint64_t owner_memory;
    uint64_t owner_pids;
    uint64_t owner_output;
    uint64_t owner_chores;
    uint64_t owner_workspaces;
    uint64_t max_connections; /* of clients; none of these four is 0 */
    uint64_t owner_connections;
    uint64_t owner_streams;
    uint64_t address_connections; /* whose owner is not known yet */
    char mcp_hosts[1024];         /* with blanks or commas between */
    char mcp_origins[1024];
    char trusted_proxies[1024]; /* addresses and networks that are not counted so */
    uint64_t queue;             /* how many execs may wait when there is no room */
    char mount_roots[4096];     /* colon separated; policies mount from below these only */
    bool allow_net_host;
    bool allow_net;             /* policies may name hosts that are reached */
    char e2b_network[4096];     /* rules of what sandboxes of E2B's clients reach; "": nothing */
    char network_limit[4096];   /* rules that bound theirs, with blanks or commas; "": any */
    char network_trust[1024];   /* a file of authorities, besides the host's */
    char network_private[1024]; /* hosts whose addresses may be private */
    char nameservers[256];      /* that carrel-egress asks; "": the host's */
    char networks[1024];        /* a directory of sets of names; "": where Carrel was installed */
    char ports[8];              /* "off", "key", "token": how ports may be reached at most */
    uint64_t pool;              /* sandboxes prepared ahead */
    uint64_t front_watchdog_ms; /* a front that answers nothing is replaced after it; 0: never */
    bool insecure_listen;
    char audit_sync[8];            /* "grouped", "strict": whether commands wait for the disk */
    uint64_t audit_segment_bytes;  /* of the record; then the next is begun */
    uint64_t audit_segment_age_ms; /* likewise; 0: never */
    uint64_t audit_keep_ms;        /* after which whole segments go; 0: never */
    uint64_t audit_keep_bytes;     /* likewise */
    uint64_t audit_hold;           /* bytes that are kept for an exporter that is behind */
    uint64_t audit_heads_ms;       /* between signed heads; 0: at rotation and stop alone */
    char audit_sink_user[64];      /* as root: whom the sink runs as */
    char audit_sink_file[1024];    /* where heads go besides DIR; "" : nowhere */
    char audit_sink_url[1024];
    char audit_sink_auth[1024]; /* a file */
    char export[1024];          /* where records go; "" : nowhere */
    char export_index[256];
    char export_auth[1024]; /* a file */
    char export_ca[1024];
    bool export_gzip;
    char export_user[64]; /* as root */
    char mirror[65];      /* a store; "": none */
    char mirror_exclude[1024];
    uint64_t mirror_delay_ms;
    char rclone[1024];           /* a program; "": the host's */
    uint64_t mount_cache;        /* bytes of each mounted store that are kept here */
    char package_index[1024];    /* of Python packages, for uv and pip inside; "" : theirs */
    char package_registry[1024]; /* of Node packages, for bun and npm */
    char debian_mirror[1024];    /* of Debian, for bases and apt in them; "": this host's */
    char package_ca[1024];       /* a file: the authorities they trust instead of the host's */
    bool package_offline;        /* uv uses what its cache has */

    struct settings_set { /* which were set, by their place in the table */
        bool has[SETTINGS_MAX_KEYS];
    } given;
};

/* The defaults. */
void settings_init(struct settings *ret);
int settings_set(struct settings *settings, const char *key, const char *value, struct err *err);
/* "key=value". */
int settings_set_pair(struct settings *settings, const char *pair, struct err *err);
/* A whole file's text, which is changed; `name` is for the messages. Keys already given (by the
 * command line) keep their value; one that comes twice is an error. */
int settings_parse(struct settings *settings, char *text, const char *name, struct err *err);
int settings_read_file(struct settings *settings, const char *path, struct err *err);
/* What depends on others: the socket in DIR. Call once all is set. */
int settings_complete(struct settings *settings, struct err *err);
bool settings_is_given(const struct settings *settings, const char *key);

/* All of them as "key=value", in `arena`; ends with NULL. NULL without memory. */
const char **settings_encode(const struct settings *settings, struct arena *arena);
int settings_decode(struct settings *ret, char *const *pairs, struct err *err);

/* One line for each: key, default, what it is. For --help. */
void settings_describe(FILE *out);
