/* SPDX-License-Identifier: Apache-2.0 */
/* What a policy says, as the front has read it -> what the engine is told. The front may have been
 * taken over: what an operator has not allowed in the settings is refused here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/names.h"
#include "base/pack.h"
#include "broker/bases.h"
#include "broker/broker.h"
#include "broker/egress.h"
#include "broker/forks.h"
#include "broker/listen.h"
#include "broker/plans.h"
#include "broker/sandbox_spec.h"
#include "broker/sandboxes.h"
#include "broker/store_mounts.h"
#include "broker/templates.h"
#include "broker/tree_locks.h"
#include "broker/trees.h"
#include "policy/units.h"
#include "sys/path.h"

enum {
    MOST_MOUNTS = 80, /* 64 of a policy, and our own */
    PATH_ROOM = 4096,
    SETUP_POINTS = 64, /* told of one tree */
};

/* Part of what is shared, where it appears inside, and the name of a workspace's own layer over it.
 */
struct layered {
    const char *part;
    const char *target;
    const char *layer;
};

void sandbox_spec_clear(struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->fd_count; i++)
        scope_close(&spec->fds[i]);
    spec->fd_count = 0;
    arena_clear(&spec->arena);
}

/* What was looked at is what is mounted, whatever its path leads to by then. */
static int add_mount(struct sandbox_spec *to, int *fd, const char *target, bool writable,
                     struct err *err)
{
    struct carrel_mount *mounts = (struct carrel_mount *)(uintptr_t)to->spec.mounts;

    if (to->spec.mount_count == MOST_MOUNTS ||
        to->fd_count == sizeof(to->fds) / sizeof(to->fds[0])) {
        scope_close(fd);
        return err_set(err, ERR_LIMIT, 0, "too many mounts");
    }
    to->fds[to->fd_count++] = *fd;
    const char *source = arena_printf(&to->arena, "/proc/self/fd/%d", take_fd(fd));
    if (!source)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep a mount");
    mounts[to->spec.mount_count++] =
        (struct carrel_mount){.source = source, .target = target, .writable = writable};
    return 0;
}

int sandbox_spec_add_ready(struct sandbox_spec *to, int *mount, const char *const *three,
                           bool writable, struct err *err)
{
    struct carrel_mount *mounts = (struct carrel_mount *)(uintptr_t)to->spec.mounts;

    if (to->spec.mount_count == MOST_MOUNTS ||
        to->fd_count == sizeof(to->fds) / sizeof(to->fds[0])) {
        scope_close(mount);
        return err_set(err, ERR_LIMIT, 0, "too many mounts");
    }
    const char *name = arena_printf(&to->arena, "store %s", three[0]);
    if (!name)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep a mount");
    int fd = to->fds[to->fd_count++] = take_fd(mount);
    mounts[to->spec.mount_count++] = (struct carrel_mount){
        .source = name, .target = three[1], .writable = writable, .ready = fd};
    return 0;
}

static bool is_below(const char *path, const char *root)
{
    size_t n = strlen(root);

    return strncmp(path, root, n) == 0 && (path[n] == '\0' || path[n] == '/' || n == 1);
}

/* Both without symlinks: the roots are an operator's and may be reached by any. */
static bool is_allowed(const char *path, const char *roots)
{
    char root[PATH_ROOM];
    char real[PATH_ROOM];

    while (*roots) {
        size_t n = strcspn(roots, ":");
        snprintf(root, sizeof(root), "%.*s", (int)n, roots);
        roots += roots[n] ? n + 1 : n;
        scoped_fd int fd = *root == '/' ? open(root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
        if (fd >= 0 && path_of_fd(fd, real, sizeof(real)) == 0 && is_below(path, real))
            return true;
    }
    return false;
}

static int add_policy_mount(const struct broker *b, struct sandbox_spec *to,
                            const char *const *three, struct err *err)
{
    char path[PATH_ROOM];
    const char *source = three[0];

    if (*source != '/' || *three[1] != '/')
        return err_set(err, ERR_INVALID, 0, "the mount '%.200s' is not by absolute paths", source);
    scoped_fd int fd = open(source, O_PATH | O_CLOEXEC);
    /* The same words for what is missing and for what is out of bounds: nobody asks about the
     * host's files this way. */
    if (fd < 0 || path_of_fd(fd, path, sizeof(path)) < 0 ||
        !is_allowed(path, b->settings.mount_roots))
        return err_set(err, ERR_DENIED, 0,
                       "the mount '%.200s' is not below one of the directories that the setting "
                       "mount_roots allows, or does not exist",
                       source);
    return add_mount(to, &fd, three[1], strcmp(three[2], "rw") == 0 && !to->is_planned, err);
}

/* Of the workspace's own bucket: what lies below its skills, if it is there, or another's tree. */
static int add_shared(const struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                      const char *const *three, struct err *err)
{
    char path[2 * PROTOCOL_ID + 16];
    bool writable = strcmp(three[2], "rw") == 0 && !to->is_planned;

    if (!strchr(three[0], '/')) {
        if (fork_refuse(b, m->bucket, three[0], "and cannot be shown in another", err) < 0)
            return -1;
        scoped_fd int tree = tree_open(b, m->bucket, three[0], err);
        return tree < 0 ? err_wrap(err, "the workspace '%s' that is shown in it", three[0])
                        : add_mount(to, &tree, three[1], writable, err);
    }
    snprintf(path, sizeof(path), "%s/%s", m->bucket, three[0]);
    scoped_fd int fd = path_open_beneath(b->state, path, O_PATH | O_DIRECTORY, 0);
    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open '%s'", path);
    return add_mount(to, &fd, three[1], writable, err);
}

static int check_allowed(const struct broker *b, const struct spec_message *m, struct err *err)
{
    if (m->level == CARREL_LEVEL_DIR)
        return err_set(err, ERR_DENIED, 0,
                       "level dir isolates nothing; the daemon keeps sandboxes of level ns only");
    if (m->net != CARREL_NET_HOST || b->settings.allow_net_host)
        return egress_check(b, m, err);
    err_set(err, ERR_DENIED, 0,
            "the policy says network host, which the setting allow_net_host forbids");
    err->said = SAID_ALLOW_NET_HOST;
    return -1;
}

/* What a plan's command writes goes to the plan's layer, and nothing anywhere else: what lies
 * beside the tree is only read. */
static int use_layer(const struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err)
{
    struct plan_id at;
    char path[PATH_ROOM];

    snprintf(at.bucket, sizeof(at.bucket), "%s", m->bucket);
    snprintf(at.workspace, sizeof(at.workspace), "%s", m->workspace);
    snprintf(at.plan, sizeof(at.plan), "%s", m->plan);
    scoped_fd int fd = plan_open_dir(b, &at, true, err);
    if (fd < 0)
        return -1;
    plan_path(b, m->bucket, m->workspace, m->plan, path, sizeof(path));
    to->spec.plan = arena_copy(&to->arena, path, strlen(path));
    to->spec.pool = NULL;
    to->is_planned = true;
    return to->spec.plan ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "keep the plan's path");
}

/* --- environments --- */

#define TOOLS_AT   "/opt/carrel"
#define PYTHONS_AT "/.cache/python" /* interpreters of uv's own */
#define CA_AT      "/opt/carrel-ca.pem"
#define HOST_CA    "/etc/ssl/certs/ca-certificates.crt" /* also inside */

static const struct plan_id *place_of(const struct exec_message *m, struct plan_id *at)
{
    snprintf(at->bucket, sizeof(at->bucket), "%s", m->bucket);
    snprintf(at->workspace, sizeof(at->workspace), "%s", m->workspace);
    at->plan[0] = '\0';
    return at;
}

/* What the workspace changes of it goes to a directory of its own. */
static int add_layered(const struct broker *b, struct sandbox_spec *to,
                       const struct exec_message *m, int *fd, const struct layered *what,
                       struct err *err)
{
    struct plan_id at;
    char path[PATH_ROOM];

    scoped_fd int layer = layer_open(b, place_of(m, &at), what->layer, to->tree, err);
    int r = layer < 0 ? -1 : path_of_fd(layer, path, sizeof(path));
    if (layer >= 0 && r < 0)
        err_set(err, ERR_IO, -r, "find the path of an environment");
    if (r < 0) {
        scope_close(fd);
        return -1;
    }
    if (add_mount(to, fd, what->target, !to->is_planned, err) < 0)
        return -1;
    struct carrel_mount *mounts = (struct carrel_mount *)(uintptr_t)to->spec.mounts;
    struct carrel_mount *mount = &mounts[to->spec.mount_count - 1];
    mount->layer = arena_copy(&to->arena, path, strlen(path));
    return mount->layer ? 0 : err_set(err, ERR_LIMIT, ENOMEM, "keep a mount");
}

static const struct layered shared_parts[] = {{".venv", "/.venv", "venv"},
                                              {"node_modules", "/node_modules", "node"}};
static const struct layered *const shared_python = &shared_parts[0];

/* Whether the workspace has a Python environment of its own instead of the template's; also one
 * that is no directory, on which nothing could be mounted. */
static bool has_own_python(const struct sandbox_spec *to)
{
    const char *name = shared_python->part;
    struct stat st;

    if (fstatat(to->tree, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (!S_ISDIR(st.st_mode))
        return true;
    scoped_fd int fd = path_open_beneath(to->tree, name, O_RDONLY | O_DIRECTORY, 0);
    return fd >= 0 && path_dir_is_empty(fd) == 0;
}

/* What it had changed of the template's goes, when nothing shows that any more; not for a few files
 * that a plan has put there, which may go again. */
static void drop_unused(struct broker *b, const struct sandbox_spec *to,
                        const struct exec_message *m)
{
    struct plan_id at;
    scoped_fd int mark = path_open_beneath(to->tree, ".venv/pyvenv.cfg", O_PATH | O_NOFOLLOW, 0);

    if (mark >= 0 && !to->is_planned && !to->looks && !sandbox_find_any(b, m->workspace))
        layer_drop(b, place_of(m, &at), shared_python->layer);
}

/* Before the kernel looks whether it may be replaced, which takes long where it has been large. */
static bool is_small_or_missing(int tree, const char *name)
{
    struct stat st;

    if (fstatat(tree, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    return S_ISDIR(st.st_mode) && st.st_size <= PATH_SMALL_DIR;
}

/* At one instant, as here no mount is in the way; not over a name that holds something. All names
 * are the tree's own: no link is followed. On disk before anybody is told so. */
void sandbox_spec_put_staged(const struct broker *b, const struct sandbox *s)
{
    struct stat st;
    struct err err;

    if (!*s->template || sandbox_find_any(b, s->workspace) || lock_is_held(b, s->workspace))
        return;
    scoped_fd int handle = tree_open(b, s->bucket, s->workspace, &err);
    scoped_fd int tree =
        handle < 0 ? -1 : path_open_beneath(handle, ".", O_RDONLY | O_DIRECTORY, 0);
    if (tree < 0 || fstatat(tree, CARREL_STAGED, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || !is_small_or_missing(tree, shared_python->part))
        return;
    if (renameat(tree, CARREL_STAGED, tree, shared_python->part) == 0)
        ignore(fsync(tree) == 0);
}

static int add_template(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                        struct err *err)
{
    const struct layered *parts = shared_parts;

    if (to->spec.limits.disk_image)
        return err_set(err, ERR_CONFLICT, 0,
                       "a workspace on a template cannot have its disk in an image, as its layers "
                       "lie outside of it; bound the disk without an image");
    for (size_t i = 0; i < sizeof(shared_parts) / sizeof(shared_parts[0]); i++) {
        if (&parts[i] == shared_python && has_own_python(to)) {
            drop_unused(b, to, m);
            continue;
        }
        int fd = template_open_part(b, m->spec.template, parts[i].part);
        if (fd == -ENOENT)
            continue; /* then it is the workspace's alone */
        if (fd == -ESTALE)
            return err_set(
                err, ERR_NOT_FOUND, 0,
                "the files of the workspace's template are gone from the daemon's state "
                "directory (.carrel/templates/%s); put them back, or make a new workspace",
                m->spec.template);
        if (fd < 0)
            return err_set(err, ERR_IO, -fd, "open '%s' of the workspace's template",
                           parts[i].part);
        if (add_layered(b, to, m, &fd, &parts[i], err) < 0)
            return -1;
    }
    return 0;
}

/* A cache is a convenience: no command is refused for the want of it, least of all the one that
 * makes room. Without it there is an empty one, for as long as the sandbox lives. */
static int go_without(const struct exec_message *m, struct err *err)
{
    err_wrap(err, "going on without the package cache");
    log_err("cache_unavailable", m->workspace, err);
    return 0;
}

/* A plan's command has an empty cache instead: its writes go to the plan's layer and nowhere else,
 * and installers do nothing with one that they cannot write. */
static int add_cache(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err)
{
    static const struct layered caches[] = {{"uv", "/.cache/uv", "uv"},
                                            {"bun", "/.cache/bun", "bun"},
                                            {"python", PYTHONS_AT, "python"}};

    /* Nor is there one with a disk in an image, which bounds all that the workspace writes. */
    bool none = to->is_planned || to->spec.limits.disk_image;
    for (size_t i = 0; !none && i < sizeof(caches) / sizeof(caches[0]); i++) {
        size_t before = to->spec.mount_count;
        int fd = cache_open(b, caches[i].part, err);
        if (fd < 0 || add_layered(b, to, m, &fd, &caches[i], err) < 0)
            return to->spec.mount_count == before ? go_without(m, err) : -1;
        to->cache = b->cache;
    }
    return 0;
}

/* What `carrel env setup` has brought; without it there is nothing that would use the cache. */
static int add_tools(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err)
{
    scoped_fd int fd = path_open_beneath(b->state, ".carrel/tools", O_PATH | O_DIRECTORY, 0);

    if (fd == -ENOENT)
        return 0;
    if (fd < 0)
        return err_set(err, ERR_IO, -fd, "open the directory of tools");
    if (add_mount(to, &fd, TOOLS_AT, false, err) < 0)
        return -1;
    to->has_tools = true;
    return to->looks ? 0 : add_cache(b, to, m, err);
}

static bool reaches_out(const struct sandbox_spec *to)
{
    return to->spec.net == CARREL_NET_HOST || to->spec.net == CARREL_NET_ALLOW;
}

static int add_ca(const struct broker *b, struct sandbox_spec *to, struct err *err)
{
    if (!*b->settings.package_ca)
        return 0;
    scoped_fd int fd = open(b->settings.package_ca, O_PATH | O_CLOEXEC);
    if (fd < 0 && !reaches_out(to))
        return 0; /* nobody is talked to from there */
    if (fd < 0)
        return err_set(err, ERR_IO, errno,
                       "open '%.200s', which the setting package_ca names (put it there again, or "
                       "start the daemon without that setting)",
                       b->settings.package_ca);
    to->has_ca = true;
    return add_mount(to, &fd, CA_AT, false, err);
}

/* Below what the policy and the request say. */
static int add_variables(const struct broker *b, struct sandbox_spec *to, const char *const *given,
                         struct err *err)
{
    const struct settings *s = &b->settings;
    /* The tools bring authorities of their own, and would not know those of this host. */
    const char *ca = to->has_ca                                    ? CA_AT
                     : to->has_tools && access(HOST_CA, R_OK) == 0 ? HOST_CA
                                                                   : "";
    /* Told that there is no network, uv takes what the cache has, however old its lists are. */
    bool closed = to->has_tools && !reaches_out(to);
    /* Where they stay: what an environment stands on must not go with a sandbox or a plan. */
    bool fetches = to->cache && !closed && !s->package_offline;

    const struct {
        const char *name;
        const char *value;
    } own[] = {{"UV_DEFAULT_INDEX", s->package_index},
               {"PIP_INDEX_URL", s->package_index},
               {"npm_config_registry", s->package_registry},
               {"BUN_CONFIG_REGISTRY", s->package_registry},
               {"SSL_CERT_FILE", ca},
               {"PIP_CERT", ca},
               {"NODE_EXTRA_CA_CERTS", ca},
               {"UV_PYTHON_INSTALL_DIR", to->has_tools ? PYTHONS_AT : ""},
               {"UV_PYTHON_INSTALL_BIN", to->has_tools ? "0" : ""},
               {"UV_PYTHON_PREFERENCE", to->has_tools ? "system" : ""},
               {"UV_PYTHON_DOWNLOADS", fetches ? "automatic" : ""},
               {"UV_OFFLINE", closed || s->package_offline ? "1" : ""}};

    size_t most = sizeof(own) / sizeof(own[0]);
    size_t n = 0;

    for (size_t i = 0; given && given[i]; i++)
        most++;
    const char **list = arena_alloc(&to->arena, (most + 1) * sizeof(*list));
    for (size_t i = 0; list && i < sizeof(own) / sizeof(own[0]); i++) {
        if (*own[i].value)
            list[n++] = arena_printf(&to->arena, "%s=%s", own[i].name, own[i].value);
        if (n && !list[n - 1])
            list = NULL;
    }
    if (!list)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the environment");
    for (size_t i = 0; given && given[i]; i++)
        list[n++] = given[i];
    to->spec.env = list;
    return 0;
}

static int add_environments(struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                            struct err *err)
{
    if (*m->spec.base) /* which has none of our tools, and authorities of its own */
        return base_add(b, to, m, err) < 0 ? -1 : add_variables(b, to, m->spec.env, err);
    if (*m->spec.template && add_template(b, to, m, err) < 0)
        return -1;
    if (add_tools(b, to, m, err) < 0 || add_ca(b, to, err) < 0)
        return -1;
    return add_variables(b, to, m->spec.env, err);
}

/* A fork's sandbox has the snapshot for its tree, and its own layer over it. Returns the tree. */
static int open_tree(const struct broker *b, struct sandbox_spec *to, const struct exec_message *m,
                     struct err *err)
{
    struct fork_base base;
    char path[PATH_ROOM];
    int r = fork_find(b, m->bucket, m->workspace, &base, err);

    if (r <= 0)
        return r < 0 ? -1 : tree_open(b, m->bucket, m->workspace, err);
    if (*m->plan)
        return fork_refuse(b, m->bucket, m->workspace, "and its commands are not planned", err);
    fork_path(b, m->bucket, m->workspace, path, sizeof(path));
    to->layer = arena_copy(&to->arena, path, strlen(path));
    return to->layer ? fork_open_snapshot(b, m->bucket, &base, err)
                     : err_set(err, ERR_LIMIT, ENOMEM, "keep the fork's path");
}

static int make(struct broker *b, const struct exec_message *m, struct sandbox_spec *ret,
                struct err *err)
{
    char path[PATH_ROOM];
    const struct spec_message *spec = &m->spec;

    arena_init(&ret->arena, 1 << 20);
    if (check_allowed(b, spec, err) < 0)
        return -1;
    scoped_fd int tree = open_tree(b, ret, m, err);
    if (tree < 0)
        return -1;
    int r = path_of_fd(tree, path, sizeof(path));
    if (r < 0)
        return err_set(err, ERR_IO, -r, "find the path of workspace '%s'", m->workspace);
    ret->spec = (struct carrel_spec){
        .workspace = arena_copy(&ret->arena, path, strlen(path)),
        .level = CARREL_LEVEL_NS,
        .net = (enum carrel_net)spec->net,
        .net_rules = spec->net_rules,
        .user = (enum carrel_user)spec->user,
        .env = spec->env,
        .tmp_bytes = spec->tmp_bytes,
        .limits = spec->limits,
        .pool = b->pool,
        .stdin_fd = -1,
        .init_path = *b->init_path ? b->init_path : NULL,
        .egress_path = *b->egress_path ? b->egress_path : NULL,
        .mounts = arena_alloc(&ret->arena, MOST_MOUNTS * sizeof(*ret->spec.mounts)),
    };
    ret->tree = tree;
    if (ret->layer) {
        ret->spec.plan = ret->layer;
        ret->spec.plan_stays = true;
        ret->spec.pool = NULL;
    }
    if (spec->limits.disk_image && !*m->plan && !ret->looks)
        tree_empty_for_image(b, tree, m->workspace);
    listen_ports(b, ret->spec.own_ports);
    if (!ret->spec.workspace || !ret->spec.mounts)
        return err_set(err, ERR_LIMIT, ENOMEM, "keep the policy");
    if (*m->plan && use_layer(b, ret, m, err) < 0)
        return -1;
    for (size_t i = 0; spec->mounts && spec->mounts[i]; i += 3) {
        if (add_policy_mount(b, ret, spec->mounts + i, err) < 0)
            return -1;
    }
    if (store_mounts_add(b, ret, m, err) < 0 || add_environments(b, ret, m, err) < 0)
        return -1;
    for (size_t i = 0; spec->shared && spec->shared[i]; i += 3) {
        if (add_shared(b, ret, m, spec->shared + i, err) < 0)
            return -1;
    }
    return 0;
}

int sandbox_spec_make(struct broker *b, const struct exec_message *m, struct sandbox_spec *ret,
                      struct err *err)
{
    *ret = (struct sandbox_spec){.tree = -1};
    return make(b, m, ret, err);
}

struct points {
    struct arena arena;
    const char *list[SETUP_POINTS + 1];
    size_t n;
};

static void add_point(void *context, const char *place)
{
    struct points *points = context;
    const char *copy =
        points->n < SETUP_POINTS ? arena_copy(&points->arena, place, strlen(place)) : NULL;

    if (copy)
        points->list[points->n++] = copy;
}

/* As with the policy that an adopted one has at first. */
int tree_points(struct broker *b, const struct exec_message *m, struct buf *answer, struct err *err)
{
    struct exec_message first = {.bucket = m->bucket,
                                 .workspace = m->workspace,
                                 .plan = "",
                                 .spec = {.shared = m->spec.shared, .template = "", .base = ""}};
    struct points points = {.n = 0};
    struct sandbox_spec spec = {.tree = -1, .looks = true};

    arena_init(&points.arena, 1 << 20);
    int r = make(b, &first, &spec, err);
    spec.spec.pool = NULL;
    if (r == 0)
        r = session_points(&spec.spec, add_point, &points, err);
    if (r == 0)
        pack_list(answer, points.list);
    sandbox_spec_clear(&spec);
    arena_clear(&points.arena);
    return r == 0 && buf_done(answer) < 0 ? err_set(err, ERR_LIMIT, ENOMEM, "tell") : r;
}

/* A sum of what live sandboxes may use, with one more. */
static int check_sum(const char *what, const char *setting, uint64_t sum, uint64_t asked,
                     uint64_t most, struct err *err)
{
    char text[UNITS_TEXT];
    enum units_kind kind = strcmp(setting, "max_memory") == 0 ? UNITS_SIZE : UNITS_COUNT;

    if (most == 0)
        return 0;
    if (asked == 0)
        return err_set(err, ERR_LIMIT, 0,
                       "this host counts %s (%s), so the policy must have a limit for it", what,
                       setting);
    if (sum + asked > most)
        return err_set(
            err, ERR_LIMIT, 0,
            "the live sandboxes may use all the %s of this host (%s = %s); wait until one "
            "sleeps",
            what, setting, units_text(kind, most, text));
    return 0;
}

static int check_disk(const struct broker *b, struct err *err)
{
    struct statvfs st;

    if (b->settings.disk_floor == 0 || fstatvfs(b->state, &st) < 0)
        return 0;
    if ((uint64_t)st.f_bavail * st.f_frsize >= b->settings.disk_floor)
        return 0;
    return err_set(
        err, ERR_LIMIT, ENOSPC,
        "less disk space is free than the setting disk_floor keeps, so nothing is started, not "
        "even rm: delete files by calls, which still work (carrel rm, or DELETE "
        ".../files/PATH), or make room on the host");
}

int sandbox_spec_check_room(struct broker *b, uint32_t kind, const struct exec_message *m,
                            bool new_sandbox, struct err *err)
{
    uint64_t memory = 0;
    uint64_t pids = 0;

    if (b->settings.max_execs && b->exec_count >= b->settings.max_execs)
        return err_set(err, ERR_LIMIT, 0, "%llu commands run, as many as this host may (max_execs)",
                       (unsigned long long)b->exec_count);
    if (kind != REQUEST_FILES && check_disk(b, err) < 0)
        return -1; /* with a full disk, files are what has to be looked through and deleted */
    if (!new_sandbox)
        return 0;
    if (b->settings.max_sandboxes && b->sandbox_count >= b->settings.max_sandboxes)
        return err_set(err, ERR_LIMIT, 0,
                       "%llu sandboxes live, as many as this host may (max_sandboxes)",
                       (unsigned long long)b->sandbox_count);
    for (size_t i = 0; i < BROKER_SLOTS; i++) {
        for (const struct sandbox *s = b->sandboxes[i]; s; s = s->next) {
            memory += s->memory_bytes;
            pids += s->pids;
        }
    }
    if (check_sum("memory", "max_memory", memory, m->spec.limits.memory_bytes,
                  b->settings.max_memory, err) < 0)
        return -1;
    return check_sum("processes", "max_pids", pids, m->spec.limits.pids, b->settings.max_pids, err);
}
