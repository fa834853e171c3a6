/* SPDX-License-Identifier: Apache-2.0 */
/* The public entry points: check the spec, write the setup, hand it to the supervisor. */
#include "sandbox/run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "sandbox/limits/limits.h"
#include "sandbox/netnames.h"
#include "sandbox/overlay.h"
#include "sandbox/pool.h"
#include "sandbox/start.h"
#include "sandbox/system.h"

#define ARENA_BYTES (16UL << 20)

/* Level dir isolates nothing; what it cannot keep it refuses. */
static int check_dir_level(const struct carrel_spec *spec, struct err *err)
{
    const struct {
        bool asked;
        const char *what;
    } cannot[] = {
        {spec->net == CARREL_NET_NONE, "--net none"},
        {spec->net == CARREL_NET_ALLOW, "--allow"},
        {spec->mount_count > 0, "--ro, --rw and --layer"},
        {spec->user == CARREL_USER_ROOT, "--user root"},
        {spec->tmp_bytes != 0, "--tmp-size"},
        {spec->at != NULL, "--at"},
        {spec->plan != NULL, "--plan"},
        {spec->base != NULL, "--system"},
    };

    for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++) {
        if (cannot[i].asked)
            return err_set(err, ERR_INVALID, 0, "level dir cannot give %s; use --level ns",
                           cannot[i].what);
    }
    return 0;
}

static int decide(struct run *run, struct err *err)
{
    const struct carrel_spec *spec = run->spec;

    run->level = spec->level == CARREL_LEVEL_AUTO ? CARREL_LEVEL_NS : spec->level;
    run->net = spec->net == CARREL_NET_DEFAULT ? CARREL_NET_NONE : spec->net;
    if (run->level == CARREL_LEVEL_DIR) {
        run->net = CARREL_NET_HOST;
        if (check_dir_level(spec, err) < 0)
            return -1;
    }
    if (spec->plan && spec->limits.disk_image)
        return err_set(
            err, ERR_INVALID, 0,
            "a workspace in an image cannot be planned for: what a plan holds has to lie "
            "on the workspace's own file system; give --disk a size without 'image:'");
    if (spec->base && system_check(run, err) < 0)
        return -1;
    return netnames_check(run, err) < 0 ? -1 : limits_check(spec, run->level, err);
}

/* As root the inner user has a uid of a leased range outside; otherwise it is the caller. */
static int choose_identity(struct run *run, struct err *err)
{
    bool is_root = run->spec->user == CARREL_USER_ROOT && !run->spec->base; /* there commands are */
    run->setup.uid = run->setup.gid = is_root ? 0 : 1000;
    run->identity.inside_uid = run->setup.uid;
    run->identity.inside_gid = run->setup.gid;
    if (!run->host.can_lease) {
        if (run->workspace >= 0 && run->host.uid != run->owner_uid && run->host.uid != 0 &&
            run->spec->workspace && faccessat(run->workspace, ".", W_OK, 0) < 0)
            return err_set(err, ERR_DENIED, 0,
                           "workspace '%s' belongs to another user (uid %u) and is not writable",
                           run->spec->workspace, run->owner_uid);
        return 0;
    }
    run->setup.flags |= SETUP_UID_RANGE | SETUP_TREES_PASSED;
    return 0;
}

static int begin(struct run *run, const struct carrel_spec *spec, bool dry, struct err *err)
{
    /* The tables at its end are filled in order, and most of each is never touched. */
    memset(run, 0, offsetof(struct run, setup.filter));
    run->spec = spec;
    run->dry = dry;
    run->workspace = run->lock = -1;
    run->command = (struct command){0};
    arena_init(&run->arena, ARENA_BYTES);
    identity_init(&run->identity);
    cgroup_init(&run->cgroup);
    host_ask(&run->host);
    run->host.memory_bytes = limits_memory_shown(spec, run->host.memory_bytes);
    run->setup.hostname = "carrel";
    return decide(run, err);
}

static int write_frame(struct run *run, struct err *err)
{
    return rootfs_write_frame(run, err) < 0 || confinement_write(run, err) < 0 ? -1 : 0;
}

int run_prepare_frame(struct run *run, const struct carrel_spec *spec, struct err *err)
{
    if (begin(run, spec, false, err) < 0 || choose_identity(run, err) < 0)
        return -1;
    run->setup.flags |= SETUP_SAY_READY;
    confinement_begin(run);
    return write_frame(run, err);
}

int run_prepare(struct run *run, const struct carrel_spec *spec, bool dry, struct live *early,
                struct err *err)
{
    if (begin(run, spec, dry, err) < 0 || workspace_open(run, err) < 0)
        return -1;
    if (run->level == CARREL_LEVEL_DIR) {
        run->setup.flags = SETUP_DIR_LEVEL;
        return environment_write(run, err);
    }
    if (workspace_enter_image(run, err) < 0 || choose_identity(run, err) < 0)
        return -1;
    uint32_t flags = OP_PLAN | (spec->plan_stays ? OP_STAYS : 0);
    if (spec->plan && overlay_open(run, spec->plan, run->workspace, flags, &run->plan, err) < 0)
        return -1;
    if (spec->pool && !dry && !spec->base)
        pool_take(spec->pool, run);
    if (!run->taken)
        confinement_begin(run);
    if (!run->taken && early && live_begin(early, run, err) < 0)
        return -1;
    if ((!run->taken && write_frame(run, err) < 0) || rootfs_write_root(run, err) < 0)
        return -1;
    return environment_write(run, err);
}

void run_clear(struct run *run)
{
    for (uint32_t i = 0; i < run->setup.op_count; i++)
        scope_close(&run->sources[i]);
    scope_close(&run->workspace);
    scope_close(&run->lock);
    overlay_clear(run);
    if (run->taken)
        pool_give_back(run->spec->pool, run); /* with its cgroup: removing one can take a while */
    cgroup_clear(&run->cgroup);
    identity_clear(&run->identity);
    arena_clear(&run->arena);
}

struct run_view run_view_of(struct run *run)
{
    return (struct run_view){.spec = run->spec,
                             .level = run->level,
                             .net = run->net,
                             .stays = run->stays,
                             .setup = &run->setup,
                             .identity = &run->identity,
                             .cgroup = &run->cgroup,
                             .layers = run->layers,
                             .layer_count = run->layer_count,
                             .plan = run->plan,
                             .workspace = run->workspace,
                             .workspace_path = run->workspace_path};
}

int run_report(const struct err *err, struct carrel_error *error)
{
    _Static_assert((int)ERR_IO == (int)CARREL_ERROR_IO, "public codes follow the internal ones");
    error->code = (enum carrel_error_code)err->code;
    error->os_errno = err->os_errno;
    err_text(err, error->message, sizeof(error->message));
    return -1;
}

/* One attempt; *ret_misfit: what came from the pool did not suit the tree. */
static int attempt(struct run *run, const struct carrel_spec *spec, struct carrel_result *ret,
                   bool *ret_misfit, struct err *err)
{
    struct live early;

    live_init(&early);
    int r = run_prepare(run, spec, false, &early, err);
    if (r == 0)
        r = supervise(run, &early, ret, err);
    live_clear(&early);
    if (r == 0 && run->plan) {
        ret->plan_privileged = run->host.can_lease;
        r = overlay_end(run, err);
        if (r < 0)
            carrel_result_clear(ret);
    }
    if (r < 0)
        workspace_unmake(run);
    *ret_misfit = run->misfit;
    run_clear(run);
    return r;
}

int carrel_run(const struct carrel_spec *spec, struct carrel_result *ret,
               struct carrel_error *error)
{
    struct carrel_spec without_pool = *spec;
    struct err err = {0};
    struct run *run = malloc(sizeof(*run)); /* too large for a stack that may be a thread's */
    bool misfit;

    *ret = (struct carrel_result){0};
    if (!run) {
        err_set(&err, ERR_LIMIT, 0, "out of memory");
        return run_report(&err, error);
    }
    int r = attempt(run, spec, ret, &misfit, &err);
    if (r < 0 && misfit) {
        without_pool.pool = NULL;
        err = (struct err){0};
        r = attempt(run, &without_pool, ret, &misfit, &err);
    }
    free(run);
    return r < 0 ? run_report(&err, error) : 0;
}

void carrel_result_clear(struct carrel_result *result)
{
    free(result->out);
    free(result->err);
    free(result->denials);
    *result = (struct carrel_result){0};
}
