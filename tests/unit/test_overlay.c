/* SPDX-License-Identifier: Apache-2.0 */
/* A layer over the tree: how its ids are mapped, what is asked of pid 1, what is refused. What it
 * does when it is mounted: test_session.c and tests/integration/plan_layer.py. */
#include "sandbox/overlay.h"

#include <limits.h>

#include "sandbox/identity.h"
#include "scene.h"

enum {
    LEASED = (int)IDENTITY_LEASE_FIRST + 1000
};

/* --- maps of ids --- */

struct extent {
    unsigned long first;
    unsigned long shown;
    unsigned long count;
};

static size_t read_map(const char *text, struct extent extents[8])
{
    size_t n = 0;
    char *at = (char *)(uintptr_t)text;

    while (*at && n < 8) {
        extents[n].first = strtoul(at, &at, 10);
        extents[n].shown = strtoul(at, &at, 10);
        extents[n].count = strtoul(at, &at, 10);
        if (*at++ != '\n')
            return 0;
        n++;
    }
    return n;
}

/* What an id on disk is shown as; ULONG_MAX: as nobody. *ret_times: how many extents have it. */
static unsigned long shown_as(const char *text, unsigned long id, unsigned *ret_times)
{
    struct extent extents[8];
    size_t n = read_map(text, extents);
    unsigned long shown = ULONG_MAX;

    *ret_times = 0;
    for (size_t i = 0; i < n; i++) {
        if (id >= extents[i].first && id - extents[i].first < extents[i].count) {
            shown = extents[i].shown + (id - extents[i].first);
            ++*ret_times;
        }
    }
    return shown;
}

/* The kernel refuses maps in which two extents overlap, on either side. */
static bool is_a_map(const char *text)
{
    struct extent e[8];
    size_t n = read_map(text, e);

    for (size_t i = 0; i < n; i++) {
        if (e[i].count == 0 || e[i].first + e[i].count > UINT_MAX ||
            e[i].shown + e[i].count > UINT_MAX)
            return false;
        for (size_t j = 0; j < i; j++) {
            if ((e[i].first < e[j].first + e[j].count && e[j].first < e[i].first + e[i].count) ||
                (e[i].shown < e[j].shown + e[j].count && e[j].shown < e[i].shown + e[i].count))
                return false;
        }
    }
    return n > 0;
}

TEST(the_owner_is_the_user_inside_others_are_themselves_and_leased_ids_are_nobody)
{
    static const unsigned owners[] = {0,
                                      1,
                                      1000,
                                      65534,
                                      IDENTITY_LEASE_FIRST - 1,
                                      IDENTITY_LEASE_FIRST,
                                      LEASED,
                                      LEASED + 7,
                                      IDENTITY_LEASE_END - 1,
                                      IDENTITY_LEASE_END,
                                      IDENTITY_LEASE_END + 1,
                                      UINT_MAX - 3};

    for (size_t i = 0; i < LENGTH(owners); i++) {
        char text[160];
        unsigned times;
        const unsigned others[] = {0, 1, 7, 1000, 1001, 65534, IDENTITY_LEASE_END, UINT_MAX - 2};
        identity_layer_map(owners[i], LEASED, text, sizeof(text));
        CHECK_FOR(text, strlen(text) < sizeof(text) - 1 && is_a_map(text));
        CHECK_FOR(text, shown_as(text, owners[i], &times) == LEASED && times == 1);
        for (size_t j = 0; j < LENGTH(others); j++)
            CHECK_FOR(text, others[j] == owners[i] ||
                                (shown_as(text, others[j], &times) == others[j] && times == 1));
        if (owners[i] != LEASED + 1)
            CHECK_FOR(text, shown_as(text, LEASED + 1, &times) == ULONG_MAX);
    }
    return 0;
}

/* --- the setup --- */

static const struct op *layer_of(const struct scene *s)
{
    for (uint32_t i = 0; i < s->run->setup.op_count; i++) {
        if (s->run->setup.ops[i].kind == OP_LAYER)
            return &s->run->setup.ops[i];
    }
    return NULL;
}

TEST(the_tree_alone_gets_a_layer)
{
    SCENE(s);
    struct carrel_mount mounts[] = {{s.folder, "/mnt/data", true, NULL, 0}};

    s.spec.plan = "/nowhere/plan";
    s.spec.mounts = mounts;
    s.spec.mount_count = 1;
    for (int at_work = 0; at_work < 2; at_work++) {
        size_t layers = 0;
        if (at_work)
            s.spec.workspace = NULL;
        CHECK_FOR(s.err.msg, prepare(&s) == 0);
        const struct op *layer = layer_of(&s);
        CHECK(layer && strcmp(layer->target, at_work ? "work" : "") == 0);
        CHECK(strcmp(layer->layer, "/nowhere/plan") == 0);
        CHECK((layer->flags & OP_OWNED) && !(layer->flags & OP_RECURSIVE));
        for (uint32_t i = 0; i < s.run->setup.op_count; i++)
            layers += s.run->setup.ops[i].kind == OP_LAYER;
        CHECK(layers == 1);
    }
    s.spec.plan = NULL;
    CHECK(prepare(&s) == 0 && !layer_of(&s));
    return 0;
}

TEST(what_cannot_have_a_layer_is_refused)
{
    SCENE(s);

    s.spec.plan = "/nowhere/plan";
    s.spec.level = CARREL_LEVEL_DIR;
    CHECK(prepare(&s) < 0 && s.err.code == ERR_INVALID && strstr(s.err.msg, "--plan"));
    s.spec.level = CARREL_LEVEL_NS;
    s.spec.limits.disk_bytes = 1 << 20;
    s.spec.limits.disk_image = true;
    CHECK(prepare(&s) < 0 && s.err.code == ERR_INVALID && strstr(s.err.msg, "image"));
    return 0;
}

/* Not only explained. */
static int open_really(struct scene *s)
{
    scene_forget(s);
    s->prepared = true;
    s->err = (struct err){0};
    return run_prepare(s->run, &s->spec, false, NULL, &s->err);
}

TEST(a_directory_that_is_no_place_for_a_layer_is_refused)
{
    SCENE(s);
    char plan[4200];

    snprintf(plan, sizeof(plan), "%s/plan", s.folder);
    s.spec.plan = plan;
    CHECK(open_really(&s) < 0 && s.err.code == ERR_NOT_FOUND);
    CHECK(mkdir(plan, 0755) == 0 && chmod(plan, 0755) == 0);
    CHECK(open_really(&s) < 0 && s.err.code == ERR_DENIED && strstr(s.err.msg, "chmod 700"));
    CHECK(rmdir(plan) == 0 && symlink("/", plan) == 0);
    CHECK(open_really(&s) < 0);
    CHECK(unlink(plan) == 0);
    /* In the tree it would be seen inside. */
    s.spec.plan = in_folder(&s, "ws/plan");
    CHECK(mkdir(s.spec.plan, 0700) == 0);
    CHECK(open_really(&s) < 0 && s.err.code == ERR_INVALID && strstr(s.err.msg, "lies in"));
    CHECK(rmdir(in_folder(&s, "ws/plan")) == 0);
    /* On another file system nothing could be moved into the tree. */
    struct stat here;
    struct stat there;
    char other[] = "/dev/shm/carrel-unit.XXXXXX";
    CHECK(mkdtemp(other) && stat(other, &there) == 0 && stat(s.folder, &here) == 0);
    s.spec.plan = other;
    if (here.st_dev != there.st_dev)
        CHECK(open_really(&s) < 0 && strstr(s.err.msg, "file system"));
    CHECK(rmdir(other) == 0);
    return 0;
}

TEST(a_layer_is_locked_while_it_is_open_and_looks_like_the_trees_top)
{
    SCENE(s);
    char plan[4200];
    char part[4300];
    struct stat st;
    struct err err = {0};
    struct run *second = malloc(sizeof(*second));

    snprintf(plan, sizeof(plan), "%s/plan", s.folder);
    CHECK(second && mkdir(plan, 0700) == 0 && chmod(s.spec.workspace, 0751) == 0);
    s.spec.plan = plan;
    CHECK_FOR(s.err.msg, open_really(&s) == 0);
    snprintf(part, sizeof(part), "%s/upper", plan);
    CHECK(stat(part, &st) == 0 && (st.st_mode & 07777) == 0751);
    CHECK(run_prepare(second, &s.spec, false, NULL, &err) < 0 && err.code == ERR_CONFLICT);
    run_clear(second);
    free(second);
    CHECK(overlay_settle(plan, 0, &err) == 0); /* nobody has mounted it */
    scene_forget(&s);
    static const char *const parts[] = {"upper", "work/work", "work/index", "work", ""};
    for (size_t i = 0; i < LENGTH(parts); i++) {
        snprintf(part, sizeof(part), "%s/%s", plan, parts[i]);
        (void)rmdir(part);
    }
    CHECK(access(plan, F_OK) < 0);
    return 0;
}

/* --- a mount with a layer of its own --- */

static const struct op *op_at(const struct scene *s, const char *target)
{
    for (uint32_t i = s->run->setup.frame_count; i < s->run->setup.op_count; i++) {
        if (op_has_tree(&s->run->setup.ops[i]) && is(s->run->setup.ops[i].target, target))
            return &s->run->setup.ops[i];
    }
    return NULL;
}

TEST(a_mount_has_a_layer_of_its_own_also_beside_a_plans)
{
    SCENE(s);
    struct carrel_mount mounts[] = {{s.folder, "/.venv", true, "/nowhere/a", 0},
                                    {s.folder, "/.cache/uv", false, "/nowhere/b", 0},
                                    {s.folder, "/data", true, NULL, 0}};

    s.spec.mounts = mounts;
    s.spec.mount_count = LENGTH(mounts);
    for (int planned = 0; planned < 2; planned++) {
        s.spec.plan = planned ? "/nowhere/plan" : NULL;
        CHECK_FOR(s.err.msg, prepare(&s) == 0);
        const struct op *tree = op_at(&s, "");
        const struct op *venv = op_at(&s, ".venv");
        const struct op *cache = op_at(&s, ".cache/uv");
        CHECK(tree && tree->kind == (planned ? OP_LAYER : OP_BIND));
        CHECK(!planned || ((tree->flags & OP_PLAN) && is(tree->layer, "/nowhere/plan")));
        CHECK(venv && venv->kind == OP_LAYER && is(venv->layer, "/nowhere/a"));
        CHECK(!(venv->flags & (OP_PLAN | OP_SHOWN | OP_RECURSIVE)) && (venv->flags & OP_TOP));
        CHECK(cache && cache->kind == OP_LAYER && is(cache->layer, "/nowhere/b"));
        CHECK((cache->flags & OP_SHOWN) && !(cache->flags & (OP_PLAN | OP_TOP)));
        CHECK(op_at(&s, "data")->kind == OP_BIND);
        CHECK(s.run->layer_count == 2U + (unsigned)planned);
    }
    return 0;
}

TEST(so_many_layers_and_no_more)
{
    SCENE(s);
    struct carrel_mount mounts[CARREL_MAX_LAYERS + 1];
    char targets[CARREL_MAX_LAYERS + 1][16];

    for (size_t i = 0; i < LENGTH(mounts); i++) {
        snprintf(targets[i], sizeof(targets[i]), "/m%zu", i);
        mounts[i] = (struct carrel_mount){s.folder, targets[i], true, "/nowhere/a", 0};
    }
    s.spec.mounts = mounts;
    for (int planned = 0; planned < 2; planned++) {
        s.spec.plan = planned ? "/nowhere/plan" : NULL;
        s.spec.mount_count = CARREL_MAX_LAYERS;
        CHECK_FOR(s.err.msg, prepare(&s) == 0);
        s.spec.mount_count++;
        CHECK(prepare(&s) < 0 && s.err.code == ERR_LIMIT);
    }
    return 0;
}

TEST(a_mount_whose_layer_cannot_be_is_refused)
{
    SCENE(s);
    char layer[4200];
    char inner[4300];
    struct carrel_mount mount = {in_folder(&s, "file"), "/.venv", true, layer, 0};

    snprintf(layer, sizeof(layer), "%s/layer", s.folder);
    snprintf(inner, sizeof(inner), "%s/layer/in", s.folder);
    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    CHECK(mkdir(layer, 0700) == 0);
    CHECK(open_really(&s) < 0 && strstr(s.err.msg, "no directory"));
    mount.source = s.folder; /* the layer lies in it */
    CHECK(open_really(&s) < 0 && s.err.code == ERR_INVALID && strstr(s.err.msg, "lies in"));
    CHECK(mkdir(inner, 0755) == 0);
    mount.source = inner;
    CHECK(open_really(&s) < 0 && s.err.code == ERR_INVALID && strstr(s.err.msg, "lies in"));
    s.spec.limits.disk_bytes = 1 << 20;
    s.spec.limits.disk_image = true;
    CHECK(open_really(&s) < 0 && strstr(s.err.msg, "image"));
    s.spec.limits = (struct carrel_limits){0};
    mount.layer = in_folder(&s, "missing");
    CHECK(open_really(&s) < 0 && s.err.code == ERR_NOT_FOUND);
    mount.writable = false; /* then there is only nothing to be seen of it */
    CHECK_FOR(s.err.msg, open_really(&s) == 0 && op_at(&s, ".venv")->kind == OP_BIND);
    mount.layer = layer; /* nor there */
    mount.source = s.spec.workspace;
    CHECK_FOR(s.err.msg, open_really(&s) == 0 && op_at(&s, ".venv")->kind == OP_BIND);
    CHECK(!(op_at(&s, ".venv")->flags & OP_SHOWN) && s.run->layer_count == 0);
    scene_forget(&s);
    CHECK(rmdir(inner) == 0 && rmdir(layer) == 0);
    return 0;
}

TEST(what_a_layer_would_hide_is_told_before_anything_is_made)
{
    SCENE(s);
    struct carrel_mount mount = {s.folder, "/.venv", true, "/nowhere/a", 0};
    bool missing[SETUP_MAX_OPS];

    s.spec.mounts = &mount;
    s.spec.mount_count = 1;
    for (int full = 0; full < 2; full++) {
        CHECK(mkdir(in_folder(&s, full ? "ws/.venv/bin" : "ws/.venv"), 0755) == 0);
        CHECK_FOR(s.err.msg, prepare(&s) == 0);
        int r = workspace_check_mount_points(s.run, missing, &s.err);
        CHECK_FOR(s.err.msg, r == (full ? -1 : 0));
        CHECK(!full || (s.err.code == ERR_CONFLICT && strstr(s.err.msg, ".venv")));
    }
    mount.layer = NULL; /* what is only bound covers what is there */
    CHECK(prepare(&s) == 0 && workspace_check_mount_points(s.run, missing, &s.err) == 0);
    return 0;
}
