/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "base/network.h"
#include "policy/units.h"

enum kind {
    TEXT,
    ID, /* a safe file name */
    YES_NO,
    COUNT, /* from here on a number; 0 where it may be none */
    SIZE,
    DURATION,
    UID, /* or empty */
};

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    size_t size;
    const char *value; /* when it is not given */
    const char *what;
} keys[] = {

#define KEY(field) offsetof(struct settings, field), sizeof(((struct settings *)0)->field)
    {"state", TEXT, KEY(state), "", "directory that holds everything; /var/lib/carrel for root"},
    {"listen", TEXT, KEY(listen), "127.0.0.1:7070", "address and port for HTTP; empty: none"},
    {"socket", TEXT, KEY(socket), "", "Unix socket for HTTP; default DIR/carrel.sock; empty: none"},
    {"tls_listen", TEXT, KEY(tls_listen), "", "address and port for HTTPS; empty: none"},
    {"tls_certificate", TEXT, KEY(tls_certificate), "",
     "file with the certificate for HTTPS and its chain (PEM)"},
    {"tls_key", TEXT, KEY(tls_key), "", "file with its private key, that others cannot read"},
    {"tls_self_signed", YES_NO, KEY(tls_self_signed), "no",
     "make a certificate for 'domain' and the names below it, in DIR/tls"},
    {"domain", TEXT, KEY(domain), "carrel.internal", "domain whose names lead to this daemon"},
    {"user", TEXT, KEY(user), "", "as root: the user of the front; empty: uid 1879048190"},
    {"owner_uid", UID, KEY(owner_uid), "", "owner of new workspaces' files on the host"},
    {"bucket", ID, KEY(bucket), "main", "where new workspaces are made, below the state"},
    {"idle", DURATION, KEY(idle_ms), "10m", "time after which an idle sandbox is ended; 0: never"},
    {"files_wait", DURATION, KEY(files_wait_ms), "30s",
     "how long a call on files waits for the workspace's sandbox"},
    {"trash", DURATION, KEY(trash_ms), "7d", "how long a deleted workspace can be restored"},
    {"retention", DURATION, KEY(retention_ms), "1h",
     "how long ended commands and their output are kept"},
    {"spool", SIZE, KEY(spool_bytes), "64M", "most output kept of one command"},
    {"max_sandboxes", COUNT, KEY(max_sandboxes), "256", "most live sandboxes; 0: not counted"},
    {"max_execs", COUNT, KEY(max_execs), "2000", "most running commands; 0: not counted"},
    {"max_memory", SIZE, KEY(max_memory), "0",
     "most memory of all live sandboxes, by their policies"},
    {"max_pids", COUNT, KEY(max_pids), "0",
     "most processes of all live sandboxes, by their policies"},
    {"max_output", SIZE, KEY(max_output), "0", "most output kept of all commands; 0: not counted"},
    {"disk_floor", SIZE, KEY(disk_floor), "1G",
     "least free disk space to start commands and keep output"},
    {"owner_sandboxes", COUNT, KEY(owner_sandboxes), "0",
     "most live sandboxes of one owner; 0: no bound"},
    {"owner_execs", COUNT, KEY(owner_execs), "0",
     "most running commands of one owner; 0: no bound"},
    {"owner_memory", SIZE, KEY(owner_memory), "0",
     "most memory of one owner's live sandboxes, by their policies"},
    {"owner_pids", COUNT, KEY(owner_pids), "0",
     "most processes of one owner's live sandboxes, likewise"},
    {"owner_output", SIZE, KEY(owner_output), "0", "most output kept of one owner's commands"},
    {"owner_chores", COUNT, KEY(owner_chores), "16",
     "most trees of one owner copied or removed at once; 0: no bound"},
    {"owner_workspaces", COUNT, KEY(owner_workspaces), "0",
     "most workspaces of one owner; 0: no bound"},
    {"max_connections", COUNT, KEY(max_connections), "8192",
     "most connections; at most a quarter of the open files allowed"},
    {"owner_connections", COUNT, KEY(owner_connections), "1024", "most connections of one owner"},
    {"owner_streams", COUNT, KEY(owner_streams), "512",
     "most lasting ones of one owner: events, watches, output, ports"},
    {"address_connections", COUNT, KEY(address_connections), "256",
     "most of one address without a key, or of one Unix user"},
    {"trusted_proxies", TEXT, KEY(trusted_proxies), "",
     "addresses and networks (10.0.0.0/8) that are not counted"},
    {"mcp_hosts", TEXT, KEY(mcp_hosts), "",
     "further names in the Host header that /mcp accepts; *: any"},
    {"mcp_origins", TEXT, KEY(mcp_origins), "",
     "further web origins (https://app.example) for /mcp; *: any"},
    {"queue", COUNT, KEY(queue), "0", "how many commands may wait for a free place"},
    {"mount_roots", TEXT, KEY(mount_roots), "",
     "host directories that policies may mount from: DIR:DIR"},
    {"allow_net_host", YES_NO, KEY(allow_net_host), "no", "policies may say network host"},
    {"allow_net", YES_NO, KEY(allow_net), "yes", "policies may name hosts that are reached"},
    {"e2b_network", TEXT, KEY(e2b_network), "",
     "names (with commas between) that sandboxes of E2B clients reach; empty: none"},
    {"network_limit", TEXT, KEY(network_limit), "",
     "names (with commas between) that policies may at most allow; empty: any"},
    {"network_private", TEXT, KEY(network_private), "",
     "HOST or HOST:PORT, with commas: reached also at private addresses"},
    {"network_trust", TEXT, KEY(network_trust), "",
     "PEM file of authorities of servers whose requests are looked at, besides the host's"},
    {"nameservers", TEXT, KEY(nameservers), "",
     "ADDRESS:PORT, with commas, that are asked for addresses; empty: the host's"},
    {"networks", TEXT, KEY(networks), "", "directory of the sets of names; empty: Carrel's own"},
    {"ports", TEXT, KEY(ports), "token",
     "off; key: ports need a key; token: an address may suffice"},
    {"pool", COUNT, KEY(pool), "4", "sandboxes prepared ahead; 0: none"},
    {"front_watchdog", DURATION, KEY(front_watchdog_ms), "30s",
     "time after which a silent front is replaced; 0: never"},
    {"insecure_listen", YES_NO, KEY(insecure_listen), "no",
     "listen beyond this host, also when a file says so"},
    {"audit_sync", TEXT, KEY(audit_sync), "grouped",
     "report a command's end when its record is in the file (grouped) or on disk (strict)"},
    {"audit_segment", SIZE, KEY(audit_segment_bytes), "64M", "size of one file of the record"},
    {"audit_segment_age", DURATION, KEY(audit_segment_age_ms), "1d",
     "age at which a new file is begun; 0: any"},
    {"audit_keep", DURATION, KEY(audit_keep_ms), "0",
     "age at which files of the record are removed; 0: never"},
    {"audit_keep_bytes", SIZE, KEY(audit_keep_bytes), "0",
     "size of the record above which the oldest files are removed; 0: any"},
    {"audit_hold", SIZE, KEY(audit_hold), "8G",
     "size of the record up to which files wait for 'export'"},
    {"audit_heads", DURATION, KEY(audit_heads_ms), "1m",
     "how often a head of the record is signed; 0: at rotation and stop"},
    {"audit_sink_user", TEXT, KEY(audit_sink_user), "",
     "as root: the user with the signing key; empty: uid 1879048189"},
    {"audit_sink_file", TEXT, KEY(audit_sink_file), "",
     "file of that user to which heads are added"},
    {"audit_sink_url", TEXT, KEY(audit_sink_url), "", "where heads are sent by HTTP POST"},
    {"audit_sink_auth", TEXT, KEY(audit_sink_auth), "",
     "file with the credentials for audit_sink_url"},
    {"export", TEXT, KEY(export), "",
     "where records are sent: https://HOST:9200, file:PATH, syslog:"},
    {"export_index", TEXT, KEY(export_index), "logs-carrel.audit-default",
     "index or data stream at the target"},
    {"export_auth", TEXT, KEY(export_auth), "", "file with 'ApiKey ...' or 'user:password'"},
    {"export_ca", TEXT, KEY(export_ca), "", "file with the certificate authority of the target"},
    {"export_gzip", YES_NO, KEY(export_gzip), "no", "compress what is sent"},
    {"export_user", TEXT, KEY(export_user), "",
     "as root: the user that sends records; empty: uid 1879048188"},
    {"mirror", TEXT, KEY(mirror), "",
     "store that new workspaces are mirrored to, if they name none; empty: none"},
    {"mirror_exclude", TEXT, KEY(mirror_exclude), "node_modules,.venv,__pycache__,.cache",
     "names, with commas, that are not mirrored, where a workspace does not say which"},
    {"mirror_delay", DURATION, KEY(mirror_delay_ms), "500ms",
     "how long a mirror waits after the last change"},
    {"rclone", TEXT, KEY(rclone), "",
     "the rclone that carries files to stores; empty: that of /usr/local/bin or /usr/bin"},
    {"mount_cache", SIZE, KEY(mount_cache), "1G",
     "how much of each mounted store is kept on this disk"},
    {"package_index", TEXT, KEY(package_index), "",
     "index of Python packages for uv and pip; empty: their own"},
    {"package_registry", TEXT, KEY(package_registry), "",
     "registry of Node packages for bun and npm; empty: their own"},
    {"debian_mirror", TEXT, KEY(debian_mirror), "",
     "mirror of Debian for bases and apt in them; empty: this host's"},
    {"package_ca", TEXT, KEY(package_ca), "",
     "file with the certificate authorities for index and registry"},
    {"package_offline", YES_NO, KEY(package_offline), "no", "uv installs from its cache only"},
#undef KEY
};

enum {
    LONGEST_FILE = 32768,
    DAY_MS = 24 * 3600 * 1000,
};

#define KEYS       (sizeof(keys) / sizeof(keys[0]))
#define MOST_COUNT 1000000000ULL

_Static_assert(KEYS <= SETTINGS_MAX_KEYS, "each has its place");

static const struct key *find(const char *name)
{
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}

static bool *in(struct settings_set *set, const struct key *key)
{
    return &set->has[key - keys];
}

static void *field(struct settings *s, const struct key *key)
{
    return (char *)s + key->offset;
}

static bool is_id(const char *text)
{
    static const char safe[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strlen(text);

    return n > 0 && n <= 64 && text[0] != '.' && text[0] != '_' && text[0] != '-' &&
           strspn(text, safe) == n;
}

/* Also days, which a policy has no use for. */
static int parse_duration(const char *text, uint64_t *ret)
{
    char digits[24];
    size_t n = strlen(text);
    uint64_t days;

    if (n < 2 || n >= sizeof(digits) || text[n - 1] != 'd')
        return units_parse_duration(text, ret);
    memcpy(digits, text, n - 1);
    digits[n - 1] = '\0';
    int r = units_parse_count(digits, 100000, &days);
    if (r == 0)
        *ret = days * DAY_MS;
    return r;
}

static int parse_number(enum kind kind, const char *text, uint64_t *ret)
{
    if (strcmp(text, "0") == 0) {
        *ret = 0;
        return 0;
    }
    return kind == SIZE       ? units_parse_size(text, ret)
           : kind == DURATION ? parse_duration(text, ret)
                              : units_parse_count(text, MOST_COUNT, ret);
}

static int set_text(void *to, const struct key *key, const char *value, struct err *err)
{
    size_t n = strlen(value);

    if (n >= key->size)
        return err_set(err, ERR_INVALID, 0, "'%s' is too long (%zu bytes at most)", key->name,
                       key->size - 1);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)value[i] < ' ' || value[i] == 0x7f)
            return err_set(err, ERR_INVALID, 0, "'%s' holds a control character", key->name);
    }
    memcpy(to, value, n + 1);
    return 0;
}

static int set_uid(int64_t *to, const char *value)
{
    uint64_t uid;

    if (*value == '\0') {
        *to = -1;
        return 0;
    }
    if (strcmp(value, "0") == 0)
        uid = 0;
    else if (units_parse_count(value, UINT32_MAX - 1, &uid) < 0)
        return -1;
    *to = (int64_t)uid;
    return 0;
}

static int set_one(struct settings *s, const struct key *key, const char *value, struct err *err)
{
    static const char *const expected[] = {
        [TEXT] = "a text",
        [ID] = "letters, digits, '.', '_' and '-', beginning with a letter or digit",
        [YES_NO] = "yes or no (or true or false, on or off, 1 or 0)",
        [COUNT] = "a whole number",
        [SIZE] = "a size like 64M or 1G, or 0",
        [DURATION] = "a time like 30s, 10m, 1h or 7d, or 0",
        [UID] = "a user's number, or nothing",
    };
    bool good = true;

    switch (key->kind) {
    case ID:
        good = is_id(value);
        if (!good)
            break;
        __attribute__((fallthrough));
    case TEXT:
        if (set_text(field(s, key), key, value, err) < 0)
            return -1;
        break;
    case YES_NO:
        good = units_parse_flag(value, field(s, key)) == 0;
        break;
    case COUNT:
    case SIZE:
    case DURATION:
        good = parse_number(key->kind, value, field(s, key)) == 0;
        break;
    case UID:
        good = set_uid(field(s, key), value) == 0;
        break;
    }
    if (!good)
        return err_set(err, ERR_INVALID, 0, "'%s' is '%.64s', but must be %s", key->name, value,
                       expected[key->kind]);
    return 0;
}

void settings_init(struct settings *ret)
{
    struct err err;

    memset(ret, 0, sizeof(*ret));
    for (size_t i = 0; i < KEYS; i++)
        ignore(set_one(ret, &keys[i], keys[i].value, &err)); /* a test looks at each */
}

int settings_set(struct settings *s, const char *key, const char *value, struct err *err)
{
    const struct key *found = find(key);
    char hint[NEAR_HINT];

    if (!found)
        return err_set(err, ERR_INVALID, 0, "unknown setting '%.64s'%s", key,
                       near_hint(hint, key, strlen(key), keys, KEYS, sizeof(keys[0])));
    if (set_one(s, found, value, err) < 0)
        return -1;
    *in(&s->given, found) = true;
    return 0;
}

int settings_set_pair(struct settings *s, const char *pair, struct err *err)
{
    const char *sign = strchr(pair, '=');
    char name[64];

    if (!sign || sign == pair || (size_t)(sign - pair) >= sizeof(name))
        return err_set(err, ERR_INVALID, 0, "'%.64s' is not of the form key=value", pair);
    memcpy(name, pair, (size_t)(sign - pair));
    name[sign - pair] = '\0';
    return settings_set(s, name, sign + 1, err);
}

static char *trim(char *text)
{
    size_t n;

    text += strspn(text, " \t\r");
    for (n = strlen(text); n > 0 && strchr(" \t\r", text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

/* `fixed` was given before the file, `seen` by it. */
static int parse_line(struct settings *s, char *line, struct settings_set *fixed,
                      struct settings_set *seen, struct err *err)
{
    struct settings ignored = {0};

    line = trim(line);
    if (*line == '\0' || *line == '#')
        return 0;
    char *sign = strchr(line, '=');
    if (!sign)
        return err_set(err, ERR_INVALID, 0, "'%.64s' is not of the form key = value", line);
    *sign = '\0';
    const char *name = trim(line);
    const char *value = trim(sign + 1);
    const struct key *key = find(name);
    if (key && *in(seen, key))
        return err_set(err, ERR_INVALID, 0, "'%s' is set twice", name);
    /* What the command line has decided is checked all the same. */
    int r = settings_set(key && *in(fixed, key) ? &ignored : s, name, value, err);
    if (key)
        *in(seen, key) = true;
    return r;
}

int settings_parse(struct settings *s, char *text, const char *name, struct err *err)
{
    struct settings_set fixed = s->given;
    struct settings_set seen = {0};
    unsigned number = 1;

    for (char *line = text; line; number++) {
        char *end = strchr(line, '\n');
        if (end)
            *end = '\0';
        if (parse_line(s, line, &fixed, &seen, err) < 0)
            return err_wrap(err, "line %u of '%s'", number, name);
        line = end ? end + 1 : NULL;
    }
    return 0;
}

int settings_read_file(struct settings *s, const char *path, struct err *err)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    char text[LONGEST_FILE];
    size_t n = 0;

    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open the settings '%s'", path);
    while (n < sizeof(text)) {
        ssize_t got = read(fd, text + n, sizeof(text) - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set(err, ERR_IO, errno, "read the settings '%s'", path);
        if (got == 0)
            break;
        n += (size_t)got;
    }
    if (n == sizeof(text) || memchr(text, '\0', n))
        return err_set(err, ERR_INVALID, 0, "'%s' is not a file of settings", path);
    text[n] = '\0';
    return settings_parse(s, text, path, err);
}

static bool begins_with_any(const char *text, const char *const *beginnings)
{
    for (; *beginnings; beginnings++) {
        if (strncmp(text, *beginnings, strlen(*beginnings)) == 0)
            return true;
    }
    return false;
}

/* Carrel-export knows more; but what cannot be is told when the daemon starts. */
static int check_targets(const struct settings *s, struct err *err)
{
    static const char *const records[] = {
        "https://",      "http://",       "file:/",        "syslog:",
        "syslog+tcp://", "syslog+unix:/", "syslog+udp://", NULL};
    static const char *const heads[] = {"https://", "http://", NULL};

    if (*s->export && !begins_with_any(s->export, records))
        return err_set(err, ERR_INVALID, 0,
                       "'export' must be https://HOST:PORT, http://HOST:PORT, file:/PATH, syslog:, "
                       "syslog+unix:/PATH, syslog+udp://HOST:PORT or syslog+tcp://HOST:PORT");
    if (*s->audit_sink_url && !begins_with_any(s->audit_sink_url, heads))
        return err_set(err, ERR_INVALID, 0, "'audit_sink_url' must begin with https:// or http://");
    if (*s->audit_sink_file && *s->audit_sink_file != '/')
        return err_set(err, ERR_INVALID, 0, "'audit_sink_file' must be an absolute path");
    return 0;
}

/* None of them may be switched off: each keeps a part of what there is for others. */
static int check_connections(const struct settings *s, struct err *err)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"max_connections", s->max_connections},
                {"owner_connections", s->owner_connections},
                {"owner_streams", s->owner_streams},
                {"address_connections", s->address_connections}};
    struct networks networks;
    const char *at = "";

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].value == 0)
            return err_set(err, ERR_INVALID, 0,
                           "'%s' must be at least 1: connections are always counted", rows[i].name);
    }
    if (!networks_parse(s->trusted_proxies, &networks, &at))
        return err_set(err, ERR_INVALID, 0,
                       "'trusted_proxies': '%.64s' is not an address or a network like "
                       "192.0.2.7, 10.0.0.0/8 or 2001:db8::/32, or one of more than %d",
                       at, NETWORKS_MOST);
    return 0;
}

static int check_packages(const struct settings *s, struct err *err)
{
    static const char *const urls[] = {"https://", "http://", NULL};

    if (*s->package_index && !begins_with_any(s->package_index, urls))
        return err_set(err, ERR_INVALID, 0, "'package_index' must begin with https:// or http://");
    if (*s->package_registry && !begins_with_any(s->package_registry, urls))
        return err_set(err, ERR_INVALID, 0,
                       "'package_registry' must begin with https:// or http://");
    if (*s->debian_mirror && !begins_with_any(s->debian_mirror, urls))
        return err_set(err, ERR_INVALID, 0, "'debian_mirror' must begin with https:// or http://");
    if (*s->package_ca && *s->package_ca != '/')
        return err_set(err, ERR_INVALID, 0, "'package_ca' must be an absolute path");
    if (*s->package_ca && access(s->package_ca, R_OK) < 0)
        return err_set(err, ERR_INVALID, errno,
                       "'package_ca' names '%.200s', which cannot be read; put the file there, or "
                       "leave the setting out",
                       s->package_ca);
    return 0;
}

int settings_complete(struct settings *s, struct err *err)
{
    if (s->state[0] == '\0')
        return err_set(err, ERR_INVALID, 0, "'state' is empty: say where everything is kept");
    if (strcmp(s->ports, "off") != 0 && strcmp(s->ports, "key") != 0 &&
        strcmp(s->ports, "token") != 0)
        return err_set(err, ERR_INVALID, 0, "'ports' must be off, key or token");
    if (strcmp(s->audit_sync, "grouped") != 0 && strcmp(s->audit_sync, "strict") != 0)
        return err_set(err, ERR_INVALID, 0, "'audit_sync' must be grouped or strict");
    if (s->audit_segment_bytes == 0)
        return err_set(err, ERR_INVALID, 0, "'audit_segment' must not be 0");
    if (s->tls_self_signed && !settings_is_given(s, "tls_listen"))
        snprintf(s->tls_listen, sizeof(s->tls_listen), "127.0.0.1:7443");
    if (check_connections(s, err) < 0 || check_targets(s, err) < 0 || check_packages(s, err) < 0)
        return -1;
    if (settings_is_given(s, "socket"))
        return 0;
    int n = snprintf(s->socket, sizeof(s->socket), "%s/carrel.sock", s->state);
    if (n < 0 || (size_t)n >= sizeof(s->socket))
        return err_set(err, ERR_INVALID, ENAMETOOLONG,
                       "the Unix socket '%s/carrel.sock' (give a shorter one with --socket, or "
                       "none: --socket '')",
                       s->state);
    return 0;
}

bool settings_is_given(const struct settings *s, const char *key)
{
    const struct key *found = find(key);

    return found && s->given.has[found - keys];
}

static char *encode_one(const struct settings *s, const struct key *key, struct arena *arena)
{
    const void *at = (const char *)s + key->offset;
    uint64_t number;
    int64_t uid;

    switch (key->kind) {
    case TEXT:
    case ID:
        return arena_printf(arena, "%s=%s", key->name, (const char *)at);
    case YES_NO:
        return arena_printf(arena, "%s=%s", key->name, *(const bool *)at ? "yes" : "no");
    case UID:
        memcpy(&uid, at, sizeof(uid));
        return uid < 0 ? arena_printf(arena, "%s=", key->name)
                       : arena_printf(arena, "%s=%lld", key->name, (long long)uid);
    case COUNT:
    case SIZE:
    case DURATION:
        memcpy(&number, at, sizeof(number));
        return arena_printf(arena, "%s=%llu%s", key->name, (unsigned long long)number,
                            key->kind == DURATION && number ? "ms" : "");
    }
    return NULL;
}

const char **settings_encode(const struct settings *s, struct arena *arena)
{
    const char **list = arena_alloc(arena, (KEYS + 1) * sizeof(*list));

    for (size_t i = 0; list && i < KEYS; i++) {
        list[i] = encode_one(s, &keys[i], arena);
        if (!list[i])
            return NULL;
    }
    return list;
}

int settings_decode(struct settings *ret, char *const *pairs, struct err *err)
{
    settings_init(ret);
    for (size_t i = 0; pairs[i]; i++) {
        if (settings_set_pair(ret, pairs[i], err) < 0)
            return -1;
    }
    return 0;
}

void settings_describe(FILE *out)
{
    for (size_t i = 0; i < KEYS; i++)
        fprintf(out, "  %-17s %-16s %s\n", keys[i].name, *keys[i].value ? keys[i].value : "-",
                keys[i].what);
}
