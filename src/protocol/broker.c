/* SPDX-License-Identifier: Apache-2.0 */
#include "protocol/broker.h"

#include <math.h>
#include <string.h>

#include "base/pack.h"
#include "base/seal.h"
#include "protocol/egress.h"

enum {
    MOST_ARGS = 32768,
    MOST_ENV = 4096,
    MOST_MOUNTS = 3 * 64,
    MOST_SHARED = 3 * 3,
    MOST_STORES = 3 * 16,
    LONGEST_PATH = 4095,
    LARGEST_TERMINAL = 65535,
    LONGEST_RULE = 512,
};

#define LARGEST (1ULL << 60)

static const char *get_id(struct unpack *u, bool may_be_empty)
{
    const char *id = unpack_bounded(u, PROTOCOL_ID);

    if (!protocol_id_is_valid(id) && !(may_be_empty && *id == '\0'))
        u->failed = true;
    return id;
}

static const char *get_exec_id(struct unpack *u)
{
    const char *id = unpack_bounded(u, PROTOCOL_EXEC_ID);

    if (!protocol_exec_id_is_valid(id))
        u->failed = true;
    return id;
}

static bool get_bool(struct unpack *u)
{
    return unpack_upto(u, 1) == 1;
}

static void put_double(struct buf *b, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof(bits));
    pack_u64(b, bits);
}

static double get_double(struct unpack *u)
{
    uint64_t bits = unpack_u64(u);
    double number;

    memcpy(&number, &bits, sizeof(number));
    if (!isfinite(number) || signbit(number))
        u->failed = true;
    return u->failed ? 0 : number;
}

static void put_limits(struct buf *b, const struct carrel_limits *limits)
{
    pack_u64(b, limits->memory_bytes);
    pack_u64(b, limits->pids);
    pack_u64(b, limits->cpu_milli);
    pack_u64(b, limits->io_bytes);
    pack_u64(b, limits->disk_bytes);
    pack_u64(b, limits->disk_files);
    pack_u64(b, limits->disk_image);
}

static struct carrel_limits get_limits(struct unpack *u)
{
    struct carrel_limits limits;

    limits.memory_bytes = unpack_upto(u, LARGEST);
    limits.pids = unpack_upto(u, LARGEST);
    limits.cpu_milli = unpack_upto(u, LARGEST);
    limits.io_bytes = unpack_upto(u, LARGEST);
    limits.disk_bytes = unpack_upto(u, LARGEST);
    limits.disk_files = unpack_upto(u, LARGEST);
    limits.disk_image = get_bool(u);
    return limits;
}

static void put_spec(struct buf *b, const struct spec_message *m)
{
    pack_u64(b, m->level);
    pack_u64(b, m->net);
    pack_list(b, m->net_rules);
    pack_u64(b, m->net_connections);
    pack_u64(b, m->net_bytes_per_hour);
    pack_u64(b, m->user);
    put_limits(b, &m->limits);
    pack_u64(b, m->tmp_bytes);
    pack_u64(b, m->tmp_exec);
    pack_list(b, m->env);
    pack_list(b, m->mounts);
    pack_list(b, m->shared);
    pack_list(b, m->stores);
    pack_string(b, m->template);
    pack_string(b, m->base);
    pack_u64(b, m->no_sudo);
    pack_string(b, m->owner);
}

/* "NAME=value" each. */
static const char *const *get_env(struct unpack *u, struct arena *arena)
{
    const char **list = unpack_list(u, arena, MOST_ENV);

    for (size_t i = 0; list && list[i]; i++) {
        const char *sign = strchr(list[i], '=');
        if (!sign || sign == list[i])
            u->failed = true;
    }
    return list;
}

/* Threes: source, target, and "ro" or "rw". */
static const char *const *get_mounts(struct unpack *u, struct arena *arena, size_t most)
{
    const char **list = unpack_list(u, arena, most);
    size_t n = 0;

    for (; list && list[n]; n++) {
        bool is_mode = n % 3 == 2;
        if (is_mode && strcmp(list[n], "ro") != 0 && strcmp(list[n], "rw") != 0)
            u->failed = true;
        if (!is_mode && strlen(list[n]) > LONGEST_PATH)
            u->failed = true;
    }
    if (n % 3 != 0)
        u->failed = true;
    return list;
}

#define SHARED_BELOW "skills/"

static bool is_tree(const char *shared)
{
    return strchr(shared, '/') == NULL;
}

/* Only what nobody has to look up: a name below one directory of the bucket, or an id. */
static const char *const *get_shared(struct unpack *u, struct arena *arena)
{
    const char *const *list = get_mounts(u, arena, MOST_SHARED);
    size_t below = strlen(SHARED_BELOW);
    size_t trees = 0;

    for (size_t i = 0; !u->failed && list[i]; i += 3) {
        bool tree = is_tree(list[i]);
        bool is_named = tree || strncmp(list[i], SHARED_BELOW, below) == 0;
        trees += tree;
        if (!is_named || !protocol_id_is_valid(list[i] + (tree ? 0 : below)) || trees > 1 ||
            (!tree && strcmp(list[i + 2], "ro") != 0))
            u->failed = true;
    }
    return list;
}

/* Where they are shown is a name at the top. */
static const char *const *get_stores(struct unpack *u, struct arena *arena)
{
    const char *const *list = get_mounts(u, arena, MOST_STORES);

    for (size_t i = 0; !u->failed && list[i]; i += 3) {
        if (!protocol_id_is_valid(list[i]) || list[i + 1][0] != '/' || strchr(list[i + 1] + 1, '/'))
            u->failed = true;
    }
    return list;
}

const char *protocol_shown(const struct spec_message *m)
{
    for (size_t i = 0; m->shared && m->shared[i]; i += 3) {
        if (is_tree(m->shared[i]))
            return m->shared[i];
    }
    return "";
}

/* Whether they are rules is the broker's to see. */
static const char *const *get_rules(struct unpack *u, struct arena *arena)
{
    const char **list = unpack_list(u, arena, EGRESS_RULES);

    for (size_t i = 0; list && list[i]; i++) {
        if (strlen(list[i]) > LONGEST_RULE)
            u->failed = true;
    }
    return list;
}

static void get_spec(struct unpack *u, struct arena *arena, struct spec_message *ret)
{
    ret->level = unpack_upto(u, CARREL_LEVEL_NS);
    ret->net = unpack_upto(u, CARREL_NET_ALLOW);
    ret->net_rules = get_rules(u, arena);
    ret->net_connections = unpack_upto(u, LARGEST);
    ret->net_bytes_per_hour = unpack_upto(u, LARGEST);
    ret->user = unpack_upto(u, CARREL_USER_ROOT);
    ret->limits = get_limits(u);
    ret->tmp_bytes = unpack_upto(u, LARGEST);
    ret->tmp_exec = get_bool(u);
    ret->env = get_env(u, arena);
    ret->mounts = get_mounts(u, arena, MOST_MOUNTS);
    ret->shared = get_shared(u, arena);
    ret->stores = get_stores(u, arena);
    ret->template = unpack_bounded(u, PROTOCOL_EXEC_ID);
    if (*ret->template && !protocol_template_id_is_valid(ret->template))
        u->failed = true;
    ret->base = unpack_bounded(u, PROTOCOL_ID);
    if (*ret->base && !protocol_id_is_valid(ret->base))
        u->failed = true;
    ret->no_sudo = get_bool(u);
    ret->owner = unpack_bounded(u, PROTOCOL_ID);
    if (*ret->owner && !protocol_id_is_valid(ret->owner))
        u->failed = true;
}

void protocol_pack_exec(struct buf *b, uint64_t tag, const struct exec_message *m)
{
    pack_u64(b, tag);
    pack_string(b, m->bucket);
    pack_string(b, m->workspace);
    pack_string(b, m->exec);
    pack_string(b, m->plan);
    pack_string(b, m->actor);
    pack_string(b, m->request);
    put_spec(b, &m->spec);
    pack_list(b, m->argv);
    pack_list(b, m->env);
    pack_string(b, m->cwd);
    pack_u64(b, m->timeout_ms);
    pack_u64(b, m->quiet);
    pack_u64(b, m->tty);
    pack_u64(b, m->root);
    pack_u64(b, m->input);
    pack_u64(b, m->rows);
    pack_u64(b, m->columns);
    put_limits(b, &m->limits);
}

bool protocol_unpack_exec(char *bytes, size_t n, struct arena *arena, uint64_t *ret_tag,
                          struct exec_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    ret->bucket = get_id(&u, false);
    ret->workspace = get_id(&u, false);
    ret->exec = get_exec_id(&u);
    ret->plan = unpack_bounded(&u, PROTOCOL_EXEC_ID);
    if (*ret->plan && !protocol_plan_id_is_valid(ret->plan))
        u.failed = true;
    ret->actor = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->request = unpack_bounded(&u, PROTOCOL_TEXT);
    get_spec(&u, arena, &ret->spec);
    ret->argv = unpack_list(&u, arena, MOST_ARGS);
    ret->env = get_env(&u, arena);
    ret->cwd = unpack_bounded(&u, LONGEST_PATH);
    ret->timeout_ms = unpack_upto(&u, LARGEST);
    ret->quiet = get_bool(&u);
    ret->tty = get_bool(&u);
    ret->root = get_bool(&u);
    ret->input = get_bool(&u);
    ret->rows = unpack_upto(&u, LARGEST_TERMINAL);
    ret->columns = unpack_upto(&u, LARGEST_TERMINAL);
    ret->limits = get_limits(&u);
    return unpack_done(&u) && ret->argv && ret->argv[0];
}

void protocol_pack_plan(struct buf *b, uint64_t tag, const struct plan_message *m)
{
    pack_u64(b, tag);
    pack_string(b, m->bucket);
    pack_string(b, m->workspace);
    pack_string(b, m->plan);
    pack_string(b, m->actor);
    pack_string(b, m->request);
    pack_string(b, m->base ? m->base : "");
    pack_string(b, m->theirs ? m->theirs : "");
    pack_u64(b, m->verb);
}

bool protocol_snapshot_is_valid(const char *text)
{
    char workspace[PROTOCOL_ID + 1];
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : 0;

    if (n == 0 || n > PROTOCOL_ID || !protocol_snapshot_id_is_valid(slash + 1))
        return false;
    memcpy(workspace, text, n);
    workspace[n] = '\0';
    return protocol_id_is_valid(workspace);
}

static const char *get_snapshot(struct unpack *u)
{
    const char *text = unpack_bounded(u, PROTOCOL_ID + PROTOCOL_EXEC_ID + 1);

    if (*text && !protocol_snapshot_is_valid(text))
        u->failed = true;
    return text;
}

bool protocol_unpack_plan(char *bytes, size_t n, uint64_t *ret_tag, struct plan_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    ret->bucket = get_id(&u, false);
    ret->workspace = get_id(&u, false);
    ret->plan = unpack_bounded(&u, PROTOCOL_EXEC_ID);
    ret->actor = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->request = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->base = get_snapshot(&u);
    ret->theirs = get_snapshot(&u);
    ret->verb = unpack_upto(&u, PLAN_VERB_COUNT_ - 1);
    return unpack_done(&u) && protocol_plan_id_is_valid(ret->plan);
}

static void put_usage(struct buf *b, const struct carrel_usage *usage)
{
    put_double(b, usage->cpu_user_ms);
    put_double(b, usage->cpu_system_ms);
    pack_u64(b, usage->peak_rss_bytes);
    pack_u64(b, usage->peak_memory_bytes);
    pack_u64(b, usage->processes);
    pack_u64(b, usage->written_bytes);
    pack_u64(b, usage->added_bytes);
    pack_u64(b, usage->overshoot_bytes);
}

static void get_usage(struct unpack *u, struct carrel_usage *ret)
{
    ret->cpu_user_ms = get_double(u);
    ret->cpu_system_ms = get_double(u);
    ret->peak_rss_bytes = unpack_u64(u);
    ret->peak_memory_bytes = unpack_u64(u);
    ret->processes = unpack_u64(u);
    ret->written_bytes = unpack_u64(u);
    ret->added_bytes = unpack_u64(u);
    ret->overshoot_bytes = unpack_u64(u);
}

static void put_denials(struct buf *b, const struct carrel_result *r)
{
    pack_u64(b, r->denial_count);
    for (size_t i = 0; i < r->denial_count; i++) {
        const struct carrel_denial *d = &r->denials[i];
        pack_string(b, d->what);
        pack_string(b, d->rule);
        pack_string(b, d->fix);
        pack_u64(b, d->source);
        pack_u64(b, d->count);
    }
}

static void get_into(struct unpack *u, char *text, size_t size)
{
    const char *got = unpack_bounded(u, size - 1);

    if (!u->failed)
        memcpy(text, got, strlen(got) + 1);
}

static void get_denials(struct unpack *u, struct arena *arena, struct carrel_result *ret)
{
    size_t n = (size_t)unpack_upto(u, CARREL_MAX_DENIALS);

    ret->denials = n ? arena_alloc(arena, n * sizeof(*ret->denials)) : NULL;
    if (n && !ret->denials)
        u->failed = true;
    for (size_t i = 0; i < n && !u->failed; i++) {
        struct carrel_denial *d = &ret->denials[i];
        get_into(u, d->what, sizeof(d->what));
        get_into(u, d->rule, sizeof(d->rule));
        get_into(u, d->fix, sizeof(d->fix));
        d->source = (enum carrel_source)unpack_upto(u, CARREL_SOURCE_INFERRED);
        d->count = (unsigned)unpack_upto(u, UINT32_MAX);
    }
    ret->denial_count = u->failed ? 0 : n;
}

void protocol_pack_ended(struct buf *b, const struct ended_message *m)
{
    const struct carrel_result *r = &m->result;

    pack_u64(b, m->tag);
    pack_string(b, m->exec);
    pack_string(b, m->workspace);
    pack_u64(b, (uint64_t)(uint8_t)r->exit_code);
    pack_u64(b, (uint64_t)(uint8_t)r->signal);
    pack_u64(b, r->reason);
    pack_u64(b, r->truncated);
    pack_u64(b, r->level);
    put_double(b, r->duration_ms);
    put_usage(b, &r->usage);
    put_denials(b, r);
    pack_u64(b, r->denials_dropped);
    pack_string(b, r->disk_method);
    pack_string(b, r->note);
    pack_u64(b, m->ended_at_ms);
    pack_string(b, m->why);
}

void protocol_pack_ended_flags(struct buf *b, uint64_t flags, int unrecorded)
{
    pack_u64(b, flags);
    pack_u64(b, (uint64_t)unrecorded);
}

void protocol_set_tag(struct buf *b, uint64_t tag)
{
    if (buf_done(b) == 0)
        memcpy(b->p, &tag, sizeof(tag));
}

bool protocol_unpack_ended(char *bytes, size_t n, struct arena *arena, struct ended_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};
    struct carrel_result *r = &ret->result;

    memset(ret, 0, sizeof(*ret));
    ret->tag = unpack_u64(&u);
    ret->exec = get_exec_id(&u);
    ret->workspace = get_id(&u, false);
    r->exit_code = (int)unpack_upto(&u, UINT8_MAX);
    r->signal = (int)unpack_upto(&u, UINT8_MAX);
    r->reason = (enum carrel_reason)unpack_upto(&u, CARREL_ENDED_DISK);
    r->truncated = get_bool(&u);
    r->level = (enum carrel_level)unpack_upto(&u, CARREL_LEVEL_NS);
    r->duration_ms = get_double(&u);
    get_usage(&u, &r->usage);
    get_denials(&u, arena, r);
    r->denials_dropped = (unsigned)unpack_upto(&u, UINT32_MAX);
    r->disk_method = unpack_bounded(&u, PROTOCOL_TEXT);
    if (*r->disk_method == '\0')
        r->disk_method = NULL;
    get_into(&u, r->note, sizeof(r->note));
    ret->ended_at_ms = unpack_u64(&u);
    ret->why = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->flags = unpack_upto(&u, ENDED_SETTLED | ENDED_GONE | ENDED_LAST);
    ret->unrecorded = (int)unpack_upto(&u, INT32_MAX);
    return unpack_done(&u);
}

void protocol_pack_record(struct buf *b, uint64_t tag, const struct record_message *m)
{
    pack_u64(b, tag);
    pack_string(b, m->actor);
    pack_string(b, m->workspace);
    pack_string(b, m->request);
    pack_string(b, m->operation);
    pack_string(b, m->result);
    pack_string(b, m->details);
}

/* One object on one line, as far as can be seen without parsing it: every bracket closed, and the
 * first one at the very end. What is inside may be nonsense, but it stays inside: it cannot pass
 * for other fields of the record, or for another record. */
bool protocol_details_are_sane(const char *details)
{
    uint64_t braces = 0; /* of what is open, innermost last: 1 is a brace */
    unsigned depth = 0;
    bool quoted = false;

    if (*details != '{')
        return *details == '\0';
    for (const char *c = details; *c; c++) {
        if ((unsigned char)*c < ' ' || (c > details && depth == 0))
            return false;
        if (quoted) {
            if (*c == '\\' && (unsigned char)c[1] >= ' ')
                c++; /* any other is looked at for itself, and refused */
            else if (*c == '"')
                quoted = false;
        } else if (*c == '"') {
            quoted = true;
        } else if (*c == '{' || *c == '[') {
            if (++depth > 64)
                return false;
            braces = braces << 1 | (*c == '{');
        } else if (*c == '}' || *c == ']') {
            if ((braces & 1) != (*c == '}'))
                return false;
            braces >>= 1;
            depth--;
        }
    }
    return depth == 0;
}

bool protocol_unpack_record(char *bytes, size_t n, uint64_t *ret_tag, struct record_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    ret->actor = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->workspace = get_id(&u, true);
    ret->request = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->operation = get_id(&u, false);
    ret->result = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->details = unpack_bounded(&u, PROTOCOL_DETAILS);
    return unpack_done(&u) && protocol_details_are_sane(ret->details);
}

void protocol_pack_error(struct buf *b, uint64_t tag, const struct err *err)
{
    pack_u64(b, tag);
    pack_u64(b, err->code);
    pack_u64(b, (uint64_t)(err->os_errno > 0 ? err->os_errno : 0));
    pack_u64(b, (unsigned)err->said < SAID_COUNT_ ? err->said : SAID_NOTHING); /* pid 1's, too */
    pack_string(b, err->msg);
}

bool protocol_unpack_error(char *bytes, size_t n, uint64_t *ret_tag, struct err *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    memset(ret, 0, sizeof(*ret));
    *ret_tag = unpack_u64(&u);
    ret->code = (enum err_code)unpack_upto(&u, ERR_CODE_COUNT_ - 1);
    ret->os_errno = (int)unpack_upto(&u, INT32_MAX);
    ret->said = (enum err_said)unpack_upto(&u, SAID_COUNT_ - 1);
    get_into(&u, ret->msg, sizeof(ret->msg));
    return unpack_done(&u) && ret->code != ERR_NONE;
}

void protocol_pack_plain(struct buf *b, uint64_t tag, const struct plain_message *m)
{
    pack_u64(b, tag);
    for (size_t i = 0; i < sizeof(m->texts) / sizeof(m->texts[0]); i++)
        pack_string(b, m->texts[i]);
    pack_u64(b, m->number);
}

bool protocol_unpack_plain(char *bytes, size_t n, uint64_t *ret_tag, struct plain_message *ret)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    for (size_t i = 0; i < sizeof(ret->texts) / sizeof(ret->texts[0]); i++)
        ret->texts[i] = unpack_bounded(&u, PROTOCOL_TEXT);
    ret->number = unpack_u64(&u);
    return unpack_done(&u);
}

void protocol_pack_secret(struct buf *b, uint64_t tag, const char *owner, const char *name,
                          const char *value)
{
    pack_u64(b, tag);
    pack_string(b, owner);
    pack_string(b, name);
    pack_string(b, value);
}

bool protocol_unpack_secret(char *bytes, size_t n, uint64_t *ret_tag, const char **ret_owner,
                            const char **ret_name, const char **ret_value)
{
    struct unpack u = {.at = bytes, .end = bytes + n};

    *ret_tag = unpack_u64(&u);
    *ret_owner = unpack_bounded(&u, PROTOCOL_ID);
    *ret_name = unpack_bounded(&u, PROTOCOL_ID);
    *ret_value = unpack_bounded(&u, SEAL_HEX);
    return unpack_done(&u) && *ret_tag != 0;
}

static bool is_alphanumeric(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool protocol_id_is_valid(const char *id)
{
    size_t n = 0;

    if (!is_alphanumeric(id[0]))
        return false;
    for (; id[n] && n <= PROTOCOL_ID; n++) {
        if (!is_alphanumeric(id[n]) && id[n] != '.' && id[n] != '_' && id[n] != '-')
            return false;
    }
    return n <= PROTOCOL_ID;
}

static bool is_made_id(char letter, const char *id)
{
    size_t n = 1;

    if (id[0] != letter)
        return false;
    for (; id[n] && n <= PROTOCOL_EXEC_ID; n++) {
        if (!(id[n] >= 'a' && id[n] <= 'z') && !(id[n] >= '2' && id[n] <= '7'))
            return false;
    }
    return n == PROTOCOL_EXEC_ID;
}

bool protocol_exec_id_is_valid(const char *id)
{
    return is_made_id('x', id);
}

bool protocol_plan_id_is_valid(const char *id)
{
    return is_made_id('p', id);
}

bool protocol_snapshot_id_is_valid(const char *id)
{
    return is_made_id('s', id);
}

bool protocol_template_id_is_valid(const char *id)
{
    return is_made_id('t', id);
}
