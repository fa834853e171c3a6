/* SPDX-License-Identifier: Apache-2.0 */
/* Capabilities, over the sandbox's own user namespace. A command has none, whoever it is. But where
 * the workspace has a system of its own, root's commands have those that installing software takes.
 * Pid 1 and the keepers, which start them, keep these put away, and use one: to kill whoever is of
 * another uid. They are undumpable, and hear nobody but the engine. */
#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/weak.h"
#include "init/init.h"

#define BIT(cap) (1U << (cap)) /* all are of the lower half */

static const uint32_t for_root = BIT(CAP_CHOWN) | BIT(CAP_DAC_OVERRIDE) | BIT(CAP_FOWNER) |
                                 BIT(CAP_FSETID) | BIT(CAP_SETGID) | BIT(CAP_SETUID) |
                                 BIT(CAP_SETFCAP);
static const uint32_t to_start = BIT(CAP_SETPCAP); /* beside those that are handed on */
static const uint32_t to_end = BIT(CAP_KILL);

static bool kept;

static uint32_t roots(void)
{
    return weak("caps-of-root") ? for_root | BIT(CAP_SYS_ADMIN) : for_root;
}

static int set_capabilities(uint32_t effective, uint32_t permitted)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{.effective = effective, .permitted = permitted}};

    return (int)syscall(SYS_capset, &head, sets);
}

/* What is not in the bounding set no exec can give back. EINVAL is how the kernel says that there
 * are no more. */
static int bound(uint32_t to)
{
    unsigned long cap = 0;

    while ((cap < 32 && to & BIT(cap)) || prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0)
        cap++;
    return errno == EINVAL && cap > CAP_CHECKPOINT_RESTORE ? 0 : -1;
}

enum {
    AS_ROOT = SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED,
    NOBODY_SPECIAL = AS_ROOT | SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP,
    NOBODY_EVER = NOBODY_SPECIAL | SECBIT_KEEP_CAPS_LOCKED | SECBIT_NOROOT_LOCKED |
                  SECBIT_NO_SETUID_FIXUP_LOCKED
};

/* Uid 0 inside means nothing special, and a change of uid takes nothing away by itself: the last
 * stage of the three does. Where commands may be root's that is decided for each. */
int stage_lock_capabilities(struct sandbox *sandbox, struct err *err)
{
    bool of_base = sandbox->setup->flags & SETUP_SYSTEM;

    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return err_set(err, ERR_IO, errno, "clear ambient capabilities");
    if (bound(of_base ? roots() : 0) < 0)
        return err_set(err, ERR_IO, errno, "drop capabilities");
    if (prctl(PR_SET_SECUREBITS, (unsigned long)(of_base ? NOBODY_SPECIAL : NOBODY_EVER), 0, 0, 0) <
        0)
        return err_set(err, ERR_IO, errno, "lock the secure bits");
    return 0;
}

/* Leaving root does not drop capabilities here, so they are cleared by hand. */
int stage_drop_capabilities(struct sandbox *sandbox, struct err *err)
{
    kept = sandbox->setup->flags & SETUP_SYSTEM;
    if (set_capabilities(kept ? to_end : 0, kept ? roots() | to_start | to_end : 0) < 0)
        return err_set(err, ERR_IO, errno, "drop all capabilities");
    return 0;
}

/* Ids by number: this thread's memory may be pid 1's, and a C library would tell its other threads.
 */
static int become_root(void)
{
    if (prctl(PR_SET_SECUREBITS, (unsigned long)AS_ROOT, 0, 0, 0) < 0 ||
        syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0)
        return -1;
    return set_capabilities(roots(), roots());
}

static int become_nobody_special(void)
{
    if (bound(0) < 0 || prctl(PR_SET_SECUREBITS, (unsigned long)NOBODY_EVER, 0, 0, 0) < 0)
        return -1;
    return set_capabilities(0, 0);
}

int rights_for_command(bool as_root)
{
    if (!kept) {
        errno = EPERM;
        return as_root ? -1 : 0;
    }
    if (set_capabilities(roots() | to_start, roots() | to_start) < 0)
        return -1;
    return as_root ? become_root() : become_nobody_special();
}
