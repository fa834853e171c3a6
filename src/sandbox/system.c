/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/names.h"
#include "base/weak.h"
#include "sandbox/authority.h"
#include "sandbox/overlay.h"
#include "sandbox/rootfs.h"
#include "sandbox/run.h"
#include "sandbox/start.h"
#include "sys/mount.h"
#include "sys/path.h"

#define PLACE     SETUP_SYSTEM_PLACE
#define RUN_BYTES (16UL << 20)

/* Parts of the base that are shown, and the names that lead into /usr, as Debian has them. */
static const char *const parts[] = {"usr", "etc", "var", "opt", "home", "root"};
static const char *const merged[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

enum {
    PARTS = sizeof(parts) / sizeof(parts[0]),
    MERGED = sizeof(merged) / sizeof(merged[0])
};

static int check_spec(const struct carrel_spec *spec, struct err *err)
{
    const struct {
        bool asked;
        const char *why;
    } cannot[] = {
        {!spec->base_layer, "needs a directory for what is changed of it: --system BASE:DIR"},
        {!spec->workspace, "goes with a workspace that becomes /: --workspace DIR"},
        {spec->level == CARREL_LEVEL_DIR, "is not there at level dir"},
        {spec->limits.disk_image, "cannot be had with the disk in an image, as its layer lies "
                                  "outside of it; bound the disk without an image"},
        {spec->plan && spec->user == CARREL_USER_ROOT,
         "is not changed by a plan, and so a planned command cannot be root's"},
    };

    for (size_t i = 0; i < sizeof(cannot) / sizeof(cannot[0]); i++) {
        if (cannot[i].asked)
            return err_set(err, ERR_INVALID, 0, "a system of its own %s", cannot[i].why);
    }
    return 0;
}

int system_check(struct run *run, struct err *err)
{
    if (check_spec(run->spec, err) < 0)
        return -1;
    if (run->host.can_lease || run->dry)
        return 0;
    return identity_find_subids(&run->identity, run->host.uid, err);
}

/* A base of another owner's ids would be one of files that belong to nobody inside. */
static int check_base(const struct run *run, int base, struct err *err)
{
    const char *name = run->spec->base;
    uid_t wanted = run->host.can_lease ? IDENTITY_SYSTEM_FIRST : run->identity.sub_uid;
    struct stat st;

    if (fstatat(base, "usr", &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, 0, "'%s' is no base: it has no directory usr", name);
    if (st.st_uid != wanted && !run->dry)
        return err_set(err, ERR_INVALID, 0,
                       "the base '%s' has other owners (%u) than bases of this user have (%u); "
                       "make it with: carrel base build",
                       name, st.st_uid, wanted);
    return 0;
}

static int add_layer(struct run *run, int base, struct err *err)
{
    struct layer *layer;
    struct op as = {.target = PLACE,
                    .attrs = rootfs_data_attrs() | (run->spec->plan ? MOUNT_RDONLY : 0),
                    .flags = OP_SYSTEM};
    uint32_t flags = OP_SYSTEM | (run->spec->plan ? OP_SHOWN : 0);

    if (!rootfs_add_dir(run, PLACE, 0))
        return rootfs_full(err);
    if (overlay_open(run, run->spec->base_layer, base, flags, &layer, err) < 0)
        return -1;
    if (!layer && run->spec->base_over) { /* then nothing but what another has changed */
        if (overlay_open(run, run->spec->base_over, base, flags, &layer, err) < 0)
            return -1;
    } else if (run->spec->base_over &&
               overlay_see_through(run, layer, run->spec->base_over, err) < 0) {
        return -1;
    }
    if (!layer) /* only to be shown, and nothing was changed so far */
        as.attrs |= MOUNT_RDONLY;
    return rootfs_add_opened(run, base, run->spec->base, &as, layer, err);
}

static int add_part(struct run *run, const char *source, const char *target, uint64_t attrs)
{
    struct op *op = rootfs_add(run, OP_PART, source, target);

    if (op)
        op->attrs = attrs;
    return op ? 0 : -1;
}

/* A name at the top: a directory of the base's, or a link into its /usr. */
static int add_top(struct run *run, int base, const char *name)
{
    char target[32];
    struct stat st;
    const char *source = arena_printf(&run->arena, PLACE "/%s", name);

    if (fstatat(base, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(base, name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, "usr/", 4) != 0 || strcmp(target + 4, name) != 0)
            return 0;
        source = arena_printf(&run->arena, PLACE "/usr/%s", name);
    }
    if (!source || !rootfs_add_dir(run, name, OP_IN_ROOT))
        return -1;
    return add_part(run, source, name, rootfs_data_attrs());
}

/* The program is there in any case, to say so where nobody may ask. */
static int add_sudo(struct run *run, struct err *err)
{
    static const char name[] = "carrel-sudo";
    const char *init = live_init_path(run);
    const char *slash = strrchr(init, '/');
    const char *path =
        arena_printf(&run->arena, "%.*s%s", slash ? (int)(slash - init + 1) : 0, init, name);
    struct op *file;

    if (!path || !rootfs_add_dir(run, "run/carrel", OP_IN_ROOT) ||
        !(file = rootfs_add_file(run, SUDO_PROGRAM, "")))
        return rootfs_full(err);
    file->flags = OP_IN_ROOT;
    if ((!run->spec->no_sudo && !run->spec->plan) || weak("sudo-forbidden"))
        run->setup.flags |= SETUP_SUDO;
    return rootfs_add_bind(run, path, SUDO_PROGRAM, rootfs_data_attrs() | MOUNT_RDONLY, 0, err);
}

static int add_run(struct run *run)
{
    struct op *op;

    if (!rootfs_add_dir(run, "run", OP_IN_ROOT) ||
        !(op = rootfs_add_tmpfs(run, "run", RUN_BYTES, 0755)))
        return -1;
    op->uid = op->gid = 0;
    if (!(op = rootfs_add_dir(run, "run/lock", OP_IN_ROOT)))
        return -1;
    op->mode = 01777;
    return 0;
}

/* What the network is, the engine decides; who resolves names otherwise changes it for himself. */
static int add_etc(struct run *run, const char *resolver)
{
    static const char hosts[] = "127.0.0.1 localhost carrel\n::1 localhost ip6-localhost\n";
    const uint64_t attrs = rootfs_data_attrs() | MOUNT_RDONLY | MOUNT_NOEXEC;

    if (!rootfs_add_file(run, "resolv.conf", resolver) || !rootfs_add_file(run, "hosts", hosts))
        return -1;
    return add_part(run, "resolv.conf", "etc/resolv.conf", attrs) < 0
               ? -1
               : add_part(run, "hosts", "etc/hosts", attrs);
}

/* In /run, as the rest belongs to the system, and nothing of this is to stay; also in the place of
 * the file that programs without settings know. */
static int add_authority(struct run *run)
{
    const uint64_t attrs = rootfs_data_attrs() | MOUNT_RDONLY | MOUNT_NOEXEC;
    struct op *bundle;

    if (!run->authority_cert)
        return 0;
    if (!rootfs_add_dir(run, "trust", 0) ||
        !rootfs_add_file(run, "trust/" AUTHORITY_FILE, run->authority_cert) ||
        !(bundle = rootfs_add_file(run, "trust/" AUTHORITY_BUNDLE, run->authority_cert)) ||
        !rootfs_add_dir(run, AUTHORITY_SYSTEM_DIR, OP_IN_ROOT) ||
        add_part(run, "trust", AUTHORITY_SYSTEM_DIR, attrs) < 0)
        return -1;
    bundle->layer = authority_of_host();
    bundle->flags |= OP_TRUST;
    if (add_part(run, "trust/" AUTHORITY_BUNDLE, SETUP_TRUST, attrs) < 0)
        return -1;
    run->setup.ops[run->setup.op_count - 1].flags |= OP_TRUST;
    return 0;
}

int system_write_frame(struct run *run, const char *resolver, struct err *err)
{
    scoped_fd int base = open(run->spec->base, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (base < 0)
        return err_set(err, ERR_NOT_FOUND, errno, "open the base '%s'", run->spec->base);
    if (check_base(run, base, err) < 0 || add_layer(run, base, err) < 0)
        return -1;
    run->setup.flags |= SETUP_SYSTEM;
    for (size_t i = 0; i < PARTS; i++) {
        if (add_top(run, base, parts[i]) < 0)
            return rootfs_full(err);
    }
    for (size_t i = 0; i < MERGED; i++) {
        if (add_top(run, base, merged[i]) < 0)
            return rootfs_full(err);
    }
    if (add_run(run) < 0 || add_etc(run, resolver) < 0 || add_authority(run) < 0)
        return rootfs_full(err);
    return add_sudo(run, err);
}

/* Those that were added to the frame. */
static bool is_part(const struct run *run, const char *name)
{
    for (uint32_t i = 0; i < run->setup.frame_count; i++) {
        const struct op *op = &run->setup.ops[i];
        if ((op->kind == OP_PART || op->kind == OP_TMPFS) && strcmp(op->target, name) == 0)
            return true;
    }
    return false;
}

int system_each_name(struct run *run, int (*each)(struct run *, const char *name))
{
    static const char *const names[] = {CARREL_SYSTEM_NAMES, CARREL_LAYER_NAMES};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        int r = is_part(run, names[i]) ? each(run, names[i]) : 0;
        if (r != 0)
            return r;
    }
    return 0;
}
