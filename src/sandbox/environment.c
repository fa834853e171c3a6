/* SPDX-License-Identifier: Apache-2.0 */
/* The command as pid 1 will start it: directory, arguments, variables. Nothing of the caller's own
 * environment comes along. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/fd.h"
#include "base/weak.h"
#include "sandbox/authority.h"
#include "sandbox/run.h"
#include "sys/path.h"

enum {
    MAX_VARIABLES = 4096
};

/* "%s" stands for the workspace's path: nothing at level ns, where the workspace is /. */
static const char *const defaults[] = {
    /* The last has `python` (rootfs.c). */
    ("PATH=%s/node_modules/.bin:%s/.venv/bin:/opt/carrel/bin:/usr/local/bin:/usr/bin:/bin:"
     "/etc/carrel/bin"),
    "LANG=C.UTF-8",
    "PYTHONUNBUFFERED=1",
    "PYTHONDONTWRITEBYTECODE=1",
    "PYTHONNOUSERSITE=1",
    "MPLBACKEND=Agg",
    "NODE_ENV=development",
    "NODE_PATH=%s/node_modules",
    "UV_CACHE_DIR=%s/.cache/uv",
    "UV_PYTHON_DOWNLOADS=never",
    "UV_PYTHON_PREFERENCE=only-system",
    "UV_COMPILE_BYTECODE=1",
    "UV_LINK_MODE=copy",
    "PIP_DISABLE_PIP_VERSION_CHECK=1",
    "PIP_CACHE_DIR=%s/.cache/pip",
    "npm_config_cache=%s/.cache/npm",
    "BUN_INSTALL_CACHE_DIR=%s/.cache/bun",
};

/* What root's commands have beside, or instead, in a system of the workspace's own. Nobody is there
 * to answer a package's questions. */
static const char *const of_root[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "DEBIAN_FRONTEND=noninteractive",
    NULL,
};

static char *expand(struct arena *arena, const char *text, const char *root)
{
    scoped_buf struct buf b;

    buf_init(&b, 64UL << 10);
    for (const char *mark; (mark = strstr(text, "%s")); text = mark + 2) {
        buf_add(&b, text, (size_t)(mark - text));
        buf_str(&b, root);
    }
    buf_str(&b, text);
    return buf_done(&b) < 0 ? NULL : arena_copy(arena, b.p, b.n);
}

/* A later value of the same name takes the earlier one's place. */
static int set(struct command *command, const char *variable, struct err *err)
{
    const char *equals = variable ? strchr(variable, '=') : NULL;

    if (!equals || equals == variable)
        return err_set(err, ERR_INVALID, 0, "environment '%.64s' is not NAME=value",
                       variable ? variable : "");
    size_t n = (size_t)(equals - variable) + 1;
    for (uint32_t i = 0; i < command->envc; i++) {
        if (strncmp(command->env[i], variable, n) == 0) {
            command->env[i] = variable;
            return 0;
        }
    }
    if (command->envc == MAX_VARIABLES)
        return err_set(err, ERR_LIMIT, 0, "more than %d environment variables", MAX_VARIABLES);
    command->env[command->envc++] = variable;
    return 0;
}

static bool has_virtual_environment(const struct run *run)
{
    for (uint32_t i = run->setup.frame_count; i < run->setup.op_count; i++) {
        const struct op *op = &run->setup.ops[i];
        if (op_has_tree(op) && strcmp(op->target, ".venv") == 0)
            return true;
    }
    if (!run->spec->workspace && run->level == CARREL_LEVEL_NS)
        return false;
    scoped_fd int fd = path_open_beneath(run->workspace, ".venv/bin", O_PATH | O_DIRECTORY, 0);
    return fd >= 0;
}

static const char *terminal_type(void)
{
    const char *type = getenv("TERM"); /* a name, never a secret; NOLINT(concurrency-mt-unsafe) */

    return type && strlen(type) < 64 && !strpbrk(type, "/ \n") ? type : "xterm-256color";
}

static int set_all(struct command *command, const char *const *variables, struct err *err)
{
    for (size_t i = 0; variables && variables[i]; i++) {
        if (set(command, variables[i], err) < 0)
            return -1;
    }
    return 0;
}

/* For test builds: the caller's own, which nobody gets otherwise. */
static int set_callers(struct command *command, struct err *err)
{
    extern char **environ;

    for (size_t i = 0; weak("env") && environ[i]; i++) {
        if (set(command, environ[i], err) < 0)
            return -1;
    }
    return 0;
}

static const char *home_of(const struct environment *ask, const char *root)
{
    if (ask->root)
        return "/root";
    return *root ? root : "/";
}

static int write_variables(const struct run *run, const struct environment *ask,
                           struct arena *arena, struct command *command, struct err *err)
{
    const char *user = run->spec->user == CARREL_USER_ROOT || ask->root ? "root" : "user";
    bool is_dir = run->level == CARREL_LEVEL_DIR;
    const char *root = is_dir ? run->workspace_path : "";

    const char *own[] = {
        arena_printf(arena, "HOME=%s", home_of(ask, root)),
        is_dir ? NULL : arena_printf(arena, "USER=%s", user),
        is_dir ? NULL : arena_printf(arena, "LOGNAME=%s", user),
        arena_printf(arena, "PWD=%s", command->cwd),
        ask->tty ? arena_printf(arena, "TERM=%s", terminal_type()) : NULL,
        has_virtual_environment(run) ? arena_printf(arena, "VIRTUAL_ENV=%s/.venv", root) : NULL,
    };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        if (own[i] && set(command, own[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
        if (set(command, expand(arena, defaults[i], root), err) < 0)
            return -1;
    }
    if ((ask->root && set_all(command, of_root, err) < 0) ||
        set_all(command, authority_env(run, arena), err) < 0 ||
        set_all(command, run->spec->env, err) < 0 || set_all(command, ask->env, err) < 0)
        return -1;
    return set_callers(command, err);
}

static int write_cwd(const struct run *run, const char *cwd, struct arena *arena,
                     struct command *command, struct err *err)
{
    const char *home = run->spec->workspace ? "/" : run->spec->at ? run->spec->at : "/work";

    if (cwd && cwd[0] != '/')
        return err_set(err, ERR_INVALID, 0, "--cwd '%s' is not an absolute path inside", cwd);
    command->cwd = cwd ? cwd : home;
    if (run->level == CARREL_LEVEL_DIR)
        command->cwd =
            cwd ? arena_printf(arena, "%s%s", run->workspace_path, cwd) : run->workspace_path;
    return command->cwd ? 0 : err_set(err, ERR_LIMIT, 0, "out of memory");
}

int environment_command(const struct run *run, const struct environment *ask, struct arena *arena,
                        struct command *ret, struct err *err)
{
    uint32_t argc = 0;

    while (ask->argv && ask->argv[argc])
        argc++;
    if (argc == 0)
        return err_set(err, ERR_INVALID, 0, "no command given");
    if (argc > SETUP_MAX_ARGS)
        return err_set(err, ERR_LIMIT, 0, "more than %d arguments", SETUP_MAX_ARGS);
    ret->argc = argc;
    ret->argv = (const char **)(uintptr_t)ask->argv;
    ret->envc = 0;
    ret->env = arena_alloc(arena, (MAX_VARIABLES + 1) * sizeof(char *));
    if (!ret->env)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    if (ask->tty)
        ret->flags |= COMMAND_TTY;
    if (ask->root)
        ret->flags |= COMMAND_ROOT;
    if (write_cwd(run, ask->cwd, arena, ret, err) < 0)
        return -1;
    return write_variables(run, ask, arena, ret, err);
}

/* So that the command's terminal has the caller's size from the beginning: supervise() copies it,
 * too, but a command may have asked by then. */
static void write_size(const struct carrel_spec *spec, struct command *command)
{
    struct winsize size;

    if (!spec->tty || spec->stdin_fd < 0 || ioctl(spec->stdin_fd, TIOCGWINSZ, &size) < 0)
        return;
    command->rows = size.ws_row;
    command->columns = size.ws_col;
}

int environment_write(struct run *run, struct err *err)
{
    struct environment ask = {.argv = run->spec->argv,
                              .cwd = run->spec->cwd,
                              .tty = run->spec->tty,
                              .root = run->spec->base && run->spec->user == CARREL_USER_ROOT};

    write_size(run->spec, &run->command);
    return environment_command(run, &ask, &run->arena, &run->command, err);
}
