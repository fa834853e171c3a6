/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/srt.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "policy/network.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

struct srt {
    struct policy *policy;
    struct arena *arena;
    struct err *err;
    const char *workspace; /* canonical, or NULL */
    const json_t *allow_read;
    const json_t *deny_write;
    bool tree; /* may be written to */
};

/* --- its shape --- */

struct known {
    const char *name;
    bool is_list;      /* of texts, that must be there */
    const char *wrong; /* what cannot be kept; NULL: it means nothing here */
};

static const struct known tops[] = {
    {"network", false, NULL},
    {"filesystem", false, NULL},
    {"credentials", false,
     "nothing of the environment is seen inside, and no file beside the workspace: leave it out"},
    {"ignoreViolations", false, NULL},
    {"enableWeakerNestedSandbox", false, NULL},
    {"enableWeakerNetworkIsolation", false, NULL},
    {"allowAppleEvents", false, NULL},
    {"ripgrep", false, NULL},
    {"mandatoryDenySearchDepth", false, NULL},
    {"allowPty", false, NULL},
    {"seccomp", false, NULL},
    {"bwrapPath", false, NULL},
    {"socatPath", false, NULL},
    {"javaAgentJarPath", false, NULL},
    {"windows", false, NULL},
    {"git", false, NULL},
};

static const char proxies[] = "connections are made by Carrel itself, over no proxy: leave it out";

static const struct known networks[] = {
    {"allowedDomains", true, NULL},
    {"deniedDomains", true, NULL},
    {"deniedDomainReasons", false, NULL},
    {"strictAllowlist", false, NULL},
    {"deniedResolvedAddresses", false,
     "Carrel refuses private addresses, and no others: deny the names"},
    {"allowUnixSockets", false, NULL},
    {"allowAllUnixSockets", false, NULL},
    {"allowLocalBinding", false, NULL},
    {"allowMachLookup", false, NULL},
    {"httpProxyPort", false, proxies},
    {"socksProxyPort", false, proxies},
    {"mitmProxy", false, proxies},
    {"parentProxy", false, proxies},
    {"tlsTerminate", false, "Carrel does not look into TLS for this: leave it out"},
};

static const struct known filesystems[] = {
    {"denyRead", true, NULL},
    {"allowRead", false, NULL},
    {"allowWrite", true, NULL},
    {"denyWrite", true, NULL},
    {"allowGitConfig", false, NULL},
    {"disabled", false, "a workspace, and what is listed, is all that is seen: leave it out"},
};

static bool means_nothing(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int check_list(const struct srt *s, const char *name, const json_t *value)
{
    const json_t *item;
    size_t i;

    if (!json_is_array(value))
        return err_set(s->err, ERR_INVALID, 0, "\"%s\" must be a list of texts", name);
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        const char *text = json_string_value(item);
        if (!text || !*text || strlen(text) != json_string_length(item))
            return err_set(s->err, ERR_INVALID, 0, "\"%s\" must be a list of texts", name);
    }
    return 0;
}

static int check_object(const struct srt *s, const json_t *object, const struct known *known,
                        size_t count)
{
    const char *name;
    const json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        size_t i = 0;
        while (i < count && strcmp(known[i].name, name) != 0)
            i++;
        if (i == count)
            return err_set(s->err, ERR_INVALID, 0, "unknown key \"%.40s\" of srt's settings", name);
        if (known[i].wrong && !means_nothing(value))
            return err_set(s->err, ERR_INVALID, 0, "\"%s\" cannot be kept: %s", name,
                           known[i].wrong);
    }
    for (size_t i = 0; i < count; i++) {
        if (known[i].is_list &&
            check_list(s, known[i].name, json_object_get(object, known[i].name)) < 0)
            return -1;
    }
    return 0;
}

bool srt_is(const json_t *root)
{
    const json_t *network = json_object_get(root, "network");

    return json_object_get(root, "filesystem") || json_object_get(network, "allowedDomains") ||
           json_object_get(network, "deniedDomains");
}

/* --- names --- */

static int add_rule(struct srt *s, const char *before, const char *host, const char *port)
{
    struct policy *p = s->policy;
    const char *line = arena_printf(s->arena, "%s%s%s", before, host, port);
    struct network_rule rule;

    if (!line || p->net_rule_count == NETWORK_MOST)
        return err_set(s->err, ERR_LIMIT, 0, "more than %d rules of the network", NETWORK_MOST);
    if (network_parse_rule(line, &rule, s->err) < 0)
        return -1;
    p->net_rules[p->net_rule_count++] = line;
    return 0;
}

static int allow(struct srt *s, const char *text)
{
    if (strncmp(text, "localhost", 9) == 0 && (text[9] == '\0' || text[9] == ':'))
        return err_set(s->err, ERR_INVALID, 0,
                       "'%.40s' inside is the sandbox itself; allow a name of this host instead",
                       text);
    return text[0] == '!' ? err_set(s->err, ERR_INVALID, 0, "'!' is no part of a name")
                          : add_rule(s, "", text, "");
}

/* "*": everything, perhaps at one port: of what is allowed, whatever that is. */
static int deny_all(struct srt *s, const char *port)
{
    char host[NETWORK_RULE];
    size_t allowed = s->policy->net_rule_count;

    if (!*port) {
        s->policy->net_rule_count = 0;
        s->policy->net = CARREL_NET_NONE;
        return 0;
    }
    for (size_t i = 0; i < allowed; i++) {
        const char *rule = s->policy->net_rules[i];
        if (rule[0] == '!')
            continue;
        snprintf(host, sizeof(host), "%.*s", (int)strcspn(rule, ":"), rule);
        if (add_rule(s, "!", host, port) < 0)
            return -1;
    }
    return 0;
}

/* Private addresses are refused anyway. */
static bool is_refused_address(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    char host[INET6_ADDRSTRLEN];

    snprintf(host, sizeof(host), "%.*s", (int)strcspn(text + (*text == '['), "]"),
             text + (*text == '['));
    return (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1 &&
            network_place_of(&v6, sizeof(v6)) != NETWORK_PUBLIC) ||
           (inet_pton(AF_INET, host, &v4.sin_addr) == 1 &&
            network_place_of(&v4, sizeof(v4)) != NETWORK_PUBLIC);
}

static int deny(struct srt *s, const char *text)
{
    if (text[0] == '*' && (text[1] == '\0' || text[1] == ':'))
        return deny_all(s, text + 1);
    if (strcmp(text, "localhost") == 0 || is_refused_address(text))
        return 0;
    return text[0] == '!' ? err_set(s->err, ERR_INVALID, 0, "'!' is no part of a name")
                          : add_rule(s, "!", text, "");
}

static int read_names(struct srt *s, const json_t *network)
{
    const json_t *item;
    size_t i;

    s->policy->net = CARREL_NET_NONE;
    if (json_array_size(json_object_get(network, "allowedDomains")) > 0)
        s->policy->net = CARREL_NET_ALLOW;
    json_array_foreach(json_object_get(network, "allowedDomains"), i, item)
    {
        if (allow(s, json_string_value(item)) < 0)
            return err_wrap(s->err, "\"allowedDomains\"");
    }
    json_array_foreach(json_object_get(network, "deniedDomains"), i, item)
    {
        if (s->policy->net == CARREL_NET_ALLOW && deny(s, json_string_value(item)) < 0)
            return err_wrap(s->err, "\"deniedDomains\"");
    }
    return 0;
}

/* --- paths --- */

/* Absolute, without a slash behind; NULL with the error set. */
static const char *resolve(const struct srt *s, const char *text)
{
    const char *home = getenv("HOME"); /* at start, one thread; NOLINT(concurrency-mt-unsafe) */
    char real[PATH_MAX];
    const char *path = text;

    if (strpbrk(text, "*?[{")) {
        err_set(s->err, ERR_INVALID, 0, "'%.200s' is a pattern: name the paths", text);
        return NULL;
    }
    if (text[0] == '~' && (text[1] == '\0' || text[1] == '/') && home)
        path = arena_printf(s->arena, "%s%s", home, text + 1);
    else if (text[0] != '/' && !s->workspace) {
        err_set(s->err, ERR_INVALID, 0, "'%.200s' is of the workspace: name one with --workspace",
                text);
        return NULL;
    } else if (text[0] != '/')
        path = arena_printf(s->arena, "%s/%s", s->workspace, text);
    if (path && realpath(path, real))
        return arena_copy(s->arena, real, strlen(real));
    if (!path || strstr(path, "..")) {
        err_set(s->err, ERR_INVALID, 0, "'%.200s' is not there, and '..' leads nowhere", text);
        return NULL;
    }
    return path;
}

/* Whether it is `top`, or below. */
static bool is_in(const char *path, const char *top)
{
    size_t n = strcmp(top, "/") == 0 ? 0 : strlen(top);

    return strncmp(path, top, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int mount(struct srt *s, const char *source, const char *target, bool writable)
{
    struct policy *p = s->policy;

    for (size_t i = 0; i < p->mount_count; i++) {
        struct carrel_mount *m = &p->mounts[i];
        if (strcmp(m->target, target) == 0) {
            m->writable = m->writable && writable;
            return 0;
        }
    }
    if (p->mount_count == POLICY_MAX_MOUNTS)
        return err_set(s->err, ERR_LIMIT, 0, "more than %d paths to mount", POLICY_MAX_MOUNTS);
    p->mounts[p->mount_count++] =
        (struct carrel_mount){.source = source, .target = target, .writable = writable};
    return 0;
}

/* What is in every sandbox, of its own or read-only. */
static bool is_own(const char *path)
{
    static const char *const own[] = {"/tmp", "/dev", "/proc", "/etc", "/private/tmp"};

    for (size_t i = 0; i < LENGTH(own); i++) {
        if (is_in(path, own[i]))
            return true;
    }
    return false;
}

static bool is_system(const char *path)
{
    static const char *const places[] = {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"};

    for (size_t i = 0; i < LENGTH(places); i++) {
        if (is_in(path, places[i]) || is_in(places[i], path))
            return true;
    }
    return false;
}

static int allow_write(struct srt *s, const char *text)
{
    const char *path = resolve(s, text);

    if (!path)
        return -1;
    if (s->workspace && is_in(path, s->workspace)) {
        s->tree = s->tree || strcmp(path, s->workspace) == 0;
        return 0;
    }
    if (is_own(path) || access(path, F_OK) < 0)
        return 0;
    if (is_system(path) || (s->workspace && is_in(s->workspace, path)))
        return err_set(s->err, ERR_INVALID, 0,
                       "'%.200s' holds the system, or the workspace: name \".\" and directories "
                       "beside it",
                       text);
    return mount(s, path, path, true);
}

static bool may_be_written(const struct srt *s, const char *path)
{
    for (size_t i = 0; i < s->policy->mount_count; i++) {
        if (s->policy->mounts[i].writable && is_in(path, s->policy->mounts[i].source))
            return true;
    }
    return s->workspace && is_in(path, s->workspace);
}

static int deny_path(struct srt *s, const char *path)
{
    bool in_tree = s->workspace && is_in(path, s->workspace);

    return mount(s, path, in_tree ? path + strlen(s->workspace) : path, false);
}

static int deny_write(struct srt *s, const char *text)
{
    const char *path = resolve(s, text);

    if (!path)
        return -1;
    if (s->workspace && is_in(s->workspace, path))
        return err_set(s->err, ERR_INVALID, 0,
                       "'%.200s' cannot be kept: a workspace can be written to; use --plan, and "
                       "apply nothing",
                       text);
    if (!may_be_written(s, path))
        return 0;
    if (access(path, F_OK) < 0)
        return err_set(s->err, ERR_INVALID, 0,
                       "'%.200s' is not there, so that it cannot be kept from being made: make it, "
                       "or leave it out",
                       text);
    return deny_path(s, path);
}

/* What srt protects whatever it is told. */
static int deny_usual(struct srt *s, bool git_config)
{
    static const char *const usual[] = {
        ".git/hooks",    ".git/config", ".gitconfig", ".gitmodules",      ".bashrc",
        ".bash_profile", ".zshrc",      ".zprofile",  ".profile",         ".ripgreprc",
        ".mcp.json",     ".vscode",     ".idea",      ".claude/commands", ".claude/agents"};

    for (size_t i = 0; s->workspace && i < LENGTH(usual); i++) {
        const char *path = arena_printf(s->arena, "%s/%s", s->workspace, usual[i]);
        if (!path)
            return err_set(s->err, ERR_LIMIT, 0, "out of memory");
        if ((git_config && strcmp(usual[i], ".git/config") == 0) || access(path, F_OK) < 0)
            continue;
        if (deny_path(s, path) < 0)
            return -1;
    }
    return 0;
}

/* Whether allowRead shows it as a mount of its own. */
static bool is_shown(const struct srt *s, const char *path)
{
    return access(path, F_OK) == 0 && !is_own(path) && !is_system(path) &&
           !may_be_written(s, path) && !(s->workspace && is_in(s->workspace, path));
}

/* allowRead wins over denyRead, unless that is more exact. *ret: the part of `path` that is seen
 * here is allowed again; *ret_shown: it is in something larger that is shown. */
static int look_at_allowed(const struct srt *s, const char *path, bool *ret, bool *ret_shown)
{
    bool above = s->workspace && is_in(s->workspace, path);
    const json_t *item;
    size_t i;

    *ret = *ret_shown = false;
    json_array_foreach((json_t *)(uintptr_t)s->allow_read, i, item)
    {
        const char *allowed = resolve(s, json_string_value(item));
        if (!allowed)
            return -1;
        bool same = strcmp(allowed, path) == 0;
        *ret = *ret || same || (above && is_in(allowed, path) && is_in(s->workspace, allowed));
        *ret_shown = *ret_shown || (!same && is_in(path, allowed) && is_shown(s, allowed));
    }
    return 0;
}

static int deny_read(struct srt *s, const char *text)
{
    const char *path = resolve(s, text);
    bool again;
    bool shown;

    if (!path || look_at_allowed(s, path, &again, &shown) < 0)
        return -1;
    bool above = s->workspace && is_in(s->workspace, path);
    bool elsewhere = !above && !may_be_written(s, path) && !shown;
    /* Of what is above, the workspace alone is seen; and nothing of what is elsewhere. */
    if ((again && !shown && strcmp(path, "/") != 0) || (elsewhere && !is_system(path)))
        return 0;
    return err_set(s->err, ERR_INVALID, 0,
                   "'%.200s' cannot be kept: Carrel shows the system, the workspace and what is "
                   "allowed, as a whole",
                   text);
}

static int allow_read(struct srt *s, const char *text)
{
    const char *path = resolve(s, text);

    if (!path)
        return -1;
    return is_shown(s, path) ? mount(s, path, path, false) : 0;
}

static int each(struct srt *s, const json_t *object, const char *name,
                int (*one)(struct srt *, const char *))
{
    const json_t *item;
    size_t i;

    json_array_foreach(json_object_get(object, name), i, item)
    {
        if (one(s, json_string_value(item)) < 0)
            return err_wrap(s->err, "\"%s\"", name);
    }
    return 0;
}

static int read_paths(struct srt *s, const json_t *filesystem)
{
    s->allow_read = json_object_get(filesystem, "allowRead");
    if (s->allow_read && check_list(s, "allowRead", s->allow_read) < 0)
        return -1;
    if (each(s, filesystem, "allowWrite", allow_write) < 0)
        return -1;
    if (s->workspace && !s->tree)
        return err_set(s->err, ERR_INVALID, 0,
                       "\"allowWrite\" does not name the workspace, which can be written to: add "
                       "\".\", or leave --workspace out");
    if (each(s, filesystem, "denyWrite", deny_write) < 0 ||
        deny_usual(s, json_is_true(json_object_get(filesystem, "allowGitConfig"))) < 0 ||
        each(s, filesystem, "denyRead", deny_read) < 0)
        return -1;
    return each(s, filesystem, "allowRead", allow_read);
}

int srt_read(struct policy *ret, struct arena *arena, const json_t *root, const char *workspace,
             struct err *err)
{
    const json_t *network = json_object_get(root, "network");
    const json_t *filesystem = json_object_get(root, "filesystem");
    char real[PATH_MAX];
    struct srt s = {.policy = ret, .arena = arena, .err = err};

    memset(ret, 0, sizeof(*ret));
    if (workspace && !(s.workspace = realpath(workspace, real)))
        return err_set(err, ERR_NOT_FOUND, 0, "'%.200s', the workspace, is not there yet: make it",
                       workspace);
    if (!json_is_object(network) || !json_is_object(filesystem))
        return err_set(err, ERR_INVALID, 0,
                       "srt's settings have \"network\" and \"filesystem\", both objects");
    if (check_object(&s, root, tops, LENGTH(tops)) < 0 ||
        check_object(&s, network, networks, LENGTH(networks)) < 0 ||
        check_object(&s, filesystem, filesystems, LENGTH(filesystems)) < 0 ||
        read_names(&s, network) < 0 || read_paths(&s, filesystem) < 0)
        return -1;
    return 0;
}
