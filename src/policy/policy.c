/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/near.h"
#include "policy/network_policy.h"
#include "policy/network_sets.h"
#include "policy/reader.h"
#include "policy/srt.h"
#include "policy/units.h"

#define POLICY_MAX_BYTES (256UL << 10)

static int unknown(struct reader *r, const char *name, const struct key *keys, size_t count)
{
    char hint[NEAR_HINT];
    char known[256] = "";

    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", keys[i].name);
    }
    return err_set(r->err, ERR_INVALID, 0, "policy: unknown key \"%.40s\"; known are: %s%s", name,
                   known, near_hint(hint, name, strlen(name), keys, count, sizeof(keys[0])));
}

static int wrong(struct reader *r, const char *key, const char *expected)
{
    return err_set(r->err, ERR_INVALID, 0, "policy: \"%s\" must be %s", key, expected);
}

const char *reader_text(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || strlen(text) != json_string_length(value))
        return NULL;
    return arena_copy(r->arena, text, strlen(text));
}

int reader_object(struct reader *r, const json_t *object, const struct key *keys, size_t count)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        const struct key *key = NULL;
        for (size_t i = 0; i < count; i++) {
            if (strcmp(keys[i].name, name) == 0)
                key = &keys[i];
        }
        if (!key)
            return unknown(r, name, keys, count);
        int result = key->read(r, value);
        if (result < 0)
            return result == -ECANCELED ? -1 : wrong(r, key->name, key->expected);
    }
    return 0;
}

static int read_level(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (text && strcmp(text, "ns") == 0)
        r->policy->level = CARREL_LEVEL_NS;
    else if (text && strcmp(text, "dir") == 0)
        r->policy->level = CARREL_LEVEL_DIR;
    else
        return -EINVAL;
    return 0;
}

static int read_network(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (json_is_object(value))
        return network_policy_read(r, value);
    if (text && strcmp(text, "none") == 0)
        r->policy->net = CARREL_NET_NONE;
    else if (text && strcmp(text, "host") == 0)
        r->policy->net = CARREL_NET_HOST;
    else
        return -EINVAL;
    return 0;
}

static int read_user(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || (strcmp(text, "user") != 0 && strcmp(text, "root") != 0))
        return -EINVAL;
    r->policy->user = strcmp(text, "root") == 0 ? CARREL_USER_ROOT : CARREL_USER_USER;
    return 0;
}

#define DEFAULT_BASE "debian-12"

static int read_base(struct reader *r, const json_t *value)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    const char *text = reader_text(r, value);
    size_t n = text ? strlen(text) : 0;

    if (n == 0 || n > 32 || text[0] == '-' || strspn(text, allowed) != n)
        return -EINVAL;
    r->policy->base = text;
    return 0;
}

static int read_root(struct reader *r, const json_t *value)
{
    r->policy->no_root = json_is_false(value);
    return json_is_boolean(value) ? 0 : -EINVAL;
}

static int read_sudo(struct reader *r, const json_t *value)
{
    r->policy->no_sudo = json_is_false(value);
    return json_is_boolean(value) ? 0 : -EINVAL;
}

static const struct key system_keys[] = {
    {"base", "the name of a base, such as \"" DEFAULT_BASE "\"", read_base},
    {"root", "true or false", read_root},
    {"sudo", "true or false", read_sudo},
};

/* true, the name of a base, or both in an object. */
static int read_system(struct reader *r, const json_t *value)
{
    if (json_is_string(value))
        return read_base(r, value);
    if (json_is_boolean(value) || json_is_object(value))
        r->policy->base = json_is_false(value) ? NULL : DEFAULT_BASE;
    if (json_is_boolean(value))
        return 0;
    if (!json_is_object(value))
        return -EINVAL;
    int result = reader_object(r, value, system_keys, sizeof(system_keys) / sizeof(system_keys[0]));
    return result < 0 ? -ECANCELED : 0;
}

static int read_tmp(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || (strcmp(text, "sandbox") != 0 && strcmp(text, "exec") != 0))
        return -EINVAL;
    r->policy->tmp_exec = strcmp(text, "exec") == 0;
    return 0;
}

static struct carrel_mount *last_mount(struct reader *r)
{
    return &r->policy->mounts[r->policy->mount_count - 1];
}

static int read_source(struct reader *r, const json_t *value)
{
    const char *text = reader_text(r, value);

    if (!text || text[0] != '/')
        return -EINVAL;
    last_mount(r)->source = text;
    return 0;
}

static int read_target(struct reader *r, const json_t *value)
{
    const char *text = reader_text(r, value);

    if (!text || text[0] != '/')
        return -EINVAL;
    last_mount(r)->target = text;
    return 0;
}

static int read_writable(struct reader *r, const json_t *value)
{
    if (!json_is_boolean(value))
        return -EINVAL;
    last_mount(r)->writable = json_is_true(value);
    return 0;
}

static const struct key mount_keys[] = {
    {"source", "an absolute path", read_source},
    {"target", "an absolute path", read_target},
    {"writable", "true or false", read_writable},
};

static struct policy_store *last_store(struct reader *r)
{
    return &r->policy->stores[r->policy->store_count - 1];
}

static int read_store(struct reader *r, const json_t *value)
{
    static const char others[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const char *text = reader_text(r, value);
    size_t n = text ? strlen(text) : 0;

    if (n == 0 || n > POLICY_STORE || strspn(text, others) != n || strchr("._-", *text))
        return -EINVAL;
    last_store(r)->store = text;
    return 0;
}

/* On the way to one that does not answer nothing may hang: a name at the top. */
static int read_at(struct reader *r, const json_t *value)
{
    const char *text = reader_text(r, value);

    if (!text || text[0] != '/' || text[1] == '\0' || strchr(text + 1, '/') ||
        strlen(text) > NAME_MAX || strcmp(text, "/.") == 0 || strcmp(text, "/..") == 0)
        return -EINVAL;
    last_store(r)->at = text;
    return 0;
}

static int read_mode(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (text && strcmp(text, "plan") == 0) {
        err_set(r->err, ERR_KERNEL, 0,
                "policy: a store cannot be mounted with \"mode\": \"plan\" yet; \"ro\" shows it, "
                "and \"rw\" has changes go there at once");
        return -ECANCELED;
    }
    if (!text || (strcmp(text, "ro") != 0 && strcmp(text, "rw") != 0))
        return -EINVAL;
    last_store(r)->writable = strcmp(text, "rw") == 0;
    return 0;
}

static const struct key store_keys[] = {
    {"store", "the name of a store", read_store},
    {"at", "a name at the top, such as \"/projects\"", read_at},
    {"mode", "\"ro\", \"rw\" or \"plan\"", read_mode},
};

/* One of the mounts that names a store of the daemon's. */
static int read_store_mount(struct reader *r, const json_t *item)
{
    if (r->policy->store_count == POLICY_MAX_STORES)
        return -EINVAL;
    r->policy->stores[r->policy->store_count++] = (struct policy_store){.store = NULL};
    if (reader_object(r, item, store_keys, sizeof(store_keys) / sizeof(store_keys[0])) < 0)
        return -ECANCELED;
    if (!last_store(r)->at)
        return -EINVAL;
    for (size_t i = 0; i + 1 < r->policy->store_count; i++) {
        if (strcmp(r->policy->stores[i].at, last_store(r)->at) == 0)
            return -EINVAL;
    }
    return 0;
}

static int read_mounts(struct reader *r, const json_t *value)
{
    int result;
    json_t *item;
    size_t i;

    if (!json_is_array(value))
        return -EINVAL;
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        if (json_object_get(item, "store")) {
            if ((result = read_store_mount(r, item)) < 0)
                return result;
            continue;
        }
        if (!json_is_object(item) || r->policy->mount_count == POLICY_MAX_MOUNTS)
            return -EINVAL;
        r->policy->mounts[r->policy->mount_count++] = (struct carrel_mount){0};
        if (reader_object(r, item, mount_keys, sizeof(mount_keys) / sizeof(mount_keys[0])) < 0)
            return -ECANCELED;
        if (!last_mount(r)->source)
            return -EINVAL;
    }
    return 0;
}

static int read_env(struct reader *r, const json_t *value)
{
    const char *name;
    json_t *item;

    if (!json_is_object(value))
        return -EINVAL;
    json_object_foreach((json_t *)(uintptr_t)value, name, item)
    {
        const char *text = reader_text(r, item);
        if (!text || !*name || strchr(name, '=') || r->policy->env_count == POLICY_MAX_ENV)
            return -EINVAL;
        char *joined = arena_printf(r->arena, "%s=%s", name, text);
        if (!joined)
            return -EINVAL;
        r->policy->env[r->policy->env_count++] = joined;
    }
    return 0;
}

static int read_timeout(struct reader *r, const json_t *value)
{
    return json_is_string(value)
               ? units_parse_duration(json_string_value(value), &r->policy->timeout_ms)
               : -EINVAL;
}

int reader_size(const json_t *value, uint64_t *ret)
{
    if (json_is_integer(value) && json_integer_value(value) > 0) {
        *ret = (uint64_t)json_integer_value(value);
        return *ret > (1ULL << 60) ? -ERANGE : 0;
    }
    return json_is_string(value) ? units_parse_size(json_string_value(value), ret) : -EINVAL;
}

static int read_tmp_size(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->tmp_bytes);
}

static int read_max_output(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->output_bytes);
}

static int read_memory(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->limits.memory_bytes);
}

int reader_count(const json_t *value, uint64_t most, uint64_t *ret)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    return json_is_integer(value) ? units_parse_count(text, most, ret) : -EINVAL;
}

static int read_pids(struct reader *r, const json_t *value)
{
    return reader_count(value, UNITS_MOST_PIDS, &r->policy->limits.pids);
}

/* A number, or text: what has no exact fraction in binary is rounded to the thousandths meant. */
static int read_cpu(struct reader *r, const json_t *value)
{
    char text[32];

    if (json_is_string(value))
        return units_parse_cpu(json_string_value(value), &r->policy->limits.cpu_milli);
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number > 0) || number > 1000000)
        return -EINVAL;
    snprintf(text, sizeof(text), "%.3f", number);
    return units_parse_cpu(text, &r->policy->limits.cpu_milli);
}

static int read_io(struct reader *r, const json_t *value)
{
    return reader_size(value, &r->policy->limits.io_bytes);
}

static int read_disk(struct reader *r, const json_t *value)
{
    struct carrel_limits *limits = &r->policy->limits;

    if (json_is_string(value))
        return units_parse_disk(json_string_value(value), &limits->disk_bytes, &limits->disk_image);
    return reader_size(value, &limits->disk_bytes);
}

static int read_files(struct reader *r, const json_t *value)
{
    return reader_count(value, UNITS_MOST_FILES, &r->policy->limits.disk_files);
}

static const struct key limit_keys[] = {
    {"timeout", "a duration such as \"30s\" or \"5m\"", read_timeout},
    {"tmp_size", "a size such as \"64M\" (K, M, G or T)", read_tmp_size},
    {"max_output", "a size such as \"1M\" (K, M, G or T)", read_max_output},
    {"memory", "a size such as \"256M\" (K, M, G or T)", read_memory},
    {"pids", "a whole number from 1 to 999999", read_pids},
    {"cpu", "a number of processors such as 1.5, at least 0.01", read_cpu},
    {"io", "a size a second such as \"10M\" (K, M, G or T)", read_io},
    {"disk", "a size such as \"2G\" or \"image:2G\"", read_disk},
    {"files", "a whole number from 1 to 1000000000", read_files},
};

static int read_limits(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return -EINVAL;
    int result = reader_object(r, value, limit_keys, sizeof(limit_keys) / sizeof(limit_keys[0]));
    return result < 0 ? -ECANCELED : 0;
}

static int read_writes(struct reader *r, const json_t *value)
{
    const char *text = json_string_value(value);

    if (!text || (strcmp(text, "direct") != 0 && strcmp(text, "plan") != 0))
        return -EINVAL;
    r->policy->writes = strcmp(text, "plan") == 0 ? POLICY_WRITES_PLAN : POLICY_WRITES_DIRECT;
    return 0;
}

static int read_every(struct reader *r, const json_t *value)
{
    return json_is_string(value)
               ? units_parse_duration(json_string_value(value), &r->policy->snapshots_every_ms)
               : -EINVAL;
}

static int read_kept(struct reader *r, const json_t *value)
{
    return reader_count(value, 100, &r->policy->snapshots_keep);
}

static const struct key snapshot_keys[] = {
    {"every", "a duration such as \"30m\"", read_every},
    {"keep", "a whole number from 1 to 100", read_kept},
};

static int read_snapshots(struct reader *r, const json_t *value)
{
    if (!json_is_object(value))
        return -EINVAL;
    return reader_object(r, value, snapshot_keys,
                         sizeof(snapshot_keys) / sizeof(snapshot_keys[0])) < 0
               ? -ECANCELED
               : 0;
}

static const struct key policy_keys[] = {
    {"level", "\"ns\" or \"dir\"", read_level},
    {"network", "\"none\", \"host\" or an object such as {\"allow\": [\"HOST\"]}", read_network},
    {"user", "\"user\" or \"root\"", read_user},
    {"system",
     "true, false, the name of a base or an object such as {\"base\": \"" DEFAULT_BASE "\"}",
     read_system},
    {"tmp", "\"sandbox\" or \"exec\"", read_tmp},
    {"mounts",
     "a list of at most 64 objects with source, target and writable, and 16 with store, at and "
     "mode",
     read_mounts},
    {"env", "an object of at most 256 strings", read_env},
    {"limits", "an object of limits such as \"timeout\": \"30s\"", read_limits},
    {"plan", "an object such as {\"approval\": \"required\"}", plan_policy_read},
    {"writes", "\"direct\" or \"plan\"", read_writes},
    {"snapshots", "an object such as {\"every\": \"30m\", \"keep\": 24}", read_snapshots},
};

int policy_parse(struct policy *ret, struct arena *arena, const char *bytes, size_t n,
                 struct err *err)
{
    json_error_t where;
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES, &where);
    struct reader r = {.policy = ret, .arena = arena, .err = err};

    memset(ret, 0, sizeof(*ret));
    if (!root)
        return err_set(err, ERR_INVALID, 0, "policy: line %d, column %d: %s", where.line,
                       where.column, where.text);
    int result =
        json_is_object(root)
            ? reader_object(&r, root, policy_keys, sizeof(policy_keys) / sizeof(policy_keys[0]))
            : err_set(err, ERR_INVALID, 0, "policy: must be a JSON object");
    json_decref(root);
    if (result == 0 && ret->writes == POLICY_WRITES_PLAN && ret->limits.disk_image)
        return err_set(err, ERR_INVALID, 0,
                       "policy: \"writes\": \"plan\" does not go with a disk in an image, of which "
                       "no plan can be made; give \"disk\" as a size without \"image:\"");
    return result;
}

/* 1: read as that; 0: it is something else; -1: it cannot be kept. */
static int parse_srt(struct policy *ret, struct arena *arena, const struct buf *b,
                     const char *workspace, struct err *err)
{
    json_t *root = json_loadb(b->p, b->n, JSON_REJECT_DUPLICATES, NULL);
    int r = root && srt_is(root) ? 1 : 0;

    if (r > 0 && srt_read(ret, arena, root, workspace, err) < 0)
        r = err_wrap(err, "srt's settings");
    json_decref(root);
    return r;
}

int policy_load(struct policy *ret, struct arena *arena, const char *path, const char *workspace,
                struct err *err)
{
    scoped_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    scoped_buf struct buf b;
    struct stat st;
    char chunk[4096];
    ssize_t got = 0;

    buf_init(&b, POLICY_MAX_BYTES);
    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open policy '%s'", path);
    if (fstat(fd, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)))
        return err_set(err, ERR_INVALID, 0, "policy '%s' is not a file", path);
    (void)fcntl(fd, F_SETFL, 0); /* only the open was not to wait */
    while (!b.failed && (got = read(fd, chunk, sizeof(chunk))) > 0)
        buf_add(&b, chunk, (size_t)got);
    if (got < 0)
        return err_set(err, ERR_IO, errno, "read policy '%s'", path);
    if (buf_done(&b) < 0)
        return err_set(err, ERR_LIMIT, 0, "policy '%s' is larger than %lu KiB", path,
                       POLICY_MAX_BYTES >> 10);
    int r = parse_srt(ret, arena, &b, workspace, err);
    if (r == 0)
        r = policy_parse(ret, arena, b.p, b.n, err);
    return r < 0 ? err_wrap(err, "'%s'", path) : 0;
}

int policy_expand_sets(struct policy *policy, struct arena *arena, const char *dir, struct err *err)
{
    const char *const *rules;
    size_t n = 0;

    policy->net_rules[policy->net_rule_count] = NULL;
    if (network_sets_expand(policy->net_rules, dir, NULL, arena, &rules, err) < 0)
        return err_wrap(err, "policy: \"network\"");
    for (; rules[n]; n++)
        policy->net_rules[n] = rules[n];
    policy->net_rule_count = n;
    return 0;
}

static int narrow(uint64_t *asked, uint64_t allowed, const char *flag, enum units_kind kind,
                  struct err *err)
{
    char much[UNITS_TEXT];
    char most[UNITS_TEXT];

    if (!allowed)
        return 0;
    if (*asked > allowed)
        return err_set(err, ERR_DENIED, 0, "%s %s goes beyond the policy's limit of %s", flag,
                       units_text(kind, *asked, much), units_text(kind, allowed, most));
    if (!*asked)
        *asked = allowed;
    return 0;
}

/* Level and network: the policy's is the widest; one that is silent allows the default only. */
static int narrow_reach(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                        struct err *err)
{
    if (spec->level == CARREL_LEVEL_DIR && policy->level != CARREL_LEVEL_DIR)
        return err_set(
            err, ERR_DENIED, 0,
            "--level dir is weaker than the policy allows (add \"level\": \"dir\" to it)");
    if (spec->net == CARREL_NET_HOST && policy->net != CARREL_NET_HOST)
        return err_set(err, ERR_DENIED, 0,
                       "--net host is forbidden by the policy (add \"network\": \"host\" to it)");
    if (spec->user == CARREL_USER_ROOT && policy->user != CARREL_USER_ROOT)
        return err_set(err, ERR_DENIED, 0,
                       "--user root is forbidden by the policy (add \"user\": \"root\" to it)");
    if (policy->user != CARREL_USER_ROOT)
        spec->no_sudo = true;
    if (spec->mount_count)
        return err_set(
            err, ERR_DENIED, 0,
            "--ro, --rw and --layer do not go with --policy: list mounts under \"mounts\" in it");
    if (spec->level == CARREL_LEVEL_AUTO)
        spec->level = policy->level;
    if (spec->user == CARREL_USER_DEFAULT)
        spec->user = policy->user;
    if (network_policy_apply(policy, arena, spec, err) < 0)
        return -1;
    if (spec->net == CARREL_NET_DEFAULT)
        spec->net = policy->net; /* "none" at level dir is refused later: it could not be kept */
    return 0;
}

static int narrow_limits(const struct policy *policy, struct carrel_spec *spec, struct err *err)
{
    const struct carrel_limits *allowed = &policy->limits;
    struct carrel_limits *asked = &spec->limits;

    if (narrow(&asked->memory_bytes, allowed->memory_bytes, "--memory", UNITS_SIZE, err) < 0 ||
        narrow(&asked->pids, allowed->pids, "--pids", UNITS_COUNT, err) < 0 ||
        narrow(&asked->cpu_milli, allowed->cpu_milli, "--cpu", UNITS_CPU, err) < 0 ||
        narrow(&asked->io_bytes, allowed->io_bytes, "--io", UNITS_SIZE, err) < 0 ||
        narrow(&asked->disk_bytes, allowed->disk_bytes, "--disk", UNITS_SIZE, err) < 0 ||
        narrow(&asked->disk_files, allowed->disk_files, "--files", UNITS_COUNT, err) < 0)
        return -1;
    asked->disk_image = asked->disk_image || allowed->disk_image; /* the kernel's is the stricter */
    return 0;
}

int policy_apply(const struct policy *policy, struct arena *arena, struct carrel_spec *spec,
                 struct err *err)
{
    bool asked_tmp = spec->tmp_bytes != 0;
    size_t own = 0;

    if (narrow_reach(policy, arena, spec, err) < 0 ||
        narrow(&spec->timeout_ms, policy->timeout_ms, "--timeout", UNITS_DURATION, err) < 0 ||
        narrow(&spec->tmp_bytes, policy->tmp_bytes ? policy->tmp_bytes : CARREL_DEFAULT_TMP_BYTES,
               "--tmp-size", UNITS_SIZE, err) < 0 ||
        narrow(&spec->output_bytes, policy->output_bytes, "--max-output", UNITS_SIZE, err) < 0 ||
        narrow_limits(policy, spec, err) < 0)
        return -1;
    if (!policy->tmp_bytes && !asked_tmp)
        spec->tmp_bytes = 0; /* the default, which depends on the level and on the memory */
    spec->mounts = policy->mounts;
    spec->mount_count = policy->mount_count;
    while (spec->env && spec->env[own])
        own++;
    const char **joined = arena_alloc(arena, (policy->env_count + own + 1) * sizeof(char *));
    if (!joined)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (own)
        memcpy(joined, spec->env, own * sizeof(char *));
    /* The policy's come last: they win over the caller's. */
    if (policy->env_count)
        memcpy(joined + own, policy->env, policy->env_count * sizeof(char *));
    spec->env = joined;
    return 0;
}
