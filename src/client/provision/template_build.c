/* SPDX-License-Identifier: Apache-2.0 */
/* carrel template build. A template is a workspace that was prepared and is then kept for good:
 *
 *   read FILE, its locks, look for what it copies      nothing is made before all of that is right
 *   a workspace that has taken the template's name     another build of it is refused
 *   steps[], in order, in a workspace of its own       any failure, or a signal: the workspace goes
 *   POST /v1/templates                                 the workspace has become the template
 *   write the locks that were made
 *
 * A lock that fits is used as it is, and nothing is resolved: two builds install the same files.
 *
 * What the build has fetched becomes everybody's cache. So no code of a package may run in it,
 * unless the file says "build": then the cache stays the build's own. No script of a package runs;
 * no command is looked for where packages put theirs; and once packages are there Python runs
 * without `site`, which would execute their .pth files: so bytecode is not compiled by uv. */
#include "client/provision/template_build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "client/core/client.h"
#include "client/core/text.h"
#include "client/provision/template_file.h"
#include "client/provision/template_lock.h"
#include "client/provision/template_run.h"

enum {
    MOST_MEMORY = 4 * 1024 * 1024,
    MOST_WORDS = TEMPLATE_MOST + 16,
    VERSION_SIZE = 16,
    PAUSE_MS = 200, /* doubled, up to */
    MOST_PAUSE_MS = 5000,
    DECIDED_MS = 120 * 1000, /* until then it is waited for */
};

/* One of the two locks. */
struct lock {
    char path[PATH_MAX];
    struct buf text; /* what is in the file, or was made */
    bool found;
    bool made;    /* ... and is to be written */
    json_t *list; /* what is locked */
};

struct making {
    struct build b;
    const struct template_options *o;
    struct arena arena;
    struct template_file file;
    char dir[PATH_MAX]; /* where its file is */
    struct lock python;
    struct lock node;
    char python_version[VERSION_SIZE]; /* "3.11" */
    char interpreter[256];             /* the host's, of the same version */
    char before[65];                   /* id of the template that has the name; "": none has */
    json_t *answer;                    /* the template */
    bool undecided; /* whether the workspace has become it is not known yet: it must stay */
};

/* --- before anything is made --- */

static int read_template(struct making *m, const char *path, struct err *err)
{
    scoped_buf struct buf text = {0};
    char resolved[PATH_MAX];

    buf_init(&text, TEMPLATE_MOST_BYTES);
    arena_init(&m->arena, MOST_MEMORY);
    if (!realpath(path, resolved))
        return err_set(err, ERR_NOT_FOUND, errno, "'%.200s' cannot be read", path);
    if (client_read_file(resolved, &text, err) < 0)
        return -1;
    if (template_parse(&m->file, &m->arena, text.p, text.n, err) < 0)
        return err_wrap(err, "'%.120s'", path);
    *strrchr(resolved, '/') = '\0';
    snprintf(m->dir, sizeof(m->dir), "%s", resolved[0] ? resolved : "/");
    return 0;
}

/* The path here of something to copy; links may not lead out of the template's directory. */
static int find_file(const struct making *m, const char *name, char ret[PATH_MAX], struct err *err)
{
    scoped_buf struct buf path = {0};
    size_t n = strlen(m->dir);
    struct stat st;

    buf_init(&path, PATH_MAX);
    buf_printf(&path, "%s/%s", m->dir, name);
    if (buf_done(&path) < 0 || !realpath(path.p, ret) || stat(ret, &st) < 0)
        return err_set(err, ERR_NOT_FOUND, 0,
                       "\"files\": there is no '%.160s' beside the template's file", name);
    if (strncmp(ret, m->dir, n) != 0 || (ret[n] != '/' && n > 1))
        return err_set(err, ERR_DENIED, 0, "\"files\": '%.160s' leads out of %.120s", name, m->dir);
    if (!S_ISREG(st.st_mode) || access(ret, R_OK) < 0)
        return err_set(err, ERR_INVALID, 0, "\"files\": '%.160s' is no file that can be read",
                       name);
    return 0;
}

static int check_files(const struct making *m, struct err *err)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < m->file.files.count; i++) {
        if (find_file(m, m->file.files.at[i].value, path, err) < 0)
            return -1;
    }
    return 0;
}

static int read_lock(struct making *m, struct lock *lock, const struct template_packages *packages,
                     const char *kind, struct err *err)
{
    struct buf path;

    buf_init(&lock->text, LOCK_MOST_BYTES);
    buf_init(&path, sizeof(lock->path));
    buf_printf(&path, "%s/", m->dir);
    if (packages->lock)
        buf_str(&path, packages->lock);
    else
        buf_printf(&path, "%s.%s.lock", m->file.name, kind);
    int r =
        buf_done(&path) < 0 ? err_set(err, ERR_INVALID, 0, "the path of the lock is too long") : 0;
    snprintf(lock->path, sizeof(lock->path), "%s", r == 0 ? path.p : "");
    buf_clear(&path);
    if (r < 0 || packages->count == 0)
        return r;
    if (access(lock->path, F_OK) < 0 || m->o->update_lock) {
        if (m->o->update_lock && access(m->dir, W_OK) < 0)
            return err_set(err, ERR_DENIED, errno, "--update-lock: '%.160s' cannot be written",
                           m->dir);
        return 0;
    }
    lock->found = true;
    return client_read_file(lock->path, &lock->text, err);
}

static int refuse_lock(const struct lock *lock, struct err *err)
{
    return err_set(
        err, ERR_CONFLICT, 0,
        "'%.200s' was made for other packages: build with --update-lock to resolve these",
        lock->path);
}

/* Which Python there will be is not known yet; for which packages the locks are, is. */
static int check_locks(struct making *m, struct err *err)
{
    enum lock_fit fit = LOCK_FITS;
    json_t *bun = NULL;

    if (read_lock(m, &m->python, &m->file.python, "python", err) < 0 ||
        read_lock(m, &m->node, &m->file.node, "node", err) < 0)
        return -1;
    if (m->python.found &&
        lock_python_fit(&m->file.python, "", m->python.text.p) == LOCK_OTHER_PACKAGES)
        return refuse_lock(&m->python, err);
    if (!m->node.found)
        return 0;
    if (lock_node_read(m->node.text.p, m->node.text.n, &m->file.node, &fit, &bun, err) < 0)
        return err_wrap(err, "'%.160s'", m->node.path);
    json_decref(bun);
    return fit == LOCK_FITS ? 0 : refuse_lock(&m->node, err);
}

/* --- the steps --- */

static bool always(const struct making *m)
{
    (void)m;
    return true;
}

static int make_workspace(struct making *m, struct err *err)
{
    bool needs_network = m->file.python.count + m->file.node.count > 0 && !m->o->offline;
    json_t *body =
        json_pack("{s:{s:s}, s:s, s:{s:s}}", "labels", "template-build", m->file.name, "builds",
                  m->file.name, "policy", "network", needs_network ? "host" : "none");
    json_t *answer = NULL;

    /* Not to be stopped half way: then nobody would know what to remove. */
    if (daemon_ask(&m->b.f.daemon, "POST", "/v1/workspaces", body, &answer, err) < 0)
        return -1;
    const char *id = client_text(answer, "id");
    snprintf(m->b.workspace, sizeof(m->b.workspace), "%s", id ? id : "");
    json_decref(answer);
    return id ? 0 : err_set(err, ERR_IO, 0, "the daemon's answer has no id");
}

static bool wants_python(const struct making *m)
{
    return m->file.python.wanted;
}

/* "3.11.2" -> "3.11" */
static void keep_minor(char *ret, const char *version)
{
    const char *dot = strchr(version, '.');
    size_t n = dot ? (size_t)(dot - version) + 1 + strspn(dot + 1, "0123456789") : strlen(version);

    snprintf(ret, VERSION_SIZE, "%.*s", (int)(n < VERSION_SIZE ? n : VERSION_SIZE - 1), version);
}

static int make_python(struct making *m, struct err *err)
{
    json_t *body = json_object();
    json_t *answer = NULL;

    if (m->file.python.version)
        json_object_set_new(body, "version", json_string(m->file.python.version));
    if (build_ask(&m->b, "POST", "/env/python", body, &answer, err) < 0)
        return -1;
    const char *version = client_text(json_object_get(answer, "python"), "version");
    const char *interpreter = client_text(json_object_get(answer, "python"), "interpreter");
    keep_minor(m->python_version, version ? version : "");
    snprintf(m->interpreter, sizeof(m->interpreter), "%s", interpreter ? interpreter : "python3");
    json_decref(answer);
    return version ? 0 : err_set(err, ERR_IO, 0, "the daemon does not say which Python it is");
}

static bool wants_python_packages(const struct making *m)
{
    return m->file.python.count > 0;
}

/* The words of uv that go for resolving and installing. */
static void add_uv_options(const struct making *m, const char **words, size_t *count)
{
    if (!m->file.python.build) {
        words[(*count)++] = "--only-binary";
        words[(*count)++] = ":all:";
    }
    if (m->o->offline)
        words[(*count)++] = "--offline";
}

static int resolve_python(struct making *m, struct err *err)
{
    const char *words[MOST_WORDS] = {"uv",          "pip",           "compile", "--generate-hashes",
                                     "--no-header", "--no-annotate", NULL};
    size_t count = 6;
    scoped_buf struct buf wanted = {0};
    scoped_buf struct buf made = {0};

    buf_init(&wanted, 2UL * TEMPLATE_MOST_BYTES);
    buf_init(&made, LOCK_MOST_BYTES);
    for (size_t i = 0; i < m->file.python.count; i++)
        buf_printf(&wanted, "%s\n", m->file.python.at[i]);
    if (buf_done(&wanted) < 0)
        return err_set(err, ERR_LIMIT, 0, "out of memory");
    add_uv_options(m, words, &count);
    words[count++] = "-";
    words[count] = NULL;
    const struct build_command compile = {.argv = words, .input = wanted.p, .output = &made};
    if (build_run(&m->b, &compile, err) < 0)
        return -1;
    m->python.text.n = 0;
    lock_python_head(&m->python.text, &m->file.python, m->python_version);
    buf_add(&m->python.text, made.p, made.n);
    return buf_done(&m->python.text) < 0 ? err_set(err, ERR_LIMIT, 0, "the lock is too large") : 0;
}

static int list_in_project(struct making *m, struct err *err)
{
    scoped_buf struct buf old = {0};
    scoped_buf struct buf made = {0};

    buf_init(&old, TEMPLATE_MOST_BYTES);
    buf_init(&made, 4UL * TEMPLATE_MOST_BYTES);
    if (build_get(&m->b, "/pyproject.toml", &old, err) < 0)
        return -1;
    if (buf_done(&old) == 0)
        lock_python_project(&made, old.p, &m->file.python);
    return buf_done(&made) < 0 ? err_set(err, ERR_LIMIT, 0, "pyproject.toml is too large")
                               : build_put(&m->b, "/pyproject.toml", made.p, err);
}

static int install_python(struct making *m, struct err *err)
{
    const char *words[MOST_WORDS] = {"uv", "pip", "install", "--require-hashes"};
    size_t count = 4;
    char note[128];
    enum lock_fit fit = m->python.found
                            ? lock_python_fit(&m->file.python, m->python_version, m->python.text.p)
                            : LOCK_OTHER_PACKAGES;

    if (fit == LOCK_OTHER_PYTHON) {
        snprintf(
            note, sizeof(note),
            "the lock is for another Python than %s: resolved anew, and the lock left as it is",
            m->python_version);
        build_say(&m->b, note);
    }
    if (fit == LOCK_OTHER_PYTHON || fit == LOCK_OTHER_PACKAGES) {
        if (resolve_python(m, err) < 0)
            return -1;
        m->python.made = fit == LOCK_OTHER_PACKAGES;
    }
    m->python.list = lock_python_list(m->python.text.p);
    add_uv_options(m, words, &count);
    words[count++] = "-r";
    words[count++] = "-";
    words[count] = NULL;
    const struct build_command install = {.argv = words, .input = m->python.text.p};
    return build_run(&m->b, &install, err) < 0 ? -1 : list_in_project(m, err);
}

/* So that imports are not slow. A file that is not for this Python is no failure. */
static int compile_python(struct making *m, struct err *err)
{
    static const char script[] = "import compileall\n"
                                 "compileall.compile_dir('/.venv/lib', quiet=2, workers=0)";
    const char *words[] = {m->interpreter, "-I", "-S", "-c", script, NULL};
    const struct build_command compile = {.argv = words};

    return build_run(&m->b, &compile, err);
}

static bool wants_node(const struct making *m)
{
    return m->file.node.wanted;
}

static int make_node(struct making *m, struct err *err)
{
    json_t *answer = NULL;
    int r = build_ask(&m->b, "POST", "/env/node", json_object(), &answer, err);

    json_decref(answer);
    return r;
}

static bool wants_node_packages(const struct making *m)
{
    return m->file.node.count > 0;
}

static int run_bun(struct making *m, const char **words, size_t count, struct err *err)
{
    if (!m->file.node.build)
        words[count++] = "--ignore-scripts";
    words[count] = NULL;
    const struct build_command bun = {.argv = words};
    return build_run(&m->b, &bun, err);
}

static int put_json(struct making *m, const char *path, const json_t *value, struct err *err)
{
    char *text = json_dumps(value, JSON_INDENT(2));
    int r = text ? build_put(&m->b, path, text, err) : err_set(err, ERR_LIMIT, 0, "out of memory");

    free(text);
    return r;
}

static int get_package(struct making *m, json_t **ret, struct err *err)
{
    scoped_buf struct buf text = {0};

    buf_init(&text, TEMPLATE_MOST_BYTES);
    if (build_get(&m->b, "/package.json", &text, err) < 0)
        return -1;
    *ret = json_loadb(text.p, text.n, 0, NULL);
    if (json_is_object(*ret))
        return 0;
    json_decref(*ret);
    return err_set(err, ERR_IO, 0, "/package.json is no JSON object");
}

/* package.json as it is, with what the lock is of. */
static int put_node_lock(struct making *m, json_t *bun, struct err *err)
{
    json_t *dependencies = lock_node_dependencies(bun);
    json_t *package = NULL;

    if (!dependencies)
        return err_set(err, ERR_INVALID, 0,
                       "'%.200s' does not say what it is of; build with --update-lock",
                       m->node.path);
    if (get_package(m, &package, err) < 0)
        return -1;
    json_object_set(package, "dependencies", dependencies);
    int r = put_json(m, "/package.json", package, err);
    json_decref(package);
    return r < 0 ? -1 : put_json(m, "/bun.lock", bun, err);
}

/* With a lock bun reads no description of a package, and so leaves none in the cache: without them
 * a workspace could not add the same packages without the network. What fails here is not missed
 * by the template. */
static int fetch_descriptions(struct making *m, json_t *bun, struct err *err)
{
    static const char script[] = "mkdir -p /tmp/descriptions && cd /tmp/descriptions && "
                                 "cat >package.json && "
                                 "bun install --lockfile-only --ignore-scripts >/dev/null 2>&1; :";
    const char *words[] = {"sh", "-c", script, NULL};
    json_t *package = json_pack("{s:O}", "dependencies", lock_node_dependencies(bun));
    char *text = json_dumps(package, 0);
    const struct build_command fetch = {.argv = words, .input = text};
    int r = text ? build_run(&m->b, &fetch, err) : err_set(err, ERR_LIMIT, 0, "out of memory");

    free(text);
    json_decref(package);
    return r;
}

static int install_locked_node(struct making *m, json_t *bun, struct err *err)
{
    const char *words[MOST_WORDS] = {"bun", "install", "--frozen-lockfile"};

    if (put_node_lock(m, bun, err) < 0 || run_bun(m, words, 3, err) < 0)
        return -1;
    return m->o->offline ? 0 : fetch_descriptions(m, bun, err);
}

/* What bun has resolved, as it will be found by the next build. */
static int get_node_lock(struct making *m, json_t **ret_bun, struct err *err)
{
    scoped_buf struct buf text = {0};
    json_t *package = NULL;

    buf_init(&text, LOCK_MOST_BYTES);
    if (build_get(&m->b, "/bun.lock", &text, err) < 0 ||
        lock_read_bun(text.p, text.n, ret_bun, err) < 0 || get_package(m, &package, err) < 0)
        return -1;
    int r = lock_node_set_dependencies(*ret_bun, json_object_get(package, "dependencies"));
    json_decref(package);
    return r < 0 ? err_set(err, ERR_IO, 0, "bun.lock is not of package.json")
                 : put_json(m, "/bun.lock", *ret_bun, err);
}

static int add_node(struct making *m, json_t **ret_bun, struct err *err)
{
    const char *words[MOST_WORDS] = {"bun", "add"};

    memcpy(words + 2, m->file.node.at, m->file.node.count * sizeof(words[0]));
    if (run_bun(m, words, 2 + m->file.node.count, err) < 0 || get_node_lock(m, ret_bun, err) < 0)
        return -1;
    json_t *kept = lock_node_make(&m->file.node, *ret_bun);
    char *dumped = json_dumps(kept, JSON_INDENT(1));
    m->node.text.n = 0;
    buf_printf(&m->node.text, "%s\n", dumped ? dumped : "");
    m->node.made = true;
    free(dumped);
    json_decref(kept);
    return 0;
}

static int install_node(struct making *m, struct err *err)
{
    enum lock_fit fit;
    json_t *bun = NULL;
    int r;

    if (m->node.found) {
        r = lock_node_read(m->node.text.p, m->node.text.n, &m->file.node, &fit, &bun, err);
        if (r == 0)
            r = install_locked_node(m, bun, err);
    } else {
        r = add_node(m, &bun, err);
    }
    m->node.list = lock_node_list(bun);
    json_decref(bun);
    return r;
}

static bool wants_files(const struct making *m)
{
    return m->file.files.count > 0;
}

static int copy_files(struct making *m, struct err *err)
{
    char from[PATH_MAX];

    for (size_t i = 0; i < m->file.files.count; i++) {
        const struct template_pair *file = &m->file.files.at[i];
        if (find_file(m, file->value, from, err) < 0 ||
            build_put_file(&m->b, file->name, from, err) < 0)
            return -1;
    }
    return 0;
}

static json_t *packages_json(const struct template_packages *packages, const char *version,
                             json_t *locked)
{
    json_t *list = json_array();

    for (size_t i = 0; i < packages->count; i++)
        json_array_append_new(list, json_string(packages->at[i]));
    return json_pack("{s:o, s:o*, s:s*}", "packages", list, "locked", json_incref(locked),
                     "version", version);
}

/* What the daemon keeps of it, beside the tree. */
static json_t *spec_of(const struct making *m)
{
    const struct template_file *f = &m->file;
    json_t *spec = json_object();
    json_t *files = json_array();
    json_t *env = json_object();

    if (f->python.wanted)
        json_object_set_new(spec, "python",
                            packages_json(&f->python, m->python_version, m->python.list));
    if (f->node.wanted)
        json_object_set_new(spec, "node", packages_json(&f->node, NULL, m->node.list));
    for (size_t i = 0; i < f->files.count; i++)
        json_array_append_new(files, json_string(f->files.at[i].name));
    json_object_set_new(spec, "files", files);
    for (size_t i = 0; i < f->env.count; i++)
        json_object_set_new(env, f->env.at[i].name, json_string(f->env.at[i].value));
    json_object_set_new(spec, "env", env);
    if (f->start)
        json_object_set_new(spec, "start", json_string(f->start));
    return spec;
}

static long ask_template(struct making *m, const char *name, json_t **ret)
{
    char path[128];

    snprintf(path, sizeof(path), "/v1/templates/%.64s", name);
    return build_look(&m->b, path, ret);
}

/* 1: it is there; 0: it is no more, or in the trash; -1: for now nobody can tell. */
static int look_at_workspace(struct making *m)
{
    struct buf path;
    json_t *now = NULL;

    client_workspace_path(&path, m->b.workspace, "");
    long status = buf_done(&path) == 0 ? build_look(&m->b, path.p, &now) : 0;
    bool there = status == 200 && json_is_null(json_object_get(now, "deleted"));
    buf_clear(&path);
    json_decref(now);
    return status == 0 ? -1 : there;
}

/* 1: it may still become one; 0: it is there. `id` is "" if the daemon could not say it. */
static int look_at_it(struct making *m, const char *id, struct err *err)
{
    json_t *now;
    int workspace = look_at_workspace(m); /* first: it ends at the instant the template begins */
    long status = ask_template(m, *id ? id : m->file.name, &now);
    const char *found = client_text(now, "id");
    const char *state = client_text(now, "state");
    bool ours = found && strcmp(found, m->before) != 0;
    bool freezing = ours && state && strcmp(state, "freezing") == 0;

    if (ours && !freezing) {
        json_decref(m->answer);
        m->answer = now;
        return 0;
    }
    json_decref(now);
    if (freezing || status == 0 || workspace < 0 || (workspace == 1 && !*id))
        return 1;
    m->undecided = false;
    return err_set(err, ERR_IO, 0,
                   "the daemon could not make the template of its workspace, and has taken that "
                   "back; its log says why. Build again");
}

/* The daemon has neither made it nor given it up, or could not say so. */
static int wait_for_it(struct making *m, struct err *err)
{
    const char *said = client_text(m->answer, "id");
    char id[65];
    int r = 1;

    snprintf(id, sizeof(id), "%s", said ? said : "");
    m->undecided = true; /* also when it cannot be asked */
    for (int waited = 0, pause = PAUSE_MS; r > 0 && waited < DECIDED_MS; waited += pause) {
        struct pollfd signals = {.fd = m->b.signal_fd, .events = POLLIN};
        pause = 2 * pause < MOST_PAUSE_MS ? 2 * pause : MOST_PAUSE_MS;
        (void)poll(&signals, 1, pause);
        r = build_stopped(&m->b, err);
        if (r == 0)
            r = look_at_it(m, id, err);
    }
    if (r > 0)
        return err_set(err, ERR_IO, 0,
                       "the daemon is not done with the template yet, and may still finish it; "
                       "look with: carrel template show %s",
                       *id ? id : m->file.name);
    return r;
}

static int keep_it(struct making *m, struct err *err)
{
    bool foreign_code_ran = m->file.python.build || m->file.node.build;
    json_t *now;
    bool answered = ask_template(m, m->file.name, &now) != 0;
    const char *before = client_text(now, "id");
    json_t *body = json_pack("{s:s, s:s, s:o, s:b}", "name", m->file.name, "workspace",
                             m->b.workspace, "spec", spec_of(m), "share_cache", !foreign_code_ran);
    char *text = json_dumps(body, JSON_COMPACT);

    snprintf(m->before, sizeof(m->before), "%s", before ? before : "");
    json_decref(now);
    json_decref(body);
    int r = !text       ? err_set(err, ERR_LIMIT, 0, "out of memory")
            : !answered ? err_set(err, ERR_IO, 0, "the daemon does not answer; build again")
                        : build_post(&m->b, "/v1/templates", text, &m->answer, err);
    free(text);
    if (r < 0)
        return -1;
    const char *state = client_text(m->answer, "state");
    return r > 0 || (state && strcmp(state, "freezing") == 0) ? wait_for_it(m, err) : 0;
}

/* The environments come before any package is there. */
static const struct {
    const char *name;
    bool (*wanted)(const struct making *);
    int (*run)(struct making *, struct err *);
} steps[] = {
    {"workspace", always, make_workspace},
    {"python", wants_python, make_python},
    {"node", wants_node, make_node},
    {"python packages", wants_python_packages, install_python},
    {"python bytecode", wants_python_packages, compile_python},
    {"node packages", wants_node_packages, install_node},
    {"files", wants_files, copy_files},
    {"template", always, keep_it},
};

enum {
    STEPS = sizeof(steps) / sizeof(steps[0])
};

static int run_steps(struct making *m, struct err *err)
{
    unsigned wanted = 0;
    unsigned number = 0;
    int r = 0;

    for (size_t i = 0; i < STEPS; i++)
        wanted += steps[i].wanted(m);
    for (size_t i = 0; r == 0 && i < STEPS; i++) {
        if (!steps[i].wanted(m))
            continue;
        build_begin(&m->b, steps[i].name, ++number, wanted);
        r = build_stopped(&m->b, err);
        if (r == 0)
            r = steps[i].run(m, err);
    }
    return r;
}

/* --- how it ends --- */

/* Whole or not at all; the template stands in either case. */
static void write_lock(const struct making *m, const struct lock *lock)
{
    char temporary[PATH_MAX + 16];
    char note[512];

    if (!lock->made)
        return;
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", lock->path);
    scoped_fd int fd = mkostemp(temporary, O_CLOEXEC);
    bool good = fd >= 0 && fchmod(fd, 0644) == 0 &&
                write(fd, lock->text.p, lock->text.n) == (ssize_t)lock->text.n && fsync(fd) == 0 &&
                rename(temporary, lock->path) == 0;
    if (good) {
        snprintf(note, sizeof(note), "the lock is in %.300s", lock->path);
        build_say(&m->b, note);
        return;
    }
    snprintf(note, sizeof(note), "no lock was written: %.300s: %s; another build resolves anew",
             lock->path, strerrordesc_np(errno));
    if (fd >= 0)
        (void)unlink(temporary);
    cli_say(note);
}

/* The workspace goes, with all that was done in it. */
static void clean_up(struct making *m)
{
    struct err unheard = {0};
    struct buf path;

    if (!m->b.workspace[0] || m->undecided)
        return;
    client_workspace_path(&path, m->b.workspace, "?purge=1");
    if (client_do(&m->b.f.daemon, "DELETE", &path, NULL, NULL, &unheard) < 0 &&
        unheard.code != ERR_NOT_FOUND) {
        char note[160];
        snprintf(
            note, sizeof(note),
            "the workspace of the build could not be removed; do it with: carrel ws rm --purge %s",
            m->b.workspace);
        cli_say(note);
    }
}

static int fail(struct making *m, struct err *err)
{
    char text[512];

    clean_up(m);
    if (m->b.stopped_by) {
        cli_say(m->undecided ? "stopped; the daemon may still finish the template"
                             : "stopped; nothing of the build is left");
        return 128 + m->b.stopped_by;
    }
    if (strstr(err->msg, "allow_net_host"))
        err_set(err, ERR_DENIED, 0,
                "packages come over the network, which the daemon gives to no workspace: start it "
                "with --set allow_net_host=yes, or build with --offline from what the shared cache "
                "holds");
    build_tell(&m->b,
               json_pack("{s:s, s:s, s:s}", "type", "error", "step", m->b.step ? m->b.step : "",
                         "message", err_text(err, text, sizeof(text))));
    return client_fail(err);
}

static int report(struct making *m)
{
    char size[TEXT_SHORT];
    char files[TEXT_SHORT];
    char line[256];

    write_lock(m, &m->python);
    write_lock(m, &m->node);
    if (m->b.json) {
        build_tell(&m->b, json_pack("{s:s, s:O}", "type", "end", "template", m->answer));
        return 0;
    }
    const char *count = client_number(m->answer, "files", files);
    text_bytes((uint64_t)json_integer_value(json_object_get(m->answer, "bytes")), size);
    snprintf(line, sizeof(line), "%s: %s file%s, %s\n", m->file.name, count ? count : "?",
             count && strcmp(count, "1") == 0 ? "" : "s", size);
    return cli_put(line);
}

static void clear(struct making *m)
{
    struct lock *locks[] = {&m->python, &m->node};

    for (size_t i = 0; i < 2; i++) {
        buf_clear(&locks[i]->text);
        json_decref(locks[i]->list);
    }
    json_decref(m->answer);
    arena_clear(&m->arena);
    build_close(&m->b);
}

int template_build(const struct template_options *o, const char *path)
{
    static struct making m;
    struct err err = {0};
    int r;

    m = (struct making){.o = o, .b.json = o->common.json, .b.quiet = o->quiet};
    m.b.f = (struct files){.common = o->common, .socket = -1};
    m.b.signal_fd = -1;
    r = read_template(&m, path, &err);
    if (r == 0)
        r = check_files(&m, &err);
    if (r == 0)
        r = check_locks(&m, &err);
    if (r == 0)
        r = build_open(&m.b, &err);
    if (r == 0)
        r = files_daemon(&m.b.f, &err);
    if (r == 0)
        r = run_steps(&m, &err);
    int status = r < 0 ? fail(&m, &err) : report(&m);
    clear(&m);
    return status;
}
